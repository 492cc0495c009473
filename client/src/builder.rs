use std::time::Duration;

use ringkeeper_wire::frame::DEFAULT_FRAME_LEN_MAX;

use crate::connect_string::ConnectString;
use crate::core::{Config, Credential, Mechanism, SessionTicket, User};
use crate::driver::{ClientSettings, Security};
use crate::{Client, Connecting, Error, Result, driver};

/// Settings of a client. From [`Client::builder`].
///
/// ```no_run
/// # async fn example() -> ringkeeper_client::Result<()> {
/// use std::time::Duration;
/// use ringkeeper_client::Client;
///
/// let client = Client::builder("zk1:2181,zk2:2181,zk3:2181/my-app")
///     .session_timeout(Duration::from_secs(10))
///     .credential("digest", "user:password")
///     .connect()
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing happens before `connect` or `open`"]
pub struct Builder {
    connect_string: String,
    session_timeout: Duration,
    connect_timeout: Option<Duration>,
    read_only: bool,
    linearizable_reads: bool,
    user: Option<User>,
    tls: Option<ClientSettings>,
    credentials: Vec<Credential>,
    requests_max: usize,
    queued_bytes_max: usize,
    request_len_max: usize,
    reply_len_max: usize,
    watch_events_max: usize,
    resume: Option<SessionTicket>,
    seed: Option<u64>,
    #[cfg(feature = "mutations")]
    mutation: crate::mutation::Mutation,
}

impl Builder {
    pub(crate) fn new(connect_string: &str) -> Self {
        Self {
            connect_string: connect_string.to_owned(),
            session_timeout: Duration::from_secs(10),
            connect_timeout: Some(Duration::from_secs(30)),
            read_only: false,
            linearizable_reads: false,
            user: None,
            tls: None,
            credentials: Vec::new(),
            requests_max: 16 * 1024,
            queued_bytes_max: 64 * 1024 * 1024,
            request_len_max: DEFAULT_FRAME_LEN_MAX,
            reply_len_max: 256 * 1024 * 1024,
            watch_events_max: 64 * 1024,
            resume: None,
            seed: None,
            #[cfg(feature = "mutations")]
            mutation: crate::mutation::Mutation::None,
        }
    }

    /// Session timeout to ask for; default 10 s. The server grants one within its own limits (by default
    /// 2 to 20 ticks). After a third of it without a request the client pings; after two thirds without
    /// an answer it goes to another server.
    pub const fn session_timeout(mut self, timeout: Duration) -> Self {
        self.session_timeout = timeout;
        self
    }

    /// How long the first session may take to come, default 30 s, shared by the servers; `None` tries for
    /// ever.
    pub fn connect_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.connect_timeout = timeout.into();
        self
    }

    /// Whether a server without a quorum will do, for reads: see [`crate::SessionState::ReadOnly`]. The
    /// client keeps looking for a better one meanwhile.
    pub const fn read_only(mut self, allowed: bool) -> Self {
        self.read_only = allowed;
        self
    }

    /// Whether every read sees all that was acknowledged to anybody before the call, default false: then a
    /// read may be answered by a server that has yet to hear of it, as in ZooKeeper. The server asks the
    /// leader before it answers, once for all that ask meanwhile, so a read takes a round trip between the
    /// servers longer. This is an extension of ringkeeper: the client passes over servers that do not have
    /// it. A read-only server answers [`Error::NotReadOnly`].
    pub const fn linearizable_reads(mut self, wanted: bool) -> Self {
        self.linearizable_reads = wanted;
        self
    }

    /// Adds a proof of identity, shown on every connection; for the scheme `digest`, `user:password`.
    pub fn credential(mut self, scheme: impl Into<String>, auth: impl Into<Vec<u8>>) -> Self {
        self.credentials.push(Credential { scheme: scheme.into(), auth: auth.into() });
        self
    }

    /// Logs in by SASL (DIGEST-MD5) on every connection, before anything else. A login that is refused ends
    /// the session with [`Error::AuthFailed`]; so does a server that has no users.
    pub fn login(self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.login_by(Mechanism::DigestMd5, user, password)
    }

    /// As [`Self::login`], by a mechanism. Apache ZooKeeper has DIGEST-MD5 alone.
    pub fn login_by(
        mut self,
        mechanism: Mechanism,
        user: impl Into<String>,
        password: impl Into<String>,
    ) -> Self {
        self.user = Some(User { name: user.into(), password: password.into(), mechanism });
        self
    }

    /// Speaks TLS with the servers. Files that change are read again when the client connects anew.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, settings: ClientSettings) -> Self {
        self.tls = Some(settings);
        self
    }

    /// Largest number of requests queued or on their way, default 16,384. Further calls wait for room.
    pub const fn requests_max(mut self, requests: usize) -> Self {
        self.requests_max = requests;
        self
    }

    /// Largest number of bytes queued and not yet sent, default 64 MiB. Further calls wait for room.
    pub const fn queued_bytes_max(mut self, bytes: usize) -> Self {
        self.queued_bytes_max = bytes;
        self
    }

    /// Longest request in bytes, default ZooKeeper's own limit of 1 MiB less one byte
    /// (`jute.maxbuffer`). A server closes the connection at a longer one.
    pub const fn request_len_max(mut self, bytes: usize) -> Self {
        self.request_len_max = bytes;
        self
    }

    /// Longest reply in bytes, default 256 MiB. Servers do not limit them: the children of one znode may
    /// take many times the longest request.
    pub const fn reply_len_max(mut self, bytes: usize) -> Self {
        self.reply_len_max = bytes;
        self
    }

    /// Largest number of events of a persistent watch that were not read yet, default 65,536. Further
    /// ones are dropped and counted.
    pub const fn watch_events_max(mut self, events: usize) -> Self {
        self.watch_events_max = events;
        self
    }

    /// Takes an existing session over, from [`Client::session_ticket`], instead of a new one.
    pub const fn resume(mut self, ticket: SessionTicket) -> Self {
        self.resume = Some(ticket);
        self
    }

    /// Decides the order in which servers are tried, for runs that are to be repeated; in a host
    /// (`Builder::host`) also the names of znodes. Random by default.
    pub const fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Plants a fault, so that a test shows that it would see it.
    #[cfg(feature = "mutations")]
    pub const fn mutation(mut self, mutation: crate::mutation::Mutation) -> Self {
        self.mutation = mutation;
        self
    }

    /// Connects: ready when a server has granted the session.
    pub fn connect(self) -> Connecting {
        Connecting::new(self.open())
    }

    /// Begins to connect and returns at once. Requests wait for the connection.
    ///
    /// # Errors
    /// The connection string, a setting or a file is wrong, or the system refuses a thread.
    pub fn open(self) -> Result<Client> {
        let watch_events_max = self.watch_events_max;
        let security = self.tls.clone().map(Security::load).transpose()?;
        let (config, ConnectString { servers, chroot }) = self.checked()?;
        Ok(Client::new(driver::start(config, servers, security)?, chroot, watch_events_max))
    }

    /// A client without thread, socket and clock of its own, which the [`Host`](crate::hosted::Host) drives
    /// from `now` on: see [`crate::hosted`].
    ///
    /// # Errors
    /// The connection string or a setting is wrong.
    #[cfg(feature = "hosted")]
    pub fn host(self, now: crate::core::Millis) -> Result<(Client, driver::hosted::Host)> {
        let watch_events_max = self.watch_events_max;
        if self.tls.is_some() {
            return Err(Error::InvalidSetting("the host of a client does TLS by itself"));
        }
        let (config, ConnectString { chroot, .. }) = self.checked()?;
        let (host, shared) = driver::hosted::Host::start(config, now);
        Ok((Client::new(shared, chroot, watch_events_max), host))
    }

    /// What the core is built from, and the servers.
    fn checked(self) -> Result<(Config, ConnectString)> {
        let text = ConnectString::parse(&self.connect_string)?;
        let config = Config {
            session_timeout_ms: self.session_timeout_ms()?,
            connect_timeout_ms: self.connect_timeout.map(millis),
            server_count: text.servers.len(),
            read_only: self.read_only,
            linearizable_reads: self.linearizable_reads,
            user: self.user,
            credentials: self.credentials,
            requests_max: self.requests_max,
            bytes_max: self.queued_bytes_max,
            request_len_max: self.request_len_max,
            reply_len_max: self.reply_len_max,
            seed: self.seed.unwrap_or_else(|| uuid::Uuid::new_v4().as_u64_pair().0),
            chroot: text.chroot.clone(),
            resume: self.resume,
            #[cfg(feature = "mutations")]
            mutation: self.mutation,
        };
        if config.requests_max == 0 || config.bytes_max == 0 || self.watch_events_max == 0 {
            return Err(Error::InvalidSetting("a queue without room"));
        }
        Ok((config, text))
    }

    fn session_timeout_ms(&self) -> Result<u32> {
        match i32::try_from(self.session_timeout.as_millis()) {
            Ok(ms @ 1..) => Ok(ms.unsigned_abs()),
            _ => Err(Error::InvalidSetting("a session timeout from 1 ms to 2,147,483,647 ms is needed")),
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_out_of_range_are_refused() {
        let builder = || Client::builder("127.0.0.1:1");
        for wrong in [
            builder().session_timeout(Duration::ZERO),
            builder().session_timeout(Duration::from_micros(999)),
            builder().session_timeout(Duration::MAX),
            builder().requests_max(0),
            builder().queued_bytes_max(0),
            builder().watch_events_max(0),
        ] {
            assert!(matches!(wrong.open().err(), Some(Error::InvalidSetting(_))));
        }
    }
}
