//! The metrics of a running server, collected for `mntr`, `monitor` and `/metrics`.

use std::time::Duration;

use ringkeeper_engine::metrics::{Distribution, Metric, Samples, Summary, TENANT, Totals, Value};
use ringkeeper_engine::quota::{self, Namespace};
use ringkeeper_engine::replica::Now;
use ringkeeper_engine::samples;
use ringkeeper_engine::shard::ShardReport;
use ringkeeper_engine::tenants::{Measured, Resource, Stored, Tenant, Tenants};
use ringkeeper_engine::zab::{Learners, Status};

use super::core_counters::CoreTimes;
use super::log_task::Appends;
use super::report::{CoreReport, Facts};
use super::scrub::Findings;
use super::snapshots::Taken;
use super::system::Measured as Process;
use crate::config::PeerRole;

/// All metrics of the server.
pub(super) fn samples(
    facts: &Facts,
    now: Now,
    shards: &ShardReport,
    core: &CoreReport,
    measured: &Process,
) -> Samples {
    let mut out = Samples::default();
    shards.sample(&mut out);
    server(&mut out, facts, now, core);
    storage(&mut out, core, now.monotonic_ms);
    if let Some((times, appends)) = &core.times {
        stages(&mut out, times, appends);
    }
    if !facts.config.servers.is_empty() {
        ensemble(&mut out, facts, core, now.monotonic_ms);
    }
    process(&mut out, now, measured);
    for namespace in quota::by_namespace(&core.state) {
        quotas(&mut out, &namespace);
    }
    tenants(&mut out, core.state.tenants());
    let [under_way, failed, exceeded] = facts.tls.as_ref().map_or([0; 3], |tls| tls.counts());
    let [certificates, lists] = facts.certificates.expire_s();
    samples!(out, {
        "outstanding_tls_handshake": under_way,
        "unsuccessful_handshake": failed,
        "tls_handshake_exceeded": exceeded,
        "certificates_expire_seconds": certificates,
        "revocation_lists_expire_seconds": lists,
    });
    samples!(out, {
        "traces_exported": facts.traces.exported(),
        "traces_dropped": facts.traces.dropped() + shards.counters.untraced,
    });
    if let Some(audit) = &facts.audit {
        samples!(out, { "audit_records_lost": audit.lost() });
    }
    out
}

fn server(out: &mut Samples, facts: &Facts, now: Now, core: &CoreReport) {
    let (state, counts) = (&core.state, &core.counts);
    samples!(out, {
        "uptime": now.monotonic_ms,
        // The root counts twice, as in ZooKeeper.
        "znode_count": state.tree().len() + 1,
        "ephemerals_count": state.ephemeral_count(),
        "approximate_data_size": state.tree().data_size(),
        "stale_sessions_expired": core.expired_sessions,
        "connection_drop_probability": core.connection_throttle.drop_probability,
        "connection_token_deficit": Summary::amounts(core.connection_throttle.deficit),
        "global_sessions": state.sessions().len(),
        "local_sessions": core.local_sessions,
        "prep_processor_request_queued": counts.requests,
        "sync_processor_request_queued": counts.appends,
        "proposal_count": counts.proposals,
        "commit_count": counts.commits,
        "learner_proposal_received_count": counts.appends - counts.proposals,
        "learner_commit_received_count": counts.learned_commits,
        "looking_count": counts.looking,
        "hand_overs": counts.handed_over,
        "diff_count": counts.diffs,
        "snap_count": counts.snapshots,
        "dbinittime": once(Summary::time_totals, facts.recovery_us),
        "startup_txns_loaded": once(Summary::amounts, facts.replayed_txns),
        "shards": u64::from(facts.shards),
        "memory_limit_bytes": facts.config.memory_limit.bytes().unwrap_or(0),
        "memory_limit_exceeded": core.refusals.memory,
        "transactions_ahead_seconds": state.last_time_ms().saturating_sub(now.wall_ms).max(0) / 1000,
    });
}

fn quotas(out: &mut Samples, namespace: &Namespace) {
    for (family, figure) in [
        (const { Metric::named("quota_count_limit_per_namespace") }, namespace.count_limit),
        (const { Metric::named("quota_count_usage_per_namespace") }, namespace.count),
        (const { Metric::named("quota_bytes_limit_per_namespace") }, namespace.bytes_limit),
        (const { Metric::named("quota_bytes_usage_per_namespace") }, namespace.bytes),
    ] {
        out.add_labelled(family, vec![("key", namespace.name.clone())], figure);
    }
}

/// Tenants that are shown one by one: those with most operations. The others are added up.
const TENANTS_SHOWN: usize = 100;
/// The name of the others.
const OTHER_TENANTS: &str = "other";

/// What is shown of a tenant.
#[derive(Default)]
struct TenantFigures {
    measured: Measured,
    stored: Stored,
    limits: [Option<u64>; Resource::ALL.len()],
}

impl TenantFigures {
    fn of(tenant: &Tenant, stored: Stored) -> Self {
        let limits = Resource::ALL.map(|resource| tenant.limits().of(resource));
        Self { measured: tenant.meter().measured(), stored, limits }
    }

    fn merge(mut self, other: &Self) -> Self {
        self.measured.merge(&other.measured);
        self.stored.znodes += other.stored.znodes;
        self.stored.data += other.stored.data;
        for (limit, more) in self.limits.iter_mut().zip(other.limits) {
            *limit = limit.zip(more).map(|(limit, more)| limit.saturating_add(more)).or(*limit).or(more);
        }
        self
    }

    fn sample(&self, out: &mut Samples, tenant: &str) {
        let Self { measured, stored, limits } = self;
        let label = || (TENANT, tenant.to_owned());
        for (family, figure) in [
            (const { Metric::named("tenant_ops") }, measured.operations),
            (const { Metric::named("tenant_bytes") }, measured.bytes),
            (const { Metric::named("tenant_watches") }, measured.watches),
            (const { Metric::named("tenant_sessions") }, measured.sessions),
            (const { Metric::named("tenant_znodes") }, stored.znodes),
            (const { Metric::named("tenant_data_bytes") }, stored.data),
        ] {
            out.add_labelled(family, vec![label()], figure);
        }
        let delay = Duration::from_micros(measured.delayed_us).as_secs_f64();
        out.add_labelled(const { Metric::named("tenant_delay_seconds") }, vec![label()], delay);
        for (resource, limit) in Resource::ALL.into_iter().zip(*limits) {
            let labels = || vec![label(), ("limit", resource.word().to_owned())];
            let rejections = const { Metric::named("tenant_rejections") };
            out.add_labelled(rejections, labels(), measured.refused(resource));
            if let Some(limit) = limit {
                out.add_labelled(const { Metric::named("tenant_limit") }, labels(), limit);
            }
        }
    }
}

fn tenants(out: &mut Samples, tenants: &Tenants) {
    let mut all: Vec<(&str, TenantFigures)> = tenants
        .iter()
        .map(|(tenant, stored)| (&**tenant.path(), TenantFigures::of(tenant, stored)))
        .collect();
    all.sort_by_key(|(_, figures)| std::cmp::Reverse(figures.measured.operations));
    let (shown, others) = all.split_at(all.len().min(TENANTS_SHOWN));
    for (path, figures) in shown {
        figures.sample(out, path);
    }
    if !others.is_empty() {
        let sum = others.iter().fold(TenantFigures::default(), |sum, (_, figures)| sum.merge(figures));
        sum.sample(out, OTHER_TENANTS);
    }
}

/// The summary of one value.
fn once(kind: fn(Totals) -> Summary, value: u64) -> Summary {
    let mut totals = Totals::default();
    totals.record(value);
    kind(totals).with_median(value)
}

/// Durations of which ZooKeeper gives the median alone.
fn median(times: &Distribution) -> Summary {
    let [median] = times.quantiles([0.5]);
    Summary::time_totals(times.totals()).with_median(median)
}

fn storage(out: &mut Samples, core: &CoreReport, now_ms: u64) {
    let Taken { times, bytes, zxid } = core.snapshots;
    let found: Findings = core.findings;
    let ago = found
        .last_pass_ms
        .map_or(-1, |ended_ms| i64::try_from(now_ms.saturating_sub(ended_ms) / 1000).unwrap_or(i64::MAX));
    samples!(out, {
        "fsync_threshold_exceed_count": core.slow_appends,
        "snapshottime": Summary::time_totals(times),
        "last_snapshot_bytes": bytes,
        "last_snapshot_zxid": zxid.0,
        "disk_full": core.disk_full,
        "digest_mismatches_count": core.digest_mismatches,
        "scrubbed_bytes": found.scrubbed_bytes,
        "scrub_passes": found.passes,
        "scrub_last_pass_seconds_ago": ago,
        "damage_found": found.damage,
        "repairs_pending": found.pending + u64::from(core.lacks_log),
    });
}

fn stages(out: &mut Samples, times: &CoreTimes, appends: &Appends) {
    samples!(out, {
        "prep_processor_queue_size": Summary::amounts(times.taken),
        "prep_processor_queue_time_ms": Summary::times(&times.queued),
        "prep_process_time": Summary::times(&times.prepared),
        "quorum_ack_latency": Summary::times(&times.committed),
        "propagation_latency": Summary::times(&times.propagated),
        "proposal_latency": Summary::times(&times.batched),
        "election_time": median(&times.elections),
        "unavailable_time": median(&times.elections),
        "leader_unavailable_time": median(&times.own_elections),
        "fsynctime": Summary::times(&appends.took),
        "sync_processor_batch_size": Summary::amounts(appends.txns),
        "sync_processor_queue_flush_time_ms": Summary::times(&appends.took),
        "sync_processor_queue_time_ms": Summary::times(&appends.waited),
        "sync_processor_queue_and_flush_time_ms": Summary::times(&appends.durable_after),
    });
    let ack_latency = const { Metric::named("ack_latency") };
    for (learner, times) in &times.acknowledged {
        out.add_labelled(ack_latency, vec![("key", learner.to_string())], Summary::times(times));
    }
    let stage_seconds = const { Metric::named("stage_seconds") };
    for (stage, times) in [
        ("queue", &times.queued),
        ("prepare", &times.prepared),
        ("batch", &times.batched),
        ("log_queue", &appends.waited),
        ("log", &appends.took),
        ("commit", &times.committed),
    ] {
        out.add_labelled(stage_seconds, vec![("stage", stage.to_owned())], Value::Histogram(times.clone()));
    }
}

fn ensemble(out: &mut Samples, facts: &Facts, core: &CoreReport, now_ms: u64) {
    let voters = facts.members(&core.state).with_role(PeerRole::Participant);
    let counts = &core.counts;
    samples!(out, {
        "quorum_size": voters.len(),
        "history_conflict": core.history_conflict,
        "id_conflict": core.id_conflict,
        "feature_level": u64::from(core.state.feature_level().level.0),
        "peers_connected": core.peers_connected,
    });
    let Learners { all, synced_followers, synced_observers } = core.learners;
    if matches!(core.status, Status::Following { .. }) {
        samples!(out, { "synced_observers": synced_observers });
    }
    if matches!(core.status, Status::Leading { .. }) {
        let sizes = counts.sizes;
        samples!(out, {
            "learners": all,
            "synced_followers": synced_followers,
            "synced_observers": synced_observers,
            "pending_syncs": all.saturating_sub(synced_followers + synced_observers),
            "last_proposal_size": sizes.last,
            "max_proposal_size": sizes.max,
            "min_proposal_size": sizes.min,
            "leader_uptime": now_ms.saturating_sub(counts.status_since_ms),
        });
    }
}

fn process(out: &mut Samples, now: Now, measured: &Process) {
    let (open_files, max_files) = measured.file_descriptors;
    let started_ms = now.wall_ms.saturating_sub_unsigned(now.monotonic_ms);
    samples!(out, {
        "open_file_descriptor_count": open_files,
        "max_file_descriptor_count": max_files,
        "process_open_fds": open_files,
        "process_max_fds": max_files,
        "process_cpu_seconds_total": measured.cpu.as_secs_f64(),
        "process_start_time_seconds": started_ms / 1000,
    });
    if let Some((resident, virtual_)) = measured.memory_bytes {
        samples!(out, {
            "process_resident_memory_bytes": resident,
            "process_virtual_memory_bytes": virtual_,
        });
    }
}
