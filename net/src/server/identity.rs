//! Checks that a folder belongs to the server that is started on it.
//!
//! A member that runs alone begins an epoch of its own. Back in its ensemble it would have the newest
//! history, and what the others had acknowledged meanwhile would be truncated. So a folder remembers the
//! voters of its ensemble. A start that does not fit is refused, with the command that does it on purpose.

use std::path::PathBuf;

use ringkeeper_engine::zab::{ServerSet, majorities_meet};
use ringkeeper_log::error::FatalError;
use ringkeeper_log::meta::{Meta, MetaStore, PersistedEpochs};
use ringkeeper_log::storage::Storage;
use ringkeeper_wire::{Epoch, ServerId};

use crate::config::Config;

/// The id of a server alone whose folder has none yet.
const ALONE: ServerId = ServerId(1);

/// The role in which a server is started.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    /// Its id; a server alone uses that of its folder.
    id: Option<ServerId>,
    /// The voters of the ensemble; none for a server alone.
    voters: ServerSet,
}

/// Why a server cannot be started on a folder.
#[derive(Debug, thiserror::Error)]
pub(crate) enum IdentityError {
    #[error(
        "{folder} belongs to {is}, and is started as server {wanted} (myid says so): the server would answer for \
         promises that another one made; give server {wanted} a folder of its own, the ensemble fills an empty one"
    )]
    OtherMember { folder: PathBuf, is: String, wanted: ServerId },
    #[error(
        "{folder} belongs to {is}, and is started as a server alone: what the other members acknowledge meanwhile \
         would be missing here, and would be lost if the folder went back to them; start it with the ensemble's \
         configuration (--config), or make it a server alone for good with `{command}`"
    )]
    Alone { folder: PathBuf, is: String, command: String },
    #[error(
        "{folder} belongs to {is}, and is started as a member of {wanted}: a majority of the one knows nothing of \
         a majority of the other, so what either acknowledges could be lost; add or remove one server at a time, \
         or do it at once, with all servers stopped, by `ringkeeper folder adopt --config` with the file of each"
    )]
    OtherVoters { folder: PathBuf, is: String, wanted: String },
}

impl Wanted {
    /// The role by the configuration.
    pub(crate) fn of(config: &Config) -> Self {
        Self {
            id: config.my_id.map(ServerId),
            voters: config.voters().map(|server| ServerId(server.id)).collect(),
        }
    }

    fn is_alone(&self) -> bool {
        self.voters.is_empty()
    }

    /// The id and the voters of the server on a folder with this `meta`.
    pub(crate) fn resolve(&self, meta: Option<&Meta>) -> (ServerId, ServerSet) {
        let id = self.id.or_else(|| meta.map(|meta| meta.server_id)).unwrap_or(ALONE);
        let alone = [id].into_iter().collect();
        (id, if self.is_alone() { alone } else { self.voters })
    }

    /// Whether a folder with this `meta` can be used in this role; `command` is the command that adapts the
    /// folder.
    ///
    /// # Errors
    /// It belongs to something else.
    pub(crate) fn check(
        &self,
        meta: Option<&Meta>,
        folder: impl FnOnce() -> PathBuf,
        command: impl FnOnce() -> String,
    ) -> Result<(), IdentityError> {
        let Some(meta) = meta else { return Ok(()) };
        let (id, wanted) = self.resolve(Some(meta));
        let is = Belongs(meta);
        if id != meta.server_id {
            return Err(IdentityError::OtherMember { folder: folder(), is: is.to_string(), wanted: id });
        }
        let voters = ServerSet::from_words(meta.promises.voters);
        let fits = if voters.is_empty() {
            // The folder is an import, or older than the record of voters: a server alone had id 1 then.
            !self.is_alone() || id == ALONE
        } else {
            majorities_meet(&voters, &wanted)
        };
        if fits || is_new(&meta.promises) {
            return Ok(());
        }
        let (folder, is) = (folder(), is.to_string());
        Err(if self.is_alone() {
            IdentityError::Alone { folder, is, command: command() }
        } else {
            IdentityError::OtherVoters { folder, is, wanted: ensemble_of(&wanted) }
        })
    }

    /// Records id and voters in a folder that has none. Later changes are recorded when the server has served
    /// in its new role.
    ///
    /// # Errors
    /// The disk fails, or is full.
    pub(crate) async fn record<S: Storage>(&self, store: &mut MetaStore<S>) -> Result<(), FatalError> {
        let (_, voters) = self.resolve(Some(store.meta()));
        let known = store.meta().promises.voters != [0; 4] && !is_new(&store.meta().promises);
        if known {
            return Ok(());
        }
        store.promise(PersistedEpochs { voters: voters.words(), ..store.meta().promises }).await
    }
}

/// Whether nothing was ever promised with this folder, so that no other server relies on it.
fn is_new(promises: &PersistedEpochs) -> bool {
    promises.accepted_epoch == Epoch(0) && promises.cluster == 0
}

/// The owner of a folder, as a part of a sentence.
pub(crate) struct Belongs<'a>(pub(crate) &'a Meta);

impl std::fmt::Display for Belongs<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let id = self.0.server_id;
        let voters = ServerSet::from_words(self.0.promises.voters);
        if voters.is_empty() {
            write!(f, "server {id} (of which ensemble is not known)")
        } else if voters.iter().eq([id]) {
            write!(f, "server {id}, alone")
        } else {
            write!(f, "member {id} of {}", ensemble_of(&voters))
        }
    }
}

/// `an ensemble of the servers 1, 2 and 3`.
pub(crate) fn ensemble_of(voters: &ServerSet) -> String {
    let ids: Vec<_> = voters.iter().map(|id| id.to_string()).collect();
    match ids.split_last() {
        Some((last, [])) => format!("an ensemble of server {last}"),
        Some((last, rest)) => format!("an ensemble of the servers {} and {last}", rest.join(", ")),
        None => "no ensemble".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(server_id: u64, voters: &[u64], accepted_epoch: u32) -> Meta {
        let voters: ServerSet = voters.iter().copied().map(ServerId).collect();
        let cluster = u64::from(accepted_epoch);
        let promises = PersistedEpochs {
            voters: voters.words(),
            accepted_epoch: Epoch(accepted_epoch),
            cluster,
            ..PersistedEpochs::default()
        };
        Meta { server_id: ServerId(server_id), salt: 0, promises }
    }

    fn check(id: Option<u64>, voters: &[u64], folder: &Meta) -> Result<(), String> {
        let wanted = Wanted { id: id.map(ServerId), voters: voters.iter().copied().map(ServerId).collect() };
        let checked = wanted.check(Some(folder), || "F".into(), || "C".to_owned());
        checked.map_err(|error| error.to_string())
    }

    #[test]
    fn a_folder_is_used_as_what_it_is() {
        assert_eq!(check(None, &[], &meta(1, &[1], 7)), Ok(()));
        assert_eq!(check(None, &[], &meta(2, &[2], 7)), Ok(()), "a server alone goes by its folder");
        assert_eq!(check(Some(2), &[1, 2, 3], &meta(2, &[1, 2, 3], 7)), Ok(()));
    }

    #[test]
    fn a_members_folder_is_not_started_alone_nor_under_another_number_nor_in_another_ensemble() {
        let folder = meta(2, &[1, 2, 3], 7);
        let alone = check(None, &[], &folder).expect_err("a member");
        assert!(
            alone.starts_with(
                "F belongs to member 2 of an ensemble of the servers 1, 2 and 3, and is started as a server alone"
            ),
            "{alone}"
        );
        let other = check(Some(3), &[1, 2, 3], &folder).expect_err("another number");
        assert!(other.contains("is started as server 3"), "{other}");
        let grown = check(Some(2), &[1, 2, 3, 4, 5], &folder).expect_err("two more");
        assert!(grown.contains("a member of an ensemble of the servers 1, 2, 3, 4 and 5"), "{grown}");
        assert!(check(Some(2), &[2, 7, 8], &folder).is_err(), "two of three are others");
        assert!(check(Some(1), &[1, 2, 3], &meta(1, &[1], 7)).is_err(), "the two others could do without it");
    }

    #[test]
    fn one_voter_may_be_added_or_removed_and_what_nothing_rests_on_is_free() {
        let folder = meta(2, &[1, 2, 3], 7);
        assert_eq!(check(Some(2), &[1, 2, 3, 4], &folder), Ok(()));
        assert_eq!(check(Some(2), &[1, 2], &folder), Ok(()));
        assert_eq!(check(None, &[], &meta(1, &[1, 2, 3], 0)), Ok(()), "it has promised nothing");
        assert_eq!(check(None, &[], &meta(1, &[], 7)), Ok(()), "made before voters were remembered");
        assert_eq!(check(Some(3), &[1, 2, 3], &meta(3, &[], 7)), Ok(()), "a member of that time");
        let imported = check(None, &[], &meta(3, &[], 7)).expect_err("a server alone would be server 1");
        assert!(imported.starts_with("F belongs to server 3 (of which ensemble is not known)"), "{imported}");
    }
}
