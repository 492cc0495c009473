//! Changes of the members, at any time beside all faults.

use ringkeeper_engine::application::Application;
use ringkeeper_engine::members::{Members, PeerRole, ServerSpec};
use ringkeeper_engine::zab::ServerSet;
use ringkeeper_wire::ReconfigRequest;

use super::world::{PEER_PORT, World};
use crate::env::Machines;

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
            roles.iter().filter_map(|(id, role)| role.map(|role| member(*id, role))).collect();
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

    /// The voters by what any server has in its log; `None` if some server cannot be asked.
    pub(super) fn lists_of_voters(&self) -> Option<Vec<ServerSet>> {
        if !self.reconfigures() {
            return Some(vec![self.voters]);
        }
        let mut lists = Vec::new();
        for server in &self.servers {
            let node = server.process.as_ref()?.node();
            match node.application().membership() {
                None => lists.push(self.voters),
                Some(known) => lists.extend([known.voters, known.before.unwrap_or(self.voters)]),
            }
        }
        Some(lists)
    }

    /// What all servers' configurations say of the members.
    pub(super) fn configured(&self) -> Members {
        let observers = self.observers.iter().map(|id| member(id.0, PeerRole::Observer));
        self.voters.iter().map(|id| member(id.0, PeerRole::Participant)).chain(observers).collect()
    }
}

fn member(id: u64, role: PeerRole) -> ServerSpec {
    let number = usize::try_from(id - 1).unwrap_or_default();
    let client = Some((None, 2181));
    ServerSpec { id, host: Machines::name(number), quorum_port: PEER_PORT, election_port: 3888, role, client }
}
