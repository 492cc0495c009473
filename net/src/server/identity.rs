//! Refusals to start on a folder of something else, for the operator: what would be lost, and the command
//! that does it on purpose.

use std::path::PathBuf;

use ringkeeper_engine::zab::Quorum;
use ringkeeper_host::identity::{EnsembleOf, FolderOf, Mismatch, Owner, Wanted};
use ringkeeper_wire::ServerId;

use crate::config::Config;

/// Why a server cannot be started on a folder.
#[derive(Debug, thiserror::Error)]
pub(crate) enum IdentityError {
    #[error(
        "{folder} has the data of a program with the broadcast library, not of a server: choose another folder"
    )]
    OtherApplication { folder: PathBuf },
    #[error(
        "{folder} belongs to {owner}, and is started as server {wanted} (myid says so): the server would answer for \
         promises that another one made; give server {wanted} a folder of its own, the ensemble fills an empty one"
    )]
    OtherMember { folder: PathBuf, owner: Owner, wanted: ServerId },
    #[error(
        "{folder} belongs to {owner}, and is started as a server alone: what the other members acknowledge meanwhile \
         would be missing here, and would be lost if the folder went back to them; start it with the ensemble's \
         configuration (--config), or make it a server alone for good with `{command}`"
    )]
    Alone { folder: PathBuf, owner: Owner, command: String },
    #[error(
        "{folder} belongs to {owner}, and is started as a server alone: its log names the members, and what others of \
         them acknowledge meanwhile would be missing here; add its server.N line to its configuration (--config), \
         and its file myid if that is missing"
    )]
    AloneByLog { folder: PathBuf, owner: Owner },
    #[error(
        "{folder} belongs to {owner}, and is started as a member of {wanted}: others of its former members could \
         decide without this one, so what either acknowledges could be lost; add or remove one server at a time \
         (voters in groups keep their groups and weights), or do it at once, with all servers stopped, by \
         `ringkeeper folder adopt --config` with the file of each"
    )]
    OtherVoters { folder: PathBuf, owner: Owner, wanted: Box<EnsembleOf> },
    #[error(
        "{folder} belongs to {owner}, and is started as a member of {wanted}: the others could decide without \
         what is in it; {BEGIN_WITH_TWO}"
    )]
    NoLongerAlone { folder: PathBuf, owner: Owner, wanted: Box<EnsembleOf> },
}

/// How a server that was alone becomes one of several.
pub(crate) const BEGIN_WITH_TWO: &str = "stop all servers; choose one with an empty folder, and keep only the \
     server.N lines of that one and this one in the configurations of both; start both; when both serve, stop \
     them, add the line of one more server with an empty folder on all of them, and start all of them; and so on";

impl IdentityError {
    /// `command` adapts the folder.
    pub(crate) fn new(mismatch: Mismatch, folder: PathBuf, command: String) -> Self {
        match mismatch {
            Mismatch::OtherApplication { .. } => Self::OtherApplication { folder },
            Mismatch::OtherMember { owner, wanted } => Self::OtherMember { folder, owner, wanted },
            Mismatch::Alone { owner } if owner.is_named_by_log() => Self::AloneByLog { folder, owner },
            Mismatch::Alone { owner } => Self::Alone { folder, owner, command },
            Mismatch::OtherVoters { owner, wanted } if owner.is_alone() => {
                Self::NoLongerAlone { folder, owner, wanted }
            }
            Mismatch::OtherVoters { owner, wanted } => Self::OtherVoters { folder, owner, wanted },
        }
    }
}

/// The role of the server by its configuration.
pub(crate) fn wanted(config: &Config) -> Wanted {
    let quorums = config.members().quorums();
    Wanted {
        application: FolderOf::Server,
        id: config.my_id.map(ServerId),
        voters: *quorums.voters(),
        groups: quorums.groups(),
    }
}

#[cfg(test)]
mod tests {
    use ringkeeper_engine::zab::{NAMED_BY_LOG, ServerSet};
    use ringkeeper_log::meta::{Meta, PersistedEpochs};

    use super::*;

    #[test]
    fn a_member_by_its_log_that_is_started_alone_is_told_of_its_line_and_not_of_adopt_which_refuses() {
        let refused = |voters: &[ServerId]| {
            let voters = voters.iter().copied().collect::<ServerSet>().words();
            let promises = PersistedEpochs { voters, ..PersistedEpochs::default() };
            let owner = Owner::of(&Meta { server_id: ServerId(1), salt: 0, application: 1, promises });
            let command = "ringkeeper folder adopt".to_owned();
            IdentityError::new(Mismatch::Alone { owner }, "data".into(), command).to_string()
        };
        for by_log in [&[ServerId(1), NAMED_BY_LOG][..], &[ServerId(1), ServerId(2), NAMED_BY_LOG]] {
            let says = refused(by_log);
            assert!(says.contains("add its server.N line") && !says.contains("adopt"), "{says}");
        }
        assert!(refused(&[ServerId(1), ServerId(2)]).contains("`ringkeeper folder adopt`"));
    }
}
