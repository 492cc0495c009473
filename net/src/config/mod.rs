//! The configuration: Apache's `zoo.cfg`, overridden by command-line flags, with defaults for everything.

mod admin;
mod jaas;
mod keys;
mod log_format;
mod memory;
mod otlp;
mod properties;
mod quorum_auth;
mod scram;
mod throttles;
mod tls;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV6};
use std::path::{Path, PathBuf};

pub(crate) use admin::{AdminConfig, Editors};
pub(crate) use jaas::KerberosService;
pub(crate) use log_format::LogFormat;
pub(crate) use memory::MemoryLimit;
pub(crate) use otlp::Endpoint;
pub(crate) use properties::Property;
pub(crate) use quorum_auth::{QuorumAuth, ServicePattern};
use ringkeeper_engine::acl::DigestAlgorithm;
use ringkeeper_engine::limits::{Limit, Limits};
pub(crate) use ringkeeper_engine::members::{Groups, Members, PeerRole, ServerSpec};
use ringkeeper_engine::sasl::{self, Principals, Users};
use ringkeeper_engine::settings::Settings;
use ringkeeper_log::storage::WriteMode;
pub(crate) use scram::{is_suitable, read_scram_file, read_scram_users, with_scram_user};
use throttles::Throttles;
pub(crate) use tls::{PeerTlsConfig, TlsConfig};

/// The part of the memory, one in so many, that notifications for clients that do not read may take.
const UNREAD_NOTIFICATIONS_SHARE: u64 = 8;

/// All settings of a server.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Config {
    /// Folder of the snapshots, of `myid`, and of the log unless `data_log_dir` names another.
    pub(crate) data_dir: PathBuf,
    /// Folder of the log.
    pub(crate) data_log_dir: Option<PathBuf>,
    pub(crate) client_address: IpAddr,
    /// The link that a link-local IPv6 address belongs to; 0 for others.
    pub(crate) client_scope_id: u32,
    /// Port that speaks in the clear; 0 if there is none, but only a secure one.
    pub(crate) client_port: u16,
    pub(crate) client_backlog: u32,
    pub(crate) tls: TlsConfig,
    pub(crate) peer_tls: PeerTlsConfig,
    pub(crate) admin: AdminConfig,
    /// The configuration file, without its secrets; empty if there is none.
    pub(crate) initial_text: String,
    /// Base unit of the times below, milliseconds.
    pub(crate) tick_time_ms: u32,
    pub(crate) min_session_timeout_ms: Option<u32>,
    pub(crate) max_session_timeout_ms: Option<u32>,
    /// Ticks in which a learner has to connect and synchronize.
    pub(crate) init_limit: Option<u32>,
    /// Ticks that a learner may lag behind.
    pub(crate) sync_limit: Option<u32>,
    /// Connections from one client address; 0 means any number.
    pub(crate) max_client_connections: u32,
    /// Connections of the server; 0 means any number.
    pub(crate) max_connections: u32,
    /// Longest request frame in bytes.
    pub(crate) jute_max_buffer: u32,
    /// Outstanding requests of the whole ensemble, at most; see [`Config::own_outstanding_requests_max`].
    pub(crate) outstanding_requests_max: u32,
    /// Bytes of outstanding writes on this server, at most.
    pub(crate) outstanding_bytes_max: u32,
    /// How many sessions and requests are let in at once.
    pub(crate) throttles: Throttles,
    /// Bounds on what a client may request and have stored.
    pub(crate) limits: Limits,
    /// Transactions between two snapshots.
    pub(crate) snap_count: u64,
    /// Log bytes between two snapshots, KiB.
    pub(crate) snap_size_limit_kib: u64,
    /// Length of the log, as a percentage of the last snapshot's length, before the next snapshot is due; 0:
    /// no such condition.
    pub(crate) snapshot_log_percent: u64,
    /// Bytes of a snapshot that are written a second, at most.
    pub(crate) snapshot_bytes_per_second: u64,
    /// Whether the blocks of snapshots are compressed.
    pub(crate) snapshot_compressed: bool,
    /// Bytes of log and snapshots that the background scrub reads a second, at most.
    pub(crate) scrub_bytes_per_second: u64,
    /// Seconds between two passes of the scrub; 0 switches it off.
    pub(crate) scrub_interval_s: u64,
    /// Size of a log segment in bytes.
    pub(crate) segment_size_bytes: u64,
    /// How log writes are made durable.
    pub(crate) log_write_mode: WriteMode,
    /// Snapshots kept.
    pub(crate) snap_retain_count: u32,
    /// Four-letter words that are answered.
    pub(crate) four_letter_words: Vec<String>,
    /// Whether clients can have identities of the scheme `digest`.
    pub(crate) digest_enabled: bool,
    /// The hash in ids of the scheme `digest`.
    pub(crate) digest_algorithm: DigestAlgorithm,
    /// `user:base64(hash of user:password)` of the super user.
    pub(crate) super_digest: Option<String>,
    pub(crate) skip_acl: bool,
    pub(crate) enforce_quota: bool,
    /// Whether TTL znodes can be created.
    pub(crate) extended_types: bool,
    pub(crate) reconfig_enabled: bool,
    /// Whether a server without a leader serves reads.
    pub(crate) read_only_mode: bool,
    /// Whether a server of an ensemble keeps the sessions of its clients by itself.
    pub(crate) local_sessions: bool,
    /// Whether such a session becomes one of the ensemble when it creates its first ephemeral.
    pub(crate) local_sessions_upgrading: bool,
    /// Whether an ensemble has two voters at least.
    pub(crate) standalone_enabled: bool,
    /// Interval of the scans for containers and TTL znodes, milliseconds.
    pub(crate) container_check_interval_ms: u64,
    /// How many of them are deleted a minute at most.
    pub(crate) container_max_per_minute: u32,
    /// Age after which a container that never had a child is deleted; 0 means never.
    pub(crate) container_max_never_used_ms: u64,
    /// A fdatasync longer than this is worth a warning, milliseconds.
    pub(crate) fsync_warning_ms: u64,
    pub(crate) log_format: LogFormat,
    /// A request that takes longer is logged, milliseconds; 0: none is.
    pub(crate) slow_request_ms: u64,
    /// How long a request may wait for its tenant, milliseconds.
    pub(crate) tenant_delay_max_ms: u64,
    /// One request in so many is traced; 0: none is.
    pub(crate) trace_sample_rate: u32,
    /// Where traces are sent.
    pub(crate) otlp_endpoint: Option<Endpoint>,
    /// Shards, each on a core of its own; `None` decides by the machine.
    pub(crate) shards: Option<u16>,
    /// Silence after which a peer is considered dead, milliseconds.
    pub(crate) peer_timeout_ms: u32,
    /// Ids of the servers that are to lead rather than others, the first one above all.
    pub(crate) preferred_leaders: Vec<u64>,
    /// Whether this server takes clients while it leads others.
    pub(crate) leader_serves: bool,
    /// How long one of them has to keep up before it leads.
    pub(crate) prefer_leader_after_ms: u32,
    /// Whether every connection needs an identity of one of these schemes.
    pub(crate) enforce_auth: bool,
    pub(crate) enforced_auth_schemes: Vec<String>,
    /// The file that lists the users of DIGEST-MD5, the section of it, and once they are read, the users and
    /// the service of Kerberos.
    pub(crate) jaas_file: Option<PathBuf>,
    pub(crate) jaas_section: String,
    pub(crate) sasl_users: Option<Users>,
    pub(crate) kerberos: Option<KerberosService>,
    /// How principals of Kerberos become users.
    pub(crate) principals: Principals,
    /// The file that lists the users of SCRAM-SHA-256.
    pub(crate) scram_file: Option<PathBuf>,
    /// The password of the SASL user `super`, in place of the listed one.
    pub(crate) sasl_super_password: Option<Redacted<String>>,
    /// SASL users who bypass all ACLs.
    pub(crate) sasl_super_users: BTreeSet<String>,
    /// Whether every connection needs a login by SASL, whatever other schemes are asked for.
    pub(crate) require_sasl: bool,
    /// Whether clients stay connected after a login by SASL that failed.
    pub(crate) failed_sasl_clients_stay: bool,
    /// Keys that are of no use without users of SASL.
    pub(crate) needs_sasl_users: Vec<Unmet>,
    /// Resident memory above which the tree does not grow.
    pub(crate) memory_limit: MemoryLimit,
    /// Whether an audit log is kept, where, and for how many days.
    pub(crate) audits: bool,
    pub(crate) audit_to: Option<PathBuf>,
    pub(crate) audit_days: u32,
    /// Keys that ask for protection that there is none of, and those of them that the operator does without.
    pub(crate) unprotected: Vec<Unmet>,
    pub(crate) ignored: Vec<String>,
    /// SASL between servers.
    pub(crate) quorum_auth: QuorumAuth,
    /// The secret that the servers of the ensemble share.
    pub(crate) peer_secret: Option<Redacted<Vec<u8>>>,
    /// Whether whoever reaches the quorum port is accepted as a member.
    pub(crate) trusted_network: bool,
    /// Whether servers with empty folders may found an ensemble by themselves.
    pub(crate) db_autocreate: bool,
    /// Whether peers may connect to every address of this machine.
    pub(crate) quorum_listen_on_all: bool,
    /// This server's number in the ensemble.
    pub(crate) my_id: Option<u64>,
    /// The ensemble; empty for a server alone.
    pub(crate) servers: Vec<ServerSpec>,
    /// Their groups and weights; none if majorities decide.
    pub(crate) groups: Groups,
}

/// A secret, which is not shown.
#[derive(Clone, PartialEq)]
pub(crate) struct Redacted<T>(pub(crate) T);

impl<T> fmt::Debug for Redacted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Redacted")
    }
}

/// A key that asks for protection that is not implemented.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Unmet {
    key: String,
    /// Its line in the file; 0 if it was not in a file.
    line: usize,
    reason: &'static str,
}

/// The key and where it stands.
impl fmt::Display for Unmet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => f.write_str(&self.key),
            line => write!(f, "{} (line {line})", self.key),
        }
    }
}

/// The SASL user whose password `SASLAuthenticationProvider.superPassword` sets.
const SASL_SUPER: &str = "super";

/// The data folder if nothing is configured.
pub(crate) const DEFAULT_DATA_DIR: &str = "ringkeeper-data";

impl Default for Config {
    fn default() -> Self {
        Self {
            data_dir: PathBuf::from(DEFAULT_DATA_DIR),
            data_log_dir: None,
            client_address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            client_scope_id: 0,
            client_port: 2181,
            client_backlog: 1024,
            tls: TlsConfig::default(),
            peer_tls: PeerTlsConfig::default(),
            admin: AdminConfig::default(),
            initial_text: String::new(),
            tick_time_ms: 2000,
            min_session_timeout_ms: None,
            max_session_timeout_ms: None,
            init_limit: None,
            sync_limit: None,
            max_client_connections: 60,
            max_connections: 0,
            jute_max_buffer: 0xf_ffff,
            outstanding_requests_max: 20_000,
            outstanding_bytes_max: 64 * 1024 * 1024,
            throttles: Throttles::default(),
            limits: Limits::default(),
            snap_count: 100_000,
            snap_size_limit_kib: 4 * 1024 * 1024,
            snapshot_log_percent: 50,
            snapshot_bytes_per_second: 64 * 1024 * 1024,
            snapshot_compressed: false,
            scrub_bytes_per_second: 8 * 1024 * 1024,
            scrub_interval_s: 3600,
            segment_size_bytes: 64 * 1024 * 1024,
            log_write_mode: WriteMode::Adaptive,
            snap_retain_count: 3,
            four_letter_words: ["ruok", "srvr", "mntr", "isro", "stat", "conf"].map(str::to_owned).to_vec(),
            digest_enabled: true,
            digest_algorithm: DigestAlgorithm::default(),
            super_digest: None,
            skip_acl: false,
            enforce_quota: false,
            extended_types: true,
            reconfig_enabled: false,
            read_only_mode: false,
            local_sessions: false,
            local_sessions_upgrading: false,
            standalone_enabled: true,
            container_check_interval_ms: 60_000,
            container_max_per_minute: 10_000,
            container_max_never_used_ms: 0,
            fsync_warning_ms: 1000,
            log_format: LogFormat::Text,
            slow_request_ms: 100,
            tenant_delay_max_ms: 1_000,
            trace_sample_rate: 0,
            otlp_endpoint: None,
            shards: None,
            peer_timeout_ms: 500,
            preferred_leaders: Vec::new(),
            leader_serves: true,
            prefer_leader_after_ms: 10_000,
            enforce_auth: false,
            enforced_auth_schemes: Vec::new(),
            jaas_file: None,
            jaas_section: "Server".to_owned(),
            sasl_users: None,
            kerberos: None,
            principals: Principals::default(),
            scram_file: None,
            sasl_super_password: None,
            sasl_super_users: BTreeSet::new(),
            require_sasl: false,
            failed_sasl_clients_stay: false,
            needs_sasl_users: Vec::new(),
            memory_limit: MemoryLimit::default(),
            audits: false,
            audit_to: None,
            audit_days: 30,
            unprotected: Vec::new(),
            ignored: Vec::new(),
            quorum_auth: QuorumAuth::default(),
            peer_secret: None,
            trusted_network: false,
            db_autocreate: true,
            quorum_listen_on_all: false,
            my_id: None,
            servers: Vec::new(),
            groups: Groups::default(),
        }
    }
}

/// Where the audit log goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AuditTarget {
    /// To standard error, which systemd's journal takes.
    Journal,
    /// To files in this folder, one a day, of which so many are kept.
    Folder { folder: PathBuf, days: usize },
}

impl Config {
    /// Where clients connect: the port in the clear, or the secure one where there is no other.
    pub(crate) fn client_socket(&self) -> SocketAddr {
        let secure = self.tls.secure_socket().filter(|_| self.client_port == 0);
        secure.unwrap_or_else(|| socket_address(self.client_address, self.client_port, self.client_scope_id))
    }

    /// Where the audit log goes, if there is one.
    pub(crate) fn audit_target(&self) -> Option<AuditTarget> {
        let folder = match &self.audit_to {
            _ if !self.audits => return None,
            Some(to) if to == Path::new("journal") => return Some(AuditTarget::Journal),
            Some(folder) => folder.clone(),
            None => self.data_dir.join("audit"),
        };
        Some(AuditTarget::Folder { folder, days: self.audit_days as usize })
    }

    /// Folder of the log.
    pub(crate) fn log_dir(&self) -> &Path {
        self.data_log_dir.as_deref().unwrap_or(&self.data_dir)
    }

    /// Shortest session timeout that is granted, milliseconds.
    pub(crate) fn min_session_timeout(&self) -> u32 {
        self.min_session_timeout_ms.unwrap_or_else(|| self.tick_time_ms.saturating_mul(2))
    }

    /// Longest session timeout that is granted, milliseconds.
    pub(crate) fn max_session_timeout(&self) -> u32 {
        self.max_session_timeout_ms.unwrap_or_else(|| self.tick_time_ms.saturating_mul(20))
    }

    /// This server's number; a server alone is 1, as in ZooKeeper.
    pub(crate) fn server_id(&self) -> u64 {
        self.my_id.unwrap_or(1)
    }

    /// How many requests may be outstanding on this server (`globalOutstandingLimit`). As in ZooKeeper, the
    /// limit is the ensemble's: with more than two voters, each takes the limit divided by their number less
    /// one. Observers do not count.
    pub(crate) fn own_outstanding_requests_max(&self) -> u32 {
        let voters = self.voters().count();
        let votes = self.own_server().is_some_and(|own| own.role == PeerRole::Participant);
        match u32::try_from(voters) {
            Ok(voters @ 3..) if votes => (self.outstanding_requests_max / (voters - 1)).max(1),
            _ => self.outstanding_requests_max,
        }
    }

    /// The members that the configuration names; none for a server alone.
    pub(crate) fn members(&self) -> Members {
        self.servers.iter().cloned().collect::<Members>().in_groups(self.groups.clone())
    }

    /// The servers that vote; none for a server alone.
    pub(crate) fn voters(&self) -> impl Iterator<Item = &ServerSpec> {
        self.servers.iter().filter(|server| server.role == PeerRole::Participant)
    }

    /// This server's own line of the ensemble.
    pub(crate) fn own_server(&self) -> Option<&ServerSpec> {
        self.servers.iter().find(|server| Some(server.id) == self.my_id)
    }

    /// Whether the sessions of its clients are this server's alone. As in ZooKeeper, a server without an
    /// ensemble has no such sessions.
    pub(crate) const fn opens_local_sessions(&self) -> bool {
        self.local_sessions && !self.servers.is_empty()
    }

    /// What requests may do.
    pub(crate) fn request_settings(&self) -> Settings {
        Settings {
            extended_types_enabled: self.extended_types,
            skip_acl: self.skip_acl,
            enforce_quota: self.enforce_quota,
            digest_enabled: self.digest_enabled,
            digest_algorithm: self.digest_algorithm,
            super_digest: self.super_digest.clone(),
            x509_enabled: self.tls.is_served(),
            spiffe_enabled: self.tls.is_served() && !self.tls.spiffe_trust_domains.is_empty(),
            super_subject: self.tls.super_user.clone(),
            sasl_enabled: self.has_logins(),
            reconfig_enabled: self.reconfig_enabled,
            standalone_enabled: self.standalone_enabled,
            limits: self.limits.clone().with(Limit::TransactionBytes, self.transaction_bytes_max()),
            ..Settings::default()
        }
    }

    /// Notifications that wait for all clients of the server together, in bytes: at most a share of the
    /// memory.
    pub(crate) fn unread_notification_bytes_total_max(&self) -> u64 {
        let share = self.memory_limit.bytes().map_or(u64::MAX, |limit| limit / UNREAD_NOTIFICATIONS_SHARE);
        self.limits.of(Limit::UnreadNotificationBytesTotal).min(share)
    }

    /// The longest transaction, in bytes; a request of `jute.maxbuffer` always fits.
    fn transaction_bytes_max(&self) -> u64 {
        self.limits.of(Limit::TransactionBytes).max(2 * u64::from(self.jute_max_buffer))
    }

    /// Reads a file in Apache's format over the defaults. Also returns notices for the log: keys without
    /// effect and why, unknown keys with the most similar known one.
    ///
    /// # Errors
    /// The file is unreadable, a value makes no sense, or two contradict one another; always with file and
    /// line.
    pub(crate) fn read(path: &Path) -> Result<(Self, Vec<String>), ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| ConfigError::new(path, None, format!("cannot be read: {error}")))?;
        let mut config = Self {
            client_address: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            initial_text: properties::without_secrets(&text),
            ..Self::default()
        };
        let mut notices = Vec::new();
        let mut lines = keys::Lines::default();
        for property in properties::parse(&text) {
            lines.remember(&property);
            if let Some(notice) = keys::apply(&mut config, &property)
                .map_err(|reason| ConfigError::new(path, Some(property.line), reason))?
            {
                notices.push(format!("{}:{}: {notice}", path.display(), property.line));
            }
        }
        if !lines.has("dataDir") {
            return Err(ConfigError::new(
                path,
                None,
                "dataDir is missing: name the folder for the data".to_owned(),
            ));
        }
        config.read_dynamic_file(path, &lines, &mut notices)?;
        config.read_my_id()?;
        config.check(path, &lines)?;
        Ok((config, notices))
    }

    /// Applies `KEY=VALUE` options of the command line; answers notices as [`Self::read`] does.
    ///
    /// # Errors
    /// An option has no value, or one that makes no sense.
    pub(crate) fn set_options(&mut self, options: &[String]) -> Result<Vec<String>, ConfigError> {
        let mut notices = Vec::new();
        for option in options {
            let fail =
                |reason: String| ConfigError::new(Path::new(&format!("--option {option}")), None, reason);
            let (key, value) =
                option.split_once('=').ok_or_else(|| fail("not of the form KEY=VALUE".to_owned()))?;
            let property = Property { line: 0, key: key.trim().to_owned(), value: value.trim().to_owned() };
            let notice = keys::apply(self, &property).map_err(fail)?;
            notices.extend(notice.map(|notice| format!("--option {option}: {notice}")));
        }
        let checked = self.members().check_groups();
        checked
            .map_err(|(key, reason)| ConfigError::new(Path::new(&format!("--option {key}")), None, reason))?;
        Ok(notices)
    }

    /// Refuses a configuration that asks for protection which is not implemented, unless
    /// `ringkeeper.ignoreUnsupported` names the key, so that nothing is left open by mistake. Returns a
    /// notice for each key that is waived.
    ///
    /// # Errors
    /// There is such a key, or authentication is enforced without a scheme.
    pub(crate) fn check_protection(&self) -> Result<Vec<String>, ConfigError> {
        let fail = |key: &str, reason: String| Err(ConfigError::new(Path::new(key), None, reason));
        if self.enforce_auth && self.required_schemes().is_empty() {
            return fail(
                "enforce.auth.enabled",
                "it needs enforce.auth.schemes, such as digest,sasl".to_owned(),
            );
        }
        let required = self.required_schemes();
        for (scheme, is_there, reason) in [
            ("x509", self.tls.is_served(), "x509 needs secureClientPort or client.portUnification"),
            (
                "digest",
                self.digest_enabled,
                "DigestAuthenticationProvider.enabled=false lets nobody have a digest",
            ),
        ] {
            if !is_there && required.iter().any(|required| required == scheme) {
                return fail("enforce.auth.schemes", reason.to_owned());
            }
        }
        let (ignored, refused): (Vec<_>, Vec<_>) =
            self.unmet().partition(|unmet| self.ignored.contains(&unmet.key));
        if !refused.is_empty() {
            let mut by_reason = BTreeMap::<_, Vec<_>>::new();
            for unmet in refused {
                by_reason.entry(unmet.reason).or_default().push(unmet.to_string());
            }
            let reasons =
                by_reason.into_iter().map(|(reason, keys)| format!("{}: {reason}", keys.join(", ")));
            let all: BTreeSet<_> = self.unmet().map(|unmet| unmet.key.as_str()).collect();
            let remedy = Vec::from_iter(all).join(",");
            let reasons = Vec::from_iter(reasons).join("; ");
            return fail(
                "the configuration asks for protection that there is none of",
                format!("{reasons}; to start without it, set ringkeeper.ignoreUnsupported={remedy}"),
            );
        }
        let left_out = |unmet: &Unmet| {
            format!("{} is left out as ringkeeper.ignoreUnsupported says: {}", unmet.key, unmet.reason)
        };
        let tls = self.tls.notices().into_iter().chain(self.peer_tls.notices(self.admin.speaks_tls()));
        Ok(ignored.into_iter().map(left_out).chain(tls).chain(self.useless_super_digest()).collect())
    }

    /// A notice if nobody can be the super user, since the scheme is off or the hash has another length.
    fn useless_super_digest(&self) -> Option<String> {
        let algorithm = self.digest_algorithm;
        let reason = match &self.super_digest {
            Some(_) if !self.digest_enabled => "DigestAuthenticationProvider.enabled=false".to_owned(),
            Some(id) if !algorithm.can_make(id) => {
                format!("it was not made with {algorithm} (DigestAuthenticationProvider.digestAlg)")
            }
            _ => return None,
        };
        Some(format!("DigestAuthenticationProvider.superDigest matches no password: {reason}"))
    }

    /// Keys that ask for protection that there is none of.
    fn unmet(&self) -> impl Iterator<Item = &Unmet> {
        let needs_users = self.needs_sasl_users.iter().filter(|_| !self.has_logins());
        let provided = |key: &str| self.tls.provides(key) || self.peer_tls.provides(key);
        self.unprotected.iter().filter(move |unmet| !provided(&unmet.key)).chain(needs_users)
    }

    /// Whether clients have to show a certificate, on every port.
    pub(crate) fn clients_need_certificates(&self) -> bool {
        self.client_port == 0 && self.tls.needs_client_certificates()
    }

    /// The schemes of which a connection needs one; empty where it needs none.
    pub(crate) fn required_schemes(&self) -> Vec<String> {
        if self.require_sasl && self.has_logins() {
            return vec!["sasl".to_owned()];
        }
        if self.enforce_auth { self.enforced_auth_schemes.clone() } else { Vec::new() }
    }

    /// Whether clients can log in by SASL.
    const fn has_logins(&self) -> bool {
        self.sasl_users.is_some() || self.kerberos.is_some() || self.scram_file.is_some()
    }

    /// Reads from the JAAS file, if there is one, who can log in by SASL.
    ///
    /// # Errors
    /// It, or the keytab that it names, cannot be read, or other users of the machine can read it; or it
    /// names nobody in the section; or a section is named without a file.
    pub(crate) fn read_logins(&mut self) -> Result<(), ConfigError> {
        let has_own_section = self.jaas_section != Self::default().jaas_section;
        let refuse = |key: &str, reason: String| Err(ConfigError::new(Path::new(key), None, reason));
        if let Some((key, reason)) = self.quorum_auth.contradiction() {
            return refuse(key, reason.to_owned());
        }
        if self.quorum_auth.is_on && self.peer_secret.is_some() {
            let reason = "ringkeeper.peerSecretFile is set, too: keep one of them".to_owned();
            return refuse("quorum.auth.enableSasl", reason);
        }
        let Some(path) = &self.jaas_file else {
            let key = match (has_own_section, self.quorum_auth.is_on) {
                (true, _) => "sasl.serverconfig",
                (false, true) => "quorum.auth.enableSasl",
                (false, false) => return Ok(()),
            };
            return refuse(
                key,
                format!("it needs {}, which names the file with its section", keys::JAAS_FILE),
            );
        };
        let fail = |reason| ConfigError::new(path, None, reason);
        let text = keys::private_file(path).map_err(fail)?;
        let text = String::from_utf8(text).map_err(|_| fail("is not UTF-8".to_owned()))?;
        let jaas::Logins { mut users, kerberos } =
            jaas::logins(&text, &self.jaas_section, self.quorum_auth.is_on && !has_own_section)
                .map_err(fail)?;
        if self.quorum_auth.is_on {
            self.quorum_auth.read(&text).map_err(fail)?;
        }
        let keytab = kerberos.as_ref().and_then(|service| service.keytab.as_deref());
        for keytab in keytab.into_iter().chain(self.quorum_auth.keytabs()) {
            keys::private_file(keytab).map_err(fail)?;
        }
        if let Some(Redacted(password)) = &self.sasl_super_password
            && users.contains(SASL_SUPER)
        {
            users.insert(SASL_SUPER, password);
        }
        self.sasl_users = Some(users).filter(|users| *users != Users::default());
        self.kerberos = kerberos;
        Ok(())
    }

    /// Settings of logins by SASL, without the users of SCRAM-SHA-256, who may change.
    pub(crate) fn sasl_settings(&self, nonce_seed: [u8; 32]) -> sasl::Settings {
        sasl::Settings {
            users: self.sasl_users.clone(),
            kerberos: self.kerberos.is_some(),
            principals: self.principals.clone(),
            scram: None,
            super_users: self.sasl_super_users.clone(),
            failed_clients_stay: self.failed_sasl_clients_stay,
            nonce_seed,
        }
    }

    /// Checks limits that command-line flags may have made contradictory.
    ///
    /// # Errors
    /// The shortest session timeout is longer than the longest.
    pub(crate) fn check_limits(&self) -> Result<(), ConfigError> {
        let (min, max) = (self.min_session_timeout(), self.max_session_timeout());
        if min <= max {
            return Ok(());
        }
        let reason = format!("minSessionTimeout {min} is greater than maxSessionTimeout {max}");
        Err(ConfigError::new(Path::new("session timeouts"), None, reason))
    }

    /// Reads the ensemble from a file of its own, as ZooKeeper allows since 3.5.
    fn read_dynamic_file(
        &mut self,
        path: &Path,
        lines: &keys::Lines,
        notices: &mut Vec<String>,
    ) -> Result<(), ConfigError> {
        let Some((line, name)) = lines.value("dynamicConfigFile") else {
            return self.check_groups(path, lines);
        };
        if !self.servers.is_empty() || !self.groups.is_empty() {
            let reason = "both dynamicConfigFile and server.N, group.N or weight.N lines: keep one of them";
            return Err(ConfigError::new(path, Some(line), reason.to_owned()));
        }
        let dynamic = path.parent().unwrap_or_else(|| Path::new("")).join(name);
        let text = std::fs::read_to_string(&dynamic)
            .map_err(|error| ConfigError::new(&dynamic, None, format!("cannot be read: {error}")))?;
        let mut members = keys::Lines::default();
        for property in properties::parse(&text) {
            if property.key == "version" {
                continue;
            }
            members.remember(&property);
            if let Some(notice) = keys::apply(self, &property)
                .map_err(|reason| ConfigError::new(&dynamic, Some(property.line), reason))?
            {
                notices.push(format!("{}:{}: {notice}", dynamic.display(), property.line));
            }
        }
        self.check_groups(&dynamic, &members)
    }

    /// Checks the groups of voters, whose lines stand in the file `path`.
    fn check_groups(&self, path: &Path, lines: &keys::Lines) -> Result<(), ConfigError> {
        let line = |key: &str| lines.value(key).map(|(line, _)| line);
        let checked = self.members().check_groups();
        checked.map_err(|(key, reason)| ConfigError::new(path, line(&key), reason))
    }

    /// A member of an ensemble reads its id from `dataDir/myid`.
    fn read_my_id(&mut self) -> Result<(), ConfigError> {
        if self.servers.is_empty() {
            return Ok(());
        }
        let path = self.data_dir.join("myid");
        let text = std::fs::read_to_string(&path).map_err(|error| {
            let remedy = match error.kind() {
                std::io::ErrorKind::PermissionDenied => {
                    "let the user that the server runs as read it (chown)"
                }
                _ => "write this server's number N of its server.N line into it",
            };
            let reason = format!("cannot be read: {error}; {remedy}");
            ConfigError::new(&path, None, reason)
        })?;
        let id = text.trim().parse().ok().filter(|id| (0..=255).contains(id));
        self.my_id = Some(id.ok_or_else(|| {
            ConfigError::new(&path, Some(1), format!("{:?} is not a number from 0 to 255", text.trim()))
        })?);
        Ok(())
    }

    fn check(&mut self, path: &Path, lines: &keys::Lines) -> Result<(), ConfigError> {
        let fail = |key: &str, reason: String| {
            Err(ConfigError::new(path, lines.value(key).map(|(line, _)| line), reason))
        };
        if self.min_session_timeout() > self.max_session_timeout() {
            let (min, max) = (self.min_session_timeout(), self.max_session_timeout());
            let key = if lines.has("maxSessionTimeout") { "maxSessionTimeout" } else { "minSessionTimeout" };
            return fail(key, format!("minSessionTimeout {min} is greater than maxSessionTimeout {max}"));
        }
        if let Some((key, reason)) = self.tls.contradiction() {
            return fail(key, format!("{key} {reason}"));
        }
        if !lines.has("clientPort") && self.tls.secure_port.is_some() {
            self.client_port = 0;
        } else if self.servers.is_empty() && !lines.has("clientPort") {
            return fail(
                "clientPort",
                "clientPort is missing: name the port for clients, usually 2181".to_owned(),
            );
        }
        let Some(my_id) = self.my_id else { return Ok(()) };
        for (key, missing) in
            [("initLimit", self.init_limit.is_none()), ("syncLimit", self.sync_limit.is_none())]
        {
            if missing {
                return fail(key, format!("{key} is missing: an ensemble needs it, in ticks"));
            }
        }
        let is_voter =
            |id: &u64| self.servers.iter().any(|it| it.id == *id && it.role == PeerRole::Participant);
        let stranger = self.preferred_leaders.iter().find(|id| !is_voter(id));
        // Members that the log names may be more than those of the file.
        if let Some(id) = stranger.filter(|_| !self.reconfig_enabled) {
            let key = "ringkeeper.preferredLeaders";
            return fail(key, format!("{key} names server {id}, which is no voter by the server.N lines"));
        }
        let Some(own) = self.servers.iter().find(|server| server.id == my_id) else {
            let known: Vec<_> = self.servers.iter().map(|server| format!("server.{}", server.id)).collect();
            let reason =
                format!("myid says {my_id}, but there is no server.{my_id} line, only {}", known.join(", "));
            return fail(&format!("server.{}", self.servers[0].id), reason);
        };
        if let Some((host, port)) = own.client.clone() {
            if lines.has("clientPort") && self.client_port != port {
                let reason =
                    format!("clientPort {} contradicts server.{my_id}, which says {port}", self.client_port);
                return fail("clientPort", reason);
            }
            self.client_port = port;
            if let Some(host) = host {
                match keys::address(&host) {
                    Ok(address) => (self.client_address, self.client_scope_id) = address,
                    Err(reason) => return fail(&format!("server.{my_id}"), reason),
                }
            }
        } else if !lines.has("clientPort") && self.tls.secure_port.is_none() {
            return fail(
                "clientPort",
                format!("clientPort is missing, and server.{my_id} names none either"),
            );
        }
        Ok(())
    }
}

/// The settings of a file, as they stand there.
///
/// # Errors
/// It cannot be read.
pub(crate) fn read_properties(path: &Path) -> Result<Vec<Property>, ConfigError> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| ConfigError::new(path, None, format!("cannot be read: {error}")))?;
    Ok(properties::parse(&text))
}

/// An IPv6 address belongs to the link `scope_id` if it is link-local.
fn socket_address(address: IpAddr, port: u16, scope_id: u32) -> SocketAddr {
    match address {
        IpAddr::V4(address) => SocketAddr::from((address, port)),
        IpAddr::V6(address) => SocketAddrV6::new(address, port, 0, scope_id).into(),
    }
}

/// A configuration that cannot be used.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ConfigError {
    path: PathBuf,
    line: Option<usize>,
    reason: String,
}

impl ConfigError {
    fn new(path: &Path, line: Option<usize>, reason: String) -> Self {
        Self { path: path.to_owned(), line, reason }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        write!(f, ": {}", self.reason)
    }
}

impl std::error::Error for ConfigError {}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder with `zoo.cfg` and, where given, `myid`; `$D` in the text stands for the folder.
    fn read(text: &str, my_id: Option<&str>) -> Result<(Config, Vec<String>), String> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("zoo.cfg");
        std::fs::write(&path, text.replace("$D", folder.path().to_str().expect("UTF-8"))).expect("written");
        if let Some(my_id) = my_id {
            std::fs::write(folder.path().join("myid"), my_id).expect("written");
        }
        Config::read(&path)
            .map_err(|error| error.to_string().replace(folder.path().to_str().expect("UTF-8"), "$D"))
    }

    #[test]
    fn the_sample_file_of_apache_zookeeper_is_read_without_a_notice() {
        let text =
            "tickTime=2000\ninitLimit=10\nsyncLimit=5\ndataDir=$D\nclientPort=2181\nmaxClientCnxns=0\n";
        let (config, notices) = read(text, None).expect("valid");
        assert_eq!(notices, Vec::<String>::new());
        assert_eq!((config.min_session_timeout(), config.max_session_timeout()), (4000, 40_000));
        assert_eq!(config.client_socket().to_string(), "0.0.0.0:2181");
    }

    #[test]
    fn an_ensemble_is_read_with_its_number() {
        let text = "tickTime=2000\ninitLimit=10\nsyncLimit=5\ndataDir=$D\nclientPort=2182\n\
                    server.1=zoo1:2888:3888\nserver.2=zoo2:2888:3888\nserver.3=[::1]:2888:3888:observer;127.0.0.1:2183\n";
        let (config, _) = read(text, Some("2\n")).expect("valid");
        assert_eq!(config.my_id, Some(2));
        assert_eq!(config.servers.len(), 3);
        assert_eq!(config.servers[2].role, PeerRole::Observer);
        assert_eq!(config.servers[2].host, "::1");
    }

    const IN_GROUPS: &str = "initLimit=1\nsyncLimit=1\ndataDir=$D\nclientPort=1\nserver.1=a:1:2\nserver.2=b:1:2\n\
                             server.3=c:1:2\nserver.4=d:1:2:observer\n";

    #[test]
    fn groups_and_weights_of_voters_are_read() {
        let text = format!("{IN_GROUPS}group.1=1:2\ngroup.2=3\nweight.2=3\n");
        let (config, notices) = read(&text, Some("1")).expect("valid");
        assert_eq!(notices, Vec::<String>::new());
        let described = config.members().describe(0);
        let groups = "\ngroup.1=1:2\ngroup.2=3\nweight.1=1\nweight.2=3\nweight.3=1\nversion=0";
        assert!(described.ends_with(groups), "{described}");
    }

    #[test]
    fn groups_that_make_no_sense_are_refused_with_the_line() {
        for (lines, told) in [
            ("group.1=1:2\n", "$D/zoo.cfg:7: server 3 votes and is in no group"),
            ("weight.1=1\n", "$D/zoo.cfg:5: server 1 votes and is in no group"),
            ("group.1=1:2\ngroup.2=2:3\n", "$D/zoo.cfg:10: group.2: server 2 is in group 1 already"),
            ("group.1=1:2:3\ngroup.2=4\n", "$D/zoo.cfg:10: group 2 names server 4, which does not vote"),
            ("group.1=1:2:3\nweight.1=-1\n", "$D/zoo.cfg:10: weight.1: \"-1\" is not a number from 0 on"),
            (
                "group.1=1:2:3\nweight.1=0\nweight.2=0\nweight.3=0\n",
                "$D/zoo.cfg:10: no voter has a weight above 0",
            ),
        ] {
            let refused = read(&format!("{IN_GROUPS}{lines}"), Some("1")).expect_err(lines);
            assert!(refused.starts_with(told), "{refused}");
        }
    }

    #[test]
    fn groups_stand_in_the_file_of_the_members_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let (data, dynamic) = (folder.path().join("data"), folder.path().join("members"));
        std::fs::create_dir(&data).expect("created");
        std::fs::write(data.join("myid"), "1").expect("written");
        let read = |more: &str, members: &str| {
            let path = folder.path().join("zoo.cfg");
            let text = format!(
                "initLimit=1\nsyncLimit=1\nclientPort=1\ndataDir={}\ndynamicConfigFile=members\n{more}",
                data.display()
            );
            std::fs::write(&path, text).expect("written");
            std::fs::write(&dynamic, format!("server.1=a:1:2\nserver.2=b:1:2\n{members}")).expect("written");
            Config::read(&path)
                .map(|(config, _)| config.members().are_grouped())
                .map_err(|error| error.to_string())
        };
        assert_eq!(read("", "group.1=1:2\n"), Ok(true));
        let refused = read("", "group.1=1\n").expect_err("server 2 is in none");
        assert!(refused.contains("members:2: server 2 votes and is in no group"), "{refused}");
        let refused = read("group.1=1:2\n", "").expect_err("in both files");
        assert!(refused.contains("zoo.cfg:5: both dynamicConfigFile and"), "{refused}");
    }

    #[test]
    fn preferred_leaders_are_voters_each_named_once() {
        let read_with = |preferred: &str, more: &str| {
            let text = format!(
                "initLimit=1\nsyncLimit=1\ndataDir=$D\nclientPort=1\nserver.1=a:1:2\nserver.2=b:1:2\n\
                 server.3=c:1:2:observer\nringkeeper.preferredLeaders={preferred}\n{more}"
            );
            read(&text, Some("1")).map(|(config, _)| config.preferred_leaders)
        };
        assert_eq!(read_with("2, 1", ""), Ok(vec![2, 1]));
        assert_eq!(read_with("7", "reconfigEnabled=true\n"), Ok(vec![7]), "it may join");
        for (wrong, why) in
            [("1,1", "server 1 stands here twice"), ("3", "no voter"), ("7", "no voter"), ("a", "\"a\"")]
        {
            let told = read_with(wrong, "").expect_err(wrong);
            assert!(told.contains("ringkeeper.preferredLeaders") && told.contains(why), "{told}");
        }
    }

    #[test]
    fn the_limit_of_outstanding_requests_is_divided_among_the_voting_servers_but_one() {
        let limit_of = |text: &str, my_id: &str| {
            let text = format!(
                "initLimit=1\nsyncLimit=1\ndataDir=$D\nclientPort=1\nglobalOutstandingLimit=2000\n{text}"
            );
            let (config, _) = read(&text, Some(my_id)).expect("valid");
            config.own_outstanding_requests_max()
        };
        let servers = |ids: std::ops::RangeInclusive<u32>| -> String {
            ids.map(|id| format!("server.{id}=127.0.0.1:{}:{}\n", 100 + id, 200 + id)).collect()
        };
        assert_eq!(limit_of("", "1"), 2000);
        assert_eq!(limit_of(&servers(1..=2), "1"), 2000);
        assert_eq!(limit_of(&servers(1..=3), "1"), 1000);
        assert_eq!(limit_of(&servers(1..=5), "1"), 500);
        let with_observer = format!("{}server.9=127.0.0.1:109:209:observer\n", servers(1..=3));
        assert_eq!((limit_of(&with_observer, "1"), limit_of(&with_observer, "9")), (1000, 2000));
    }

    #[test]
    fn values_that_make_no_sense_name_file_and_line() {
        for (text, expected) in [
            (
                "dataDir=$D\nclientPort=99999\n",
                "$D/zoo.cfg:2: clientPort: 99999 is not a number from 1 to 65535",
            ),
            (
                "dataDir=$D\ntickTime=fast\n",
                "$D/zoo.cfg:2: tickTime: \"fast\" is not a number from 1 to 2147483647",
            ),
            ("clientPort=1\n", "$D/zoo.cfg: dataDir is missing: name the folder for the data"),
            (
                "dataDir=$D\nclientPort=1\nskipACL=maybe\n",
                "$D/zoo.cfg:3: skipACL: \"maybe\" is neither yes nor no",
            ),
            (
                "dataDir=$D\nclientPort=1\nminSessionTimeout=9000\nmaxSessionTimeout=8000\n",
                "$D/zoo.cfg:4: minSessionTimeout 9000 is greater than maxSessionTimeout 8000",
            ),
        ] {
            assert_eq!(read(text, None).expect_err(text), expected);
        }
    }

    #[test]
    fn a_number_that_is_no_server_of_the_ensemble_stops_the_start() {
        let text = "initLimit=1\nsyncLimit=1\ndataDir=$D\nclientPort=1\nserver.1=a:1:2\nserver.2=b:1:2\n";
        let error = read(text, Some("7")).expect_err("no server.7");
        assert_eq!(
            error,
            "$D/zoo.cfg:5: myid says 7, but there is no server.7 line, only server.1, server.2"
        );
        let error = read(text, None).expect_err("no myid");
        assert!(error.starts_with("$D/myid: cannot be read"), "{error}");
    }

    #[test]
    fn unknown_keys_are_named_with_the_nearest_known_one() {
        let (_, notices) = read("dataDir=$D\nclientPort=1\ntickTme=3\n", None).expect("valid");
        assert_eq!(notices.len(), 1);
        assert!(
            notices[0].contains(":3: tickTme is not a key that ringkeeper knows; did you mean tickTime?"),
            "{notices:?}"
        );
    }

    #[test]
    fn a_key_far_from_every_known_one_is_not_taken_for_another() {
        let (_, notices) = read("dataDir=$D\nclientPort=1\ncompletelyDifferent=3\n", None).expect("valid");
        assert!(!notices[0].contains("did you mean"), "{notices:?}");
    }

    #[test]
    fn settings_of_protection_stop_the_start_unless_they_are_named_as_left_out() {
        let base = "dataDir=$D\nclientPort=1\n";
        for (key, value) in [
            ("zookeeper.ssl.quorum.crl", "true"),
            ("ssl.crl", "true"),
            ("ssl.unheardOf", "1"),
            ("sessionRequireClientSASLAuth", "yes"),
            ("enforce.auth.schemes", "digest,sasl"),
            ("kerberos.unheardOf", "true"),
            ("audit.impl.class", "com.example.Auditor"),
            ("authProvider.1", "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"),
            ("ensembleAuthName", "a"),
        ] {
            let (config, _) = read(&format!("{base}{key}={value}\n"), None).expect("well formed");
            let error = config.check_protection().expect_err(key).to_string();
            let name = key.trim_start_matches("zookeeper.");
            assert!(error.contains(&format!("none of: {name} (line 3): ")), "{error}");
            assert!(error.ends_with(&format!("ringkeeper.ignoreUnsupported={name}")), "{error}");
            let ignoring = format!("{base}{key}={value}\nringkeeper.ignoreUnsupported=x, {key}\n");
            let (config, _) = read(&ignoring, None).expect("well formed");
            assert_eq!(config.check_protection().expect(key).len(), 1);
        }
        let several = "ssl.authProvider=a.B\naudit.impl.class=a.B\nssl.context.supplier.class=a.B\n";
        let (config, _) = read(&format!("{base}{several}"), None).expect("well formed");
        let error = config.check_protection().expect_err("three keys").to_string();
        assert!(
            error.contains("ssl.authProvider (line 3), ssl.context.supplier.class (line 5): it"),
            "{error}"
        );
        assert!(error.ends_with("=audit.impl.class,ssl.authProvider,ssl.context.supplier.class"), "{error}");
        let off = "sslQuorum=false\naudit.enable=no\n\
                   authProvider.1=org.apache.zookeeper.server.auth.DigestAuthenticationProvider\n";
        let (config, _) = read(&format!("{base}{off}"), None).expect("well formed");
        assert_eq!(config.check_protection(), Ok(Vec::new()));
    }

    #[test]
    fn a_super_digest_that_matches_no_password_is_reported() {
        let base = "dataDir=$D\nclientPort=1\nDigestAuthenticationProvider";
        let super_digest = format!("{base}.superDigest=super:D/InIHSb7yEEbrWz8b9l71RjZJU=\n");
        for (setting, notices) in
            [("digestAlg=sha-1", 0), ("digestAlg=SHA-256", 1), ("enabled=true", 0), ("enabled=false", 1)]
        {
            let text = format!("{super_digest}DigestAuthenticationProvider.{setting}\n");
            let (config, _) = read(&text, None).expect("valid");
            assert_eq!(config.check_protection().expect("allowed").len(), notices, "{setting}");
        }
        let unknown = "dataDir=$D\nclientPort=1\nDigestAuthenticationProvider.digestAlg=MD2\n";
        assert!(read(unknown, None).expect_err("unknown").contains("none of SHA-1, "));
    }

    #[test]
    fn keys_of_tls_are_read_and_those_without_effect_are_named() {
        let read = |text: &str| read(&format!("dataDir=$D\n{text}"), None);
        let text = "secureClientPort=2281\nsecureClientPortAddress=127.0.0.1\nssl.keyStore.location=/k.pem\n\
                    ssl.keyStore.password=geheim\nssl.ciphersuites=TLS_AES_128_GCM_SHA256,AES128-SHA\n\
                    client.certReload=true\nssl.crl=true\nringkeeper.ssl.crlFile=/crl.pem\n\
                    serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n";
        let (config, _) = read(text).expect("valid");
        assert_eq!(
            (config.client_port, config.client_socket().to_string()),
            (0, "127.0.0.1:2281".to_owned())
        );
        assert!(!format!("{config:?}").contains("geheim"));
        let notices = config.check_protection().expect("all of it is there");
        assert_eq!(notices, ["ssl.ciphersuites: not safe, so not offered: AES128-SHA"]);
        let (config, _) = read("clientPort=1\nssl.clientAuth=none\n").expect("valid");
        assert!(config.check_protection().expect("allowed")[0].contains("neither secureClientPort"));
        let text = "clientPort=1\nsslQuorum=true\nssl.quorum.keyStore.location=/q.pem\nssl.keyStore.type=JKS\n\
                    ssl.quorum.ciphersuites=AES128-SHA,TLS_AES_128_GCM_SHA256\nssl.quorum.crl=yes\n\
                    ringkeeper.ssl.quorum.crlFile=/crl.pem\n\
                    ssl.quorum.handshakeDetectionTimeoutMillis=7\nsslQuorumReloadCertFiles=true\n\
                    ssl.quorum.hostnameVerification=false\n";
        let (config, notices) = read(text).expect("valid");
        assert!(notices[0].contains("server.N line") && notices.len() == 1, "{notices:?}");
        let (own, clients) = (&config.peer_tls.settings.0, &config.tls.settings.common);
        assert_eq!((&own.key_store.location, &clients.key_store.location), (&Some("/q.pem".into()), &None));
        assert_eq!(own.key_store.kind, None);
        assert!(config.peer_tls.is_demanded() && config.peer_tls.detection.as_millis() == 7);
        let notices = config.check_protection().expect("all of it is there");
        assert!(notices[1].starts_with("ssl.quorum.ciphersuites: not safe"), "{notices:?}");
        let (config, _) = read("clientPort=1\nssl.quorum.keyStore.location=/q\n").expect("valid");
        assert!(config.check_protection().expect("allowed")[0].contains("neither sslQuorum nor"));
        let (config, _) =
            read("clientPort=1\nssl.quorum.keyStore.location=/q\nadmin.forceHttps=true\n").expect("valid");
        assert_eq!(config.check_protection().expect("of use for the admin listener"), Vec::<String>::new());
        let alone = read("clientPort=1\nsecureClientPortAddress=127.0.0.1\n").expect_err("no port");
        assert!(alone.contains("needs secureClientPort, too"), "{alone}");
    }

    #[test]
    fn enforced_authentication_names_schemes_that_there_are() {
        let read =
            |text: &str| read(&format!("dataDir=$D\nclientPort=1\nenforce.auth.enabled=true\n{text}"), None);
        let (config, _) = read("enforce.auth.schemes=digest, ip\n").expect("both are supported");
        assert_eq!((config.check_protection(), config.required_schemes().len()), (Ok(Vec::new()), 2));
        assert!(read("enforce.auth.schemes=key\n").expect_err("not supported").contains("key"));
        let off = "enforce.auth.schemes=digest\nDigestAuthenticationProvider.enabled=false\n";
        for text in ["", "enforce.auth.schemes=x509\n", off] {
            assert!(read(text).expect("well formed").0.check_protection().is_err(), "{text}");
        }
    }

    #[test]
    fn users_of_sasl_come_from_a_file_that_nobody_else_can_read() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("jaas.conf");
        let module = "org.apache.zookeeper.server.auth.DigestLoginModule required";
        std::fs::write(&path, format!("Login {{ {module} user_super=listed user_bob=geheim; }};"))
            .expect("written");
        let text = "dataDir=$D\nclientPort=1\nzookeeper.sasl.serverconfig=Login\nsuperUser=bob\n\
             superUser.x=eve\nauthProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider\n\
             SASLAuthenticationProvider.superPassword=other\nsessionRequireClientSASLAuth=true\n\
             enforce.auth.enabled=true\nallowSaslFailedClients=true\n";
        let (mut config, notices) = read(text, None).expect("well formed");
        assert_eq!(notices, Vec::<String>::new());
        let error = config.read_logins().expect_err("no file").to_string();
        assert!(error.starts_with("sasl.serverconfig: it needs java.security.auth.login.config"), "{error}");
        config.set_options(&[format!("java.security.auth.login.config={}", path.display())]).expect("valid");
        let mode = |mode| std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(mode));
        mode(0o644).expect("changed");
        let error = config.read_logins().expect_err("open to others").to_string();
        assert!(error.contains("chmod 600"), "{error}");
        mode(0o600).expect("changed");
        config.read_logins().expect("valid");
        assert_eq!(config.check_protection(), Ok(Vec::new()));
        assert_eq!(config.required_schemes(), ["sasl"]);
        let settings = config.sasl_settings([0; 32]);
        let mut users = Users::default();
        users.insert("super", "other");
        users.insert("bob", "geheim");
        assert_eq!((settings.users, settings.failed_clients_stay), (Some(users), true));
        assert_eq!(settings.super_users, BTreeSet::from(["bob".to_owned(), "eve".to_owned()]));
        assert!(config.request_settings().sasl_enabled);
        let shown = format!("{config:?}");
        assert!(!["other", "listed", "geheim"].iter().any(|secret| shown.contains(secret)), "{shown}");
    }

    #[test]
    fn principals_of_kerberos_become_users_by_the_operators_rules() {
        let text = "dataDir=$D\nclientPort=1\nzookeeper.kerberos.removeHostFromPrincipal=true\n\
             kerberos.removeRealmFromPrincipal=true\n\
             security.auth_to_local=RULE:[2:$1](zk.*)s/^zk//g DEFAULT\n";
        let (config, notices) = read(text, None).expect("well formed");
        let rules = "RULE:[2:$1](zk.*)s/^zk//g DEFAULT".parse().expect("valid");
        let expected =
            Principals { rules, default_realm: String::new(), removes_host: true, removes_realm: true };
        assert_eq!((config.principals, notices), (expected, Vec::new()));
        let error =
            read("dataDir=$D\nclientPort=1\nsecurity.auth_to_local=RULE\n", None).expect_err("no rule");
        assert!(
            error.contains("security.auth_to_local: neither DEFAULT nor RULE:[NUMBER:FORMAT] in"),
            "{error}"
        );
    }

    #[test]
    fn sasl_between_servers_needs_the_settings_before_and_a_file() {
        for (lines, reason) in [
            ("learnerRequireSasl=true", "learnerRequireSasl: needs quorum.auth.enableSasl=true"),
            (
                "enableSasl=true\nquorum.auth.serverRequireSasl=true",
                "serverRequireSasl: needs quorum.auth.learnerRequireSasl=true",
            ),
            ("enableSasl=true", "enableSasl: it needs java.security.auth.login.config"),
        ] {
            let text = format!("dataDir=$D\nclientPort=1\nquorum.auth.{lines}\n");
            let (mut config, _) = read(&text, None).expect("well formed");
            let error = config.read_logins().expect_err(lines).to_string();
            assert!(error.starts_with(&format!("quorum.auth.{reason}")), "{error}");
        }
    }

    #[test]
    fn users_of_scram_are_users_of_sasl() {
        let text =
            "dataDir=$D\nclientPort=1\nringkeeper.scramFile=/users\nsessionRequireClientSASLAuth=true\n";
        let (config, _) = read(text, None).expect("well formed");
        assert_eq!(
            (config.check_protection(), config.required_schemes()),
            (Ok(Vec::new()), vec!["sasl".to_owned()])
        );
        assert!(config.request_settings().sasl_enabled);
    }

    #[test]
    fn values_that_zookeeper_takes_are_taken() {
        let text = "dataDir=$D\nclientPort=1\nznode.container.maxPerMinute=100000\njute.maxbuffer=100\n\
                    clientPortAddress=[fe80::1%1]\nringkeeper.aclEntriesMax=7\n";
        let (config, notices) = read(text, None).expect("valid");
        assert_eq!(notices, Vec::<String>::new());
        assert_eq!((config.container_max_per_minute, config.jute_max_buffer), (100_000, 100));
        let scoped = SocketAddrV6::new("fe80::1".parse().expect("v6"), 1, 0, 1);
        assert_eq!(config.client_socket(), SocketAddr::from(scoped));
        assert_eq!(config.request_settings().limits.of(Limit::AclEntries), 7);
        let text = "dataDir=$D\ninitLimit=5\nsyncLimit=5\nserver.1=a:2:3;[fe80::1%1]:1\nserver.2=b:2:3\n";
        let (config, _) = read(text, Some("1")).expect("valid");
        assert_eq!(config.client_socket(), SocketAddr::from(scoped));
    }

    #[test]
    fn keys_of_the_java_server_alone_are_accepted_with_the_reason_why_they_have_no_effect() {
        let (_, notices) = read("dataDir=$D\nclientPort=1\nadmin.httpVersion=20\n", None).expect("valid");
        assert_eq!(notices.len(), 1);
        assert!(notices[0].contains("admin.httpVersion has no effect"), "{notices:?}");
    }
}
