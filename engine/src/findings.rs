//! Why a server is slow: what its slow requests, its pauses, its log and its peers tell together.
//!
//! A stage says where a request waited. A finding names what it waited for: a disk, a peer, a client, the
//! host. Peers and the log are looked at even if no request waited for them: a follower that is late is not
//! waited for while a quorum is quicker, and is the next one to be.

mod took;

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;

use ringkeeper_wire::{ServerId, SessionId};

use self::took::Shown;
pub use self::took::{Recent, Took};
use crate::slow::{Explanation, Pause, Stage};

/// Clients that are named.
const CLIENTS_MAX: usize = 3;

/// So many slow requests, and half of all, make a path hot.
const HOT_MIN: usize = 10;

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
    /// What ended before does not count, microseconds on the server's clock.
    pub since_us: u64,
    /// What takes as long is late, microseconds.
    pub late_us: u64,
}

/// What makes a server slow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The host took the CPU away.
    Pause {
        /// How often.
        times: usize,
        /// The longest time, microseconds.
        longest_us: u64,
    },
    /// There was no leader.
    Leaderless {
        /// How often.
        times: usize,
        /// The longest time, microseconds.
        longest_us: u64,
    },
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
    },
    /// A client that does not read its replies.
    Client {
        /// Its session.
        session: SessionId,
        /// Its address.
        client: SocketAddr,
        /// How many slow requests waited for it.
        requests: usize,
        /// For how long in all, microseconds.
        waited_us: u64,
    },
    /// Most slow requests are of one path.
    Path {
        /// Which, cut if it is long.
        path: String,
        /// How many requests.
        requests: usize,
        /// Of how many.
        of: usize,
    },
}

impl Finding {
    /// What it names, in one word.
    #[must_use]
    pub const fn cause(&self) -> &'static str {
        match self {
            Self::Pause { .. } => "pause",
            Self::Leaderless { .. } => "election",
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
            Self::Pause { .. } => {
                "The host was stopped, overcommitted or busy with others: no setting helps. What waited \
                 meanwhile is late, too."
            }
            Self::Leaderless { .. } => {
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
            Self::Path { .. } => "Spread the load over more znodes, or have it ask less often.",
        }
    }
}

/// Says what was found, in one sentence without a full stop.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pause { times, longest_us } | Self::Leaderless { times, longest_us } => {
                let what = match self {
                    Self::Pause { .. } => "was off the CPU",
                    _ => "looked for a leader",
                };
                let s = if *times == 1 { "" } else { "s" };
                write!(f, "this server {what} {times} time{s}, for {} at most", Shown(*longest_us))
            }
            Self::Disk(took) => write!(f, "this server's disk is slow: appends to the log took {took}"),
            Self::PeerDisk(PeerTimes { server, acks, round_trips }) => {
                write!(
                    f,
                    "the disk of server {server} is slow, or that server is busy: it acknowledged {acks}"
                )?;
                if round_trips.count > 0 { write!(f, ", and answered pings {round_trips}") } else { Ok(()) }
            }
            Self::PeerLink(PeerTimes { server, round_trips, .. }) => {
                write!(f, "the network to server {server} is slow: pings were answered {round_trips}")
            }
            Self::Leader { leader: Some(leader), requests } => {
                write!(
                    f,
                    "{requests} slow requests waited for the leader, server {leader}, or the network to it"
                )
            }
            Self::Leader { leader: None, requests } => {
                write!(f, "{requests} slow requests waited for a leader that is gone")
            }
            Self::Client { session, client, requests, waited_us } => write!(
                f,
                "the client {client} with session {session} reads its replies late: {requests} slow requests \
                 waited for it, {} in all",
                Shown(*waited_us)
            ),
            Self::Path { path, requests, of } => {
                write!(f, "{requests} of {of} slow requests are of {}", path.escape_debug())
            }
        }
    }
}

/// What made the server slow, what hits most first.
#[must_use]
pub fn find(evidence: &Evidence<'_>) -> Vec<Finding> {
    let Evidence { members, leader, late_us, since_us, .. } = *evidence;
    let is_recent = |slow: &&Explanation| slow.request.written_us >= since_us;
    let slow: Vec<_> = evidence.slow.iter().filter(is_recent).collect();
    let slow = slow.as_slice();
    let mut found = Vec::new();
    found.extend(
        longest(evidence.pauses, since_us, late_us)
            .map(|(times, longest_us)| Finding::Pause { times, longest_us }),
    );
    found.extend(
        longest(&members.leaderless, since_us, 0)
            .map(|(times, longest_us)| Finding::Leaderless { times, longest_us }),
    );
    found.extend(Some(Finding::Disk(members.log)).filter(|_| members.log.is_late(late_us)));
    found.extend(members.peers.iter().filter_map(|peer| of_peer(*peer, late_us)));
    let requests = slow.iter().filter(|slow| slow.mostly == Stage::Leader).count();
    if requests > 0 && requests * 4 >= slow.len() {
        found.push(Finding::Leader { leader, requests });
    }
    found.extend(clients(slow, late_us));
    found.extend(hot_path(slow));
    found
}

/// Of the times that ended since then and lasted so long: how many there are, and the longest one.
fn longest(times: &[Pause], since_us: u64, at_least_us: u64) -> Option<(usize, u64)> {
    let recent = times.iter().filter(|time| time.until_us >= since_us);
    let took = recent.map(|time| time.until_us.saturating_sub(time.from_us));
    let long: Vec<_> = took.filter(|us| *us >= at_least_us).collect();
    Some((long.len(), long.iter().copied().max()?))
}

fn of_peer(peer: PeerTimes, late_us: u64) -> Option<Finding> {
    if peer.round_trips.is_late(late_us) {
        Some(Finding::PeerLink(peer))
    } else if peer.acks.is_late(late_us) {
        Some(Finding::PeerDisk(peer))
    } else {
        None
    }
}

/// The clients that were waited for longest.
fn clients(slow: &[&Explanation], late_us: u64) -> Vec<Finding> {
    let mut waited = BTreeMap::<SessionId, (SocketAddr, usize, u64)>::new();
    for slow in slow {
        let of_client = slow.stages.iter().filter(|time| matches!(time.stage, Stage::Unread | Stage::Output));
        let waited_us: u64 = of_client.map(|time| time.took_us).sum();
        if waited_us >= late_us {
            let (_, requests, sum_us) =
                waited.entry(slow.request.session).or_insert((slow.request.client, 0, 0));
            (*requests, *sum_us) = (*requests + 1, *sum_us + waited_us);
        }
    }
    let mut waited: Vec<_> = waited.into_iter().collect();
    waited.sort_by_key(|(_, (_, _, waited_us))| std::cmp::Reverse(*waited_us));
    let named = waited.into_iter().take(CLIENTS_MAX);
    named
        .map(|(session, (client, requests, waited_us))| Finding::Client {
            session,
            client,
            requests,
            waited_us,
        })
        .collect()
}

fn hot_path(slow: &[&Explanation]) -> Option<Finding> {
    let mut counts = BTreeMap::<&str, usize>::new();
    for path in slow.iter().filter_map(|slow| slow.request.path.as_deref()) {
        *counts.entry(path).or_default() += 1;
    }
    let (path, requests) = counts.into_iter().max_by_key(|(_, count)| *count)?;
    let hot = requests >= HOT_MIN && requests * 2 >= slow.len();
    hot.then(|| Finding::Path { path: path.to_owned(), requests, of: slow.len() })
}

#[cfg(test)]
mod tests {
    use ringkeeper_wire::{OpCode, Xid};

    use super::*;
    use crate::slow::{SlowRequest, explain};

    const MS: u64 = 1000;
    const LATE_US: u64 = 25 * MS;

    fn took(p50_ms: u64, p90_ms: u64) -> Took {
        Took { count: 100, p50_us: p50_ms * MS, p90_us: p90_ms * MS, waiting_us: 0 }
    }

    fn peer(id: u64, acks: Took, round_trips: Took) -> PeerTimes {
        PeerTimes { server: ServerId(id), acks, round_trips }
    }

    fn find_in(slow: &[Explanation], pauses: &[Pause], members: &Members) -> Vec<Finding> {
        find(&Evidence { slow, pauses, members, leader: Some(ServerId(1)), since_us: 0, late_us: LATE_US })
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
        let paused = Finding::Pause { times: 2, longest_us: 2_000 * MS };
        assert_eq!(found, [paused, Finding::Leaderless { times: 1, longest_us: 800 * MS }]);
    }

    #[test]
    fn a_client_is_named_that_reads_late() {
        let unread = SlowRequest { decoded_us: 150 * MS, unread: true, began_us: 150 * MS, ..request("/a") };
        let output = SlowRequest { answered_us: 100 * MS, ..request("/b") };
        let slow = [unread, output, request("/c")].map(|request| explain(request, None, &[]));
        let [Finding::Client { session, requests, waited_us, .. }] =
            find_in(&slow, &[], &Members::default())[..]
        else {
            panic!("one client")
        };
        assert_eq!((session, requests, waited_us), (SessionId(7), 2, 250 * MS));
    }

    #[test]
    fn a_path_of_most_slow_requests_is_hot() {
        let slow: Vec<_> = ["/hot"; 12]
            .into_iter()
            .chain(["/a", "/b", "/c"])
            .map(|path| explain(request(path), None, &[]))
            .collect();
        let hot = Finding::Path { path: "/hot".to_owned(), requests: 12, of: 15 };
        assert_eq!(find_in(&slow, &[], &Members::default()), [hot]);
        assert_eq!(find_in(&slow[6..], &[], &Members::default()), [], "too few");
    }

    #[test]
    fn requests_that_wait_for_the_leader_name_it() {
        let waited = Explanation { mostly: Stage::Leader, ..explain(request("/a"), None, &[]) };
        let found = find_in(&[waited], &[], &Members::default());
        assert_eq!(found, [Finding::Leader { leader: Some(ServerId(1)), requests: 1 }]);
    }
}
