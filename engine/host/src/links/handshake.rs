//! The handshake between servers: both prove who they are before any message is read.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::net::IpAddr;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use futures_lite::future::or;
use futures_lite::{AsyncReadExt, AsyncWriteExt};
use hmac::{Hmac, KeyInit, Mac};
use ringkeeper_engine::level::Level;
use ringkeeper_engine::zab::OBSERVER_MASTERS_SINCE;
use ringkeeper_log::mutation::planted;
use ringkeeper_wire::ServerId;
use sha2::Sha256;

use super::kerberos::{Accepted, Kerberos, Key, Ticket, read_token, send_token};
use super::link::Link;
use super::seal::{Seal, Seals};
use crate::env::{Connection, Env, PeerAddress, Stream};

/// The beginning of a hello. The last byte is the newest version of the messages between servers that the
/// sender speaks. Two servers speak the lower one of their two versions.
pub const MAGIC: &[u8; 8] = b"RKPEER\0\x0d";

/// The beginning of the hello of a dialer that shows a ticket of Kerberos, and of a listener that takes one.
/// The rest is as above.
const TICKET_MAGIC: &[u8; 8] = b"RKKERB\0\x08";

/// The beginning of a refusal: the certificate of the server that reads this does not bear its name. The rest
/// is a hello's.
const REFUSAL: &[u8; 8] = b"RKNAME\0\x07";

/// Where the version stands in all of them.
const VERSION_AT: usize = 7;

/// The newest version that this build speaks.
pub(super) const NEWEST_VERSION: u8 = MAGIC[VERSION_AT];

/// The oldest version that this build speaks.
pub(super) const OLDEST_VERSION: u8 = 7;

/// From this version on, notifications say what is committed.
pub(super) const SAYS_COMMITTED: u8 = 8;

/// From this version on, a leader says what it gives up.
pub(super) const SAYS_ABANDONED: u8 = 9;

/// From this version on, a learner may grant its leader a lease.
pub(super) const GRANTS_LEASES: u8 = 10;

/// From this version on, a server shows signs of life.
pub(super) const SHOWS_SIGNS: u8 = 10;

/// From this version on, a learner takes more than [`Limits::window_bytes`] of a snapshot at once.
///
/// [`Limits::window_bytes`]: crate::transfer::Limits::window_bytes
pub(crate) const TAKES_WIDE_WINDOWS: u8 = 11;

/// From this version on, a follower may feed observers, and says so.
pub(super) const FEEDS_OBSERVERS: u8 = OBSERVER_MASTERS_SINCE;

/// What the keys of seals are made for.
const FRAMES: &[u8] = b"frames";

/// Why a ticket is of no use to a listener.
const NO_KEYTAB_THERE: &str = "it takes no ticket of Kerberos: its section QuorumServer has no keytab";
const NO_KEYTAB_HERE: &str =
    "the section QuorumServer has no keytab to check it with (quorum.auth.enableSasl)";

/// The first byte of TLS, as of a record that belongs to a handshake.
const TLS_HANDSHAKE: u8 = 22;

const NONCE_BYTES: usize = 32;
const HELLO_BYTES: usize = 8 + 8 + 8 + NONCE_BYTES;
const PROOF_BYTES: usize = 32;

/// A connection that is not authenticated within this time is closed.
const PATIENCE: Duration = Duration::from_secs(2);

/// What servers prove to each other that they know.
#[derive(Clone)]
pub struct Secrets {
    /// What this server proves to those whom it dials, and they to it.
    pub own: Box<[u8]>,
    /// Of which those who dial prove one, and this server the same one to them. With an empty one, whoever
    /// reaches the port can pass for a peer.
    pub accepted: Vec<Box<[u8]>>,
    /// Tickets, in place of secrets or beside them.
    pub kerberos: Option<Kerberos>,
}

/// One secret, which all servers share.
impl<T: AsRef<[u8]> + ?Sized> From<&T> for Secrets {
    fn from(secret: &T) -> Self {
        let own: Box<[u8]> = secret.as_ref().into();
        Self { accepted: vec![own.clone()], own, kerberos: None }
    }
}

/// This server's id, the secrets, and the other servers.
pub(super) struct Handshake<'a, E> {
    pub(super) env: &'a E,
    pub(super) own: ServerId,
    /// The newest version that this server speaks.
    pub(super) newest: u8,
    /// What the other server has to be able to do. It may change during the handshake.
    pub(super) required: &'a Cell<Level>,
    pub(super) secrets: &'a Secrets,
    pub(super) links: &'a RefCell<BTreeMap<ServerId, Rc<Link>>>,
}

/// What the two ends of a connection have agreed upon.
pub(super) struct Agreed {
    /// The version of the messages.
    pub(super) version: u8,
    /// What the frames are sealed with.
    pub(super) seals: Seals,
}

/// Which of the dials of one peer, at its several addresses, proves who this server is: one at a time. The
/// listener takes each connection on which that is proved, in place of the one before.
///
/// Who waits is not woken: all dials of a peer are polled by one task, and once more when one of them ends.
#[derive(Default)]
pub(super) struct Turn(Cell<bool>);

/// A turn that lasts until this is dropped.
struct Taken<'a>(&'a Turn);

impl Turn {
    async fn take(&self) -> Taken<'_> {
        poll_fn(|_| if self.0.replace(true) { Poll::Pending } else { Poll::Ready(()) }).await;
        Taken(self)
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.0.0.set(false);
    }
}

#[derive(Clone, Copy)]
struct Hello {
    version: u8,
    from: ServerId,
    to: ServerId,
    nonce: [u8; NONCE_BYTES],
    /// The dialer shows a ticket, and the listener takes it.
    has_ticket: bool,
}

impl<E: Env> Handshake<'_, E> {
    /// A ticket for a server that is to be dialed, if that is how this server proves itself. Waits for as
    /// long as the KDC takes.
    pub(super) async fn ticket(&self, host: &str) -> io::Result<Option<Ticket>> {
        let initiator = self.secrets.kerberos.as_ref().and_then(|kerberos| kerberos.initiator.as_ref());
        match initiator {
            Some(initiator) => initiator.begin(host).await.map(Some),
            None => Ok(None),
        }
    }

    /// The dialer's side; the dialer sends first, and proves itself in its turn.
    pub(super) async fn begin(
        &self,
        connection: &mut Connection<impl Stream>,
        peer: ServerId,
        ticket: Option<Ticket>,
        turn: &Turn,
    ) -> io::Result<Agreed> {
        self.in_time(async {
            self.check_name(connection, peer, None).await?;
            let own = self.hello(peer, ticket.is_some());
            send(connection, &own.encode()).await?;
            let in_the_clear = connection.certificate.is_none();
            let theirs = self.read_hello(connection).await.map_err(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof if in_the_clear => {
                    let reason =
                        "it closes the connection without an introduction: it may take TLS alone (sslQuorum)";
                    io::Error::new(error.kind(), reason)
                }
                _ => error,
            })?;
            if theirs.from != peer || theirs.to != self.own {
                return Err(io::Error::other(format!(
                    "server {} answers in place of server {peer}",
                    theirs.from
                )));
            }
            let secret = match ticket {
                Some(ticket) if theirs.has_ticket => show(connection, ticket).await?.into(),
                Some(_) => return Err(io::Error::new(io::ErrorKind::PermissionDenied, NO_KEYTAB_THERE)),
                None => self.secrets.own.clone(),
            };
            let _turn = turn.take().await;
            send(connection, &proof(&secret, own, theirs).finalize().into_bytes()).await?;
            let checked = check_proof(connection, own, theirs, std::slice::from_ref(&secret)).await;
            checked.map_err(|error| match error.kind() {
                // A listener that refuses the proof closes the connection.
                io::ErrorKind::UnexpectedEof => unproved(theirs.from, 1),
                _ => error,
            })?;
            self.check(theirs)?;
            Ok(agreed(connection, &secret, own, theirs))
        })
        .await
    }

    /// The listener's side; returns the server that has connected, too. One that is not listed may join from
    /// the address `joins_from`, if that is given.
    pub(super) async fn answer(
        &self,
        connection: &mut Connection<impl Stream>,
        joins_from: Option<IpAddr>,
    ) -> io::Result<(ServerId, Agreed)> {
        self.in_time(async {
            let theirs = self.read_hello(connection).await?;
            if theirs.to != self.own {
                // The dialer is to hear whom it has reached, unless it has gone.
                let _ = send(connection, &self.hello(theirs.from, false).encode()).await;
                return Err(io::Error::other(format!(
                    "server {} takes this for server {}",
                    theirs.from, theirs.to
                )));
            }
            self.check_name(connection, theirs.from, joins_from).await?;
            let kerberos = self.secrets.kerberos.as_ref().filter(|_| theirs.has_ticket);
            let acceptor = kerberos.and_then(|kerberos| Some((kerberos, kerberos.acceptor.as_ref()?)));
            let own = self.hello(theirs.from, acceptor.is_some());
            send(connection, &own.encode()).await?;
            let of_ticket: [Box<[u8]>; 1];
            let secrets: &[_] = match acceptor {
                Some((kerberos, acceptor)) => {
                    let token = read_token(connection).await?;
                    let accepted = acceptor.accept(token).await;
                    let key =
                        self.check_ticket(connection, kerberos, accepted, theirs.from, joins_from).await?;
                    of_ticket = [key.into()];
                    &of_ticket
                }
                None if theirs.has_ticket => {
                    let reason =
                        format!("server {} shows a ticket of Kerberos; {NO_KEYTAB_HERE}", theirs.from);
                    return Err(io::Error::new(io::ErrorKind::PermissionDenied, reason));
                }
                None => &self.secrets.accepted,
            };
            // The dialer has to prove itself first, so a stranger gets nothing made with the secret.
            let secret = check_proof(connection, own, theirs, secrets).await?;
            send(connection, &proof(secret, own, theirs).finalize().into_bytes()).await?;
            self.check(theirs)?;
            Ok((theirs.from, agreed(connection, secret, own, theirs)))
        })
        .await
    }

    fn hello(&self, to: ServerId, has_ticket: bool) -> Hello {
        let mut nonce = [0; NONCE_BYTES];
        nonce.as_chunks_mut().0.iter_mut().for_each(|part| *part = self.env.random().to_le_bytes());
        Hello { version: self.newest, from: self.own, to, nonce, has_ticket }
    }

    async fn read_hello(&self, connection: &mut Connection<impl Stream>) -> io::Result<Hello> {
        let hello = read_hello(connection).await?;
        self.check(hello)?;
        Ok(hello)
    }

    fn check(&self, theirs: Hello) -> io::Result<()> {
        let checked = check_level(theirs.from, theirs.version, self.required.get());
        checked.map_err(|refusal| io::Error::new(io::ErrorKind::InvalidData, refusal))
    }

    /// Refuses a peer whose certificate does not bear the name of its host, and tells it so.
    async fn check_name(
        &self,
        connection: &mut Connection<impl Stream>,
        peer: ServerId,
        joins_from: Option<IpAddr>,
    ) -> io::Result<()> {
        let Some(certificate) = &connection.certificate else { return Ok(()) };
        let hosts = self.hosts_of(peer).or_else(|| joins_from.map(|address| vec![address.to_string()]));
        let hosts = hosts.ok_or_else(|| not_one_of_the_ensemble(peer))?;
        if hosts.iter().any(|host| certificate.names(host)) {
            return Ok(());
        }
        let host = hosts.join(" or ");
        send(connection, &self.hello(peer, false).encode_as(REFUSAL)).await?;
        let reason = format!(
            "the certificate of server {peer} does not bear the name {host}, its host in the list of members: \
             it needs a certificate that does (as a subjectAltName)"
        );
        Err(io::Error::new(io::ErrorKind::PermissionDenied, reason))
    }

    /// The hosts of a member: one for each of its addresses.
    fn hosts_of(&self, peer: ServerId) -> Option<Vec<String>> {
        let links = self.links.borrow();
        let member = links.get(&peer).filter(|link| link.is_listed())?;
        Some(member.addresses().into_iter().map(|address| address.host).collect())
    }

    /// Answers a ticket: its owner has to be the server that the hello comes from. One that joins has the
    /// address that it comes from.
    async fn check_ticket(
        &self,
        connection: &mut Connection<impl Stream>,
        kerberos: &Kerberos,
        accepted: io::Result<Accepted>,
        peer: ServerId,
        joins_from: Option<IpAddr>,
    ) -> io::Result<Key> {
        let checked = match accepted {
            Ok(ticket) => {
                self.check_principal(kerberos, &ticket.principal, peer, joins_from).await.map(|()| ticket)
            }
            Err(error) => Err(io::Error::new(
                error.kind(),
                format!("server {peer} shows a ticket that is refused: {error}"),
            )),
        };
        send_token(connection, checked.as_ref().map_or(&[], |ticket| &ticket.token)).await?;
        checked.map(|ticket| ticket.key)
    }

    async fn check_principal(
        &self,
        kerberos: &Kerberos,
        principal: &str,
        peer: ServerId,
        joins_from: Option<IpAddr>,
    ) -> io::Result<()> {
        let named = kerberos.host_of(principal);
        let (is_its_own, host) = match (self.hosts_of(peer), joins_from, &kerberos.service) {
            (Some(hosts), ..) => {
                let is_one = |named: &str| hosts.iter().any(|host| named.eq_ignore_ascii_case(host));
                (named.is_some_and(is_one), hosts.join(" or "))
            }
            // Whoever has any keytab of the realm could join, if the service were not known.
            (None, Some(address), Some(_)) => {
                let named = PeerAddress { id: peer, host: named.unwrap_or_default().to_owned(), port: 0 };
                let found = self.env.resolve(&named).await.unwrap_or_default();
                let is_there = found.iter().any(|found| found.ip().to_canonical() == address);
                (is_there, format!("a name of {address}"))
            }
            _ => return Err(not_one_of_the_ensemble(peer)),
        };
        if is_its_own {
            return Ok(());
        }
        let (service, realm) = (kerberos.service.as_deref().unwrap_or("SERVICE"), &kerberos.realm);
        let reason = format!(
            "{principal} cannot be server {peer}, whose principal is {service}/{host}@{realm} by the list of \
             members here: it needs a keytab of its own (QuorumLearner)"
        );
        Err(io::Error::new(io::ErrorKind::PermissionDenied, reason))
    }

    async fn in_time<T>(&self, handshake: impl Future<Output = io::Result<T>>) -> io::Result<T> {
        or(handshake, async {
            self.env.sleep(PATIENCE).await;
            Err(io::Error::new(io::ErrorKind::TimedOut, "no introduction in time"))
        })
        .await
    }
}

impl Hello {
    fn encode(&self) -> [u8; HELLO_BYTES] {
        self.encode_as(if self.has_ticket { TICKET_MAGIC } else { MAGIC })
    }

    fn encode_as(&self, magic: &[u8; 8]) -> [u8; HELLO_BYTES] {
        let mut bytes = [0; HELLO_BYTES];
        bytes[..8].copy_from_slice(magic);
        bytes[VERSION_AT] = self.version;
        bytes[8..16].copy_from_slice(&self.from.0.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.to.0.to_le_bytes());
        bytes[24..].copy_from_slice(&self.nonce);
        bytes
    }
}

/// Whether a server that speaks this version can do what is required of the ensemble's servers.
pub(super) fn check_level(peer: ServerId, version: u8, required: Level) -> Result<(), String> {
    let can = Level::of_version(version);
    if can >= required {
        return Ok(());
    }
    Err(format!(
        "server {peer} is of an older build, which can do feature level {can}, and this ensemble needs level {required}: \
         start it with this build"
    ))
}

fn not_one_of_the_ensemble(peer: ServerId) -> io::Error {
    io::Error::other(format!("server {peer} is not one of the ensemble"))
}

/// Shows a ticket, and checks whose answer comes.
async fn show(connection: &mut Connection<impl Stream>, ticket: Ticket) -> io::Result<Key> {
    send_token(connection, &ticket.token).await?;
    let answer = read_token(connection).await?;
    (ticket.finish)(answer).await
}

/// Which of the secrets the other end has proved.
async fn check_proof<'a>(
    connection: &mut Connection<impl Stream>,
    own: Hello,
    theirs: Hello,
    secrets: &'a [Box<[u8]>],
) -> io::Result<&'a [u8]> {
    let mut shown = [0; PROOF_BYTES];
    connection.reader.read_exact(&mut shown).await?;
    let is_proved =
        |secret: &&[u8]| planted!(AcceptAnyProof) || proof(secret, theirs, own).verify_slice(&shown).is_ok();
    let proved = secrets.iter().map(|secret| &**secret).find(is_proved);
    proved.ok_or_else(|| unproved(theirs.from, secrets.len()))
}

/// One of so many secrets should have been proved.
fn unproved(peer: ServerId, secrets: usize) -> io::Error {
    let reason = match secrets {
        0 => "it shows no ticket of Kerberos (quorum.auth.learnerRequireSasl), as this server demands",
        _ => {
            "this server and that one do not share a secret (ringkeeper.peerSecretFile), nor a user \
             with the same password, or one of them demands a ticket of Kerberos (quorum.auth.enableSasl)"
        }
    };
    io::Error::new(io::ErrorKind::PermissionDenied, format!("server {peer}: {reason}"))
}

/// The lower one of the two versions; frames are sealed unless TLS protects them, or there is no secret.
fn agreed(connection: &Connection<impl Stream>, secret: &[u8], own: Hello, theirs: Hello) -> Agreed {
    let version = own.version.min(theirs.version);
    if connection.certificate.is_some() || secret.is_empty() {
        return Agreed { version, seals: Seals::default() };
    }
    let seal = |from, to| Some(Seal::new(&mac(secret, FRAMES, from, to).finalize().into_bytes().into()));
    Agreed { version, seals: Seals { sent: seal(own, theirs), received: seal(theirs, own) } }
}

/// The proof that `from` sends to `to`. The two directions differ, so a proof cannot be reflected to its
/// sender.
fn proof(secret: &[u8], from: Hello, to: Hello) -> Hmac<Sha256> {
    mac(secret, &[], from, to)
}

/// Made with the secret, for one direction of this connection. What it is for stands in front of the hellos,
/// which begin with their magic, so nobody between the servers can lower their versions.
fn mac(secret: &[u8], purpose: &[u8], from: Hello, to: Hello) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("HMAC takes keys of any length");
    mac.update(purpose);
    mac.update(&from.encode());
    mac.update(&to.encode());
    mac
}

async fn send(connection: &mut Connection<impl Stream>, bytes: &[u8]) -> io::Result<()> {
    connection.writer.write_all(bytes).await?;
    connection.writer.flush().await
}

async fn read_hello(connection: &mut Connection<impl Stream>) -> io::Result<Hello> {
    let mut bytes = [0; HELLO_BYTES];
    connection.reader.read_exact(&mut bytes).await?;
    let number = |at: usize| {
        let mut number = [0; 8];
        number.copy_from_slice(&bytes[at..at + 8]);
        ServerId(u64::from_le_bytes(number))
    };
    if bytes[..VERSION_AT] == REFUSAL[..VERSION_AT] {
        let reason = format!(
            "server {} refuses this server: its certificate does not bear the name that server {} has in the \
             list of members there; it needs a certificate that does (as a subjectAltName)",
            number(8),
            number(16),
        );
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, reason));
    }
    let has_ticket = bytes[..VERSION_AT] == TICKET_MAGIC[..VERSION_AT];
    if !has_ticket && bytes[..VERSION_AT] != MAGIC[..VERSION_AT] {
        let reason = match bytes[0] {
            TLS_HANDSHAKE => "it speaks TLS, and this server in the clear: secure both or neither",
            _ => "not a ringkeeper server",
        };
        return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
    }
    let version = bytes[VERSION_AT];
    if version < OLDEST_VERSION {
        let reason = format!(
            "server {} is of an older build: its messages have version {version}, and this build speaks \
             {OLDEST_VERSION} and later; stop all servers of that build, and start them with this one",
            number(8),
        );
        return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
    }
    let mut nonce = [0; NONCE_BYTES];
    nonce.copy_from_slice(&bytes[24..]);
    Ok(Hello { version, from: number(8), to: number(16), nonce, has_ticket })
}
