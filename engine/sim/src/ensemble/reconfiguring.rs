//! Changes of the members and of their groups, at any time beside all faults.

use std::collections::BTreeMap;

use ringkeeper_engine::application::Application;
use ringkeeper_engine::members::{Groups, MemberAddress, Members, PeerRole, ServerSpec};
use ringkeeper_engine::zab::{QuorumSystem, ServerSet};
use ringkeeper_wire::ReconfigRequest;

use super::faults::FaultMix;
use super::world::{PEER_PORT, World};
use crate::env::{Lan, Machines};

/// Where the member listens at times that moves.
const OTHER_PEER_PORT: u16 = 2988;

/// The networks in which a member is reached.
const BOTH: &[Lan] = &[0, 1];
const FIRST: &[Lan] = &[0];
const SECOND: &[Lan] = &[1];

impl World {
    /// The operator asks the leader for other members: some of the servers vote, some observe, and the rest
    /// belong to nobody.
    pub(super) fn reconfigure(&mut self) {
        let Some(leader) = self.leader() else { return };
        let count = self.servers.len() as u64;
        let mut roles = Vec::new();
        for id in 1..=count {
            roles.push((
                id,
                [Some(PeerRole::Participant), Some(PeerRole::Participant), Some(PeerRole::Observer), None]
                    [self.random.index(4)],
            ));
        }
        let bulk = self.random.chance(500);
        // An incremental change concerns some of them.
        roles.retain(|_| bulk || self.random.chance(400));
        let joining: Members =
            roles.iter().filter_map(|(id, role)| role.map(|role| self.member(*id, role))).collect();
        // Groups come and go, and servers of weight 0 learn only.
        let groups = match bulk && self.random.chance(600) {
            true => joining
                .iter()
                .map(|server| {
                    let group = self.random.between(1, 3);
                    (server.id, group, [0, 1, 1, 1, 2, 3][self.random.index(6)])
                })
                .collect(),
            false => Vec::new(),
        };
        let joining = joining.in_groups(grouped(&groups));
        let leaving: Vec<String> =
            roles.iter().filter(|(_, role)| role.is_none()).map(|(id, _)| id.to_string()).collect();
        let text = joining.describe(0).trim_end_matches("version=0").trim_end().replace('\n', ",");
        let request = ReconfigRequest {
            joining_servers: Some(text.clone().into()).filter(|_| !bulk),
            leaving_servers: Some(leaving.join(",").into()).filter(|_| !bulk),
            new_members: Some(text.clone().into()).filter(|_| bulk),
            cur_config_id: -1,
        };
        self.say(&format!("server {} is asked for the members {text:?} without {leaving:?}", leader + 1));
        self.report.reconfigurations += 1;
        if let Some(process) = &self.servers[leader].process {
            process.pump.frontend().change(request);
            process.pump.wake();
        }
    }

    /// A member that is reached in both networks, if there are two, or in one of them.
    fn member(&mut self, id: u64, role: PeerRole) -> ServerSpec {
        let lans = match self.faults.two_networks {
            true => [BOTH, BOTH, FIRST, SECOND][self.random.index(4)],
            false => FIRST,
        };
        let moves = self.faults.mover == Some(id) && self.random.chance(500);
        member(id, role, lans, if moves { OTHER_PEER_PORT } else { PEER_PORT })
    }

    /// The quorums by what any server has in its log; `None` if some server cannot be asked.
    pub(super) fn quorum_systems(&self) -> Option<Vec<QuorumSystem>> {
        let configured = self.quorums();
        if !self.reconfigures() {
            return Some(vec![configured]);
        }
        let mut systems = Vec::new();
        for server in &self.servers {
            let node = server.process.as_ref()?.node();
            match node.application().membership() {
                None => systems.push(configured.clone()),
                Some(known) => {
                    let before = known.before.as_ref().unwrap_or(&configured);
                    systems.extend([known.voters.clone(), before.clone()]);
                }
            }
        }
        Some(systems)
    }

    /// The quorums by the servers' configurations.
    pub(super) fn quorums(&self) -> QuorumSystem {
        self.configured.quorums()
    }
}

/// What all servers' configurations say of the members.
pub(super) fn configured(voters: &ServerSet, observers: &ServerSet, faults: &FaultMix) -> Members {
    let lans = if faults.two_networks { BOTH } else { FIRST };
    let voting = voters.iter().map(|id| member(id.0, PeerRole::Participant, lans, PEER_PORT));
    let observing = observers.iter().map(|id| member(id.0, PeerRole::Observer, lans, PEER_PORT));
    let members: Members = voting.chain(observing).collect();
    if !faults.grouped {
        return members;
    }
    // Three servers, of which the first one is in every quorum; or groups of two, of which the last one may
    // be smaller.
    let place = |id: u64| match voters.len() {
        0..=3 => (id, 1, if id == 1 { 2 } else { 1 }),
        _ => (id, id.div_ceil(2), 1 + id % 2),
    };
    members.in_groups(grouped(&voters.iter().map(|id| place(id.0)).collect::<Vec<_>>()))
}

/// Groups of servers: each one's id, group and weight.
fn grouped(places: &[(u64, u64, u64)]) -> Groups {
    let mut lines = BTreeMap::<u64, Vec<String>>::new();
    for (id, group, _) in places {
        lines.entry(*group).or_default().push(id.to_string());
    }
    let mut groups = Groups::default();
    let weights = places.iter().map(|(id, _, weight)| (format!("weight.{id}"), weight.to_string()));
    let lines = lines.into_iter().map(|(group, ids)| (format!("group.{group}"), ids.join(":")));
    for (key, value) in lines.chain(weights) {
        groups.read(&key, &value).expect("a line of groups");
    }
    groups
}

fn member(id: u64, role: PeerRole, lans: &[Lan], quorum_port: u16) -> ServerSpec {
    let number = usize::try_from(id - 1).unwrap_or_default();
    let host = |lan: &Lan| Machines::name_in(number, *lan);
    let at = |host| MemberAddress { host, quorum_port, election_port: 3888 };
    let addresses = lans.iter().map(host).map(at).collect();
    ServerSpec { id, addresses, role, client: Some((None, 2181)) }
}
