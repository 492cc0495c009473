//! Groups and weights of voters, in ZooKeeper's lines: `group.G=1:2:3` and `weight.N=W`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use ringkeeper_wire::ServerId;

use crate::zab::Placed;

/// The weight of a participant that no line names.
const WEIGHT: u64 = 1;

/// Which server stands in which group, and what it weighs. Without any line, majorities decide.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Groups {
    /// The group of each server.
    placed: BTreeMap<u64, i64>,
    /// As the lines name them.
    weights: BTreeMap<u64, u64>,
}

impl Groups {
    /// Whether there is no line.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.placed.is_empty() && self.weights.is_empty()
    }

    /// Reads the line of a group or a weight; whether `key` is one of these.
    ///
    /// # Errors
    /// What is wrong with the line.
    pub fn read(&mut self, key: &str, value: &str) -> Result<bool, String> {
        if let Some(group) = key.strip_prefix("group.") {
            let group =
                group.parse().map_err(|_| format!("{key}: {group:?} is not the number of a group"))?;
            self.place(group, value).map_err(|reason| format!("{key}: {reason}"))?;
        } else if let Some(server) = key.strip_prefix("weight.") {
            let server =
                server.parse().map_err(|_| format!("{key}: {server:?} is not the id of a server"))?;
            // Java's numbers; a negative weight would let quorums miss one another.
            let weight = value.parse().ok().filter(|weight| i64::try_from(*weight).is_ok());
            let weight = weight.ok_or_else(|| format!("{key}: {value:?} is not a number from 0 on"))?;
            if self.weights.insert(server, weight).is_some() {
                return Err(format!("{key} stands here twice"));
            }
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    fn place(&mut self, group: i64, servers: &str) -> Result<(), String> {
        if self.placed.values().any(|known| *known == group) {
            return Err("it stands here twice".to_owned());
        }
        for server in servers.split(':') {
            let server = server.trim();
            let id = server.parse().map_err(|_| format!("{server:?} is not the id of a server"))?;
            if let Some(other) = self.placed.insert(id, group) {
                return Err(format!("server {id} is in group {other} already, and belongs to one group"));
            }
        }
        Ok(())
    }

    /// Whether each of the participants is in a group, and some group has a weight.
    ///
    /// # Errors
    /// The key of the line that is wrong, and the reason.
    pub(super) fn check(&self, participants: &[u64]) -> Result<(), (String, String)> {
        if let Some(id) = participants.iter().find(|id| !self.placed.contains_key(id)) {
            let reason = format!(
                "server {id} votes and is in no group: with groups or weights, each voter belongs to one group.G line"
            );
            return Err((format!("server.{id}"), reason));
        }
        for (id, group) in &self.placed {
            if !participants.contains(id) && !self.weights.contains_key(id) {
                let reason = format!(
                    "group {group} names server {id}, which does not vote: leave it out, or give it a weight"
                );
                return Err((format!("group.{group}"), reason));
            }
        }
        if !self.places(participants).any(|place| place.participates && place.weight > 0) {
            let reason = "no voter has a weight above 0, so there would be no quorum".to_owned();
            return Err((
                self.weights.keys().next().map_or_else(String::new, |id| format!("weight.{id}")),
                reason,
            ));
        }
        Ok(())
    }

    /// The place of each server that has one.
    pub(super) fn places(&self, participants: &[u64]) -> impl Iterator<Item = Placed> {
        self.placed.iter().map(|(&id, &group)| {
            let weight = self.weights.get(&id).copied().unwrap_or(WEIGHT);
            Placed { server: ServerId(id), group, weight, participates: participants.contains(&id) }
        })
    }

    /// The lines as ZooKeeper writes them: those of groups, then the weights of all participants and of
    /// others that a line names.
    pub(super) fn describe(&self, participants: impl Iterator<Item = u64>) -> String {
        if self.is_empty() {
            return String::new();
        }
        let mut groups: BTreeMap<i64, Vec<String>> = BTreeMap::new();
        for (id, group) in &self.placed {
            groups.entry(*group).or_default().push(id.to_string());
        }
        let mut weights: BTreeMap<u64, u64> = participants.map(|id| (id, WEIGHT)).collect();
        weights.extend(&self.weights);
        let mut lines = String::new();
        for (group, servers) in groups {
            let _ = writeln!(lines, "group.{group}={}", servers.join(":"));
        }
        for (id, weight) in weights {
            let _ = writeln!(lines, "weight.{id}={weight}");
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &[&str]) -> Result<Groups, String> {
        let mut groups = Groups::default();
        for line in lines {
            let (key, value) = line.split_once('=').expect("a line");
            assert!(groups.read(key, value)?, "{line} is not of groups");
        }
        Ok(groups)
    }

    #[test]
    fn lines_that_zookeeper_refuses_are_refused_with_the_reason() {
        for (lines, reason) in [
            (&["group.1=1:2", "group.2=2:3"][..], "group.2: server 2 is in group 1 already"),
            (&["group.1=1:1"], "server 1 is in group 1 already"),
            (&["group.x=1"], "group.x: \"x\" is not the number of a group"),
            (&["group.1=1:x"], "group.1: \"x\" is not the id of a server"),
            (&["group.1="], "group.1: \"\" is not the id of a server"),
            (&["weight.x=1"], "weight.x: \"x\" is not the id of a server"),
            (&["weight.1=x"], "weight.1: \"x\" is not a number from 0 on"),
            (&["weight.1=-1"], "weight.1: \"-1\" is not a number from 0 on"),
            (&["weight.1=1", "weight.1=2"], "weight.1 stands here twice"),
        ] {
            let refused = read(lines).expect_err(reason);
            assert!(refused.contains(reason), "{refused}");
        }
    }

    #[test]
    fn every_participant_needs_one_group_and_somebody_a_weight() {
        let refused = |lines: &[&str]| read(lines).expect("readable").check(&[1, 2]).expect_err("refused");
        assert_eq!(refused(&["group.1=1"]).0, "server.2");
        assert_eq!(refused(&["weight.1=1"]).0, "server.1");
        assert_eq!(refused(&["group.1=1:2", "group.5=3"]).0, "group.5");
        assert_eq!(refused(&["group.1=1:2", "weight.1=0", "weight.2=0"]).0, "weight.1");
        let observer = read(&["group.1=1:2:3", "weight.3=1"]).expect("readable");
        assert_eq!(observer.check(&[1, 2]), Ok(()), "an observer with a weight, as in ZooKeeper");
    }

    #[test]
    fn other_keys_are_not_of_groups() {
        for key in ["server.1", "groups.1", "weight", "version"] {
            assert_eq!(Groups::default().read(key, "1"), Ok(false), "{key}");
        }
    }
}
