//! Who belongs to the ensemble, in ZooKeeper's dynamic configuration format: `server.N` lines, groups of
//! voters if they have any, and a version.

mod groups;

use std::collections::BTreeMap;
use std::net::Ipv6Addr;

use ringkeeper_wire::{ServerId, Zxid};

pub use self::groups::Groups;
use crate::level::Level;
use crate::zab::{self, Hierarchical, Quorum, QuorumSystem, ServerSet};

/// Whether a server votes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerRole {
    /// It votes.
    Participant,
    /// It learns.
    Observer,
}

/// Where a server is reached by other servers, in one network.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MemberAddress {
    /// Name or address, without brackets. It stays a name: it is resolved at each dial.
    pub host: String,
    /// Where the server listens for others.
    pub quorum_port: u16,
    /// Kept for ZooKeeper's form; nothing listens there.
    pub election_port: u16,
}

/// One server of the ensemble.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerSpec {
    /// Its id.
    pub id: u64,
    /// One, or one in each of several networks, by rising host.
    pub addresses: Vec<MemberAddress>,
    /// Whether it votes.
    pub role: PeerRole,
    /// Its clients' host and port, if the line names them.
    pub client: Option<(Option<String>, u16)>,
}

impl ServerSpec {
    /// Reads `host:quorumPort:electionPort[:role][|...][;[clientHost:]clientPort]`.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub fn parse(id: u64, text: &str) -> Result<Self, String> {
        let shape = "host:quorumPort:electionPort[:participant|observer][;[clientHost:]clientPort]";
        let wrong = || format!("{text:?} is not of the form {shape}");
        let (peer, client) = match text.split_once(';') {
            Some((peer, client)) => (peer, Some(parse_client(client).ok_or_else(wrong)?)),
            None => (text, None),
        };
        let (mut addresses, mut role) = (Vec::<MemberAddress>::new(), None);
        for part in peer.split('|') {
            let (address, named) = parse_address(part).ok_or_else(wrong)?;
            if role.zip(named).is_some_and(|(before, named)| before != named) {
                return Err(format!("{text:?} gives its addresses different roles: a server has one"));
            }
            role = role.or(named);
            let (host, port) = (&address.host, address.quorum_port);
            if addresses.iter().any(|other| other.host == *host && other.quorum_port == port) {
                return Err(format!("{text:?} names {host}:{port} twice"));
            }
            addresses.push(address);
        }
        addresses.sort();
        Ok(Self { id, addresses, role: role.unwrap_or(PeerRole::Participant), client })
    }

    /// Its line in `/zookeeper/config`, without `server.N=`. The client port is included only if the line
    /// itself names it, since one server's `clientPort` is unknown to the others.
    #[must_use]
    pub fn describe(&self) -> String {
        let role = match self.role {
            PeerRole::Participant => "participant",
            PeerRole::Observer => "observer",
        };
        let addresses: Vec<_> = self.addresses.iter().map(MemberAddress::describe).collect();
        let client = self.client.as_ref().map_or_else(String::new, |(host, port)| {
            format!(";{}:{port}", bracketed(host.as_deref().unwrap_or("0.0.0.0")))
        });
        format!("{}:{role}{client}", addresses.join("|"))
    }

    /// Its first address.
    ///
    /// # Panics
    /// It has none.
    #[must_use]
    pub fn first(&self) -> &MemberAddress {
        self.addresses.first().expect("a server has an address")
    }

    /// Whether it is reached in more than one way.
    #[must_use]
    pub const fn has_several_addresses(&self) -> bool {
        self.addresses.len() > 1
    }

    /// Whether a port stands for two things at one address, of which only one can have it. Lines in files and
    /// logs may be so: nothing listens at the election port.
    #[must_use]
    pub fn names_a_port_twice(&self) -> bool {
        self.addresses.iter().any(|MemberAddress { host, quorum_port, election_port }| {
            let is_clients = |port: &u16| {
                self.client.as_ref().is_some_and(|(client, clients)| {
                    clients == port
                        && client.as_ref().is_none_or(|client| client == host || is_special(client))
                })
            };
            quorum_port == election_port || is_clients(quorum_port) || is_clients(election_port)
        })
    }

    /// Whether two servers have an address in common that only one can have.
    fn meets(&self, other: &Self) -> bool {
        let own = |server: &Self| {
            let mut own = Vec::new();
            for MemberAddress { host, quorum_port, election_port } in &server.addresses {
                own.extend([quorum_port, election_port].map(|port| (host.clone(), *port)));
                own.extend(server.client.as_ref().map(|(client, port)| {
                    (client.clone().filter(|host| !is_special(host)).unwrap_or_else(|| host.clone()), *port)
                }));
            }
            own
        };
        let theirs = own(other);
        own(self).iter().any(|address| theirs.contains(address))
    }
}

impl MemberAddress {
    fn describe(&self) -> String {
        format!("{}:{}:{}", bracketed(&self.host), self.quorum_port, self.election_port)
    }
}

/// The members of an ensemble.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    /// By their ids.
    servers: BTreeMap<u64, ServerSpec>,
    /// None if majorities decide.
    groups: Groups,
}

/// Members as the log has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    /// They.
    pub members: Members,
    /// Who decides.
    pub quorums: zab::Membership,
    /// The level without which these are not the members.
    pub need: Level,
}

impl Members {
    /// Reads the text of `/zookeeper/config`, and its version.
    ///
    /// # Errors
    /// The line that is wrong.
    pub fn parse(text: &str) -> Result<(Self, u64), String> {
        let (mut members, mut groups, mut version) = (Self::default(), Groups::default(), 0);
        for line in text.split(['\n', ',']).map(str::trim).filter(|line| !line.is_empty()) {
            let (key, value) = line.split_once('=').ok_or_else(|| format!("{line:?} is not key=value"))?;
            if key.trim() == "version" {
                let digits = value.trim();
                version =
                    u64::from_str_radix(digits, 16).map_err(|_| format!("version {digits:?} is not hex"))?;
            } else if key.trim().starts_with("server.") {
                members.insert(parse_member(line)?);
            } else if !groups.read(key.trim(), value.trim())? {
                return Err(format!("{key:?} is not a key of a membership"));
            }
        }
        let members = members.in_groups(groups);
        members.check_groups().map_err(|(_, reason)| reason)?;
        Ok((members, version))
    }

    /// The text of `/zookeeper/config`: the same on all servers, empty for a server alone.
    #[must_use]
    pub fn describe(&self, version: u64) -> String {
        if self.servers.is_empty() {
            return String::new();
        }
        let lines: String =
            self.iter().map(|server| format!("server.{}={}\n", server.id, server.describe())).collect();
        let participants = self.participants().map(|server| server.id);
        format!("{lines}{}version={version:x}", self.groups.describe(participants))
    }

    /// The same servers in these groups.
    #[must_use]
    pub fn in_groups(self, groups: Groups) -> Self {
        Self { groups, ..self }
    }

    /// Whether voters stand in groups, by which quorums are found.
    #[must_use]
    pub fn are_grouped(&self) -> bool {
        !self.groups.is_empty()
    }

    /// Whether each voter has one group, and some group has weight, if there are groups.
    ///
    /// # Errors
    /// The key of the line that is wrong, and the reason.
    pub fn check_groups(&self) -> Result<(), (String, String)> {
        if !self.are_grouped() {
            return Ok(());
        }
        let participants: Vec<_> = self.participants().map(|server| server.id).collect();
        self.groups.check(&participants)
    }

    /// Who votes, and which sets are quorums.
    #[must_use]
    pub fn quorums(&self) -> QuorumSystem {
        if !self.are_grouped() {
            return QuorumSystem::majorities(self.with_role(PeerRole::Participant));
        }
        let participants: Vec<_> = self.participants().map(|server| server.id).collect();
        QuorumSystem::Hierarchical(Hierarchical::new(self.groups.places(&participants)))
    }

    /// Who learns without a vote: observers, and participants of weight 0.
    #[must_use]
    pub fn learners(&self) -> ServerSet {
        let all: ServerSet = self.iter().map(|server| ServerId(server.id)).collect();
        all.difference(self.quorums().voters())
    }

    fn participants(&self) -> impl Iterator<Item = &ServerSpec> {
        self.iter().filter(|server| server.role == PeerRole::Participant)
    }

    /// Whether a member is reached in more than one way.
    #[must_use]
    pub fn has_several_addresses(&self) -> bool {
        self.iter().any(ServerSpec::has_several_addresses)
    }

    /// Adds a member, or replaces the one with its id.
    pub fn insert(&mut self, server: ServerSpec) {
        self.servers.insert(server.id, server);
    }

    /// The members by rising id.
    pub fn iter(&self) -> impl Iterator<Item = &ServerSpec> {
        self.servers.values()
    }

    /// A member.
    #[must_use]
    pub fn get(&self, id: ServerId) -> Option<&ServerSpec> {
        self.servers.get(&id.0)
    }

    /// Those with a role.
    #[must_use]
    pub fn with_role(&self, role: PeerRole) -> ServerSet {
        self.iter().filter(|server| server.role == role).map(|server| ServerId(server.id)).collect()
    }

    /// These members after an incremental change, in ZooKeeper's words: ids that leave, then servers that
    /// join or change, both separated by commas.
    ///
    /// # Errors
    /// What is wrong with the words; or voters stand in groups, which the words do not name.
    pub fn changed(&self, leaving: &str, joining: &str) -> Result<Self, String> {
        if self.are_grouped() {
            return Err("voters stand in groups: name all members anew, with their groups".to_owned());
        }
        let mut members = self.clone();
        for id in leaving.split(',').map(str::trim).filter(|id| !id.is_empty()) {
            members.servers.remove(&id.parse().map_err(|_| format!("{id:?} is not the id of a server"))?);
        }
        for line in joining.split(',').map(str::trim).filter(|line| !line.is_empty()) {
            let server = parse_member(line)?;
            if server.client.is_none() {
                return Err(format!("{line:?} names no client port: add ;clientPort"));
            }
            if let Some(other) = members.iter().find(|other| other.id != server.id && other.meets(&server)) {
                return Err(format!("{line:?} has an address of server {}", other.id));
            }
            members.insert(server);
        }
        Ok(members)
    }
}

impl FromIterator<ServerSpec> for Members {
    fn from_iter<I: IntoIterator<Item = ServerSpec>>(servers: I) -> Self {
        let servers = servers.into_iter().map(|server| (server.id, server)).collect();
        Self { servers, groups: Groups::default() }
    }
}

impl Membership {
    /// The members that the text of `/zookeeper/config` names, written by the transaction `since`. `before`
    /// are those of the text before; `None` if they are the ones that servers have in their configuration
    /// files. The version 0 says that the text itself is from there: `None`.
    #[must_use]
    pub fn read(text: &[u8], since: Zxid, before: Option<&Self>) -> Option<Self> {
        let (members, version) = Members::parse(str::from_utf8(text).ok()?).ok()?;
        if version == 0 {
            return None;
        }
        let (voters, observers) = (members.quorums(), members.learners());
        let (several_addresses, need) = (members.has_several_addresses(), Level::needed_by(&members));
        let before = before.map(|before| before.quorums.voters.clone());
        let quorums = zab::Membership { since, voters, observers, before, several_addresses };
        Some(Self { members, quorums, need })
    }

    /// As [`Self::read`], for a text that is committed.
    #[must_use]
    pub fn read_committed(text: &[u8], since: Zxid) -> Option<Self> {
        let mut read = Self::read(text, since, None)?;
        read.quorums.before = Some(read.quorums.voters.clone());
        Some(read)
    }
}

/// Reads `server.N=spec`; the word before the point may be any, or missing, as in ZooKeeper.
fn parse_member(line: &str) -> Result<ServerSpec, String> {
    let (key, value) = line.split_once('=').ok_or_else(|| format!("{line:?} is not server.N=..."))?;
    let id = key.rsplit('.').next().unwrap_or(key).trim();
    let id = id.parse().map_err(|_| format!("{key:?} does not name a server"))?;
    ServerSpec::parse(id, value.trim())
}

/// A host as it is written before a colon and a port: only an IPv6 address has colons of its own.
fn bracketed(host: &str) -> String {
    let address = host.split('%').next().and_then(|address| address.parse::<Ipv6Addr>().ok());
    if address.is_some() { format!("[{host}]") } else { host.to_owned() }
}

/// Whether the address stands for all of a machine's.
fn is_special(host: &str) -> bool {
    host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_unspecified())
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

/// `host:quorumPort:electionPort[:role]`.
fn parse_address(text: &str) -> Option<(MemberAddress, Option<PeerRole>)> {
    let (host, rest) = split_host(text)?;
    let mut fields = rest.split(':');
    let mut port =
        || fields.next().and_then(|port| port.trim().parse::<u16>().ok()).filter(|&port| port != 0);
    let (quorum_port, election_port) = (port()?, port()?);
    let role = match fields.next().map(|role| role.trim().to_ascii_lowercase()).as_deref() {
        None => None,
        Some("participant") => Some(PeerRole::Participant),
        Some("observer") => Some(PeerRole::Observer),
        Some(_) => return None,
    };
    let address = MemberAddress { host: host.to_owned(), quorum_port, election_port };
    fields.next().is_none().then_some((address, role))
}

fn parse_client(text: &str) -> Option<(Option<String>, u16)> {
    let text = text.trim();
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) => (Some(host.trim_matches(['[', ']']).to_owned()), port),
        None => (None, text),
    };
    // Clients have one address, whatever other servers have.
    if host.as_ref().is_some_and(|host| host.is_empty() || host.contains('|')) {
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
        let zoo1 = MemberAddress { host: "zoo1".to_owned(), quorum_port: 2888, election_port: 3888 };
        assert_eq!(plain.addresses, [zoo1]);
        assert_eq!((plain.role, plain.client), (PeerRole::Participant, None));
        let full = ServerSpec::parse(2, "[fe80::1]:2888:3888:observer;[::1]:2181").expect("valid");
        assert_eq!((full.first().host.as_str(), full.role), ("fe80::1", PeerRole::Observer));
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
            "a:1:2|b:1:2:observer;9.9.9.9:2181",
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
            servers.into_iter().collect::<Members>().describe(0),
            "server.1=a:1:2:participant;127.0.0.1:9\nserver.2=b:1:2:participant\n\
             server.10=c:1:2:observer;0.0.0.0:2181\nversion=0"
        );
        assert_eq!(Members::default().describe(0), "");
    }

    #[test]
    fn lines_of_another_form_are_refused() {
        for text in
            ["", "a", "a:1", "a:0:1", ":1:2", "a:1:2:voter", "a:1:2;x", "a:1:2:observer:3", "a:1:70000"]
        {
            assert!(ServerSpec::parse(1, text).is_err(), "{text}");
        }
        for (text, says) in [
            ("a:1:2|", "of the form"),
            ("a:1:2;5|b:1:2", "of the form"),
            ("a:1:2:participant|b:1:2:observer", "different roles"),
            ("a:1:2|a:1:3", "a:1 twice"),
        ] {
            let refused = ServerSpec::parse(1, text).expect_err(text);
            assert!(refused.contains(says), "{refused}");
        }
    }

    #[test]
    fn several_addresses_are_written_by_rising_host_with_one_role_behind_them() {
        for (text, described) in [
            ("b:3:4|a:1:2", "a:1:2|b:3:4:participant"),
            ("10.0.2.1:1:2|10.0.10.1:1:2:observer;5", "10.0.10.1:1:2|10.0.2.1:1:2:observer;0.0.0.0:5"),
            ("[fe80::1]:1:2:participant|b:1:2:participant", "b:1:2|[fe80::1]:1:2:participant"),
            ("a:9:2|a:1:3", "a:1:3|a:9:2:participant"),
        ] {
            let server = ServerSpec::parse(7, text).expect("valid");
            assert!(server.has_several_addresses() && server.describe() == described, "{server:?}");
        }
    }

    #[test]
    fn a_port_that_stands_for_two_things_at_one_address_is_found() {
        for (text, is_twice) in [
            ("a:1:2;3", false),
            ("a:1:1;3", true),
            ("a:1:2;1", true),
            ("a:1:2;0.0.0.0:2", true),
            ("a:1:2;a:1", true),
            ("a:1:2;b:1", false),
            ("a:1:2|b:3:4;b:4", true),
            ("a:1:2|b:3:3", true),
            ("a:1:2|b:1:2;b:5", false),
        ] {
            let server = ServerSpec::parse(7, text).expect("read all the same");
            assert_eq!(server.names_a_port_twice(), is_twice, "{text}");
        }
    }

    const THREE: &str =
        "server.1=a:1:2:participant;5\nserver.2=b:1:2:participant;5\nserver.3=c:1:2:observer;5";

    fn members(text: &str) -> Members {
        Members::parse(text).expect("valid").0
    }

    #[test]
    fn what_is_described_is_read_again() {
        let described = members(THREE).describe(0x1_0000_002a);
        assert!(described.ends_with("\nserver.3=c:1:2:observer;0.0.0.0:5\nversion=10000002a"), "{described}");
        let (read, version) = Members::parse(&described).expect("valid");
        assert_eq!((read.describe(version), version), (described, 0x1_0000_002a));
        for wrong in ["server.1", "server.x=a:1:2", "server.1=a:1", "version=x", "clientPort=1"] {
            assert!(Members::parse(wrong).is_err(), "{wrong:?} is read");
        }
    }

    #[test]
    fn those_who_leave_go_before_those_who_join_so_an_id_in_both_stays() {
        let changed = members(THREE).changed("2, 3,9", "server.4=d:1:2;5,3=c:7:8;5,").expect("valid");
        let ids: Vec<_> = changed.iter().map(|server| (server.id, server.first().quorum_port)).collect();
        assert_eq!(ids, [(1, 1), (3, 7), (4, 1)]);
        assert_eq!(changed.with_role(PeerRole::Observer), ServerSet::EMPTY);
    }

    #[test]
    fn a_change_that_cannot_be_read_is_refused() {
        let refused = |leaving, joining| members(THREE).changed(leaving, joining).expect_err("refused");
        assert!(refused("one", "").contains("not the id"));
        assert!(refused("", "server.4=d:1:2").contains("client port"));
        assert!(refused("", "server.4").contains("server.N="));
        assert!(refused("", "server.4=a:9:2;7").contains("an address of server 1"));
        assert!(refused("", "server.4=d:9:2;a:5").contains("an address of server 1"));
        assert!(refused("", "server.4=d:9:2|a:1:3;7").contains("an address of server 1"));
    }

    #[test]
    fn the_log_names_members_from_the_first_text_on_that_is_not_from_a_file() {
        let voters = |ids: &[u64]| QuorumSystem::majorities(ids.iter().copied().map(ServerId).collect());
        let text = |version| members(THREE).describe(version).into_bytes();
        assert_eq!(Membership::read(&text(0), Zxid(9), None), None);
        assert_eq!(Membership::read(b"", Zxid(9), None), None);
        let first = Membership::read(&text(9), Zxid(9), None).expect("named");
        assert_eq!((&first.quorums.voters, &first.quorums.before), (&voters(&[1, 2]), &None));
        let next = first.members.changed("2", "").expect("valid").describe(10).into_bytes();
        let next = Membership::read(&next, Zxid(10), Some(&first)).expect("named");
        assert_eq!((next.quorums.voters, next.quorums.before), (voters(&[1]), Some(voters(&[1, 2]))));
        let kept = Membership::read_committed(&text(9), Zxid(9)).expect("named");
        assert_eq!(kept.quorums.before, Some(kept.quorums.voters), "nobody else decides any more");
    }
    const ROOMS: &str = "server.1=a:1:2:participant;5\nserver.2=b:1:2:participant;5\n\
                         server.3=c:1:2:participant;5\nserver.4=d:1:2:participant;5\n\
                         group.2=4\ngroup.1=3:1:2\nweight.2=0";

    #[test]
    fn groups_are_described_as_zookeeper_does_with_the_weight_of_every_participant() {
        let described = members(ROOMS).describe(0x1f);
        assert!(
            described.ends_with(
                "\ngroup.1=1:2:3\ngroup.2=4\nweight.1=1\nweight.2=0\nweight.3=1\nweight.4=1\nversion=1f"
            ),
            "{described}"
        );
        assert_eq!(Members::parse(&described).expect("valid").0.describe(0x1f), described);
    }

    #[test]
    fn a_participant_of_weight_0_learns_like_an_observer() {
        let grouped = members(&format!("{ROOMS}\nserver.5=e:1:2:observer;5"));
        let ids = |set: ServerSet| set.iter().map(|id| id.0).collect::<Vec<_>>();
        assert_eq!(ids(*grouped.quorums().voters()), [1, 3, 4]);
        assert_eq!(ids(grouped.learners()), [2, 5]);
    }

    #[test]
    fn groups_are_changed_by_naming_all_members_anew_and_not_by_steps() {
        let refused = members(ROOMS).changed("4", "").expect_err("refused");
        assert!(refused.contains("groups"), "{refused}");
    }
}
