//! Who asks, and what the znodes permit.

use std::fmt;
use std::net::SocketAddr;

use anyhow::Result;
use ringkeeper_testkit::{Client, TlsFiles, acl, delete_body, path_body, set_data_body};
use ringkeeper_wire::{ErrorCode, OpCode, jute};

use super::probe::Probe;

/// The password of each of these users is `secret`.
const USER: &str = "user:5w9W4eL3797Y4Wq8AcKUPPk8ha4=";
const ADMIN: &str = "admin:fvr2cB/fjGeAiX8g1aGhUm3ZICk=";

pub(super) const SESSION_MS: i32 = 400_000;
/// All five permissions; each bit is one of [`LETTERS`], in their order.
pub(super) const ALL: i32 = 31;
pub(super) const LETTERS: &str = "rwcda";

/// The users of SASL; the password of each is `secret`.
pub(super) const SASL_USERS: [&str; 3] = ["user", "other", SASL_ROOT];

/// The super users of SASL, and by certificates.
pub(super) const SASL_ROOT: &str = "root";
pub(super) const X509_ROOT: &str = "CN=root";

/// A kind of client, and whom the ACL under test names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Requester {
    pub(super) name: &'static str,
    scheme: &'static str,
    id: &'static str,
    login: Login,
}

/// How a client says who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Login {
    None,
    /// By an auth packet with user and password.
    Digest(&'static str),
    /// By a certificate for this common name.
    X509(&'static str),
    /// By SASL.
    Sasl(&'static str),
}

const fn requester(name: &'static str, scheme: &'static str, id: &'static str, login: Login) -> Requester {
    Requester { name, scheme, id, login }
}

/// Who is bound by rules when these are tested, and who never is.
pub(super) const BOUND: &str = "sasl";
pub(super) const SUPER: &str = "sasl super user";

const REQUESTERS: [Requester; 15] = [
    requester("anyone", "world", "anyone", Login::None),
    requester("digest", "digest", USER, Login::Digest("user:secret")),
    requester("digest, another user", "digest", USER, Login::Digest("other:secret")),
    requester("digest, no login", "digest", USER, Login::None),
    requester("ip", "ip", "127.0.0.0/8", Login::None),
    requester("ip, another address", "ip", "10.0.0.0/8", Login::None),
    requester("x509", "x509", "CN=user", Login::X509("user")),
    requester("x509, another subject", "x509", "CN=user", Login::X509("other")),
    requester("x509, in the clear", "x509", "CN=user", Login::None),
    requester(BOUND, "sasl", "user", Login::Sasl("user")),
    requester("sasl, another user", "sasl", "user", Login::Sasl("other")),
    requester("sasl, no login", "sasl", "user", Login::None),
    requester("super user", "digest", USER, Login::Digest("super:test")),
    requester("x509 super user", "digest", USER, Login::X509("root")),
    requester(SUPER, "digest", USER, Login::Sasl(SASL_ROOT)),
];

/// Which znode has the ACL under test; everybody may do everything with the other one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Restricted {
    Parent,
    Node,
}

/// A requester before a znode and its parent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case {
    pub(super) requester: Requester,
    pub(super) restricted: Restricted,
    /// What the restricted znode permits the requester.
    pub(super) permissions: i32,
}

impl Case {
    /// Every requester before every ACL: of all sets of permissions, or else of none, each alone, and all.
    pub(super) fn all(all_sets: bool) -> impl Iterator<Item = Self> {
        let sets = (0..=ALL).filter(move |set: &i32| all_sets || set.count_ones() <= 1 || *set == ALL);
        let places = [Restricted::Parent, Restricted::Node].map(|restricted| (restricted, sets.clone()));
        let placed = places.into_iter().flat_map(|(restricted, sets)| sets.map(move |set| (restricted, set)));
        REQUESTERS.into_iter().flat_map(move |requester| {
            placed.clone().map(move |(restricted, permissions)| Self { requester, restricted, permissions })
        })
    }

    /// The ACL of a znode. The tester is permitted everything.
    fn acl(&self, of: Restricted) -> Vec<u8> {
        let Requester { scheme, id, .. } = self.requester;
        if of != self.restricted {
            return acl(&[(ALL, "world", "anyone".to_owned())]);
        }
        let admin = (ALL, "digest", ADMIN.to_owned());
        let requester = (self.permissions, scheme, id.to_owned());
        if self.permissions == 0 { acl(&[admin]) } else { acl(&[requester, admin]) }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let permissions = letters(self.permissions);
        write!(f, "{} with {permissions:?} on the {:?}", self.requester.name, self.restricted)
    }
}

pub(super) fn letters(permissions: i32) -> String {
    let bits = LETTERS.chars().enumerate();
    bits.filter(|(bit, _)| permissions & (1 << bit) != 0).map(|(_, letter)| letter).collect()
}

/// The znodes of one probe.
pub(super) struct Znodes {
    pub(super) parent: String,
    pub(super) node: String,
}

/// What a server answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    /// The error of the reply, 0 for success; `None` if the connection was closed instead.
    error: Option<i32>,
    /// What the requester has learned: parts of the reply, and events.
    seen: Vec<String>,
}

impl Answer {
    /// The reply says success; of a multi, for its only operation.
    pub(super) fn is_allowed(&self) -> bool {
        self.error == Some(ErrorCode::Ok.to_wire()) && !self.seen.iter().any(|part| part.starts_with("error"))
    }

    pub(super) fn has_events(&self) -> bool {
        self.seen.iter().any(|part| part.starts_with("event"))
    }

    /// It has nothing but errors.
    pub(super) fn shows_nothing(&self) -> bool {
        self.seen.iter().all(|part| part.starts_with("error"))
    }

    /// It has an ACL whose digests are hidden.
    pub(super) fn hides_hashes(&self) -> bool {
        self.seen.iter().any(|part| part.contains("admin:x"))
    }

    pub(super) fn shows_no_more_than(&self, other: &Self) -> bool {
        self.seen.iter().all(|part| other.seen.contains(part))
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.error {
            Some(error) => write!(f, "{error} {:?}", self.seen),
            None => f.write_str("closed"),
        }
    }
}

/// One server, and the clients that ask it.
pub(super) struct Prober<'a> {
    server: SocketAddr,
    files: &'a TlsFiles,
    admin: Option<Client>,
    client: Option<(Requester, Client)>,
    /// What the names of its znodes begin with.
    prefix: &'static str,
    probes: u32,
}

impl<'a> Prober<'a> {
    pub(super) const fn new(server: SocketAddr, files: &'a TlsFiles, prefix: &'static str) -> Self {
        Self { server, files, admin: None, client: None, prefix, probes: 0 }
    }

    /// Makes znodes for one probe, and sends it.
    pub(super) fn ask(&mut self, case: &Case, probe: &Probe) -> Result<Answer> {
        let mut admin = match self.admin.take() {
            Some(admin) => admin,
            None => self.connect(Login::Digest("admin:secret"))?,
        };
        let mut client = match self.client.take() {
            Some((requester, client)) if requester == case.requester => client,
            _ => self.connect(case.requester.login)?,
        };
        self.probes += 1;
        let parent = format!("/{}{}", self.prefix, self.probes);
        let znodes = Znodes { node: format!("{parent}/node"), parent };
        for (path, acl) in [(&znodes.parent, Restricted::Parent), (&znodes.node, Restricted::Node)] {
            admin.request(OpCode::Create, &create_body(path, &case.acl(acl)))?.ok(path)?;
        }
        let answer = match client.request(probe.op, &(probe.body)(&znodes)) {
            Ok(reply) => {
                let mut seen = match reply.err {
                    0 => probe.seen(&reply.body)?,
                    _ => Vec::new(),
                };
                if probe.watches {
                    seen.extend(watched(&mut admin, &mut client, &znodes, &case.acl(Restricted::Node))?);
                }
                // Whoever sends the servers' own request is disconnected after the reply.
                if probe.op.is_client_request() {
                    self.client = Some((case.requester, client));
                }
                let seen = seen.into_iter().map(|part| part.replace(&znodes.parent, "/parent")).collect();
                Answer { error: Some(reply.err), seen }
            }
            Err(_) => Answer { error: None, seen: Vec::new() },
        };
        self.admin = Some(admin);
        Ok(answer)
    }

    fn connect(&self, login: Login) -> Result<Client> {
        if let Login::X509(subject) = login {
            return Client::connect_secured(self.server, SESSION_MS, self.files.client_config(subject)?);
        }
        let mut client = Client::connect(self.server, SESSION_MS)?;
        match login {
            Login::Digest(credentials) => client.authenticate("digest", credentials.as_bytes())?,
            Login::Sasl(user) => client.login(user, "secret")?,
            Login::None | Login::X509(_) => {}
        }
        Ok(client)
    }
}

/// The body of a create with an ACL.
fn create_body(path: &str, acl: &[u8]) -> Vec<u8> {
    let mut body = path_body(path);
    jute::put_buffer(&mut body, Some(b"data"));
    body.extend_from_slice(acl);
    jute::put_i32(&mut body, 0);
    body
}

/// Changes the node in every way, and collects the events that the client is sent. A child that comes and
/// goes has the node's ACL.
fn watched(admin: &mut Client, client: &mut Client, znodes: &Znodes, acl: &[u8]) -> Result<Vec<String>> {
    let Znodes { node, .. } = znodes;
    let below = format!("{node}/below");
    let mut change = |op, body: &[u8]| admin.request(op, body)?.ok(node).map(drop);
    change(OpCode::SetData, &set_data_body(node, b"changed"))?;
    change(OpCode::Create, &create_body(&below, acl))?;
    change(OpCode::Delete, &delete_body(&below))?;
    change(OpCode::Delete, &delete_body(node))?;
    client.request(OpCode::Sync, &path_body(node))?;
    let events = client.events_so_far();
    Ok(events.into_iter().map(|event| format!("event {} {}", event.event_type, event.path)).collect())
}
