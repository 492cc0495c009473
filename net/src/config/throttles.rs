//! ZooKeeper's throttles: of sessions, of requests, and of large requests.

use ringkeeper_engine::replica::ConnectionThrottleSettings;
use ringkeeper_engine::shard::RequestThrottle;

use super::keys::{I32_MAX, Treatment, flag, number};

use Treatment::{Honoured, NoEffect};

/// The throttles of a server.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Throttles {
    pub(crate) connections: ConnectionThrottleSettings,
    requests: RequestThrottle,
}

impl Throttles {
    /// The throttle of requests for each of `shards` shards. Any single request that fits the bound of the
    /// server fits that of its shard.
    pub(crate) fn of_shard(&self, shards: u16, frame_len_max: usize) -> RequestThrottle {
        let RequestThrottle { outstanding_max, large_max_bytes, .. } = self.requests;
        let share = |total: usize| (total / usize::from(shards.max(1))).max(1);
        RequestThrottle {
            outstanding_max: if outstanding_max == usize::MAX { usize::MAX } else { share(outstanding_max) },
            large_max_bytes: share(large_max_bytes).max(frame_len_max.min(large_max_bytes)),
            ..self.requests.clone()
        }
    }
}

/// Keys by the names that Apache ZooKeeper reads, without the prefix `zookeeper.`.
pub(super) const KEYS: &[(&str, Treatment)] = &[
    (
        "connection_throttle_tokens",
        Honoured(|c, v| number(v, 0, I32_MAX).map(|n| c.throttles.connections.tokens = n)),
    ),
    (
        "connection_throttle_fill_time",
        Honoured(|c, v| number(v, 1, I32_MAX).map(|n| c.throttles.connections.fill_time_ms = n)),
    ),
    (
        "connection_throttle_fill_count",
        Honoured(|c, v| number(v, 0, I32_MAX).map(|n| c.throttles.connections.fill_count = n)),
    ),
    (
        "connection_throttle_freeze_time",
        Honoured(|c, v| unless_off(v, 0).map(|n| c.throttles.connections.freeze_time_ms = n)),
    ),
    (
        "connection_throttle_drop_increase",
        Honoured(|c, v| ratio(v).map(|n| c.throttles.connections.drop_increase = n)),
    ),
    (
        "connection_throttle_drop_decrease",
        Honoured(|c, v| ratio(v).map(|n| c.throttles.connections.drop_decrease = n)),
    ),
    (
        "connection_throttle_decrease_ratio",
        Honoured(|c, v| ratio(v).map(|n| c.throttles.connections.decrease_ratio = n)),
    ),
    (
        "connection_throttle_weight_enabled",
        Honoured(|c, v| flag(v).map(|on| c.throttles.connections.weighted = on)),
    ),
    (
        "connection_throttle_global_session_weight",
        Honoured(|c, v| number(v, 1, 1 << 16).map(|n| c.throttles.connections.new_session_weight = n)),
    ),
    (
        "connection_throttle_renew_session_weight",
        Honoured(|c, v| number(v, 1, 1 << 16).map(|n| c.throttles.connections.resumed_session_weight = n)),
    ),
    (
        "connection_throttle_local_session_weight",
        Honoured(|c, v| number(v, 1, 1 << 16).map(|n| c.throttles.connections.local_session_weight = n)),
    ),
    (
        "request_throttle_max_requests",
        Honoured(|c, v| {
            let max: usize = number(v, 0, I32_MAX)?;
            c.throttles.requests.outstanding_max = if max == 0 { usize::MAX } else { max };
            Ok(())
        }),
    ),
    (
        "throttled_op_wait_time",
        Honoured(|c, v| {
            let max = number(v, 0, I32_MAX)?;
            c.throttles.requests.wait_max_ms = if max == 0 { u64::MAX } else { max };
            Ok(())
        }),
    ),
    (
        "request_stale_latency_check",
        Honoured(|c, v| flag(v).map(|on| c.throttles.requests.checks_latency = on)),
    ),
    ("request_throttle_drop_stale", Honoured(|c, v| flag(v).map(|on| c.throttles.requests.drops_stale = on))),
    ("request_throttle_stall_time", NoEffect("requests that wait go on as soon as there is room")),
    ("request_stale_connection_check", NoEffect("requests that wait are dropped with their connection")),
    ("request_throttler.shutdownTimeout", NoEffect("requests that wait are dropped when the server stops")),
    (
        "largeRequestThreshold",
        Honoured(|c, v| {
            unless_off(v, 1).map(|n| c.throttles.requests.large_above_bytes = n.unwrap_or(usize::MAX))
        }),
    ),
    (
        "largeRequestMaxBytes",
        Honoured(|c, v| number(v, 1, I32_MAX).map(|n| c.throttles.requests.large_max_bytes = n)),
    ),
];

/// Names of Apache's administrator guide that Apache itself does not read, and the key that is meant.
const DOCUMENTED: &[(&str, &str)] = &[
    ("connectionMaxTokens", "connection_throttle_tokens"),
    ("connectionTokenFillTime", "connection_throttle_fill_time"),
    ("connectionTokenFillCount", "connection_throttle_fill_count"),
    ("connectionFreezeTime", "connection_throttle_freeze_time"),
    ("connectionDropIncrease", "connection_throttle_drop_increase"),
    ("connectionDropDecrease", "connection_throttle_drop_decrease"),
    ("connectionDecreaseRatio", "connection_throttle_decrease_ratio"),
    ("requestThrottleLimit", "request_throttle_max_requests"),
    ("requestThrottleStallTime", "request_throttle_stall_time"),
    ("requestThrottleDropStale", "request_throttle_drop_stale"),
    ("requestStaleLatencyCheck", "request_stale_latency_check"),
    ("requestStaleConnectionCheck", "request_stale_connection_check"),
    ("throttledOpWaitTime", "throttled_op_wait_time"),
];

/// The key that a name stands for, itself if it is one.
pub(super) fn meant(name: &str) -> &str {
    DOCUMENTED.iter().find(|(documented, _)| *documented == name).map_or(name, |(_, key)| key)
}

/// A number of at least `min`; -1 switches the feature off.
fn unless_off<T: TryFrom<u64>>(value: &str, min: u64) -> Result<Option<T>, String> {
    if value == "-1" { Ok(None) } else { number(value, min, I32_MAX).map(Some) }
}

/// A share from 0 to 1.
fn ratio(value: &str) -> Result<f64, String> {
    let ratio = value.parse().ok().filter(|ratio| (0.0..=1.0).contains(ratio));
    ratio.ok_or_else(|| format!("{value:?} is not a number from 0 to 1"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn read(options: &[&str]) -> Result<Throttles, String> {
        let mut config = Config::default();
        let options: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
        config.set_options(&options).map_err(|error| error.to_string())?;
        Ok(config.throttles)
    }

    #[test]
    fn keys_are_read_by_apaches_names_and_by_those_of_its_guide() {
        for names in [
            [
                "zookeeper.connection_throttle_tokens",
                "request_throttle_max_requests",
                "throttled_op_wait_time",
            ],
            ["connectionMaxTokens", "requestThrottleLimit", "throttledOpWaitTime"],
        ] {
            let [tokens, limit, wait] = names.map(|name| format!("{name}=7"));
            let throttles = read(&[&tokens, &limit, &wait]).expect("valid");
            let RequestThrottle { outstanding_max, wait_max_ms, .. } = throttles.requests;
            assert_eq!((throttles.connections.tokens, outstanding_max, wait_max_ms), (7, 7, 7));
        }
    }

    #[test]
    fn what_is_switched_off_is_as_by_default() {
        let off = [
            "connection_throttle_tokens=0",
            "connection_throttle_freeze_time=-1",
            "request_throttle_max_requests=0",
            "throttled_op_wait_time=0",
            "largeRequestThreshold=-1",
        ];
        assert_eq!(read(&off), Ok(Throttles::default()));
    }

    #[test]
    fn values_that_make_no_sense_are_refused() {
        for (option, reason) in [
            ("connection_throttle_fill_time=0", "0 is not a number from 1 to 2147483647"),
            ("connectionDropIncrease=1.5", "\"1.5\" is not a number from 0 to 1"),
            ("connection_throttle_drop_decrease=NaN", "\"NaN\" is not a number from 0 to 1"),
            ("largeRequestThreshold=0", "0 is not a number from 1 to 2147483647"),
        ] {
            assert!(read(&[option]).expect_err(option).ends_with(reason), "{option}");
        }
    }

    #[test]
    fn each_shard_has_its_part_and_room_for_any_request_that_the_server_has_room_for() {
        let throttles = read(&["requestThrottleLimit=10", "largeRequestMaxBytes=8000"]).expect("valid");
        let parts = [(1, 1_000), (4, 1_000), (16, 1_000), (16, 100_000)].map(|(shards, frame_len_max)| {
            let part = throttles.of_shard(shards, frame_len_max);
            (part.outstanding_max, part.large_max_bytes)
        });
        assert_eq!(parts, [(10, 8_000), (2, 2_000), (1, 1_000), (1, 8_000)]);
        assert_eq!(Throttles::default().of_shard(4, 1_000).outstanding_max, usize::MAX);
    }
}
