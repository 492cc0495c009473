//! Connection strings: `host:port,host:port/chroot`.

use crate::path;
use crate::{Error, Result};

/// ZooKeeper's port for clients, used where a server is named without one.
const DEFAULT_PORT: u16 = 2181;

/// A parsed connection string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConnectString {
    /// Hosts and ports, in the order given; at least one.
    pub(crate) servers: Vec<(String, u16)>,
    /// Prefix of all paths, empty or beginning with '/' and not ending with it.
    pub(crate) chroot: String,
}

impl ConnectString {
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let fail = |reason| Error::InvalidConnectString { text: text.to_owned(), reason };
        let (hosts, chroot) = text.split_at(text.find('/').unwrap_or(text.len()));
        let chroot = chroot.trim_end_matches('/');
        if !chroot.is_empty() {
            path::validate(chroot).map_err(|_| fail("the chroot is not a path"))?;
        }
        let servers = hosts
            .split(',')
            .map(|server| parse_server(server.trim()).map_err(fail))
            .collect::<Result<Vec<_>>>()?;
        Ok(Self { servers, chroot: chroot.to_owned() })
    }
}

fn parse_server(server: &str) -> Result<(String, u16), &'static str> {
    if server.is_empty() {
        return Err("a server is empty");
    }
    let (host, port) = match server.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']').ok_or("a bracket is not closed")?;
            match port {
                "" => (host, None),
                _ => (host, Some(port.strip_prefix(':').ok_or("no colon before the port")?)),
            }
        }
        // More than one colon without brackets: an IPv6 address without a port.
        None if server.matches(':').count() > 1 => (server, None),
        None => match server.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (server, None),
        },
    };
    if host.is_empty() || host.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Err("a host is empty or has white space");
    }
    match port.map(str::parse) {
        None => Ok((host.to_owned(), DEFAULT_PORT)),
        Some(Ok(port)) if port != 0 => Ok((host.to_owned(), port)),
        Some(_) => Err("a port is not a number from 1 to 65535"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> (Vec<(String, u16)>, String) {
        let parsed = ConnectString::parse(text).expect("a good string");
        (parsed.servers, parsed.chroot)
    }

    #[test]
    fn servers_ports_and_chroot_are_told_apart() {
        let servers = vec![("a".to_owned(), 1), ("b".to_owned(), 2181)];
        assert_eq!(parse("a:1,b/x/y"), (servers.clone(), "/x/y".to_owned()));
        assert_eq!(parse("a:1, b/"), (servers, String::new()));
    }

    #[test]
    fn ipv6_addresses_go_with_and_without_brackets() {
        assert_eq!(parse("[::1]:99").0, [("::1".to_owned(), 99)]);
        assert_eq!(parse("[fe80::1]").0, [("fe80::1".to_owned(), 2181)]);
        assert_eq!(parse("::1").0, [("::1".to_owned(), 2181)]);
    }

    #[test]
    fn wrong_strings_are_refused() {
        for text in
            ["", ",", "a:0", "a:b", "a:70000", ":1", "a,,b", "[::1", "[::1]9", "a b:1", "a/x//y", "a/."]
        {
            assert!(ConnectString::parse(text).is_err(), "{text:?}");
        }
    }
}
