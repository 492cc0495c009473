//! Folders of a state from a backup: the members of a new ensemble.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ringkeeper_engine::state::State;
use ringkeeper_engine::zab::leaves_epochs;
use ringkeeper_log::frame::Checksum;

use super::draft::{Draft, write_durably};
use super::target::{History, Target};
use super::{ALONE, MY_ID, MigrateError, random, run};

/// The members to be, each with its folder. `None` is a server alone.
pub(crate) type Members = Vec<(Option<u64>, PathBuf)>;

/// The number of the ensemble to be, from what the operator or chance has chosen: members with other states
/// have another one.
pub(crate) fn ensemble_of(chosen: u64, state: &State) -> u64 {
    let mixed = chosen ^ state.digest().rotate_left(17) ^ state.last_zxid().0;
    mixed.max(1)
}

/// Writes the folders, which have to be empty or missing.
///
/// # Errors
/// A folder cannot be made or is in the store, or the epochs are used up. Nothing is left of it then.
pub(crate) fn write_members(
    members: &Members,
    state: &Arc<State>,
    ensemble: u64,
    store: &Path,
) -> Result<(), MigrateError> {
    let epoch = state.last_zxid().epoch();
    let [a, b, c, d, ..] = ensemble.to_le_bytes();
    let chain = Checksum(u32::from_le_bytes([a, b, c, d]));
    let history = History { cluster: ensemble, chain, accepted: epoch, current: epoch };
    // The newest is dropped first, since it may be in a folder that was made for the first.
    let mut drafts = VecDeque::new();
    for (my_id, folder) in members {
        if !leaves_epochs(epoch) {
            return Err(MigrateError::Epoch { folder: folder.clone(), epoch: epoch.0 });
        }
        let draft = Draft::begin(folder, &[store], *my_id)?;
        write_member(draft.path(), *my_id, state, history)?;
        drafts.push_front(draft);
    }
    // All of them are there before one of them can be started.
    Draft::finish(drafts.make_contiguous())
}

fn write_member(
    folder: &Path,
    my_id: Option<u64>,
    state: &Arc<State>,
    history: History,
) -> Result<(), MigrateError> {
    let target = Target { data: folder, log: folder, server_id: my_id.unwrap_or(ALONE), salt: random()? };
    run(target.write(state, history))?;
    let Some(my_id) = my_id else { return Ok(()) };
    let file = folder.join(MY_ID);
    write_durably(&file, &format!("{my_id}\n"))
        .map_err(|source| MigrateError::Target { folder: file, source })
}
