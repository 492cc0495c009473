//! What an ensemble on machines of its own reaches, by what an operation costs each of its servers.

use std::fmt;

/// Bytes of a request or a reply beside the value, with the headers of TCP.
const MESSAGE_BYTES: f64 = 120.0;

/// Bytes of a write beside the value, in the log and between servers.
const RECORD_BYTES: f64 = 120.0;

/// CPU seconds that an operation takes, where clients are spread evenly over all servers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Costs {
    /// Of a write, at the leader: to order it, log it, and pass it on to all others.
    pub(crate) lead: f64,
    /// Of a write, at each other server: to log it, and apply it.
    pub(crate) follow: f64,
    /// Of a write, at the server that its client is connected to.
    pub(crate) serve_write: f64,
    /// Of a read, there.
    pub(crate) serve_read: f64,
}

impl Costs {
    /// Of all `servers`, for an operation of a load with this share of reads.
    pub(crate) fn of_all(&self, servers: f64, reads: f64) -> f64 {
        let write = (servers - 1.0).mul_add(self.follow, self.lead) + self.serve_write;
        (1.0 - reads).mul_add(write, reads * self.serve_read)
    }
}

/// A server's machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hardware {
    pub(crate) name: &'static str,
    pub(crate) cores: f64,
    /// In each direction.
    pub(crate) link_bytes_per_second: f64,
    pub(crate) disk_bytes_per_second: f64,
}

impl Hardware {
    /// Those of the paper had two cores and gigabit Ethernet, and a disk for the log alone.
    pub(crate) const OF_THE_PAPER: Self =
        Self { name: "", cores: 2.0, link_bytes_per_second: 1e9 / 8.0, disk_bytes_per_second: 100e6 };

    /// Of today.
    pub(crate) const OF_TODAY: Self = Self {
        name: "16 cores, 25 Gbit/s, 1 GB/s to disk",
        cores: 16.0,
        link_bytes_per_second: 25e9 / 8.0,
        disk_bytes_per_second: 1e9,
    };

    /// Up to two cores a server is one thread. From three on one core leads or follows, and the others serve
    /// clients.
    fn divides_work(&self) -> bool {
        self.cores > 2.0
    }
}

/// What holds an ensemble back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    /// The thread of the leader, or its core that leads.
    Leading,
    /// The same at the other servers.
    Following,
    /// The cores that serve clients.
    Serving,
    LeadersLink,
    Link,
    Disk,
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Leading => "the leader's core that leads",
            Self::Following => "the core of each follower that follows",
            Self::Serving => "the cores that serve clients",
            Self::LeadersLink => "the leader's link",
            Self::Link => "each server's link",
            Self::Disk => "the disk",
        })
    }
}

/// Operations a second that `servers` reach with this share of reads (0 to 1), and what keeps them from more.
pub(crate) fn predict(
    costs: &Costs,
    servers: f64,
    reads: f64,
    value_bytes: f64,
    on: &Hardware,
) -> (f64, Limit) {
    let writes = 1.0 - reads;
    // What a server serves, of each operation of the ensemble.
    let serving = writes.mul_add(costs.serve_write, reads * costs.serve_read) / servers;
    let shares = if on.divides_work() {
        [
            (Limit::Leading, writes * costs.lead),
            (Limit::Following, writes * costs.follow),
            (Limit::Serving, serving / (on.cores - 1.0)),
        ]
    } else {
        [
            (Limit::Leading, writes.mul_add(costs.lead, serving)),
            (Limit::Following, writes.mul_add(costs.follow, serving)),
            (Limit::Serving, serving),
        ]
    };
    let message = value_bytes + MESSAGE_BYTES;
    // To its clients: values that are read, and short answers.
    let answers = reads.mul_add(message, writes * MESSAGE_BYTES) / servers;
    let record = writes * (value_bytes + RECORD_BYTES);
    let passed_on = record * (servers - 1.0);
    // Followers pass on what their clients write.
    let forwarded = record / servers;
    let bytes = [
        (Limit::Link, (forwarded + answers) / on.link_bytes_per_second),
        (Limit::LeadersLink, (passed_on + answers) / on.link_bytes_per_second),
        (Limit::Disk, record / on.disk_bytes_per_second),
    ];
    // Of two that are alike the first one counts.
    let all = shares.into_iter().chain(bytes);
    let (limit, seconds) =
        all.reduce(|most, next| if next.1 > most.1 { next } else { most }).expect("there are limits");
    (1.0 / seconds, limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: f64 = 1e-6;
    const COSTS: Costs =
        Costs { lead: 10.0 * US, follow: 4.0 * US, serve_write: 6.0 * US, serve_read: 3.0 * US };
    const VALUE: f64 = 1024.0;

    fn near(found: (f64, Limit), expected: f64, limit: Limit) {
        assert!((found.0 / expected - 1.0).abs() < 1e-3 && found.1 == limit, "{found:?}");
    }

    #[test]
    fn on_two_cores_the_leaders_thread_does_all_that_a_leader_and_its_clients_need() {
        let fast = Hardware { link_bytes_per_second: 1e12, ..Hardware::OF_THE_PAPER };
        let fast = Hardware { disk_bytes_per_second: 1e12, ..fast };
        near(predict(&COSTS, 3.0, 0.0, VALUE, &fast), 1e6 / 12.0, Limit::Leading);
        near(predict(&COSTS, 3.0, 1.0, VALUE, &fast), 1e6, Limit::Leading);
        near(predict(&COSTS, 3.0, 0.5, VALUE, &fast), 1e6 / 6.5, Limit::Leading);
    }

    #[test]
    fn with_more_cores_serving_and_leading_are_limits_of_their_own() {
        let on = Hardware { link_bytes_per_second: 1e12, disk_bytes_per_second: 1e12, ..Hardware::OF_TODAY };
        near(predict(&COSTS, 5.0, 0.0, VALUE, &on), 1e5, Limit::Leading);
        near(predict(&COSTS, 5.0, 1.0, VALUE, &on), 25e6, Limit::Serving);
    }

    #[test]
    fn a_slow_link_is_filled_by_the_leader_and_by_reads_everywhere() {
        let on = Hardware::OF_THE_PAPER;
        let to_others = 2.0 * (VALUE + RECORD_BYTES) + MESSAGE_BYTES / 3.0;
        near(predict(&COSTS, 3.0, 0.0, VALUE, &on), 125e6 / to_others, Limit::LeadersLink);
        near(predict(&COSTS, 3.0, 1.0, VALUE, &on), 3.0 * 125e6 / (VALUE + MESSAGE_BYTES), Limit::Link);
        let slow = Hardware { disk_bytes_per_second: 1e6, ..on };
        near(predict(&COSTS, 3.0, 0.0, VALUE, &slow), 1e6 / (VALUE + RECORD_BYTES), Limit::Disk);
    }

    #[test]
    fn all_servers_together_pay_for_each_role_once_and_for_each_follower() {
        assert!((COSTS.of_all(3.0, 0.0) / (24.0 * US) - 1.0).abs() < 1e-9);
        assert!((COSTS.of_all(3.0, 0.5) / (13.5 * US) - 1.0).abs() < 1e-9);
    }
}
