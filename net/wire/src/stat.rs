use crate::Record;
use crate::jute::{self, DecodeError, Reader};

/// A znode's metadata as clients see it (`zookeeper.jute`, Stat: 68 bytes on the wire).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// Zxid of the transaction that created the znode.
    pub czxid: i64,
    /// Zxid of the transaction that last set its data.
    pub mzxid: i64,
    /// Creation time, milliseconds since the Unix epoch, the leader's clock.
    pub ctime: i64,
    /// Time of the last setData, milliseconds since the Unix epoch, the leader's clock.
    pub mtime: i64,
    /// Number of setData calls so far (wraps).
    pub version: i32,
    /// Creations plus deletions of children, as the client sees it.
    pub cversion: i32,
    /// Number of setACL calls so far (wraps).
    pub aversion: i32,
    /// The owning session of an ephemeral znode; 0 for every other kind, container and TTL included.
    pub ephemeral_owner: i64,
    /// Length of the data in bytes; null data counts 0.
    pub data_length: i32,
    /// Number of direct children.
    pub num_children: i32,
    /// Zxid of the last creation or deletion of a child, or the znode's own creation.
    pub pzxid: i64,
}

impl Stat {
    /// Encoded size in bytes.
    pub const LEN: usize = 68;
}

impl Record<'_> for Stat {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            czxid: reader.read_i64()?,
            mzxid: reader.read_i64()?,
            ctime: reader.read_i64()?,
            mtime: reader.read_i64()?,
            version: reader.read_i32()?,
            cversion: reader.read_i32()?,
            aversion: reader.read_i32()?,
            ephemeral_owner: reader.read_i64()?,
            data_length: reader.read_i32()?,
            num_children: reader.read_i32()?,
            pzxid: reader.read_i64()?,
        })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        // One growth check for the eleven fields.
        out.reserve(Self::LEN);
        jute::put_i64(out, self.czxid);
        jute::put_i64(out, self.mzxid);
        jute::put_i64(out, self.ctime);
        jute::put_i64(out, self.mtime);
        jute::put_i32(out, self.version);
        jute::put_i32(out, self.cversion);
        jute::put_i32(out, self.aversion);
        jute::put_i64(out, self.ephemeral_owner);
        jute::put_i32(out, self.data_length);
        jute::put_i32(out, self.num_children);
        jute::put_i64(out, self.pzxid);
    }
}
