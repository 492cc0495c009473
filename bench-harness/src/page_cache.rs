//! Starts are compared from a cold page cache: files that were written or copied just before lie in memory,
//! where a system that reads through the cache finds them and one that reads past it does not.

use std::fmt;
use std::fs;
use std::io;

use anyhow::{Result, ensure};

/// Where the kernel takes the order to let go of clean pages, of directories and of inodes.
const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";

/// Pages, directories and inodes.
const ALL: &str = "3";

/// What became of the page cache before a timed start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PageCache {
    /// Empty but for what the kernel cannot let go of.
    Dropped,
    /// Left as it was, for the reason given.
    Kept(io::ErrorKind),
}

impl PageCache {
    /// Writes back what is dirty, then empties the cache of the whole machine, if this process may do that.
    pub(crate) fn drop_all() -> Self {
        rustix::fs::sync();
        match fs::write(DROP_CACHES, ALL) {
            Ok(()) => Self::Dropped,
            Err(error) => Self::Kept(error.kind()),
        }
    }

    /// Once more, where it could be done the first time, so that all starts are alike.
    ///
    /// # Errors
    /// It cannot be done any more.
    pub(crate) fn drop_again(self) -> Result<()> {
        if self == Self::Dropped {
            let now = Self::drop_all();
            ensure!(now == self, "the page cache is {now}, and was {self}: the starts are not alike");
        }
        Ok(())
    }
}

impl fmt::Display for PageCache {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dropped => {
                write!(out, "dropped before each timed start (sync, then {ALL} into {DROP_CACHES})")
            }
            Self::Kept(why) => {
                write!(out, "warm at each timed start: {DROP_CACHES} cannot be written ({why})")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_says_whether_starts_were_cold() {
        assert!(PageCache::Dropped.to_string().starts_with("dropped before each timed start"));
        let kept = PageCache::Kept(io::ErrorKind::PermissionDenied).to_string();
        assert!(kept.starts_with("warm at each timed start") && kept.contains("permission denied"), "{kept}");
    }
}
