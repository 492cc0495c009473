//! Whether a folder belongs to the server that is started on it.
//!
//! A member that runs alone begins an epoch of its own. Back in its ensemble it would have the newest
//! history, and what the others had acknowledged meanwhile would be truncated. A server on the folder of
//! another member would answer for promises that it has not made. So a folder remembers its server and the
//! voters of its ensemble, and a start that does not fit is refused.

use std::fmt;

use ringkeeper_engine::zab::{Majority, NAMED_BY_LOG, Quorum, ServerSet, majorities_meet};
use ringkeeper_log::error::FatalError;
use ringkeeper_log::meta::{Meta, MetaStore, PersistedEpochs};
use ringkeeper_log::mutation::planted;
use ringkeeper_log::storage::Storage;
use ringkeeper_wire::{Epoch, ServerId};

/// The id of a server alone whose folder has none yet.
pub const ALONE: ServerId = ServerId(1);

/// Whose data a folder has. The numbers are kept in folders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FolderOf {
    /// The server that speaks Apache ZooKeeper's protocol.
    Server = 1,
    /// A program with the broadcast library.
    Library = 2,
}

impl FolderOf {
    const fn number(self) -> u32 {
        self as u32
    }
}

impl fmt::Display for FolderOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Server => "a ringkeeper server",
            Self::Library => "a program with the broadcast library",
        })
    }
}

/// The role in which a server is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// What it is a server of.
    pub application: FolderOf,
    /// Its id; a server alone may leave that to its folder.
    pub id: Option<ServerId>,
    /// The voters of the ensemble; none for a server alone.
    pub voters: ServerSet,
    /// Tells their groups and weights apart; 0 if majorities of them decide.
    pub groups: u64,
}

/// Why a server is not started on a folder.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    /// The data is another application's.
    #[error("its data is not that of {wanted}")]
    OtherApplication {
        /// What is started.
        wanted: FolderOf,
    },
    /// The server would answer for promises that another one made.
    #[error("it belongs to {owner}, and is started as server {wanted}")]
    OtherMember {
        /// Whose folder it is.
        owner: Owner,
        /// The server.
        wanted: ServerId,
    },
    /// What the other members acknowledge meanwhile would be lost if the folder went back to them.
    #[error("it belongs to {owner}, and is started as a server alone")]
    Alone {
        /// Whose folder it is.
        owner: Owner,
    },
    /// A majority of the one list could decide without any server of a majority of the other one, or former
    /// voters that the new list lacks could form a majority of another new one; or the voters stand in other
    /// groups.
    #[error("it belongs to {owner}, and is started as a member of {wanted}")]
    OtherVoters {
        /// Whose folder it is.
        owner: Owner,
        /// The ensemble of the start.
        wanted: Box<EnsembleOf>,
    },
}

impl Wanted {
    fn is_alone(&self) -> bool {
        self.voters.is_empty()
    }

    /// The id and the voters of the server on a folder with this `meta`.
    #[must_use]
    pub fn resolve(&self, meta: Option<&Meta>) -> (ServerId, ServerSet) {
        let id = self.id.or_else(|| meta.map(|meta| meta.server_id)).unwrap_or(ALONE);
        let alone = [id].into_iter().collect();
        (id, if self.is_alone() { alone } else { self.voters })
    }

    /// Whether a folder with this `meta` can be used in this role.
    ///
    /// # Errors
    /// It belongs to something else.
    pub fn check(&self, meta: Option<&Meta>) -> Result<(), Mismatch> {
        let Some(meta) = meta else { return Ok(()) };
        let (id, wanted) = self.resolve(Some(meta));
        let owner = Owner::of(meta);
        if meta.application != 0 && meta.application != self.application.number() {
            return Err(Mismatch::OtherApplication { wanted: self.application });
        }
        if id != owner.server {
            refuse(Mismatch::OtherMember { owner, wanted: id }, planted!(OtherMemberUnchecked))?;
        }
        let fits = if owner.is_named_by_log() {
            // What the configuration says does not matter, if only it is a member's.
            !self.is_alone()
        } else if owner.voters.is_empty() {
            // The folder is an import, or older than the record of voters: a server alone had id 1 then.
            !self.is_alone() || id == ALONE
        } else if self.groups > 0 || owner.groups > 0 {
            // Whether all quorums of two systems with groups meet takes long to find out: only the same ones
            // are known to.
            (wanted, self.groups) == (owner.voters, owner.groups)
        } else {
            // With less than a majority of the former voters, the others may have left it behind, too: each
            // of two servers could go on alone.
            majorities_meet(&owner.voters, &wanted) && Majority::new(owner.voters).is_quorum(&wanted)
        };
        if fits || is_new(&meta.promises) {
            Ok(())
        } else if self.is_alone() {
            refuse(Mismatch::Alone { owner }, planted!(AloneUnchecked))
        } else {
            refuse(
                Mismatch::OtherVoters {
                    owner,
                    wanted: Box::new(EnsembleOf { voters: wanted, groups: self.groups }),
                },
                planted!(OtherVotersUnchecked),
            )
        }
    }

    /// Records application and voters in a folder that has none. Later changes are recorded when the server
    /// has served in its new role.
    ///
    /// # Errors
    /// The disk fails, or is full.
    pub async fn record<S: Storage>(&self, store: &mut MetaStore<S>) -> Result<(), FatalError> {
        let (_, voters) = self.resolve(Some(store.meta()));
        let kept = &store.meta().promises;
        let known = kept.voters != [0; 4] && !is_new(kept);
        let (voters, groups) = if known { (kept.voters, kept.groups) } else { (voters.words(), self.groups) };
        store.record_owner(self.application.number(), voters, groups).await
    }
}

/// Refuses, unless the check that has found this is left out.
fn refuse(mismatch: Mismatch, unchecked: bool) -> Result<(), Mismatch> {
    if unchecked { Ok(()) } else { Err(mismatch) }
}

/// Whether nothing was ever promised with this folder, so that no other server relies on it.
fn is_new(promises: &PersistedEpochs) -> bool {
    promises.accepted_epoch == Epoch(0) && promises.cluster == 0
}

/// The owner of a folder; displayed as a part of a sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    server: ServerId,
    /// None while not known.
    voters: ServerSet,
    groups: u64,
}

impl Owner {
    /// The owner of the folder with this `meta`.
    #[must_use]
    pub fn of(meta: &Meta) -> Self {
        let PersistedEpochs { voters, groups, .. } = meta.promises;
        Self { server: meta.server_id, voters: ServerSet::from_words(voters), groups }
    }

    /// Whether the log says who belongs to its ensemble.
    #[must_use]
    pub fn is_named_by_log(&self) -> bool {
        self.voters.contains(NAMED_BY_LOG)
    }

    /// The voters, if the log names them.
    #[must_use]
    pub fn voters_by_log(&self) -> Option<ServerSet> {
        let mut voters = self.voters;
        voters.remove(NAMED_BY_LOG);
        self.is_named_by_log().then_some(voters)
    }

    /// Whether there are other voters, if the log says who votes.
    #[must_use]
    pub fn has_voting_peers(&self) -> Option<bool> {
        self.voters_by_log().map(|voters| voters.iter().any(|id| id != self.server))
    }

    /// Whether it is a server without others.
    #[must_use]
    pub fn is_alone(&self) -> bool {
        self.voters.iter().eq([self.server])
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { server, voters, groups } = self;
        if voters.is_empty() {
            write!(f, "server {server} (of which ensemble is not known)")
        } else if self.is_alone() {
            write!(f, "server {server}, alone")
        } else {
            let mut voters = *voters;
            voters.remove(NAMED_BY_LOG);
            write!(f, "member {server} of {}", EnsembleOf { voters, groups: *groups })
        }
    }
}

/// Displayed as `an ensemble of the servers 1, 2 and 3`, and by a number for their groups if they have any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnsembleOf {
    /// The voters.
    pub voters: ServerSet,
    /// As [`Wanted::groups`].
    pub groups: u64,
}

impl fmt::Display for EnsembleOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids: Vec<_> = self.voters.iter().map(|id| id.to_string()).collect();
        match ids.split_last() {
            Some((last, [])) => write!(f, "an ensemble of server {last}"),
            Some((last, rest)) => write!(f, "an ensemble of the servers {} and {last}", rest.join(", ")),
            None => f.write_str("no ensemble"),
        }?;
        if self.groups > 0 { write!(f, " in groups with the fingerprint {:x}", self.groups) } else { Ok(()) }
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
        Meta { server_id: ServerId(server_id), salt: 0, application: 0, promises }
    }

    fn wanted(id: Option<u64>, voters: &[u64]) -> Wanted {
        let voters = voters.iter().copied().map(ServerId).collect();
        Wanted { application: FolderOf::Server, id: id.map(ServerId), voters, groups: 0 }
    }

    fn check(id: Option<u64>, voters: &[u64], folder: &Meta) -> Result<(), String> {
        wanted(id, voters).check(Some(folder)).map_err(|error| error.to_string())
    }

    #[test]
    fn a_folder_serves_one_application_alone() {
        let of = |application| Meta { application, ..meta(2, &[1, 2, 3], 7) };
        let [server, library] = [FolderOf::Server, FolderOf::Library].map(FolderOf::number);
        assert_eq!(check(Some(2), &[1, 2, 3], &of(server)), Ok(()));
        let refused = check(Some(2), &[1, 2, 3], &of(library)).expect_err("the library's");
        assert_eq!(refused, "its data is not that of a ringkeeper server");
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
        assert_eq!(
            alone,
            "it belongs to member 2 of an ensemble of the servers 1, 2 and 3, and is started as a server alone"
        );
        let other = check(Some(3), &[1, 2, 3], &folder).expect_err("another number");
        assert!(other.ends_with("is started as server 3"), "{other}");
        let grown = check(Some(2), &[1, 2, 3, 4, 5], &folder).expect_err("two more");
        assert!(grown.ends_with("a member of an ensemble of the servers 1, 2, 3, 4 and 5"), "{grown}");
        assert!(check(Some(2), &[2, 7, 8], &folder).is_err(), "two of three are others");
        assert!(check(Some(1), &[1, 2, 3], &meta(1, &[1], 7)).is_err(), "the two others could do without it");
        assert!(
            check(None, &[], &meta(1, &[1, 2], 7)).is_err(),
            "the other one could do so at the same time"
        );
        assert!(check(Some(1), &[1, 2], &meta(1, &[1, 2, 3, 4], 7)).is_err(), "so could the two others");
    }

    #[test]
    fn voters_in_groups_have_to_stand_in_the_same_groups_at_every_start() {
        let in_groups = |groups| Wanted { groups, ..wanted(Some(2), &[1, 2, 3]) };
        let folder = |groups| {
            let meta = meta(2, &[1, 2, 3], 7);
            Meta { promises: PersistedEpochs { groups, ..meta.promises }, ..meta }
        };
        assert_eq!(in_groups(0xa).check(Some(&folder(0xa))), Ok(()));
        let refused = in_groups(0xb).check(Some(&folder(0xa))).expect_err("other groups").to_string();
        assert_eq!(
            refused,
            "it belongs to member 2 of an ensemble of the servers 1, 2 and 3 in groups with the fingerprint a, and is started as \
             a member of an ensemble of the servers 1, 2 and 3 in groups with the fingerprint b"
        );
        assert!(in_groups(0).check(Some(&folder(0xa))).is_err(), "majorities may miss a quorum of groups");
        assert!(in_groups(0xa).check(Some(&folder(0))).is_err());
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
        assert!(
            imported.starts_with("it belongs to server 3 (of which ensemble is not known)"),
            "{imported}"
        );
    }
}
