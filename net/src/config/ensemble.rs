//! `server.N` lines: who belongs to the ensemble (ZooKeeper's dynamic configuration format).

use std::net::Ipv6Addr;

/// Whether a server votes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PeerRole {
    Participant,
    Observer,
}

/// One server of the ensemble. Hosts stay names: they are resolved at each dial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerSpec {
    pub(crate) id: u64,
    pub(crate) host: String,
    pub(crate) quorum_port: u16,
    pub(crate) election_port: u16,
    pub(crate) role: PeerRole,
    /// Its clients' host and port, if the line names them.
    pub(crate) client: Option<(Option<String>, u16)>,
}

impl ServerSpec {
    /// Reads `host:quorumPort:electionPort[:role][;[clientHost:]clientPort]`.
    pub(crate) fn parse(id: u64, text: &str) -> Result<Self, String> {
        let shape = "host:quorumPort:electionPort[:participant|observer][;[clientHost:]clientPort]";
        let wrong = || format!("{text:?} is not of the form {shape}");
        let (peer, client) = match text.split_once(';') {
            Some((peer, client)) => (peer, Some(parse_client(client).ok_or_else(wrong)?)),
            None => (text, None),
        };
        if peer.contains('|') {
            return Err(
                "several addresses for one server (a:p:p|b:p:p) are not supported: name one".to_owned()
            );
        }
        let (host, rest) = split_host(peer).ok_or_else(wrong)?;
        let mut fields = rest.split(':');
        let mut port =
            || fields.next().and_then(|port| port.trim().parse::<u16>().ok()).filter(|&port| port != 0);
        let (quorum_port, election_port) = (port().ok_or_else(wrong)?, port().ok_or_else(wrong)?);
        let role = match fields.next().map(|role| role.trim().to_ascii_lowercase()).as_deref() {
            None | Some("participant") => PeerRole::Participant,
            Some("observer") => PeerRole::Observer,
            Some(_) => return Err(wrong()),
        };
        if fields.next().is_some() {
            return Err(wrong());
        }
        Ok(Self { id, host: host.to_owned(), quorum_port, election_port, role, client })
    }

    /// Its line in `/zookeeper/config`, without `server.N=`. The client port is included only if the line
    /// itself names it, since one server's `clientPort` is unknown to the others.
    pub(crate) fn describe(&self) -> String {
        let role = match self.role {
            PeerRole::Participant => "participant",
            PeerRole::Observer => "observer",
        };
        let host = bracketed(&self.host);
        let client = self.client.as_ref().map_or_else(String::new, |(host, port)| {
            format!(";{}:{port}", bracketed(host.as_deref().unwrap_or("0.0.0.0")))
        });
        format!("{host}:{}:{}:{role}{client}", self.quorum_port, self.election_port)
    }
}

/// The text of `/zookeeper/config`: the same on all servers, empty for a server alone. The version is that of
/// a configuration from files (docs/protocol.md, 8).
pub(crate) fn describe_all(servers: &[ServerSpec]) -> String {
    if servers.is_empty() {
        return String::new();
    }
    let mut servers: Vec<_> = servers.iter().collect();
    servers.sort_unstable_by_key(|server| server.id);
    let lines: String =
        servers.iter().map(|server| format!("server.{}={}\n", server.id, server.describe())).collect();
    lines + "version=0"
}

/// A host as it is written before a colon and a port: only an IPv6 address has colons of its own.
fn bracketed(host: &str) -> String {
    let address = host.split('%').next().and_then(|address| address.parse::<Ipv6Addr>().ok());
    if address.is_some() { format!("[{host}]") } else { host.to_owned() }
}

/// `[v6]:rest` or `host:rest`.
fn split_host(text: &str) -> Option<(&str, &str)> {
    let (host, rest) = match text.strip_prefix('[') {
        Some(bracketed) => bracketed.split_once("]:")?,
        None => text.split_once(':')?,
    };
    let host = host.trim();
    (!host.is_empty()).then_some((host, rest))
}

fn parse_client(text: &str) -> Option<(Option<String>, u16)> {
    let text = text.trim();
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) => (Some(host.trim_matches(['[', ']']).to_owned()), port),
        None => (None, text),
    };
    if host.as_ref().is_some_and(String::is_empty) {
        return None;
    }
    Some((host, port.trim().parse().ok().filter(|&port| port != 0)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_a_server_line_is_read() {
        let plain = ServerSpec::parse(1, "zoo1:2888:3888").expect("valid");
        assert_eq!((plain.host.as_str(), plain.quorum_port, plain.election_port), ("zoo1", 2888, 3888));
        assert_eq!((plain.role, plain.client), (PeerRole::Participant, None));
        let full = ServerSpec::parse(2, "[fe80::1]:2888:3888:observer;[::1]:2181").expect("valid");
        assert_eq!((full.host.as_str(), full.role), ("fe80::1", PeerRole::Observer));
        assert_eq!(full.client, Some((Some("::1".to_owned()), 2181)));
        let port_only = ServerSpec::parse(3, "a:1:2:participant;2181").expect("valid");
        assert_eq!(port_only.client, Some((None, 2181)));
        assert_eq!(port_only.describe(), "a:1:2:participant;0.0.0.0:2181");
    }

    #[test]
    fn a_described_server_reads_as_the_same_server() {
        for text in [
            "zoo1:2888:3888",
            "[fe80::1]:2888:3888:observer;[::1]:2181",
            "a:1:2;9.9.9.9:2181",
            "[fe80::1%eth0]:1:2;[fe80::1%eth0]:2181",
            "zoo1:1:2;zoo1:2181",
        ] {
            let server = ServerSpec::parse(7, text).expect("valid");
            assert_eq!(ServerSpec::parse(7, &server.describe()), Ok(server), "{text}");
        }
    }

    #[test]
    fn the_ensemble_is_described_by_number_and_without_what_only_one_server_knows() {
        let server = |id, text| ServerSpec::parse(id, text).expect("valid");
        let servers = [server(10, "c:1:2:observer;2181"), server(2, "b:1:2"), server(1, "a:1:2;127.0.0.1:9")];
        assert_eq!(
            describe_all(&servers),
            "server.1=a:1:2:participant;127.0.0.1:9\nserver.2=b:1:2:participant\n\
             server.10=c:1:2:observer;0.0.0.0:2181\nversion=0"
        );
        assert_eq!(describe_all(&[]), "");
    }

    #[test]
    fn lines_of_another_form_are_refused() {
        for text in
            ["", "a", "a:1", "a:0:1", ":1:2", "a:1:2:voter", "a:1:2;x", "a:1:2:observer:3", "a:1:70000"]
        {
            assert!(ServerSpec::parse(1, text).is_err(), "{text}");
        }
        assert!(ServerSpec::parse(1, "a:1:2|b:1:2").expect_err("two addresses").contains("not supported"));
    }
}
