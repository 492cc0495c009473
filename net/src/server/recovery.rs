//! The server's folder: claimed for this process, and turned back into a state.

use std::path::{Path, PathBuf};

use ringkeeper_engine::state::State;
use ringkeeper_engine::txn;
use ringkeeper_log::memory::{MemoryDisk, MemoryStorage};
use ringkeeper_log::wal::{Options, Wal};
use ringkeeper_log::Identity;
use ringkeeper_wire::Epoch;

use crate::config::Config;

#[derive(Debug, thiserror::Error)]
pub(crate) enum FolderError {
    #[error(transparent)]
    Open(#[from] ringkeeper_log::error::OpenError),
}

pub(crate) struct Folder {
    data_dir: PathBuf,
    log_dir: PathBuf,
}

pub(crate) struct Recovered {
    pub(crate) state: State,
    pub(crate) wal: Wal<MemoryStorage>,
    pub(crate) epoch: Epoch,
}

impl Folder {
    pub(crate) fn claim(config: &Config) -> Result<Self, FolderError> {
        Ok(Self { data_dir: config.data_dir.clone(), log_dir: config.log_dir().to_owned() })
    }

    pub(crate) fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    pub(crate) fn log_dir(&self) -> &Path {
        &self.log_dir
    }

    pub(crate) async fn recover(&self, seed: u64) -> Result<Recovered, FolderError> {
        let mut state = State::new(seed);
        let identity = Identity { owner: [0; 32], salt: 1 };
        let (wal, _) = Wal::open(MemoryDisk::new().storage(), Options::new(identity), |frame| {
            for txn in txn::decode_batch(frame.payload())? {
                state.apply(&txn);
            }
            Ok(())
        })
        .await?;
        let epoch = Epoch(state.last_zxid().epoch().0 + 1);
        Ok(Recovered { state, wal, epoch })
    }
}
