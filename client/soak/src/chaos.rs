//! What goes wrong: servers are killed and suspended, the network comes apart, operators make mistakes,
//! holders are pushed out, sessions are ended.

use std::thread;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{Rng, SeedableRng};
use ringkeeper_client::{Result, Wait, path};
use ringkeeper_testkit::{Cut, Network, Place};

use crate::soak::Soak;
use crate::{elections, locks};

/// How long a fault of ours may wait for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// Lets things go wrong until the deadline; then everything runs again.
pub(crate) fn run(soak: &Soak, deadline: Instant, fault_every: Duration, seed: u64) {
    let mut rng = StdRng::seed_from_u64(seed);
    while soak.sleep_until(deadline.min(Instant::now() + fault_every.mul_f64(rng.random_range(0.5..1.5)))) {
        match (rng.random_range(0..100), soak.servers.network(), &soak.operator) {
            (0..25, Some(network), _) => part(soak, network, &mut rng),
            (0..48, ..) => kill(soak, &mut rng),
            (48..60, _, Some(operator)) => operator.slip(soak, &mut rng),
            (48..75, ..) => suspend(soak, &mut rng),
            (75..88, ..) => push_out(soak, &mut rng),
            _ => end_session(soak, &mut rng),
        }
        for server in soak.servers.servers().filter(|server| soak.servers.server(*server).ended().is_some()) {
            let logs = soak.servers.log_tails();
            soak.verdict.violation(format!("server {server} has ended by itself:\n{logs}"));
        }
        if Instant::now() >= deadline || soak.is_over() {
            break;
        }
    }
}

/// Mostly one, sometimes the quorum, seldom all. The leader as often as a follower.
fn victims(soak: &Soak, rng: &mut StdRng) -> Vec<usize> {
    let mut servers: Vec<_> = soak.servers.servers().collect();
    servers.shuffle(rng);
    if rng.random_bool(0.5)
        && let Some(leader) =
            servers.iter().position(|server| soak.servers.server(*server).mode().as_deref() == Some("leader"))
    {
        servers.swap(0, leader);
    }
    let count = match rng.random_range(0..20) {
        0 => servers.len(),
        1 | 2 => 2,
        _ => 1,
    };
    servers.truncate(count);
    servers
}

fn kill(soak: &Soak, rng: &mut StdRng) {
    let victims = victims(soak, rng);
    for server in &victims {
        soak.servers.server(*server).kill();
        soak.verdict.count("kill -9 of a server");
    }
    thread::sleep(Duration::from_millis(rng.random_range(0..2500)));
    for server in victims {
        if let Err(error) = soak.servers.server(server).launch() {
            soak.verdict.violation(format!("server {server} does not start again: {error}"));
        }
    }
}

fn suspend(soak: &Soak, rng: &mut StdRng) {
    let victims = victims(soak, rng);
    for server in &victims {
        // One that has ended by itself is found out below.
        let _ = soak.servers.server(*server).pause();
        soak.verdict.count("suspensions of a server");
    }
    thread::sleep(outage(rng));
    for server in victims {
        let _ = soak.servers.server(server).resume();
    }
}

/// Up to longer than a session lives.
fn outage(rng: &mut StdRng) -> Duration {
    Duration::from_millis(rng.random_range(100..7000))
}

/// Lets the network come apart for a while.
fn part(soak: &Soak, network: &Network, rng: &mut StdRng) {
    let victim = victims(soak, rng)[0];
    let others: Vec<_> = soak.servers.servers().filter(|server| *server != victim).collect();
    let hears_not = || others.iter().map(|other| Cut::Route(*other, Place::Server(victim)));
    let is_not_heard = || others.iter().map(|other| Cut::Route(victim, Place::Server(*other)));
    let (what, cuts): (_, Vec<_>) = match rng.random_range(0..if others.is_empty() { 2 } else { 7 }) {
        0 => ("partitions: a server from its clients", vec![Cut::Route(victim, Place::Clients)]),
        1 => ("partitions: a server from everyone", vec![Cut::Cable(victim)]),
        2 => ("partitions: a server from all others", hears_not().chain(is_not_heard()).collect()),
        3 => ("partitions: a server hears no other", hears_not().collect()),
        4 => ("partitions: a server is heard by no other", is_not_heard().collect()),
        5 => {
            let other = others[rng.random_range(0..others.len())];
            let cuts = [Cut::Route(victim, Place::Server(other)), Cut::Route(other, Place::Server(victim))];
            ("partitions: two servers from one another", cuts.to_vec())
        }
        _ => {
            let from = |one| soak.servers.servers().filter(move |other| *other != one);
            let all = soak.servers.servers();
            let cuts = all.flat_map(|one| from(one).map(move |other| Cut::Route(one, Place::Server(other))));
            ("partitions: all servers from one another", cuts.collect())
        }
    };
    let made = cuts.into_iter().try_for_each(|cut| network.cut(cut));
    thread::sleep(outage(rng));
    // Whatever became of the cuts.
    let healed = network.heal();
    match made.and(healed) {
        Ok(()) => {
            soak.verdict.count("partitions");
            soak.verdict.count(what);
        }
        // Nobody knows any more what was tested.
        Err(error) => soak.verdict.violation(format!("the network did not do as it was told: {error}")),
    }
}

/// Deletes the znode of a holder: a leader, or who has a lock.
fn push_out(soak: &Soak, rng: &mut StdRng) {
    let paths = [elections::PATHS[0], elections::PATHS[1], locks::PATHS[0], locks::PATHS[3]];
    let Some(path) = paths.choose(rng) else { return };
    if let Some(Ok(())) = delete_first(soak, path).wait_timeout(ANSWER_MAX) {
        soak.verdict.count("holders pushed out");
    }
}

async fn delete_first(soak: &Soak, parent: &str) -> Result<()> {
    let client = soak.client().connect().await?;
    let (mut names, _) = client.get_children(parent).await?;
    // The ten digits at the end tell the order.
    names.sort_unstable_by_key(|name| name.get(name.len().saturating_sub(10)..).map(ToOwned::to_owned));
    if let Some(first) = names.first() {
        client.delete(&path::join(parent, first), None).await?;
    }
    client.close().await
}

/// Ends a worker's session behind its back.
fn end_session(soak: &Soak, rng: &mut StdRng) {
    let Some(victim) = soak.board.client(rng.random_range(0..1000)) else { return };
    let ended = async {
        let builder = soak.client().resume(victim.session_ticket());
        builder.connect().await?.close().await
    };
    if let Some(Ok(())) = ended.wait_timeout(ANSWER_MAX) {
        soak.verdict.count("sessions ended behind their owner's back");
    }
}
