//! The meaning of each key of `zoo.cfg` (Apache ZooKeeper 3.9's administrator guide).

use std::borrow::Cow;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::memory::MemoryLimit;
use super::otlp::Endpoint;
use super::properties::Property;
use super::{Config, LogFormat, Redacted, ServerSpec, Unmet, admin, quorum_auth, throttles, tls};
use ringkeeper_engine::acl::DigestAlgorithm;
use ringkeeper_engine::limits::Limit;
use ringkeeper_log::storage::WriteMode;

type Apply = fn(&mut Config, &str) -> Result<(), String>;

/// How a key is treated.
pub(super) enum Treatment {
    /// It changes a setting.
    Honoured(Apply),
    /// It is accepted without effect, for this reason.
    NoEffect(&'static str),
    /// It asks for protection that is not implemented, for this reason, if the predicate holds for its value.
    Unprotected(fn(&str) -> bool, &'static str),
    /// It changes a setting. If the predicate holds for its value, it needs users of SASL.
    Sasl(fn(&str) -> bool, Apply),
}

use Treatment::{Honoured, NoEffect, Sasl, Unprotected};

/// The largest number of Java's `int`.
pub(super) const I32_MAX: u64 = 0x7fff_ffff;

pub(super) const THREADS: &str = "the Java server's threads; cores are shared out by ringkeeper.shards";
const GROUP_COMMIT: &str = "batches form by themselves while the log is being forced";
const METRICS: &str = "metrics are always served, at /metrics of the admin listener";
const KERBEROS: &str = "this setting of Kerberos is unknown here";
const NO_SASL_USERS: &str = "it needs users: java.security.auth.login.config=FILE names the JAAS file with those \
                             of DIGEST-MD5, ringkeeper.scramFile=FILE the file with those of SCRAM-SHA-256";
const CACHE: &str = "replies are encoded straight from the tree, there is no reply cache";
const PURGE: &str = "old segments are purged whenever a newer snapshot is durable";
const AT_ONCE: &str = "observers look for another server at once";
const OFF: &str = "not supported yet";
const SIDE_BY_SIDE: &str =
    "all addresses of a server are dialed at once, and the first one that answers counts";

/// Names the JAAS file; the Java server takes it on its command line only.
pub(super) const JAAS_FILE: &str = "java.security.auth.login.config";

/// The class that writes the audit log in ZooKeeper, unless the operator has another one.
const AUDIT_LOGGER: &str = "org.apache.zookeeper.audit.Slf4jAuditLogger";

/// The class that registers the scheme `sasl`.
const SASL_PROVIDER: &str = "org.apache.zookeeper.server.auth.SASLAuthenticationProvider";

/// Keys by their name in the file, without the prefix `zookeeper.`.
const KEYS: &[(&str, Treatment)] = &[
    ("tickTime", Honoured(|c, v| number(v, 1, I32_MAX).map(|n| c.tick_time_ms = n))),
    ("initLimit", Honoured(|c, v| number(v, 1, 1 << 20).map(|n| c.init_limit = Some(n)))),
    ("syncLimit", Honoured(|c, v| number(v, 1, 1 << 20).map(|n| c.sync_limit = Some(n)))),
    ("dataDir", Honoured(|c, v| folder(v).map(|d| c.data_dir = d))),
    ("dataLogDir", Honoured(|c, v| folder(v).map(|d| c.data_log_dir = Some(d)))),
    ("clientPort", Honoured(|c, v| number(v, 1, 65535).map(|n| c.client_port = n))),
    ("clientPortAddress", Honoured(|c, v| address(v).map(|a| (c.client_address, c.client_scope_id) = a))),
    (
        "clientPortListenBacklog",
        Honoured(|c, v| {
            if v != "-1" {
                c.client_backlog = number(v, 1, 65535)?;
            }
            Ok(())
        }),
    ),
    ("maxClientCnxns", Honoured(|c, v| number(v, 0, I32_MAX).map(|n| c.max_client_connections = n))),
    ("maxCnxns", Honoured(|c, v| number(v, 0, I32_MAX).map(|n| c.max_connections = n))),
    ("minSessionTimeout", Honoured(|c, v| timeout(v).map(|n| c.min_session_timeout_ms = n))),
    ("maxSessionTimeout", Honoured(|c, v| timeout(v).map(|n| c.max_session_timeout_ms = n))),
    ("jute.maxbuffer", Honoured(|c, v| buffer_len(v).map(|n| c.jute_max_buffer = n))),
    (
        "globalOutstandingLimit",
        Honoured(|c, v| number(v, 1, 1 << 24).map(|n| c.outstanding_requests_max = n)),
    ),
    (
        "ringkeeper.outstandingBytesMax",
        Honoured(|c, v| number(v, 1, I32_MAX).map(|n| c.outstanding_bytes_max = n)),
    ),
    ("snapCount", Honoured(|c, v| number(v, 2, u64::MAX).map(|n| c.snap_count = n))),
    ("snapSizeLimitInKb", Honoured(|c, v| number(v, 1, u64::MAX >> 10).map(|n| c.snap_size_limit_kib = n))),
    (
        "preAllocSize",
        Honoured(|c, v| {
            number(v, 64, 4 << 20).map(|n: u64| c.segment_size_bytes = (n * 1024).next_multiple_of(4096))
        }),
    ),
    ("autopurge.snapRetainCount", Honoured(|c, v| number(v, 3, 1 << 16).map(|n| c.snap_retain_count = n))),
    (
        "4lw.commands.whitelist",
        Honoured(|c, v| {
            c.four_letter_words =
                v.split(',').map(str::trim).filter(|w| !w.is_empty()).map(str::to_owned).collect();
            Ok(())
        }),
    ),
    (
        "DigestAuthenticationProvider.superDigest",
        Honoured(|c, v| digest(v).map(|d| c.super_digest = Some(d))),
    ),
    ("DigestAuthenticationProvider.enabled", Honoured(|c, v| flag(v).map(|on| c.digest_enabled = on))),
    (
        "DigestAuthenticationProvider.digestAlg",
        Honoured(|c, v| {
            let unknown = || format!("{v:?} is none of {}", DigestAlgorithm::names());
            DigestAlgorithm::named(v).map(|algorithm| c.digest_algorithm = algorithm).ok_or_else(unknown)
        }),
    ),
    ("enforce.auth.enabled", Honoured(|c, v| flag(v).map(|on| c.enforce_auth = on))),
    (
        "enforce.auth.schemes",
        Sasl(
            |v| v.split(',').any(|scheme| scheme.trim() == "sasl"),
            |c, v| schemes(v).map(|schemes| c.enforced_auth_schemes = schemes),
        ),
    ),
    (
        "ringkeeper.ignoreUnsupported",
        Honoured(|c, v| {
            c.ignored = v.split(',').map(|key| canonical(key.trim()).to_owned()).collect();
            Ok(())
        }),
    ),
    ("ringkeeper.memoryLimit", Honoured(|c, v| MemoryLimit::parse(v).map(|limit| c.memory_limit = limit))),
    ("skipACL", Honoured(|c, v| flag(v).map(|on| c.skip_acl = on))),
    ("enforceQuota", Honoured(|c, v| flag(v).map(|on| c.enforce_quota = on))),
    ("reconfigEnabled", Honoured(|c, v| flag(v).map(|on| c.reconfig_enabled = on))),
    ("standaloneEnabled", Honoured(|c, v| flag(v).map(|on| c.standalone_enabled = on))),
    ("extendedTypesEnabled", Honoured(|c, v| flag(v).map(|on| c.extended_types = on))),
    (
        "znode.container.checkIntervalMs",
        Honoured(|c, v| number(v, 1, 1 << 40).map(|n| c.container_check_interval_ms = n)),
    ),
    (
        "znode.container.maxPerMinute",
        Honoured(|c, v| number(v, 1, I32_MAX).map(|n| c.container_max_per_minute = n)),
    ),
    (
        "znode.container.maxNeverUsedIntervalMs",
        Honoured(|c, v| number(v, 0, 1 << 40).map(|n| c.container_max_never_used_ms = n)),
    ),
    ("fsync.warningthresholdms", Honoured(|c, v| number(v, 1, 1 << 32).map(|n| c.fsync_warning_ms = n))),
    ("ringkeeper.logFormat", Honoured(|c, v| LogFormat::parse(v).map(|format| c.log_format = format))),
    ("ringkeeper.tenantDelayMaxMs", Honoured(|c, v| number(v, 1, 60_000).map(|n| c.tenant_delay_max_ms = n))),
    ("ringkeeper.slowRequestMs", Honoured(|c, v| number(v, 0, 1 << 32).map(|n| c.slow_request_ms = n))),
    ("ringkeeper.traceSampleRate", Honoured(|c, v| number(v, 0, I32_MAX).map(|n| c.trace_sample_rate = n))),
    ("ringkeeper.otlpEndpoint", Honoured(|c, v| Endpoint::parse(v).map(|e| c.otlp_endpoint = Some(e)))),
    (
        "ringkeeper.busyPollMicros",
        Honoured(|c, v| number(v, 0, 1_000_000).map(|n| c.busy_poll = Duration::from_micros(n))),
    ),
    ("ringkeeper.shards", Honoured(|c, v| number(v, 1, 1024).map(|n| c.shards = Some(n)))),
    ("ringkeeper.logWriteMode", Honoured(|c, v| write_mode(v).map(|mode| c.log_write_mode = mode))),
    (
        "ringkeeper.snapshotKbPerSecond",
        Honoured(|c, v| number(v, 64, 1 << 32).map(|n: u64| c.snapshot_bytes_per_second = n * 1024)),
    ),
    (
        "ringkeeper.snapshotLogPercent",
        Honoured(|c, v| number(v, 0, 10_000).map(|n| c.snapshot_log_percent = n)),
    ),
    ("ringkeeper.snapshotCompression", Honoured(|c, v| compression(v).map(|on| c.snapshot_compressed = on))),
    (
        "ringkeeper.scrubKbPerSecond",
        Honoured(|c, v| number(v, 64, 1 << 32).map(|n: u64| c.scrub_bytes_per_second = n * 1024)),
    ),
    (
        "ringkeeper.scrubIntervalSeconds",
        Honoured(|c, v| number(v, 0, 1 << 32).map(|n| c.scrub_interval_s = n)),
    ),
    ("ringkeeper.preferredLeaders", Honoured(|c, v| preferred(v).map(|ids| c.preferred_leaders = ids))),
    (
        "ringkeeper.preferLeaderAfterMs",
        Honoured(|c, v| number(v, 1000, I32_MAX).map(|n| c.prefer_leader_after_ms = n)),
    ),
    ("ringkeeper.leaderLeaseMs", Honoured(|c, v| number(v, 0, 60_000).map(|n| c.leader_lease_ms = n))),
    ("ringkeeper.peerTimeoutMs", Honoured(|c, v| number(v, 50, 600_000).map(|n| c.peer_timeout_ms = n))),
    ("ringkeeper.peerSecretFile", Honoured(|c, v| secret(v).map(|secret| c.peer_secret = Some(secret)))),
    ("ringkeeper.trustedNetwork", Honoured(|c, v| flag(v).map(|on| c.trusted_network = on))),
    ("quorumListenOnAllIPs", Honoured(|c, v| flag(v).map(|on| c.quorum_listen_on_all = on))),
    // Read later, from the folder of the configuration file.
    ("dynamicConfigFile", Honoured(|_, v| folder(v).map(drop))),
    (
        "peerType",
        Honoured(|_, v| match &*v.to_ascii_lowercase() {
            "participant" | "observer" => Ok(()),
            _ => Err(format!("{v:?} is neither participant nor observer")),
        }),
    ),
    ("electionAlg", Honoured(|_, v| if v == "3" { Ok(()) } else { Err(format!("{v:?}: only 3 exists")) })),
    ("fips-mode", Unprotected(asks, "the cryptography that is built in (ring) has no FIPS certificate")),
    (JAAS_FILE, Honoured(|c, v| folder(v).map(|file| c.jaas_file = Some(file)))),
    (
        "sasl.serverconfig",
        Honoured(|c, v| {
            v.clone_into(&mut c.jaas_section);
            Ok(())
        }),
    ),
    ("ringkeeper.scramFile", Honoured(|c, v| folder(v).map(|file| c.scram_file = Some(file)))),
    ("sessionRequireClientSASLAuth", Sasl(asks, |c, v| flag(v).map(|on| c.require_sasl = on))),
    ("allowSaslFailedClients", Honoured(|c, v| flag(v).map(|on| c.failed_sasl_clients_stay = on))),
    ("superUser", Honoured(super_user)),
    (
        "SASLAuthenticationProvider.superPassword",
        Honoured(|c, v| {
            c.sasl_super_password = Some(Redacted(v.to_owned()));
            Ok(())
        }),
    ),
    ("letAnySaslUserDoX", NoEffect("an ACL names each user")),
    ("jaasLoginRenew", NoEffect("there are no Kerberos tickets to renew")),
    (
        "requireClientAuthScheme",
        NoEffect("ZooKeeper does not read it either; use enforce.auth.enabled and enforce.auth.schemes"),
    ),
    ("security.auth_to_local", Honoured(|c, v| v.parse().map(|rules| c.principals.rules = rules))),
    ("kerberos.removeHostFromPrincipal", Honoured(|c, v| flag(v).map(|on| c.principals.removes_host = on))),
    ("kerberos.removeRealmFromPrincipal", Honoured(|c, v| flag(v).map(|on| c.principals.removes_realm = on))),
    ("kerberos.canonicalizeHostNames", NoEffect("clients alone look for the name of the server's host")),
    ("requireKerberosConfig", NoEffect("a keytab that cannot be used stops the start")),
    ("ensembleAuthName", Unprotected(always, "clients of other ensembles would be let in")),
    ("connectToLearnerMasterLimit", NoEffect("initLimit covers connecting too")),
    ("cnxTimeout", NoEffect("dials of peers end after ringkeeper.peerTimeoutMs")),
    ("quorumCnxnTimeoutMs", NoEffect("silence of peers is judged by ringkeeper.peerTimeoutMs")),
    ("electionPortBindRetry", NoEffect("a port in use stops the start at once")),
    ("tcpKeepAlive", NoEffect("peers exchange heartbeats")),
    ("clientTcpKeepAlive", NoEffect("the system always watches over clients' connections")),
    ("multiAddress.enabled", Honoured(|c, v| flag(v).map(|on| c.multi_address = on))),
    ("multiAddress.reachabilityCheckEnabled", NoEffect(SIDE_BY_SIDE)),
    ("multiAddress.reachabilityCheckTimeoutMs", NoEffect(SIDE_BY_SIDE)),
    ("commitLogCount", NoEffect("a lagging follower is sent what is in the log")),
    (
        "snapshotSizeFactor",
        NoEffect("a follower is sent a snapshot only when the log does not reach back to it"),
    ),
    ("txnLogSizeLimitInKb", NoEffect("segments have the size preAllocSize")),
    ("forceSync", NoEffect("an acknowledged write is always on the medium")),
    ("flushDelay", NoEffect(GROUP_COMMIT)),
    ("maxWriteQueuePollTime", NoEffect(GROUP_COMMIT)),
    ("maxBatchSize", NoEffect(GROUP_COMMIT)),
    ("autopurge.purgeInterval", NoEffect(PURGE)),
    ("snapshot.compression.method", NoEffect("ringkeeper.snapshotCompression=lz4 compresses snapshots")),
    ("snapshot.trust.empty", NoEffect("a folder without snapshots is trusted when its log is whole")),
    ("datadir.autocreate", NoEffect("a missing data folder is created")),
    ("db.autocreate", Honoured(|c, v| flag(v).map(|on| c.db_autocreate = on))),
    ("observerMasterPort", Honoured(|c, v| number(v, 0, 65535).map(|n| c.observer_master_port = n))),
    ("observer.reconnectDelayMs", NoEffect(AT_ONCE)),
    ("observer.election.DelayMs", NoEffect(AT_ONCE)),
    ("observerMaster.sizeLimit", NoEffect("a follower sends observers what is in its log")),
    ("syncEnabled", NoEffect("observers log to disk")),
    ("fastleader.minNotificationInterval", NoEffect("votes are sent when they change")),
    ("fastleader.maxNotificationInterval", NoEffect("votes are sent when they change")),
    ("leader.maxTimeToWaitForEpoch", NoEffect("covered by initLimit")),
    ("leader.maxConcurrentSnapSyncs", NoEffect(OFF)),
    ("leader.maxConcurrentDiffSyncs", NoEffect(OFF)),
    ("leaderServes", Honoured(|c, v| flag(v).map(|on| c.leader_serves = on))),
    ("localSessionsEnabled", Honoured(|c, v| flag(v).map(|on| c.local_sessions = on))),
    ("localSessionsUpgradingEnabled", Honoured(|c, v| flag(v).map(|on| c.local_sessions_upgrading = on))),
    ("readonlymode.enabled", Honoured(|c, v| flag(v).map(|on| c.read_only_mode = on))),
    ("emulate353TTLNodes", NoEffect("TTLs are stored as since 3.5.4")),
    ("audit.enable", Honoured(|c, v| flag(v).map(|on| c.audits = on))),
    (
        "audit.impl.class",
        Unprotected(|v| v != AUDIT_LOGGER, "records go to files or the journal, not to a Java class"),
    ),
    ("ringkeeper.audit.to", Honoured(|c, v| folder(v).map(|to| c.audit_to = Some(to)))),
    ("ringkeeper.audit.days", Honoured(|c, v| number(v, 1, 10_000).map(|n: u32| c.audit_days = n))),
    ("serverCnxnFactory", NoEffect("sockets are served through io_uring")),
    ("maxResponseCacheSize", NoEffect(CACHE)),
    ("maxGetChildrenResponseCacheSize", NoEffect(CACHE)),
    ("watchManagerName", NoEffect("there is one kind of watch table, which has all modes")),
    ("digest.enabled", NoEffect("the digest of the tree is always kept")),
    ("closeSessionTxn.enabled", NoEffect("every server knows the ephemerals of a session")),
    ("serializeLastProcessedZxid.enabled", NoEffect("snapshots are exact at one zxid")),
    ("commitProcessor.numWorkerThreads", NoEffect(THREADS)),
    ("nio.numSelectorThreads", NoEffect(THREADS)),
    ("nio.numWorkerThreads", NoEffect(THREADS)),
    ("nio.sessionlessCnxnTimeout", NoEffect("connections without a session are closed after 10 s")),
];

/// Values with which ZooKeeper serves, and which are others here: numbers of this key below the first one are
/// taken as the value behind it, which is this.
const TAKEN_AS: &[(&str, i128, &str, &str)] = &[
    ("clientPortListenBacklog", 1, "-1", DEFAULT),
    ("maxClientCnxns", 0, "0", NO_LIMIT),
    ("maxCnxns", 0, "0", NO_LIMIT),
    ("minSessionTimeout", 1, "1", LEAST),
    ("globalOutstandingLimit", 1, "1", LEAST),
    ("snapCount", 2, "2", LEAST),
    ("snapSizeLimitInKb", 1, "18014398509481983", NO_LIMIT),
    ("preAllocSize", 64, "64", LEAST),
    ("autopurge.snapRetainCount", 3, "3", LEAST),
    ("znode.container.checkIntervalMs", 1, "60000", DEFAULT),
    ("fsync.warningthresholdms", 1, "1", LEAST),
];
const LEAST: &str = "the least there is";
const DEFAULT: &str = "the default";
const NO_LIMIT: &str = "no limit";

/// Keys whose values ZooKeeper reads as Java's system properties are read: also in hexadecimal.
const SYSTEM_PROPERTIES: [&str; 8] = [
    "jute.maxbuffer",
    "globalOutstandingLimit",
    "maxCnxns",
    "snapCount",
    "snapSizeLimitInKb",
    "fsync.warningthresholdms",
    "znode.container.checkIntervalMs",
    "znode.container.maxPerMinute",
];

/// Prefixes of keys that all have the same treatment.
const PREFIXES: &[(&str, Treatment)] = &[
    ("metricsProvider.", NoEffect(METRICS)),
    ("ssl.", Unprotected(always, "this protection is unknown here")),
    ("jvm.pause.", NoEffect("there is no virtual machine to pause")),
    (
        "authProvider.",
        Unprotected(
            is_foreign_provider,
            "this way to authenticate is not supported; digest, ip, x509 and sasl are",
        ),
    ),
    ("kerberos.", Unprotected(always, KERBEROS)),
    ("superUser.", Honoured(super_user)),
    ("learner.", NoEffect(THREADS)),
    ("commitProcessor.", NoEffect(THREADS)),
];

/// Greatest edit distance at which a known key is suggested for a mistyped one.
const MISTYPED_MAX: usize = 2;

/// Applies a property. Returns a notice if there is something to report.
pub(super) fn apply(config: &mut Config, property: &Property) -> Result<Option<String>, String> {
    let key = canonical(&property.key);
    if let Some(id) = key.strip_prefix("server.") {
        return add_server(config, id, &property.value);
    }
    if config.groups.read(key, &property.value)? {
        return Ok(None);
    }
    if key.starts_with("authProvider.") && property.value == SASL_PROVIDER {
        config.needs_sasl_users.push(Unmet {
            key: key.to_owned(),
            line: property.line,
            reason: NO_SASL_USERS,
        });
        return Ok(None);
    }
    let in_front = |reason: String| format!("{key}: {reason}");
    if let Some(applied) = tls::apply_common(config, key, &property.value) {
        return applied.map(|()| None).map_err(in_front);
    }
    let meant = throttles::meant(key);
    let by_name = keys().find(|(name, _)| *name == meant);
    let by_prefix = || PREFIXES.iter().find(|(prefix, _)| key.starts_with(prefix));
    if let Some((_, treatment)) = by_name.or_else(by_prefix) {
        return match treatment {
            Honoured(set) => {
                let (value, notice) = taken_as(meant, &property.value);
                set(config, &value).map(|()| notice).map_err(in_front)
            }
            NoEffect(reason) => Ok(Some(format!("{key} has no effect: {reason}"))),
            Unprotected(asks, reason) => {
                if asks(&property.value) {
                    config.unprotected.push(Unmet { key: key.to_owned(), line: property.line, reason });
                }
                Ok(None)
            }
            Sasl(needs_users, set) => {
                set(config, &property.value).map_err(in_front)?;
                if needs_users(&property.value) {
                    let (key, line) = (key.to_owned(), property.line);
                    config.needs_sasl_users.push(Unmet { key, line, reason: NO_SASL_USERS });
                }
                Ok(None)
            }
        };
    }
    if let Some(&limit) = Limit::ALL.iter().find(|limit| limit.setting() == key) {
        let bound = number(&property.value, 1, 1 << 40).map_err(in_front)?;
        config.limits = config.limits.clone().with(limit, bound);
        return Ok(None);
    }
    let names = keys().map(|(name, _)| *name).chain(Limit::ALL.iter().map(|limit| limit.setting()));
    let distance = |name: &&str| strsim::damerau_levenshtein(name, key);
    let nearest = names.min_by_key(distance).filter(|name| distance(name) <= MISTYPED_MAX);
    let hint = nearest.map_or_else(String::new, |name| format!("; did you mean {name}?"));
    Ok(Some(format!("{key} is not a key that ringkeeper knows{hint}")))
}

/// The value of a key as it is meant, with a notice if it is taken as another one.
fn taken_as<'a>(key: &str, value: &'a str) -> (Cow<'a, str>, Option<String>) {
    let value = match decode(value).filter(|_| SYSTEM_PROPERTIES.contains(&key)) {
        Some(number) => Cow::Owned(number.to_string()),
        None => Cow::Borrowed(value),
    };
    let Some(&(_, bound, other, reason)) = TAKEN_AS.iter().find(|(name, ..)| *name == key) else {
        return (value, None);
    };
    // It stands for the default.
    let is_default = &*value == "-1" && matches!(key, "clientPortListenBacklog" | "minSessionTimeout");
    match value.parse::<i128>() {
        Ok(number) if number < bound && !is_default => {
            let notice = format!("{key}={value} is taken as {other}, {reason}");
            (other.into(), Some(notice))
        }
        _ => (value, None),
    }
}

/// A number in hexadecimal, as Java's `Long.decode` reads it.
fn decode(value: &str) -> Option<i64> {
    let (sign, digits) = value.strip_prefix('-').map_or((1, value), |digits| (-1, digits));
    let digits = ["0x", "0X", "#"].iter().find_map(|prefix| digits.strip_prefix(prefix))?;
    let number = i64::from_str_radix(digits, 16).ok().filter(|_| !digits.starts_with(['+', '-']))?;
    Some(sign * number)
}

/// All keys that have a treatment of their own.
fn keys() -> impl Iterator<Item = &'static (&'static str, Treatment)> {
    KEYS.iter().chain(tls::KEYS).chain(throttles::KEYS).chain(admin::KEYS).chain(quorum_auth::KEYS)
}

fn canonical(key: &str) -> &str {
    key.strip_prefix("zookeeper.").unwrap_or(key)
}

/// Adds a member. Returns a notice if Apache ZooKeeper, or a reconfig, would refuse its line.
fn add_server(config: &mut Config, id: &str, value: &str) -> Result<Option<String>, String> {
    let id = number(id, 0, 255).map_err(|reason| format!("server.{id}: {reason}"))?;
    if config.servers.iter().any(|server| server.id == id) {
        return Err(format!("server.{id} stands here twice"));
    }
    let server = ServerSpec::parse(id, value).map_err(|reason| format!("server.{id}: {reason}"))?;
    let notice = server.names_a_port_twice().then(|| {
        format!(
            "server.{id} names one port for two purposes: Apache ZooKeeper does not start so, and a reconfig with this \
             line is refused"
        )
    });
    config.servers.push(server);
    Ok(notice)
}

/// Ids of servers, each once.
fn preferred(value: &str) -> Result<Vec<u64>, String> {
    let mut ids = Vec::new();
    for id in value.split(',') {
        let id = number(id.trim(), 0, 255)?;
        if ids.contains(&id) {
            return Err(format!("server {id} stands here twice"));
        }
        ids.push(id);
    }
    Ok(ids)
}

/// A whole number from `min` to `max`, which `T` can hold.
pub(super) fn number<T: TryFrom<u64>>(value: &str, min: u64, max: u64) -> Result<T, String> {
    let parsed = value.parse().ok().filter(|number| (min..=max).contains(number));
    parsed.and_then(|number| T::try_from(number).ok()).ok_or_else(|| match value.parse::<i128>() {
        Ok(_) => format!("{value} is not a number from {min} to {max}"),
        Err(_) => format!("{value:?} is not a number from {min} to {max}"),
    })
}

/// A session timeout limit; -1 stands for the default.
fn timeout(value: &str) -> Result<Option<u32>, String> {
    if value == "-1" { Ok(None) } else { number(value, 1, I32_MAX).map(Some) }
}

pub(super) fn flag(value: &str) -> Result<bool, String> {
    match value.to_ascii_lowercase().as_str() {
        "yes" | "true" => Ok(true),
        "no" | "false" => Ok(false),
        _ => Err(format!("{value:?} is neither yes nor no")),
    }
}

fn folder(value: &str) -> Result<PathBuf, String> {
    path(value)?.ok_or_else(|| "the path is missing".to_owned())
}

/// A path, if the value is not empty. ZooKeeper would make a folder of the name `~` or `"`.
pub(super) fn path(value: &str) -> Result<Option<PathBuf>, String> {
    match value.chars().next() {
        Some('"' | '\'' | '~' | '$') => Err(format!(
            "{value} is taken as it stands: write the whole path, from / on, without quotes, ~ or $"
        )),
        first => Ok(first.map(|_| value.into())),
    }
}

/// An address, and the link that a link-local IPv6 address belongs to (0 for others). `value` is a name or an
/// address, an IPv6 address with or without brackets.
pub(crate) fn address(value: &str) -> Result<(std::net::IpAddr, u32), String> {
    use std::net::{SocketAddr, ToSocketAddrs};
    let bare = value.strip_prefix('[').and_then(|value| value.strip_suffix(']')).unwrap_or(value);
    let mut resolved =
        (bare, 0).to_socket_addrs().map_err(|error| format!("{value:?} is no address here: {error}"))?;
    let scope_id = |socket: SocketAddr| match socket {
        SocketAddr::V4(_) => 0,
        SocketAddr::V6(socket) => socket.scope_id(),
    };
    resolved
        .next()
        .map(|socket| (socket.ip(), scope_id(socket)))
        .ok_or_else(|| format!("{value:?} has no address"))
}

/// The longest request; at least the 45 bytes of a ConnectRequest.
fn buffer_len(value: &str) -> Result<u32, String> {
    number(value, 45, 1 << 30)
        .map_err(|reason| format!("{reason}: with less than 45 no client could connect"))
}

pub(super) fn always(_: &str) -> bool {
    true
}

/// Whether a flag is set; an unreadable value counts as set.
pub(super) fn asks(value: &str) -> bool {
    flag(value).unwrap_or(true)
}

/// Whether a provider class is not one of those whose schemes are built in.
fn is_foreign_provider(class: &str) -> bool {
    let known = ["DigestAuthenticationProvider", "IPAuthenticationProvider", "X509AuthenticationProvider"];
    !known.iter().any(|name| class.strip_prefix("org.apache.zookeeper.server.auth.") == Some(name))
}

fn schemes(value: &str) -> Result<Vec<String>, String> {
    let schemes: Vec<_> = value.split(',').map(str::trim).filter(|scheme| !scheme.is_empty()).collect();
    match schemes.iter().find(|scheme| !["digest", "ip", "x509", "sasl"].contains(scheme)) {
        Some(unknown) => Err(format!("the scheme {unknown} is not supported; digest, ip, x509 and sasl are")),
        None => Ok(schemes.into_iter().map(str::to_owned).collect()),
    }
}

fn compression(value: &str) -> Result<bool, String> {
    match value {
        "none" => Ok(false),
        "lz4" => Ok(true),
        _ => Err(format!("{value:?} is neither none nor lz4")),
    }
}

fn write_mode(value: &str) -> Result<WriteMode, String> {
    match value {
        "adaptive" => Ok(WriteMode::Adaptive),
        "fdatasync" => Ok(WriteMode::Synced),
        "dsync" => Ok(WriteMode::Through),
        _ => Err(format!("{value:?} is none of adaptive, fdatasync and dsync")),
    }
}

/// The contents of a file that no other user may read.
pub(super) fn private_file(path: &Path) -> Result<Vec<u8>, String> {
    let failed = |error| format!("{} cannot be read: {error}", path.display());
    let mode = std::fs::metadata(path).map_err(failed)?.permissions().mode();
    if mode & 0o077 != 0 {
        let path = path.display();
        return Err(format!("{path} is open to other users of this machine: `chmod 600 {path}`"));
    }
    std::fs::read(path).map_err(failed)
}

/// The contents of a private file, without the final line feed.
fn secret(value: &str) -> Result<Redacted<Vec<u8>>, String> {
    let bytes = private_file(&folder(value)?)?;
    let secret = bytes.trim_ascii_end();
    if secret.len() < 16 {
        return Err(format!("{value} holds {} bytes: at least 16 are needed", secret.len()));
    }
    Ok(Redacted(secret.to_vec()))
}

fn super_user(config: &mut Config, user: &str) -> Result<(), String> {
    config.sasl_super_users.insert(user.to_owned());
    Ok(())
}

fn digest(value: &str) -> Result<String, String> {
    let parts = value.split(':').filter(|part| !part.is_empty()).count();
    if parts == 2 {
        Ok(value.to_owned())
    } else {
        Err("is not of the form user:base64(hash of user:password)".to_owned())
    }
}

/// The line of each key, for errors that concern several keys.
#[derive(Default)]
pub(super) struct Lines(Vec<Property>);

impl Lines {
    pub(super) fn remember(&mut self, property: &Property) {
        self.0.push(Property { key: canonical(&property.key).to_owned(), ..property.clone() });
    }

    pub(super) fn value(&self, key: &str) -> Option<(usize, &str)> {
        self.0
            .iter()
            .rev()
            .find(|property| property.key == key)
            .map(|property| (property.line, property.value.as_str()))
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.value(key).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: &str = include_str!("../../../docs/settings.md");

    /// Pages with tables of settings.
    const PAGES: [&str; 4] = [
        SETTINGS,
        include_str!("../../../docs/protocol.md"),
        include_str!("../../../docs/security.md"),
        include_str!("../../../docs/admin.md"),
    ];

    /// What stands between backticks.
    fn quoted(text: &str) -> impl Iterator<Item = &str> {
        text.split('`').skip(1).step_by(2)
    }

    #[test]
    fn every_key_is_on_a_page_of_the_documents() {
        let named: Vec<_> = PAGES.into_iter().flat_map(|page| page.lines().flat_map(quoted)).collect();
        let is_named = |key: &str| {
            named.iter().any(|name| {
                let of_family = name.strip_suffix(".*").is_some_and(|family| key.starts_with(family));
                key == *name || of_family || (key.ends_with('.') && name.starts_with(key))
            })
        };
        let limits = Limit::ALL.iter().map(|limit| limit.setting());
        let by_prefix = PREFIXES.iter().map(|(prefix, _)| *prefix);
        let known = keys().map(|(key, _)| *key).chain(limits).chain(by_prefix);
        let missing: Vec<_> = known.filter(|key| !is_named(key)).collect();
        assert_eq!(missing, [""; 0]);
    }

    #[test]
    fn the_page_of_settings_names_nothing_that_is_unknown() {
        for row in SETTINGS.lines().filter(|line| line.starts_with("| `")) {
            let cell = row.split(" | ").next().expect("a cell");
            for key in quoted(cell) {
                let property = Property { line: 1, key: key.to_owned(), value: "1".to_owned() };
                let notice = apply(&mut Config::default(), &property);
                let is_unknown = matches!(&notice, Ok(Some(notice)) if notice.contains("is not a key"));
                assert!(!is_unknown, "{key}");
            }
        }
    }
}
