//! ZooKeeper's AdminServer: what each command shows, as JSON. The fields are ZooKeeper's, in its order.
//! Beside numbers of 64 bits, which many readers of JSON round, stands the same as text, with `_hex` behind
//! the name.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::{Instant, UNIX_EPOCH};

use ringkeeper_engine::findings::{Evidence, Finding, Members, PeerTimes, Took, find};
use ringkeeper_engine::fourletter::{Mode, ServerReport, counted_znodes, operation};
use ringkeeper_engine::level::FeatureLevel;
use ringkeeper_engine::metrics::{Figure, Sizes, four_places};
use ringkeeper_engine::replica::ListedSession;
use ringkeeper_engine::shard::ConnectionReport;
use ringkeeper_engine::slow::Explanation;
use ringkeeper_engine::zab::{Status, SyncedLearner};
use ringkeeper_wire::{ServerId, SessionId, Zxid};
use serde_json::{Map, Value, json};

use crate::config::{self, MemberAddress, PeerRole, ServerSpec};
use crate::server::log_levels::LogLevels;
use crate::server::report::{CoreReport, Facts, client_port};
use crate::server::system;

/// ZooKeeper tells whole milliseconds.
const US_PER_MS: u64 = 1000;

/// ZooKeeper's ways to compute the digest of a tree have the numbers 1 and 2. This server has its own.
const DIGEST_VERSION: i32 = 0;

/// What is looked at for findings: the last five minutes, microseconds.
const FINDINGS_US: u64 = 300_000_000;

/// What is slow if nothing is called so, milliseconds.
const SLOW_MS: u64 = 100;

pub(super) type Fields = Map<String, Value>;

/// What there is to be shown.
pub(super) struct Shown<'a> {
    pub(super) facts: &'a Facts,
    pub(super) report: &'a ServerReport,
    pub(super) status: Status,
    /// Who belongs to the ensemble.
    pub(super) ensemble: config::Members,
    /// Of a leader, the learners that are synchronized.
    pub(super) synced: Vec<SyncedLearner>,
    /// What log and learners took lately.
    pub(super) members: Members,
    /// Appends that took longer than the warning threshold.
    pub(super) slow_appends: u64,
    /// See [`Collected::sessions`](crate::server::inspect::Collected::sessions).
    pub(super) sessions: Vec<ListedSession>,
}

pub(super) fn nothing(_: &Shown) -> Value {
    json!({})
}

pub(super) fn configuration(shown: &Shown) -> Value {
    let Facts { config, data_dir, log_dir, .. } = shown.facts;
    json!({
        "client_port": client_port(config, &shown.ensemble),
        "data_dir": data_dir.display().to_string(),
        "data_log_dir": log_dir.display().to_string(),
        "tick_time": config.tick_time_ms,
        "max_client_cnxns": config.max_client_connections,
        "min_session_timeout": config.min_session_timeout(),
        "max_session_timeout": config.max_session_timeout(),
        "server_id": config.own_server().map_or(0, |own| own.id),
        "client_port_listen_backlog": config.client_backlog,
    })
}

pub(super) fn connections(shown: &Shown) -> Value {
    let list: Vec<_> =
        shown.report.shards.connections.iter().map(|one| whole_connection(one, shown.report)).collect();
    json!({ "connections": list, "secure_connections": [] })
}

fn brief_connection(connection: &ConnectionReport) -> Fields {
    fields(json!({
        "remote_socket_address": connection.peer.to_string(),
        "interest_ops": 1,
        "outstanding_requests": connection.outstanding,
        "packets_received": connection.received,
        "packets_sent": connection.sent,
    }))
}

fn whole_connection(connection: &ConnectionReport, report: &ServerReport) -> Value {
    let mut all = brief_connection(connection);
    let latency = connection.latency;
    all.extend(fields(json!({
        "session_id": connection.session.0,
        "session_id_hex": connection.session.to_string(),
        "last_operation": operation(connection.last_op),
        "established": report.clock_offset_ms.saturating_add_unsigned(connection.established_ms),
        "session_timeout": connection.timeout_ms,
        "last_cxid": connection.last_xid.0,
        "last_zxid": connection.last_zxid,
        "last_response_time": connection.last_response_ms,
        "last_latency": connection.last_latency_us / US_PER_MS,
        "min_latency": latency.min / US_PER_MS,
        "avg_latency": latency.sum.checked_div(latency.count).unwrap_or(0) / US_PER_MS,
        "max_latency": latency.max / US_PER_MS,
    })));
    Value::Object(all)
}

pub(super) fn directories(shown: &Shown) -> Value {
    let (data, log) = shown.report.directory_sizes_bytes;
    json!({ "datadir_size": data, "logdir_size": log })
}

pub(super) fn dump(shown: &Shown) -> Value {
    let mut by_time = BTreeMap::<u64, Vec<SessionId>>::new();
    for listed in &shown.sessions {
        by_time.entry(listed.expires_ms).or_default().push(listed.session);
    }
    let ephemerals = &shown.report.ephemerals;
    let ephemerals = ephemerals.iter().map(|(session, paths)| (session.0.to_string(), json!(paths)));
    json!({
        "expiry_time_to_session_ids": sessions_by(&by_time, |session| json!(session.0)),
        "expiry_time_to_session_ids_hex": sessions_by(&by_time, |session| json!(session.to_string())),
        "session_id_to_ephemeral_paths": Value::Object(ephemerals.collect()),
    })
}

/// Ours: the servers of the ensemble, and on the leader how far each learner is.
pub(super) fn ensemble(shown: &Shown) -> Value {
    let Shown { facts, report, .. } = shown;
    let epoch = match shown.status {
        Status::Leading { epoch } | Status::Following { epoch, .. } => Some(epoch.0),
        Status::Looking => None,
    };
    let member = |server: &ServerSpec| {
        let times = shown.members.peers.iter().find(|peer| peer.server.0 == server.id);
        let learner = shown.synced.iter().find(|learner| learner.server.0 == server.id);
        let mut all = fields(server_view(server));
        all.insert("id".to_owned(), json!(server.id));
        all.insert("durable_zxid_hex".to_owned(), json!(learner.map(|it| it.last_zxid.to_string())));
        all.insert("queued_batches".to_owned(), json!(learner.map(|it| it.batches)));
        all.insert("queued_bytes".to_owned(), json!(learner.map(|it| it.bytes)));
        all.insert("acknowledges".to_owned(), took(times.map(|PeerTimes { acks, .. }| acks)));
        all.insert("answers_pings".to_owned(), took(times.map(|PeerTimes { round_trips, .. }| round_trips)));
        Value::Object(all)
    };
    json!({
        "server_id": facts.config.my_id,
        "server_state": report.mode.map(|mode| mode.to_string()),
        "missing": report.missing,
        "leader_id": leader_id(shown),
        "epoch": epoch,
        "last_zxid_hex": report.last_zxid.to_string(),
        "appends": took(Some(&shown.members.log)),
        "servers": shown.ensemble.iter().map(member).collect::<Vec<_>>(),
    })
}

pub(super) fn environment(shown: &Shown) -> Value {
    let pairs = shown.report.environment.iter();
    Value::Object(pairs.map(|(key, value)| (key.clone(), json!(value))).collect())
}

/// Of Java's system properties those that tell about the machine.
pub(super) fn system_properties(shown: &Shown) -> Value {
    let pairs =
        shown.report.environment.iter().filter(|(key, _)| key.starts_with("os.") || key.starts_with("user."));
    Value::Object(pairs.map(|(key, value)| (key.clone(), json!(value))).collect())
}

pub(super) fn hash(shown: &Shown) -> Value {
    let digest = |&(zxid, digest): &(Zxid, u64)| {
        let hex = format!("{digest:#x}");
        json!({ "zxid": zxid.0, "digest": digest, "digest_hex": hex, "digest_version": DIGEST_VERSION })
    };
    json!({ "digests": shown.report.digests.iter().map(digest).collect::<Vec<_>>() })
}

pub(super) fn initial_configuration(shown: &Shown) -> Value {
    json!({ "initial_configuration": shown.facts.config.initial_text })
}

pub(super) fn is_read_only(shown: &Shown) -> Value {
    json!({ "read_only": is_mode(shown, Mode::ReadOnly) })
}

fn is_mode(shown: &Shown, mode: Mode) -> bool {
    shown.report.mode == Some(mode)
}

/// The newest snapshot; -1 if there is none.
pub(super) fn last_snapshot(shown: &Shown) -> Value {
    let (zxid, time_s) = newest_snapshot(&shown.facts.data_dir).unwrap_or((-1, -1));
    json!({ "zxid": format!("{zxid:x}"), "timestamp": time_s })
}

fn newest_snapshot(folder: &Path) -> Option<(i64, i64)> {
    let entries = fs::read_dir(folder).ok()?.flatten();
    let snapshots = entries.filter_map(|entry| {
        let zxid = i64::from_str_radix(entry.file_name().to_str()?.strip_prefix("snapshot.")?, 16).ok()?;
        let written = entry.metadata().ok()?.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
        Some((zxid, i64::try_from(written.as_secs()).ok()?))
    });
    snapshots.max()
}

/// The id of the leader that a member leads as or follows.
fn leader_id(shown: &Shown) -> Option<u64> {
    match shown.status {
        Status::Leading { .. } => shown.facts.config.my_id,
        Status::Following { leader, .. } => Some(leader.0),
        Status::Looking => None,
    }
}

pub(super) fn leader(shown: &Shown) -> Value {
    match leader_id(shown).and_then(|id| shown.ensemble.get(ServerId(id))) {
        Some(leader) => json!({
            "is_leader": is_mode(shown, Mode::Leader),
            "leader_id": leader.id,
            "leader_ip": leader.first().host,
        }),
        None => json!({ "error": "server is not initialized" }),
    }
}

/// What `mntr` tells.
pub(super) fn monitor(shown: &Shown) -> Value {
    let mut all = fields(json!({ "version": shown.report.version }));
    if let Some(mode) = shown.report.mode {
        all.insert("server_state".to_owned(), json!(mode.to_string()));
    }
    all.extend(shown.report.metrics.plain().into_iter().map(|(name, figure)| match figure {
        Figure::Whole(number) => (name, json!(number)),
        Figure::Real(number) => (name, json!(number)),
    }));
    Value::Object(all)
}

pub(super) fn observers(shown: &Shown) -> Value {
    let observers = shown.synced.iter().filter(|learner| !learner.voter);
    let list = observers.map(|observer| {
        json!({
            "sid": observer.server.0,
            "queued_packets": observer.batches,
            "queued_packets_size": observer.bytes,
            "last_zxid": observer.last_zxid.0,
        })
    });
    let list: Vec<_> = list.collect();
    json!({ "synced_observers": list.len(), "observers": list })
}

pub(super) fn server_stats(shown: &Shown) -> Value {
    let Shown { report, facts, slow_appends, .. } = shown;
    let counters = &report.shards.counters;
    let (buffers, latency) = (sizes(counters.replies), report.shards.latency);
    let (data_dir_size, log_dir_size) = system::directory_sizes(&facts.data_dir, &facts.log_dir);
    let mut all = fields(json!({
        "version": report.version,
        "read_only": is_mode(shown, Mode::ReadOnly),
        "server_stats": {
            "packets_sent": counters.sent,
            "packets_received": counters.received,
            "fsync_threshold_exceed_count": slow_appends,
            "client_response_stats": buffers,
            "data_dir_size": data_dir_size,
            "log_dir_size": log_dir_size,
            "provider_null": report.mode.is_none(),
            "last_processed_zxid": report.last_zxid.0,
            "outstanding_requests": report.shards.outstanding,
            "server_state": report.mode.map_or_else(|| "null".to_owned(), |mode| mode.to_string()),
            "avg_latency": four_places(latency.average() / 1000.0),
            "max_latency": latency.max / US_PER_MS,
            "min_latency": latency.min / US_PER_MS,
            "num_alive_client_connections": report.shards.connection_count,
            "uptime": report.uptime_ms,
            "auth_failed_count": counters.auth_failed,
            "non_mtlsremote_conn_count": 0,
            "non_mtlslocal_conn_count": 0,
        },
        "client_response": buffers,
    }));
    if let Some(proposals) = report.proposal_sizes {
        all.insert("proposal_stats".to_owned(), sizes(proposals));
    }
    all.insert("node_count".to_owned(), json!(counted_znodes(report)));
    Value::Object(all)
}

/// ZooKeeper calls them buffers.
fn sizes(Sizes { last, min, max }: Sizes) -> Value {
    json!({ "last_buffer_size": last, "min_buffer_size": min, "max_buffer_size": max })
}

/// Ours: the levels of the log, and what was changed since the start.
pub(super) fn log_levels(levels: &LogLevels) -> Value {
    let now = Instant::now();
    let changes = levels.changes();
    let changes = changes.iter().map(|(target, change)| {
        json!({
            "target": Some(target).filter(|target| !target.is_empty()),
            "level": change.level.to_string(),
            "seconds_left": change.until.map(|until| until.saturating_duration_since(now).as_secs()),
        })
    });
    json!({ "levels": levels.in_force(), "changes": changes.collect::<Vec<_>>() })
}

/// Ours: the ensemble's feature level, and what each member can do, null of one that is not connected.
pub(super) fn feature_level(core: &CoreReport) -> Value {
    let FeatureLevel { level, held } = core.state.feature_level();
    let members = core.members_levels.iter();
    let members = members.map(|(server, level)| json!({ "id": server.0, "level": level.map(|it| it.0) }));
    json!({ "level": level.0, "held": held, "members": members.collect::<Vec<_>>() })
}

/// How long something took in the last minutes; null if it was not done.
fn took(took: Option<&Took>) -> Value {
    took.filter(|it| it.count > 0 || it.waiting_us > 0).map_or(Value::Null, |it| {
        json!({
            "count": it.count,
            "p50_ms": milliseconds(it.p50_us),
            "p90_ms": milliseconds(it.p90_us),
            "waiting_ms": milliseconds(it.waiting_us),
        })
    })
}

/// Ours: what makes the server slow, and the last slow requests, the newest first, and where their time went.
pub(super) fn slow_requests(shown: &Shown) -> Value {
    let offset_ms = shown.report.clock_offset_ms;
    let all = shown.facts.slow.list();
    json!({
        "slow_request_ms": shown.facts.config.slow_request_ms,
        "total": shown.report.shards.counters.slow_requests,
        "findings": findings(shown, &all),
        "slow_requests": all.iter().rev().map(|slow| slow_request(slow, offset_ms)).collect::<Vec<_>>(),
    })
}

/// What made the server slow in the last minutes.
fn findings(shown: &Shown, slow: &[Explanation]) -> Vec<Value> {
    let now_us = shown.facts.clock.monotonic_us();
    let since_us = now_us.saturating_sub(FINDINGS_US);
    let pauses = shown.facts.pauses.list();
    let leader = match shown.status {
        Status::Following { leader, .. } => Some(leader),
        _ => None,
    };
    let slow_ms = Some(shown.facts.config.slow_request_ms).filter(|ms| *ms > 0).unwrap_or(SLOW_MS);
    let slow_us = slow_ms * US_PER_MS;
    let (slow, pauses, members) = (slow, pauses.as_slice(), &shown.members);
    let evidence = Evidence { slow, pauses, members, leader, now_us, since_us, slow_us };
    find(&evidence).iter().map(finding).collect()
}

fn finding(finding: &Finding) -> Value {
    let (session, client) = match finding {
        Finding::Client { session, client, .. } | Finding::Path { only: Some((session, client)), .. } => {
            (Some(session.to_string()), Some(client.to_string()))
        }
        _ => (None, None),
    };
    let path = if let Finding::Path { path, .. } = finding { Some(path) } else { None };
    json!({
        "cause": finding.cause(),
        "server": finding.server().map(|server| server.0),
        "session_id_hex": session,
        "client": client,
        "path": path,
        "text": finding.to_string(),
        "advice": finding.advice(),
    })
}

fn slow_request(slow: &Explanation, clock_offset_ms: i64) -> Value {
    let Explanation { request, stages, mostly, peer } = slow;
    let stages = stages.iter();
    let stages = stages.map(|time| (time.stage.name().to_owned(), json!(milliseconds(time.took_us))));
    json!({
        "received": clock_offset_ms.saturating_add_unsigned(request.received_us / US_PER_MS),
        "operation": operation(Some(request.op)),
        "path": request.path,
        "session_id": request.session.0,
        "session_id_hex": request.session.to_string(),
        "client": request.client.to_string(),
        "cxid": request.xid.0,
        "zxid_hex": request.zxid.map(|zxid| zxid.to_string()),
        "bytes": request.bytes,
        "total_ms": milliseconds(request.total_us()),
        "mostly": mostly.name(),
        "stages_ms": Value::Object(stages.collect()),
        "peer": peer.map(|peer| peer.0),
    })
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^53 microseconds")]
fn milliseconds(us: u64) -> f64 {
    us as f64 / US_PER_MS as f64
}

pub(super) fn stats(shown: &Shown) -> Value {
    let mut all = fields(server_stats(shown));
    let list: Vec<_> = shown.report.shards.connections.iter().map(brief_connection).collect();
    all.insert("connections".to_owned(), json!(list));
    all.insert("secure_connections".to_owned(), json!([]));
    Value::Object(all)
}

pub(super) fn trace_mask(shown: &Shown) -> Value {
    json!({ "tracemask": shown.report.trace_mask })
}

pub(super) fn voting_view(shown: &Shown) -> Value {
    let view = |server: &ServerSpec| (server.id.to_string(), server_view(server));
    let voters = shown.ensemble.iter().filter(|server| server.role == PeerRole::Participant);
    json!({ "current_config": Value::Object(voters.map(view).collect()) })
}

fn server_view(server: &ServerSpec) -> Value {
    json!({
        "server_addresses": addresses_at(server, |it| it.quorum_port),
        "election_addresses": addresses_at(server, |it| it.election_port),
        "client_address": client_address(server),
        "learner_type": match server.role {
            PeerRole::Participant => "participant",
            PeerRole::Observer => "observer",
        },
    })
}

fn addresses_at(server: &ServerSpec, port: fn(&MemberAddress) -> u16) -> Vec<String> {
    server.addresses.iter().map(|it| format!("{}:{}", it.host, port(it))).collect()
}

fn client_address(server: &ServerSpec) -> String {
    server
        .client
        .as_ref()
        .map_or_else(String::new, |(host, port)| format!("{}:{port}", host.as_deref().unwrap_or("0.0.0.0")))
}

pub(super) fn watches(shown: &Shown) -> Value {
    let mut by_session = BTreeMap::<SessionId, Vec<&str>>::new();
    for (session, path) in &shown.report.data_watches {
        by_session.entry(*session).or_default().push(path);
    }
    let listed = by_session.into_iter().map(|(session, paths)| (session.0.to_string(), json!(paths)));
    json!({ "session_id_to_watched_paths": Value::Object(listed.collect()) })
}

pub(super) fn watches_by_path(shown: &Shown) -> Value {
    let mut by_path = BTreeMap::<&str, Vec<SessionId>>::new();
    for (session, path) in &shown.report.data_watches {
        by_path.entry(path).or_default().push(*session);
    }
    json!({
        "path_to_session_ids": sessions_by(&by_path, |session| json!(session.0)),
        "path_to_session_ids_hex": sessions_by(&by_path, |session| json!(session.to_string())),
    })
}

fn sessions_by<K: ToString>(sessions: &BTreeMap<K, Vec<SessionId>>, show: fn(&SessionId) -> Value) -> Value {
    let list = |(key, sessions): (&K, &Vec<SessionId>)| {
        (key.to_string(), Value::Array(sessions.iter().map(show).collect()))
    };
    Value::Object(sessions.iter().map(list).collect())
}

pub(super) fn watch_summary(shown: &Shown) -> Value {
    let watches = shown.report.shards.watches;
    json!({
        "num_connections": watches.connections,
        "num_paths": watches.paths,
        "num_total_watches": watches.watches,
    })
}

pub(super) fn zab_state(shown: &Shown) -> Value {
    let config = &shown.facts.config;
    let Some(configured) = config.own_server() else { return json!({ "voting": false, "zabstate": "" }) };
    let own = shown.ensemble.get(ServerId(configured.id)).unwrap_or(configured);
    let zxid = shown.report.last_zxid;
    let state = match shown.report.mode {
        Some(_) => "broadcast",
        None => "election",
    };
    json!({
        "myid": own.id,
        "is_leader": is_mode(shown, Mode::Leader),
        "quorum_address": addresses(own, |it| it.quorum_port),
        "election_address": addresses(own, |it| it.election_port),
        "client_address": own.client.as_ref().map(|_| client_address(own)),
        "voting": shown.ensemble.with_role(PeerRole::Participant).contains(ServerId(own.id)),
        "last_zxid": zxid.to_string(),
        "zab_epoch": zxid.epoch().0,
        "zab_counter": zxid.counter(),
        "zabstate": state,
    })
}

/// A server's addresses for one purpose. ZooKeeper also shows which it can reach; own ones always are.
fn addresses(server: &ServerSpec, port: fn(&MemberAddress) -> u16) -> Value {
    let all = addresses_at(server, port);
    let ports: BTreeSet<u16> = server.addresses.iter().map(port).collect();
    let hosts: BTreeSet<&str> = server.addresses.iter().map(|it| it.host.as_str()).collect();
    let one = &all[0];
    json!({
        "empty": false,
        "all_addresses": all,
        "wildcard_addresses": ports.iter().map(|port| format!("0.0.0.0:{port}")).collect::<Vec<_>>(),
        "all_ports": ports,
        "all_host_strings": hosts,
        "reachable_address": one,
        "all_reachable_addresses": all,
        "all_reachable_addresses_or_all": all,
        "reachable_or_one": one,
        "one": one,
    })
}

/// The fields of what `json!` has made of braces.
pub(super) fn fields(object: Value) -> Fields {
    match object {
        Value::Object(fields) => fields,
        _ => Fields::new(),
    }
}
