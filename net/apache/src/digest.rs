//! Apache's digest of a tree (`DigestCalculator`, version 2): what its servers compare with each other, and
//! what we compare our replay with.

use ringkeeper_engine::path;

use crate::tree::Stat;

/// The version that 3.6 and later write.
pub(crate) const VERSION: i32 = 2;

/// Znodes under this path do not count: the use of quotas is counted by each server for itself.
const LEFT_OUT: &str = "/zookeeper/";

/// A znode's part of the sum.
pub(crate) fn of_znode(path: &str, data: Option<&[u8]>, stat: &Stat) -> u64 {
    if path.starts_with(LEFT_OUT) {
        return 0;
    }
    let mut crc = crc32fast::Hasher::new();
    if path != path::ROOT {
        crc.update(path.as_bytes());
    }
    crc.update(data.unwrap_or_default());
    for word in [stat.czxid, stat.mzxid, stat.pzxid, stat.ctime, stat.mtime] {
        crc.update(&word.to_be_bytes());
    }
    for word in [stat.version, stat.cversion, stat.aversion] {
        crc.update(&word.to_be_bytes());
    }
    crc.update(&stat.owner.to_be_bytes());
    u64::from(crc.finalize())
}
