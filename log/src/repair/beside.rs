//! A second folder inside of a folder: the same files with a prefix.

use std::io;

use crate::storage::{Storage, WriteMode};

/// What the names of its files begin with.
pub(super) const PREFIX: &str = "repair.";

/// The files of a folder whose names begin with [`PREFIX`], without it.
#[derive(Clone)]
pub(super) struct Beside<S>(pub(super) S);

fn inside(name: &str) -> String {
    format!("{PREFIX}{name}")
}

impl<S: Storage> Beside<S> {
    /// Moves a file out, under the name that it has in here.
    pub(super) async fn reveal(&self, name: &str) -> io::Result<()> {
        self.0.rename(&inside(name), name).await
    }
}

impl<S: Storage> Storage for Beside<S> {
    type File = S::File;

    async fn list(&self) -> io::Result<Vec<String>> {
        let names = self.0.list().await?;
        Ok(names.iter().filter_map(|name| name.strip_prefix(PREFIX)).map(str::to_owned).collect())
    }

    async fn create(&self, name: &str, mode: WriteMode) -> io::Result<S::File> {
        self.0.create(&inside(name), mode).await
    }

    async fn open(&self, name: &str, mode: WriteMode) -> io::Result<S::File> {
        self.0.open(&inside(name), mode).await
    }

    async fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.0.rename(&inside(from), &inside(to)).await
    }

    async fn remove(&self, name: &str) -> io::Result<()> {
        self.0.remove(&inside(name)).await
    }

    async fn sync_dir(&self) -> io::Result<()> {
        self.0.sync_dir().await
    }

    async fn free_bytes(&self) -> io::Result<u64> {
        self.0.free_bytes().await
    }
}
