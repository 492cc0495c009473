//! Configurations that are read again when their files change.

use std::fmt;
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
    /// Why the files cannot be used that came after those of `config`.
    failure: Option<String>,
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
        let current = Mutex::new(Current { config: Arc::new(read()?), versions, failure: None });
        Ok(Self { read: Box::new(read), files, current })
    }

    /// What was read last.
    pub fn config(&self) -> Arc<C> {
        Arc::clone(&self.current().config)
    }

    /// Reads the stores again if a file of theirs has changed, or if they could not be used when they were
    /// read last; whether they were read. Stores that cannot be used leave the last ones in place.
    ///
    /// # Errors
    /// The changed stores cannot be used. Told once, until a file changes or the reason does.
    pub fn reload_changed(&self) -> Result<bool, E>
    where
        E: fmt::Display,
    {
        let versions = FileVersions::of(self.files.iter().map(PathBuf::as_path));
        let is_changed = {
            let current = self.current();
            let is_changed = versions != current.versions;
            if !is_changed && current.failure.is_none() {
                return Ok(false);
            }
            is_changed
        };
        let read = (self.read)();
        let mut current = self.current();
        current.versions = versions;
        let config = match read {
            Ok(config) => config,
            Err(error) => {
                let last = current.failure.replace(error.to_string());
                let is_told = !is_changed && last == current.failure;
                return if is_told { Ok(false) } else { Err(error) };
            }
        };
        current.failure = None;
        current.config = Arc::new(config);
        Ok(true)
    }

    fn current(&self) -> MutexGuard<'_, Current<C>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_whose_mode_was_changed_is_read_again() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let path = file.path().to_owned();
        let mode = move || Ok::<_, Error>(fs::metadata(&path).expect("there").permissions().mode() & 0o777);
        let stores = Stores::open(vec![file.path().to_owned()], mode).expect("read");
        assert!(!stores.reload_changed().expect("read"));
        // A change within one tick of the file system's clock would have the same time.
        while !stores.reload_changed().expect("read") {
            fs::set_permissions(file.path(), Permissions::from_mode(0o640)).expect("changed");
        }
        assert_eq!(*stores.config(), 0o640);
    }

    #[test]
    fn what_could_not_be_read_is_tried_again_and_each_reason_is_told_once() {
        let reason = Arc::new(Mutex::new(None::<&str>));
        let fails = Arc::clone(&reason);
        let read = move || fails.lock().expect("not poisoned").map_or(Ok(()), Err);
        let file = tempfile::NamedTempFile::new().expect("a file");
        let stores = Stores::open(vec![file.path().to_owned()], read).expect("read");
        let reload = |now| {
            *reason.lock().expect("not poisoned") = now;
            stores.reload_changed()
        };
        assert_eq!(reload(Some("not looked at")), Ok(false));
        fs::write(file.path(), "changed").expect("written");
        assert_eq!(reload(Some("one")), Err("one"));
        assert_eq!(reload(Some("one")), Ok(false));
        assert_eq!(reload(Some("other")), Err("other"));
        fs::write(file.path(), "changed again").expect("written");
        assert_eq!(reload(Some("other")), Err("other"));
        assert_eq!([reload(None), reload(None)], [Ok(true), Ok(false)]);
    }
}
