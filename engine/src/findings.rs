//! Why a server is slow: what its slow requests, its pauses, its log and its peers tell together.
//!
//! A stage says where a request waited. A finding names what it waited for: a disk, a peer, a client, the
//! host. Peers and the log are looked at even if no request waited for them: a follower that is late is not
//! waited for while a quorum is quicker, and is the next one to be.

mod took;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;

use ringkeeper_wire::{ServerId, SessionId};

use self::took::Shown;
pub use self::took::{Recent, Took};
use crate::slow::{Explanation, Pause, Stage};

/// Clients that are named.
const CLIENTS_MAX: usize = 3;

/// A disk, a peer or a pause is late from so small a part of a slow request's time on.
const LATE_PARTS: u64 = 4;

/// So many slow requests in a second, for some seconds, and half of them of one path, make it hot. Fewer slow
/// requests of one path are what a slow disk or peer makes of the only client's only path.
const HOT_PER_SECOND: u64 = 20;
const HOT_US_MIN: u64 = 2_000_000;

/// A shorter time without a leader is noticed by nobody.
const LEADERLESS_US_MIN: u64 = 1000;

/// A learner whose acknowledgements take so many times as long as its answers to pings is reached quickly.
const DISK_TIMES: u64 = 4;

/// What the leader knows of a learner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerTimes {
    /// Which server.
    pub server: ServerId,
    /// From a proposal until its acknowledgement, with the learner's disk.
    pub acks: Took,
    /// From a ping until its answer, without it.
    pub round_trips: Took,
}

/// What a server's own log and, on the leader, the learners took lately.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    /// From a batch's arrival until it is durable here.
    pub log: Took,
    /// The learners that are synchronized.
    pub peers: Vec<PeerTimes>,
    /// The last times without a leader, while this server ran.
    pub leaderless: Vec<Pause>,
}

/// What is known of the last minutes, and of what was before.
#[derive(Debug)]
pub struct Evidence<'a> {
    /// Slow requests.
    pub slow: &'a [Explanation],
    /// When this server was off the CPU.
    pub pauses: &'a [Pause],
    /// Log and peers.
    pub members: &'a Members,
    /// The server that this one follows.
    pub leader: Option<ServerId>,
    /// Now, microseconds on the server's clock.
    pub now_us: u64,
    /// What ended before does not count.
    pub since_us: u64,
    /// What takes longer is a slow request, microseconds.
    pub slow_us: u64,
}

/// Times of the same kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spells {
    /// How many.
    pub count: usize,
    /// The longest, microseconds.
    pub longest_us: u64,
    /// How long ago the last one ended, microseconds.
    pub ago_us: u64,
}

/// What makes a server slow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The host took the CPU away.
    Pause(Spells),
    /// There was no leader.
    Leaderless(Spells),
    /// This server's disk.
    Disk(Took),
    /// A learner is reached quickly and acknowledges late.
    PeerDisk(PeerTimes),
    /// A learner answers pings late.
    PeerLink(PeerTimes),
    /// The leader, or the network to it.
    Leader {
        /// Which server, if there is one.
        leader: Option<ServerId>,
        /// How many requests waited for it mostly.
        requests: usize,
        /// Half of them waited at most so long, microseconds.
        p50_us: u64,
    },
    /// A client that does not read its replies.
    Client {
        /// Its session.
        session: SessionId,
        /// Its address.
        client: SocketAddr,
        /// How many slow requests waited for it mostly.
        requests: usize,
        /// The longest time that one did, microseconds.
        longest_us: u64,
    },
    /// Very many requests are slow, half or more of them of one path.
    Path {
        /// Which, cut if it is long.
        path: String,
        /// How many requests.
        requests: usize,
        /// Of how many.
        of: usize,
        /// All slow requests in a second.
        per_second: u64,
        /// Session and address of who sends them all, if it is one.
        only: Option<(SessionId, SocketAddr)>,
        /// Half of them have at most so many bytes.
        bytes: usize,
    },
}

impl Finding {
    /// How long it makes a request wait, microseconds. A path comes first: its load makes others slow.
    fn weight_us(&self) -> u64 {
        match self {
            Self::Pause(Spells { longest_us, .. })
            | Self::Leaderless(Spells { longest_us, .. })
            | Self::Client { longest_us, .. } => *longest_us,
            Self::Disk(took) => took.judged_us(),
            Self::PeerDisk(PeerTimes { acks, .. }) => acks.judged_us(),
            Self::PeerLink(PeerTimes { round_trips, .. }) => round_trips.judged_us(),
            Self::Leader { p50_us, .. } => *p50_us,
            Self::Path { .. } => u64::MAX,
        }
    }

    /// What it names, in one word.
    #[must_use]
    pub const fn cause(&self) -> &'static str {
        match self {
            Self::Pause(_) => "pause",
            Self::Leaderless(_) => "election",
            Self::Disk(_) => "disk",
            Self::PeerDisk(_) => "peer_disk",
            Self::PeerLink(_) => "peer_link",
            Self::Leader { .. } => "leader",
            Self::Client { .. } => "client",
            Self::Path { .. } => "path",
        }
    }

    /// The other server that it names.
    #[must_use]
    pub const fn server(&self) -> Option<ServerId> {
        match self {
            Self::PeerDisk(peer) | Self::PeerLink(peer) => Some(peer.server),
            Self::Leader { leader, .. } => *leader,
            _ => None,
        }
    }

    /// What to do about it, in one sentence.
    #[must_use]
    pub const fn advice(&self) -> &'static str {
        match self {
            Self::Pause(_) => {
                "The host was stopped, overcommitted or busy with others: no setting helps. What waited \
                 meanwhile is late, too."
            }
            Self::Leaderless(_) => {
                "A server that is silent for ringkeeper.peerTimeoutMs is given up: look at host and network of \
                 the former leader."
            }
            Self::Disk(_) => "Give the log a disk of its own (dataLogDir), or replace a worn one.",
            Self::PeerDisk(_) => {
                "Ask that server why it is slow. Nobody waits for it while a quorum is quicker."
            }
            Self::PeerLink(_) => {
                "Look at the network to that server, and whether its host is paused or busy."
            }
            Self::Leader { .. } => "Ask the leader why it is slow, and look at the network to it.",
            Self::Client { .. } => "Look at that client: it hangs or is busy, or its network is slow.",
            Self::Path { only: Some(_), .. } => {
                "Have that client ask for less, or limit it as a tenant. What else is slow may be its load."
            }
            Self::Path { only: None, .. } => {
                "Spread the load over more znodes, or have it ask less often. What else is slow may be this load."
            }
        }
    }
}

/// Says what was found, in one sentence without a full stop.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pause(spells) => write!(f, "this server was off the CPU {spells}"),
            Self::Leaderless(spells) => write!(f, "this server looked for a leader {spells}"),
            Self::Disk(took) => write!(f, "this server's disk is slow: appends to the log took {took}"),
            Self::PeerDisk(PeerTimes { server, acks, round_trips }) => {
                write!(
                    f,
                    "the disk of server {server} is slow, or that server is busy: it acknowledged {acks}"
                )?;
                if round_trips.count > 0 { write!(f, ", and answered pings {round_trips}") } else { Ok(()) }
            }
            Self::PeerLink(PeerTimes { server, acks, round_trips }) => {
                write!(f, "the network to server {server} is slow: pings were answered {round_trips}")?;
                if acks.count > 0 { write!(f, ", and it acknowledged {acks}") } else { Ok(()) }
            }
            Self::Leader { leader, requests, p50_us } => {
                match leader {
                    Some(leader) => write!(
                        f,
                        "{} waited for the leader, server {leader}, or the network to it",
                        Requests(*requests)
                    ),
                    None => write!(f, "{} waited for a leader that is gone", Requests(*requests)),
                }?;
                write!(f, ", half within {}", Shown(*p50_us))
            }
            Self::Client { session, client, requests, longest_us } => write!(
                f,
                "the client {client} with session {session} reads its replies late: {} waited for it, for {} at \
                 most",
                Requests(*requests),
                Shown(*longest_us)
            ),
            Self::Path { path, requests, of, per_second, only, bytes } => {
                write!(f, "{requests} of {of} slow requests are of {}", path.escape_debug())?;
                if let Some((session, client)) = only {
                    write!(f, ", all by the client {client} with session {session}")?;
                }
                write!(f, ", half of them with up to {bytes} bytes; {per_second} requests a second are slow")
            }
        }
    }
}

/// Shows them: `2 times, for 1.2 s at most, the last time 12 s ago`.
impl fmt::Display for Spells {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { count, longest_us, ago_us } = *self;
        let (s, longest, ago_s) = (if count == 1 { "" } else { "s" }, Shown(longest_us), ago_us / 1_000_000);
        write!(f, "{count} time{s}, for {longest} at most, the last time {ago_s} s ago")
    }
}

/// `1 slow request`, `2 slow requests`.
struct Requests(usize);

impl fmt::Display for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} slow request{}", self.0, if self.0 == 1 { "" } else { "s" })
    }
}

/// What made the server slow: a load that is too much, then what makes a request wait longest.
#[must_use]
pub fn find(evidence: &Evidence<'_>) -> Vec<Finding> {
    let Evidence { members, leader, slow_us, since_us, now_us, .. } = *evidence;
    let late_us = slow_us / LATE_PARTS;
    let is_recent = |slow: &&Explanation| slow.request.written_us >= since_us;
    let slow: Vec<_> = evidence.slow.iter().filter(is_recent).collect();
    let slow = slow.as_slice();
    let recent = |times: &[Pause]| -> Vec<Pause> {
        times.iter().filter(|time| time.until_us >= since_us).copied().collect()
    };
    let mut found = Vec::new();
    found.extend(spells(&recent(evidence.pauses), now_us, late_us).map(Finding::Pause));
    let leaderless = spells(&recent(&members.leaderless), now_us, LEADERLESS_US_MIN);
    found.extend(leaderless.map(Finding::Leaderless));
    found.extend(Some(Finding::Disk(members.log)).filter(|_| members.log.judged_us() >= late_us));
    found.extend(members.peers.iter().filter_map(|peer| of_peer(*peer, late_us)));
    found.extend(of_leader(slow, leader));
    found.extend(clients(slow, late_us));
    found.extend(hot_path(slow));
    found.sort_by_key(|finding| Reverse(finding.weight_us()));
    found
}

/// Those of the times that lasted so long, if there are any.
fn spells(times: &[Pause], now_us: u64, at_least_us: u64) -> Option<Spells> {
    let took = |time: &Pause| time.until_us.saturating_sub(time.from_us);
    let long = || times.iter().filter(|time| took(time) >= at_least_us);
    let last_us = long().map(|time| time.until_us).max()?;
    let longest_us = long().map(took).max()?;
    Some(Spells { count: long().count(), longest_us, ago_us: now_us.saturating_sub(last_us) })
}

/// Half of them are at most this; `None` of none.
fn median<T: Copy + Ord>(mut of: Vec<T>) -> Option<T> {
    of.sort_unstable();
    of.get(of.len().checked_sub(1)? / 2).copied()
}

fn of_peer(peer: PeerTimes, late_us: u64) -> Option<Finding> {
    let PeerTimes { acks, round_trips, .. } = peer;
    let (acks_are_late, pings_are_late) = (acks.judged_us() >= late_us, round_trips.judged_us() >= late_us);
    if acks_are_late && acks.p50_us >= DISK_TIMES * round_trips.p50_us && round_trips.waiting_us < late_us {
        Some(Finding::PeerDisk(peer))
    } else if pings_are_late {
        Some(Finding::PeerLink(peer))
    } else if acks_are_late {
        Some(Finding::PeerDisk(peer))
    } else {
        None
    }
}

/// The leader, if a quarter of the slow requests waited for it mostly.
fn of_leader(slow: &[&Explanation], leader: Option<ServerId>) -> Option<Finding> {
    let waited: Vec<_> = waited_mostly(slow, |stage| stage == Stage::Leader).map(|(_, us)| us).collect();
    let requests = waited.len();
    let p50_us = median(waited)?;
    (requests * 4 >= slow.len()).then_some(Finding::Leader { leader, requests, p50_us })
}

/// The requests that waited in such stages mostly, and for how long.
fn waited_mostly<'a>(
    slow: &[&'a Explanation],
    of: impl Fn(Stage) -> bool + Copy,
) -> impl Iterator<Item = (&'a Explanation, u64)> {
    slow.iter().filter(move |slow| of(slow.mostly)).map(move |slow| {
        let took = slow.stages.iter().filter(|time| of(time.stage)).map(|time| time.took_us);
        (*slow, took.sum())
    })
}

/// The clients that were waited for longest.
fn clients(slow: &[&Explanation], late_us: u64) -> Vec<Finding> {
    let mut waited = BTreeMap::<SessionId, (SocketAddr, usize, u64)>::new();
    for (slow, waited_us) in waited_mostly(slow, |stage| matches!(stage, Stage::Unread | Stage::Output)) {
        if waited_us >= late_us {
            let (_, requests, longest_us) =
                waited.entry(slow.request.session).or_insert((slow.request.client, 0, 0));
            (*requests, *longest_us) = (*requests + 1, waited_us.max(*longest_us));
        }
    }
    let named = waited.into_iter().map(|(session, (client, requests, longest_us))| Finding::Client {
        session,
        client,
        requests,
        longest_us,
    });
    let mut named: Vec<_> = named.collect();
    named.sort_by_key(|finding| Reverse(finding.weight_us()));
    named.truncate(CLIENTS_MAX);
    named
}

fn hot_path(slow: &[&Explanation]) -> Option<Finding> {
    let oldest = slow.iter().min_by_key(|slow| slow.request.written_us)?.request.written_us;
    let newest = slow.iter().map(|slow| slow.request.written_us).max()?;
    let span_us = newest - oldest;
    // Those that the oldest line leaves untold were before it, whenever that was.
    let behind = slow.iter().filter(|slow| slow.request.written_us > oldest);
    let all: u64 = behind.map(|slow| slow.request.untold + 1).sum();
    let per_second = all.saturating_mul(1_000_000) / span_us.max(1);
    let mut by_path = BTreeMap::<&str, Vec<&Explanation>>::new();
    for slow in slow {
        if let Some(path) = slow.request.path.as_deref() {
            by_path.entry(path).or_default().push(slow);
        }
    }
    let (path, of_path) = by_path.into_iter().max_by_key(|(_, of_path)| of_path.len())?;
    let first = &of_path.first()?.request;
    let is_only = of_path.iter().all(|slow| slow.request.session == first.session);
    let hot = span_us >= HOT_US_MIN && per_second >= HOT_PER_SECOND && of_path.len() * 2 >= slow.len();
    hot.then_some(Finding::Path {
        path: path.to_owned(),
        requests: of_path.len(),
        of: slow.len(),
        per_second,
        only: is_only.then_some((first.session, first.client)),
        bytes: median(of_path.iter().map(|slow| slow.request.bytes).collect())?,
    })
}

#[cfg(test)]
mod tests {
    use ringkeeper_wire::{OpCode, Xid};

    use super::*;
    use crate::slow::{SlowRequest, explain};

    const MS: u64 = 1000;

    fn took(p50_ms: u64, p90_ms: u64) -> Took {
        Took { count: 100, p50_us: p50_ms * MS, p90_us: p90_ms * MS, waiting_us: 0 }
    }

    fn peer(id: u64, acks: Took, round_trips: Took) -> PeerTimes {
        PeerTimes { server: ServerId(id), acks, round_trips }
    }

    fn find_in(slow: &[Explanation], pauses: &[Pause], members: &Members) -> Vec<Finding> {
        let (now_us, leader) = (10_000 * MS, Some(ServerId(1)));
        find(&Evidence { slow, pauses, members, leader, now_us, since_us: 0, slow_us: 100 * MS })
    }

    fn request(path: &str) -> SlowRequest {
        SlowRequest {
            session: SessionId(7),
            client: SocketAddr::from(([10, 0, 0, 1], 4711)),
            xid: Xid(1),
            op: OpCode::GetData.to_wire(),
            path: Some(path.to_owned()),
            bytes: 10,
            zxid: None,
            received_us: 0,
            decoded_us: 0,
            unread: false,
            began_us: 0,
            answered_us: 200 * MS,
            written_us: 200 * MS,
            untold: 0,
            sampled: false,
        }
    }

    #[test]
    fn nothing_late_is_nothing_found() {
        let members = Members {
            log: took(1, 20),
            peers: vec![peer(2, took(2, 20), took(1, 2)), peer(3, took(2, 3), took(1, 2))],
            leaderless: Vec::new(),
        };
        let pause = Pause { from_us: 0, until_us: 20 * MS };
        assert_eq!(find_in(&[explain(request("/a"), None, &[])], &[pause], &members), []);
    }

    #[test]
    fn a_late_peer_is_named_and_its_disk_is_told_from_the_network_to_it() {
        let disk = peer(2, took(200, 300), took(1, 2));
        let link = peer(3, took(200, 300), took(190, 210));
        let members = Members { peers: vec![disk, link], ..Members::default() };
        let found = find_in(&[], &[], &members);
        assert_eq!(found, [Finding::PeerDisk(disk), Finding::PeerLink(link)]);
        assert_eq!(
            found.iter().map(|it| it.server()).collect::<Vec<_>>(),
            [Some(ServerId(2)), Some(ServerId(3))]
        );
        assert_eq!(
            found[0].to_string(),
            "the disk of server 2 is slow, or that server is busy: it acknowledged half within 200 ms, nine of ten \
             within 300 ms, and answered pings half within 1.0 ms, nine of ten within 2.0 ms"
        );
    }

    #[test]
    fn a_disk_that_hangs_is_found_before_it_is_done() {
        let log = Took { waiting_us: 3_000 * MS, ..Took::default() };
        let found = find_in(&[], &[], &Members { log, ..Members::default() });
        assert_eq!(found, [Finding::Disk(log)]);
        assert!(found[0].to_string().ends_with("one waits for 3.0 s"), "{}", found[0]);
    }

    #[test]
    fn the_longest_time_that_the_host_paused_it_and_without_a_leader_is_told() {
        let pause = |from_ms, until_ms| Pause { from_us: from_ms * MS, until_us: until_ms * MS };
        let members = Members { leaderless: vec![pause(2_100, 2_900)], ..Members::default() };
        let found = find_in(&[], &[pause(0, 30), pause(100, 2_100), pause(3_000, 3_020)], &members);
        let paused = Finding::Pause(Spells { count: 2, longest_us: 2_000 * MS, ago_us: 7_900 * MS });
        assert_eq!(
            paused.to_string(),
            "this server was off the CPU 2 times, for 2.0 s at most, the last time 7 s ago"
        );
        let leaderless = Finding::Leaderless(Spells { count: 1, longest_us: 800 * MS, ago_us: 7_100 * MS });
        assert_eq!(found, [paused, leaderless]);
    }

    #[test]
    fn a_client_is_named_that_reads_late() {
        let unread = SlowRequest { decoded_us: 150 * MS, unread: true, began_us: 150 * MS, ..request("/a") };
        let output = SlowRequest { answered_us: 100 * MS, ..request("/b") };
        let slow = [unread, output, request("/c")].map(|request| explain(request, None, &[]));
        let [Finding::Client { session, requests, longest_us, .. }] =
            find_in(&slow, &[], &Members::default())[..]
        else {
            panic!("one client")
        };
        assert_eq!((session, requests, longest_us), (SessionId(7), 2, 150 * MS));
    }

    #[test]
    fn a_path_of_half_of_very_many_slow_requests_is_hot_and_comes_first() {
        let of = |path, at_ms: u64, untold| {
            let request = SlowRequest { written_us: at_ms * MS, untold, ..request(path) };
            explain(SlowRequest { answered_us: request.written_us, ..request }, None, &[])
        };
        let log = took(5000, 5000);
        let members = Members { log, ..Members::default() };
        let burst_before = [of("/hot", 200, 990), of("/hot", 3200, 0)];
        assert_eq!(find_in(&burst_before, &[], &members), [Finding::Disk(log)], "it was long ago");
        let short = [of("/hot", 200, 0), of("/hot", 400, 90)];
        assert_eq!(find_in(&short, &[], &members), [Finding::Disk(log)], "it was short");
        let mut slow = [of("/hot", 200, 0), of("/hot", 1200, 40), of("/a", 2200, 40), of("/b", 3200, 37)];
        let only = Some((SessionId(7), slow[0].request.client));
        let path = "/hot".to_owned();
        let hot = Finding::Path { path, requests: 2, of: 4, per_second: 40, only, bytes: 10 };
        assert_eq!(find_in(&slow, &[], &members), [hot.clone(), Finding::Disk(log)]);
        slow[1].request.session = SessionId(8);
        let Finding::Path { path, requests, of, per_second, bytes, .. } = hot else { unreachable!() };
        let of_many = Finding::Path { path, requests, of, per_second, only: None, bytes };
        assert_eq!(find_in(&slow, &[], &members)[0], of_many);
    }

    #[test]
    fn what_makes_requests_wait_longest_comes_first() {
        let link = peer(3, took(310, 312), took(303, 305));
        let members = Members { log: took(30, 40), peers: vec![link], leaderless: Vec::new() };
        let pause = Pause { from_us: 0, until_us: 100 * MS };
        let found = find_in(&[], &[pause], &members);
        assert_eq!(found.iter().map(Finding::cause).collect::<Vec<_>>(), ["peer_link", "pause", "disk"]);
    }

    #[test]
    fn one_late_ping_does_not_make_a_disk_a_network() {
        let round_trips = Took { count: 5, p50_us: MS, p90_us: 56 * MS, waiting_us: 0 };
        let (slow, good) = (peer(1, took(400, 790), round_trips), peer(2, took(1, 2), round_trips));
        let members = Members { peers: vec![slow, good], ..Members::default() };
        assert_eq!(find_in(&[], &[], &members), [Finding::PeerDisk(slow)]);
    }

    #[test]
    fn requests_that_wait_for_the_leader_name_it() {
        let mut waited = explain(request("/a"), None, &[]);
        waited.mostly = Stage::Leader;
        waited.stages[0].stage = Stage::Leader;
        let found = find_in(&[waited], &[], &Members::default());
        assert_eq!(found, [Finding::Leader { leader: Some(ServerId(1)), requests: 1, p50_us: 200 * MS }]);
        assert!(found[0].to_string().starts_with("1 slow request waited for the leader, server 1"));
    }
}
