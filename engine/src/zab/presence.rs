//! Which voters are missing, for an operator who wants to know why there is no leader.

use std::fmt;

use ringkeeper_wire::ServerId;

use super::core::Core;
use super::message::Doubt;

/// Why a voter does not help this server to a quorum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absence {
    /// There is no connection to it.
    NotConnected,
    /// It is connected, and has sent nothing yet.
    Silent,
    /// It has the history of another ensemble, or a fork of this one's.
    OtherHistory,
    /// It goes by another list of voters, or by other groups of them.
    OtherVoters,
    /// The same, and its leader is a server that this one's list lacks.
    FollowsUnlisted(ServerId),
    /// Its folder is an old copy.
    OldCopy,
    /// It was replaced by a later process with the same id, and still runs.
    Replaced,
    /// Its folder is empty: beside servers with data it has no vote before it is synchronized.
    Empty,
}

impl fmt::Display for Absence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::FollowsUnlisted(leader) => {
                return write!(f, "follows server {leader}, which this server's configuration does not list");
            }
            Self::NotConnected => "not connected",
            Self::Silent => "connected, and silent",
            Self::OtherHistory => "has the history of another ensemble, and is refused",
            Self::OtherVoters => "has other server.N, group.N or weight.N lines, and is not counted",
            Self::OldCopy => "its folder is an old copy, and has no vote before it has learned",
            Self::Replaced => "two processes run with its id, and this one is refused",
            Self::Empty => "its folder is empty",
        })
    }
}

/// The other voters that do not help this server to a quorum.
pub(super) fn absences(core: &Core) -> Vec<(ServerId, Absence)> {
    let others = core.quorum.voters().iter().filter(|id| *id != core.me());
    others.filter_map(|id| absence(core, id).map(|absence| (id, absence))).collect()
}

fn absence(core: &Core, peer: ServerId) -> Option<Absence> {
    if !core.connected.contains(peer) {
        return Some(Absence::NotConnected);
    }
    let Some(heard) = core.heard.get(&peer) else { return Some(Absence::Silent) };
    match core.doubt(peer) {
        Some(Doubt::OldCopy(_)) => return Some(Absence::OldCopy),
        Some(Doubt::Replaced) => return Some(Absence::Replaced),
        Some(Doubt::Contested) | None => {}
    }
    if core.is_foreign(&heard.ensemble) && !(heard.is_blank() && core.is_blank()) {
        Some(Absence::OtherHistory)
    } else if !core.agrees_with(&heard.ensemble) {
        let is_unlisted = |leader: &ServerId| !core.is_voter(*leader) && !core.connected.contains(*leader);
        Some(heard.led_by.filter(is_unlisted).map_or(Absence::OtherVoters, Absence::FollowsUnlisted))
    } else {
        let forgot = if heard.is_blank() { Absence::Empty } else { Absence::OldCopy };
        (!heard.initialized).then_some(forgot)
    }
}
