//! Values on the command line that several subcommands take.

use std::net::{SocketAddr, ToSocketAddrs};
use std::ops::RangeInclusive;
use std::time::Duration;

use crate::payload;

/// A server that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Server {
    /// As the user names it: what its certificate has to bear.
    pub(crate) host: String,
    pub(crate) address: SocketAddr,
}

/// `host:port`, resolved; the first address counts.
pub(crate) fn server(text: &str) -> Result<Server, String> {
    let mut addresses = text.to_socket_addrs().map_err(|error| format!("{error}; expected host:port"))?;
    let address = addresses.next().ok_or_else(|| "the name has no address".to_owned())?;
    let host = text.rsplit_once(':').map_or(text, |(host, _)| host);
    Ok(Server { host: host.trim_matches(['[', ']']).to_owned(), address })
}

/// A number of seconds, fractions allowed.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "expected a number of seconds".to_owned())?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

/// A number of seconds above zero.
pub(crate) fn window(text: &str) -> Result<Duration, String> {
    seconds(text)
        .and_then(|window| if window.is_zero() { Err("it must not be 0".into()) } else { Ok(window) })
}

/// A payload size that has room for the marks by which values are checked.
pub(crate) fn payload_len(text: &str) -> Result<usize, String> {
    in_range(text, payload::LEN_MIN..=payload::LEN_MAX)
}

/// A number of sessions, requests, threads or znodes.
pub(crate) fn count(text: &str) -> Result<usize, String> {
    in_range(text, 1..=1_000_000)
}

fn in_range(text: &str, range: RangeInclusive<usize>) -> Result<usize, String> {
    let value = text.parse().map_err(|_| "expected a whole number".to_owned())?;
    if range.contains(&value) {
        Ok(value)
    } else {
        Err(format!("expected {} to {}", range.start(), range.end()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_host_and_port() {
        for (text, host) in [("127.0.0.1:2181", "127.0.0.1"), ("[::1]:2181", "::1")] {
            assert_eq!(server(text), Ok(Server { host: host.to_owned(), address: text.parse().unwrap() }));
        }
        assert!(server("127.0.0.1").is_err());
    }

    #[test]
    fn seconds_may_have_fractions_but_no_sign() {
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        assert!(seconds("-1").is_err());
        assert!(window("0").is_err());
    }

    #[test]
    fn a_payload_without_room_for_marks_is_refused() {
        assert_eq!(payload_len("1024"), Ok(1024));
        assert!(payload_len("23").is_err());
        assert!(payload_len("1048576").is_err());
    }
}
