//! Configurations that are read again when their files change.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::Error;
use crate::versions::FileVersions;

/// What was read from stores, and how it is read again.
pub struct Stores<C, E = Error> {
    read: Box<dyn Fn() -> Result<C, E> + Send + Sync>,
    files: Vec<PathBuf>,
    current: Mutex<Current<C>>,
}

struct Current<C> {
    config: Arc<C>,
    versions: FileVersions,
}

impl<C, E> Stores<C, E> {
    /// Reads the stores, which are in these files.
    ///
    /// # Errors
    /// Those of `read`.
    pub fn open(
        files: Vec<PathBuf>,
        read: impl Fn() -> Result<C, E> + Send + Sync + 'static,
    ) -> Result<Self, E> {
        // A file that changes while it is read is read again.
        let versions = FileVersions::of(files.iter().map(PathBuf::as_path));
        let current = Mutex::new(Current { config: Arc::new(read()?), versions });
        Ok(Self { read: Box::new(read), files, current })
    }

    /// What was read last.
    pub fn config(&self) -> Arc<C> {
        Arc::clone(&self.current().config)
    }

    /// Reads the stores again if a file of theirs has changed; whether one has. Stores that cannot be used
    /// leave the last ones in place.
    ///
    /// # Errors
    /// The changed stores cannot be used.
    pub fn reload_changed(&self) -> Result<bool, E> {
        let versions = FileVersions::of(self.files.iter().map(PathBuf::as_path));
        if versions == self.current().versions {
            return Ok(false);
        }
        let read = (self.read)();
        let mut current = self.current();
        current.versions = versions;
        current.config = Arc::new(read?);
        Ok(true)
    }

    fn current(&self) -> MutexGuard<'_, Current<C>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
