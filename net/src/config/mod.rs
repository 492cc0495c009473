//! The configuration: Apache's `zoo.cfg`, overridden by command-line flags, with defaults for everything.

mod admin;
mod jaas;
mod keys;
mod log_format;
mod logins;
mod memory;
mod otlp;
mod properties;
mod quorum_auth;
mod scram;
#[cfg(test)]
mod tests;
mod throttles;
mod tls;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV6};
use std::path::{Path, PathBuf};
use std::time::Duration;

pub(crate) use admin::{AdminConfig, Editors};
pub(crate) use jaas::KerberosService;
pub(crate) use keys::address as host_address;
pub(crate) use log_format::LogFormat;
pub(crate) use memory::MemoryLimit;
pub(crate) use otlp::Endpoint;
pub(crate) use properties::Property;
pub(crate) use quorum_auth::{QuorumAuth, ServicePattern};
use ringkeeper_engine::acl::DigestAlgorithm;
use ringkeeper_engine::limits::{Limit, Limits};
pub(crate) use ringkeeper_engine::members::{Groups, MemberAddress, Members, PeerRole, ServerSpec};
use ringkeeper_engine::sasl::{Principals, Users};
use ringkeeper_engine::settings::Settings;
use ringkeeper_log::storage::WriteMode;
pub(crate) use scram::{is_suitable, read_scram_file, read_scram_users, with_scram_user};
use throttles::Throttles;
pub(crate) use tls::{PeerTlsConfig, TlsConfig};

/// The part of the memory, one in so many, that notifications for clients that do not read may take.
const UNREAD_NOTIFICATIONS_SHARE: u64 = 8;

/// Editors may put it at the beginning of a file, where nobody sees it.
const BYTE_ORDER_MARK: char = '\u{feff}';

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
    /// How long an executor looks for something to do before it sleeps.
    pub(crate) busy_poll: Duration,
    /// Silence after which a peer is considered dead, milliseconds.
    pub(crate) peer_timeout_ms: u32,
    /// How long a leader may answer readers after a quorum has confirmed it, milliseconds; 0: not without.
    pub(crate) leader_lease_ms: u32,
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
    /// Whether servers may have several addresses.
    pub(crate) multi_address: bool,
    /// Where followers take observers, beside the quorum port; 0 if observers learn from the leader alone.
    pub(crate) observer_master_port: u16,
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
            busy_poll: Duration::ZERO,
            shards: None,
            peer_timeout_ms: 500,
            leader_lease_ms: 0,
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
            multi_address: false,
            observer_master_port: 0,
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
            multi_address_enabled: self.multi_address,
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
        let text = read_text(path)?;
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
        let alone = config.read_my_id()?;
        notices.extend(alone.as_ref().map(|one| {
            format!(
                "server.{} has no effect: it is the only server, and dataDir has no myid, so this is a server alone; with \
                 standaloneEnabled=false, or the file, it is an ensemble of one",
                one.id
            )
        }));
        config.check(path, &lines, alone)?;
        notices.extend(config.short_patience());
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
        let checked = self.check_member_lines();
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
            return self.check_members(path, lines);
        };
        if !self.servers.is_empty() || !self.groups.is_empty() {
            let reason = "both dynamicConfigFile and server.N, group.N or weight.N lines: keep one of them";
            return Err(ConfigError::new(path, Some(line), reason.to_owned()));
        }
        let dynamic = path.parent().unwrap_or_else(|| Path::new("")).join(name);
        let text = read_text(&dynamic)?;
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
        self.check_members(&dynamic, &members)
    }

    /// Whether the members' addresses and groups are possible: otherwise a key, and what is wrong with it.
    fn check_member_lines(&self) -> Result<(), (String, String)> {
        let several = self.servers.iter().find(|server| server.has_several_addresses());
        match several.filter(|_| !self.multi_address) {
            Some(server) => {
                let key = format!("server.{}", server.id);
                let reason = format!("{key} has several addresses, which needs multiAddress.enabled=true");
                Err((key, reason))
            }
            None => self.members().check_groups(),
        }
    }

    /// Checks the members, whose lines stand in the file `path`.
    fn check_members(&self, path: &Path, lines: &keys::Lines) -> Result<(), ConfigError> {
        let line = |key: &str| lines.value(key).map(|(line, _)| line);
        let checked = self.check_member_lines();
        checked.map_err(|(key, reason)| ConfigError::new(path, line(&key), reason))
    }

    /// The id in `dataDir/myid`, if there is one.
    pub(crate) fn id_in_folder(&self) -> Option<u64> {
        self.my_id.or_else(|| parse_id(&std::fs::read_to_string(self.data_dir.join("myid")).ok()?))
    }

    /// A member of an ensemble reads its id from `dataDir/myid`. As in ZooKeeper, one voter without that file
    /// is a server alone, whose line is taken away and returned; unless it may have become one of several by
    /// a reconfig, so that its disk is missing.
    fn read_my_id(&mut self) -> Result<Option<ServerSpec>, ConfigError> {
        let path = self.data_dir.join("myid");
        if self.servers.is_empty() {
            return Ok(None);
        }
        let text = std::fs::read_to_string(&path);
        let is_missing = text.as_ref().is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound);
        if let [one] = &self.servers[..]
            && one.role == PeerRole::Participant
            && self.standalone_enabled
            && !self.reconfig_enabled
            && is_missing
        {
            self.groups = Groups::default();
            return Ok(self.servers.pop());
        }
        let text = text.map_err(|error| {
            let remedy = match error.kind() {
                std::io::ErrorKind::PermissionDenied => {
                    "let the user that the server runs as read it (chown)"
                }
                _ => "write this server's number N of its server.N line into it",
            };
            let reason = format!("cannot be read: {error}; {remedy}");
            ConfigError::new(&path, None, reason)
        })?;
        self.my_id = Some(parse_id(&text).ok_or_else(|| {
            ConfigError::new(&path, Some(1), format!("{:?} is not a number from 0 to 255", text.trim()))
        })?);
        Ok(None)
    }

    /// A notice if a leader gives up before a peer counts as gone.
    fn short_patience(&self) -> Option<String> {
        let patience_ms = u64::from(self.sync_limit?) * u64::from(self.tick_time_ms);
        (self.servers.len() > 1 && patience_ms < self.peer_timeout_ms.into()).then(|| {
            format!(
                "tickTime times syncLimit are {patience_ms} ms, less than ringkeeper.peerTimeoutMs ({}): a leader \
                 may step down before a silent peer counts as gone; raise syncLimit, or lower the other on all servers",
                self.peer_timeout_ms
            )
        })
    }

    /// Clients' address and port as the server's line names them.
    fn listen_at(&mut self, host: Option<String>, port: u16) -> Result<(), String> {
        self.client_port = port;
        if let Some(host) = host {
            (self.client_address, self.client_scope_id) = keys::address(&host)?;
        }
        Ok(())
    }

    /// Checks what settings say together. `alone` is the line of a server alone, which may name its port.
    fn check(
        &mut self,
        path: &Path,
        lines: &keys::Lines,
        alone: Option<ServerSpec>,
    ) -> Result<(), ConfigError> {
        let fail = |key: &str, reason: String| {
            Err(ConfigError::new(path, lines.value(key).map(|(line, _)| line), reason))
        };
        if self.min_session_timeout() > self.max_session_timeout() {
            let (min, max) = (self.min_session_timeout(), self.max_session_timeout());
            let key = if lines.has("maxSessionTimeout") { "maxSessionTimeout" } else { "minSessionTimeout" };
            return fail(key, format!("minSessionTimeout {min} is greater than maxSessionTimeout {max}"));
        }
        let (lease_ms, timeout_ms) = (self.leader_lease_ms, self.peer_timeout_ms);
        if lease_ms > 0 && !(timeout_ms / 2..=timeout_ms).contains(&lease_ms) {
            let key = "ringkeeper.leaderLeaseMs";
            let (least, timeout) = (timeout_ms / 2, "ringkeeper.peerTimeoutMs");
            return fail(
                key,
                format!(
                    "{key} {lease_ms} is not between {least} and {timeout_ms}: half of {timeout}, and all of it"
                ),
            );
        }
        if let Some((key, reason)) = self.tls.contradiction() {
            return fail(key, format!("{key} {reason}"));
        }
        if !lines.has("clientPort") && self.tls.secure_port.is_some() {
            self.client_port = 0;
        } else if self.servers.is_empty() && !lines.has("clientPort") {
            let Some((id, (host, port))) = alone.and_then(|one| Some((one.id, one.client?))) else {
                return fail(
                    "clientPort",
                    "clientPort is missing: name the port for clients, usually 2181".to_owned(),
                );
            };
            if let Err(reason) = self.listen_at(host, port) {
                return fail(&format!("server.{id}"), reason);
            }
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
        if self.servers.iter().all(|server| server.role == PeerRole::Observer) && !self.servers.is_empty() {
            let reason = "all server.N lines are of observers, and nobody can lead: one has to be a participant at least";
            return fail(&format!("server.{}", self.servers[0].id), reason.to_owned());
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
            if let Err(reason) = self.listen_at(host, port) {
                return fail(&format!("server.{my_id}"), reason);
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
    Ok(properties::parse(&read_text(path)?))
}

/// The number in a `myid`.
pub(crate) fn parse_id(text: &str) -> Option<u64> {
    let number = text.trim_start_matches(BYTE_ORDER_MARK).trim().parse().ok();
    number.filter(|id| (0..=255).contains(id))
}

fn read_text(path: &Path) -> Result<String, ConfigError> {
    let bytes = std::fs::read(path);
    let unreadable = |error| ConfigError::new(path, None, format!("cannot be read: {error}"));
    text_of(path, bytes.map_err(unreadable)?)
}

/// The text in the bytes of a file, without a byte order mark.
fn text_of(path: &Path, bytes: Vec<u8>) -> Result<String, ConfigError> {
    let mut text = String::from_utf8(bytes).map_err(|error| {
        let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        ConfigError::new(path, Some(line), "is not UTF-8: save the file in that encoding".to_owned())
    })?;
    if text.starts_with(BYTE_ORDER_MARK) {
        text.remove(0);
    }
    Ok(text)
}

/// An IPv6 address belongs to the link `scope_id` if it is link-local.
pub(crate) fn socket_address(address: IpAddr, port: u16, scope_id: u32) -> SocketAddr {
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
