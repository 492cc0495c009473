//! The epochs that a server of Apache ZooKeeper has promised, in files of their own since 3.4.

use std::fs;
use std::io;
use std::path::Path;

use crate::error::{Fault, Flaw, ReadError};

/// What a server has promised (Zab, discovery and synchronization phases).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Epochs {
    /// No leader of an earlier epoch is followed.
    pub accepted: u32,
    /// The last epoch whose leader's history was taken over.
    pub current: u32,
}

impl Epochs {
    /// Reads `acceptedEpoch` and `currentEpoch`, which a server that stands alone does not have: then, and if
    /// they say less than they can, the epoch of its last transaction, `zxid`, counts.
    pub(crate) fn read(folder: &Path, zxid: i64) -> Result<Self, ReadError> {
        let last = u32::try_from(zxid >> 32).unwrap_or_default();
        let current = last.max(read(&folder.join("currentEpoch"))?);
        let accepted = current.max(read(&folder.join("acceptedEpoch"))?);
        Ok(Self { accepted, current })
    }
}

fn read(file: &Path) -> Result<u32, ReadError> {
    let failed = |error| Flaw { offset: 0, what: Fault::Io(error) }.in_file(file);
    match fs::read_to_string(file) {
        Ok(text) => text.trim().parse().map_err(|_| failed(io::Error::other("not the number of an epoch"))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(failed(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epochs_are_at_least_that_of_the_last_transaction() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let read = |zxid| Epochs::read(folder.path(), zxid).expect("sound");
        assert_eq!(read(0x3_0000_0007), Epochs { accepted: 3, current: 3 });
        fs::write(folder.path().join("acceptedEpoch"), "5\n").expect("written");
        fs::write(folder.path().join("currentEpoch"), "4").expect("written");
        assert_eq!(read(0x3_0000_0007), Epochs { accepted: 5, current: 4 });
        assert_eq!(read(0x6_0000_0000), Epochs { accepted: 6, current: 6 });
    }

    #[test]
    fn a_damaged_epoch_is_an_error() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        fs::write(folder.path().join("currentEpoch"), "x").expect("written");
        let error = Epochs::read(folder.path(), 0).expect_err("no number").to_string();
        assert!(error.ends_with("currentEpoch: not the number of an epoch at byte 0"), "{error}");
    }
}
