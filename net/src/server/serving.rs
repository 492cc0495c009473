//! Logs when clients are served, and until then what is missing.

use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use ringkeeper_engine::message::Serving;
use ringkeeper_engine::zab::{Absence, Quorum, QuorumSystem, Status};
use ringkeeper_wire::ServerId;

use super::client_ports::ClientPorts;
use super::core_host::{self, CoreHost};
use super::identity::BEGIN_WITH_TWO;
use super::rate_limiter::RateLimiter;
use super::reactor;
use super::service_manager;
use crate::config::Config;

/// The file by which an operator declares that a server belongs to a new ensemble, as in ZooKeeper.
pub(crate) const INITIALIZE: &str = "initialize";

/// How often the server checks whether it serves.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Time before the first message: a server that joins a healthy ensemble serves earlier, without one.
const PATIENCE: Duration = Duration::from_secs(1);

/// How often an unchanged message is repeated.
const SAY_EVERY: Duration = Duration::from_secs(10);

/// Messages that are logged because they have changed, and the time after which another one is. A connection
/// that comes and goes changes the message each second.
const CHANGES_MAX: u64 = 10;
const CHANGES_EVERY_MS: u64 = 10_000;

/// While clients are not served, logs what is missing: at each change, and every ten seconds. When they are
/// served, removes the operator's file `initialize`.
pub(super) async fn announce(core: Rc<CoreHost>, config: Config, ports: Rc<ClientPorts>) {
    loop {
        wait_until_served(&core, &config).await;
        let (serving, address) = (core.node().application().serving(), ports.address(&config));
        let leads = serving == Serving::Leads;
        let what = if leads {
            "leading; clients are left to the others (leaderServes=no)"
        } else {
            "serving clients"
        };
        tracing::info!(%address, "{what}");
        service_manager::status(&format!("{what} on {address}"));
        use_up(&config.data_dir.join(INITIALIZE));
        while is_serving(&core) && core.node().application().serving() == serving {
            reactor::sleep(LOOK_EVERY).await;
        }
    }
}

async fn wait_until_served(core: &CoreHost, config: &Config) {
    let changes = RateLimiter::new(CHANGES_MAX, CHANGES_EVERY_MS);
    let (mut said, mut waited, mut since_said) = (String::new(), Duration::ZERO, Duration::ZERO);
    while !is_serving(core) {
        let reads = core.node().application().serving() == Serving::ReadOnly;
        let served =
            if reads { "serving only reads, to clients that accept it" } else { "not serving clients yet" };
        let missing = format!("{served}: {}", missing(core, config));
        let waited_ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
        let is_due = || since_said >= SAY_EVERY || (missing != said && changes.admit(waited_ms));
        if waited >= PATIENCE && is_due() {
            tracing::warn!(code = "RK0301", "{missing}");
            service_manager::status(&missing);
            (said, since_said) = (missing, Duration::ZERO);
        }
        reactor::sleep(LOOK_EVERY).await;
        waited += LOOK_EVERY;
        since_said += LOOK_EVERY;
    }
}

fn is_serving(core: &CoreHost) -> bool {
    core.node().status() != Status::Looking
}

/// Why the server does not serve, in one sentence; empty while it serves.
pub(crate) fn missing(core: &CoreHost, config: &Config) -> String {
    if is_serving(core) {
        return String::new();
    }
    let (absences, voters, rule) = {
        let node = core.node();
        let (now, before) = node.zab().quorum_systems();
        (node.zab().absences(), now.voters().len(), rule(now, before))
    };
    let twice = core_host::runs_twice(core, ServerId(config.server_id())).then_some(
        "two processes run with this server's id, and others refuse the one that was started first: stop the wrong \
         one, and start the other one anew, also if the wrong one has ended",
    );
    if absences.is_empty() {
        return twice
            .unwrap_or("the voters are there, an election or a synchronization is under way")
            .to_owned();
    }
    let described: Vec<_> = absences.iter().map(|absence| describe(core, *absence)).collect();
    let agree = format!("{rule}; {}", described.join("; "));
    let need = match twice {
        Some(twice) => format!("{twice}; {agree}"),
        None => agree,
    };
    let empty = !core.node().zab().durable_epochs().initialized;
    let is_unlisted = |absence: &Absence| matches!(absence, Absence::FollowsUnlisted(_));
    let ensemble_is_there = absences.iter().any(|(_, absence)| is_unlisted(absence));
    let others_empty = absences.iter().any(|(_, absence)| *absence == Absence::Empty);
    match (empty, config.db_autocreate) {
        (false, _) if others_empty && voters > 2 => format!(
            "{need}; this server has data, and what empty servers may have lost is not known: start the servers whose \
             folders have the rest; if this one was alone before: {BEGIN_WITH_TWO}"
        ),
        (false, _) => need,
        (true, _) if ensemble_is_there => need,
        (true, true) => format!(
            "{need}; this server's folder is empty: a majority of empty servers founds a new ensemble when the others \
             have not come for initLimit ticks"
        ),
        (true, false) => format!(
            "{need}; this server's folder is empty and db.autocreate is off: if the ensemble is new, make an empty file \
             {} on its servers and start them again",
            config.data_dir.join(INITIALIZE).display()
        ),
    }
}

/// Who has to agree, by the quorums in force and those before, if they decide, too.
fn rule(now: &QuorumSystem, before: Option<&QuorumSystem>) -> String {
    let of = |system: &QuorumSystem| match system {
        QuorumSystem::Majority(_) => {
            let voters = system.voters().len();
            format!("{} of {voters} voters have to agree", voters / 2 + 1)
        }
        QuorumSystem::Hierarchical(_) => {
            "more than half of the groups have to agree, each by more than half of its weight".to_owned()
        }
    };
    match before.filter(|before| *before != now) {
        Some(before) => {
            format!("{}, and {} since a change of the members is under way", of(before), of(now))
        }
        None => of(now),
    }
}

fn describe(core: &CoreHost, (peer, absence): (ServerId, Absence)) -> String {
    let trouble = core.links().trouble(peer);
    if absence == Absence::NotConnected && !trouble.is_empty() {
        return format!("server {peer} is not reached ({trouble})");
    }
    match absence {
        Absence::NotConnected => format!("server {peer} has not connected"),
        Absence::FollowsUnlisted(leader) => format!("server {peer} {absence}: add its server.{leader} line"),
        other => format!("server {peer}: {other}"),
    }
}

/// Removes the operator's file, so that it does not apply to a folder that becomes empty later.
fn use_up(file: &Path) {
    match std::fs::remove_file(file) {
        Ok(()) => tracing::info!(file = %file.display(), "removed: the ensemble has begun"),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => {
            tracing::warn!(code = "RK0107", file = %file.display(), %error, "cannot be removed: remove it")
        }
    }
}

#[cfg(test)]
mod tests {
    use ringkeeper_engine::zab::{Hierarchical, Placed};

    use super::*;

    #[test]
    fn who_has_to_agree_is_said_by_the_quorums_in_force() {
        let of = |ids: &[u64]| QuorumSystem::majorities(ids.iter().copied().map(ServerId).collect());
        let place = |id| Placed { server: ServerId(id), group: 1, weight: 1, participates: true };
        let groups = QuorumSystem::Hierarchical(Hierarchical::new([1, 2].map(place)));
        assert_eq!(rule(&of(&[1, 2, 3]), None), "2 of 3 voters have to agree");
        assert_eq!(rule(&of(&[1, 2, 3]), Some(&of(&[1, 2, 3]))), "2 of 3 voters have to agree");
        assert_eq!(
            rule(&of(&[1, 2, 3, 4, 5]), Some(&of(&[1, 2, 3]))),
            "2 of 3 voters have to agree, and 3 of 5 voters have to agree since a change of the members is under way"
        );
        assert_eq!(
            rule(&groups, None),
            "more than half of the groups have to agree, each by more than half of its weight"
        );
    }
}
