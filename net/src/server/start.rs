//! Starts and stops the server.

use std::future::poll_fn;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use async_channel::{Receiver, Sender};
use core_affinity::CoreId;
use futures_lite::future::or;
use ringkeeper_engine::fourletter::{Whitelist, Word};
use ringkeeper_engine::limits::Limit;
use ringkeeper_engine::message::{RequestBatch, Sent, ShardId, ToShard};
use ringkeeper_engine::node::Node;
use ringkeeper_engine::replica::{CleanerSettings, Replica, ReplicaSettings};
use ringkeeper_engine::shard::{Settings as ShardSettings, Shard};
use ringkeeper_engine::state::State;
use ringkeeper_engine::zab::{self, Founding, Quorum, ServerSet};
use ringkeeper_host::env::PeerAddress;
use ringkeeper_host::tasks::{self, Failure, Tasks};
use ringkeeper_host::transfer::Limits;
use ringkeeper_runtime::kerberos::KerberosError;
use ringkeeper_runtime::tls::{PeerTls, StartError as TlsStartError, reload};
use ringkeeper_tls::Stores;
use ringkeeper_wire::ServerId;
use socket2::Socket;

use super::admin::{self, Admin};
use super::admission::Admission;
use super::audit::{self, AuditLog};
use super::block_readers;
use super::client_ports::{self, ClientPort, ClientPorts, Manner};
use super::clock::Clock;
use super::core_host::{CoreHost, Sampling, Shards};
use super::door::{Accepted, Door};
use super::helper::Helper;
use super::identity::wanted;
use super::inspect::{CoreInspection, Inspection, Inspectors};
use super::kerberos::Kerberos;
use super::links::{Links, Port, Redial, Secrets};
use super::log_levels::LogLevels;
use super::log_task::{LogFailure, LogQueue};
use super::memory_limit::MemoryState;
use super::names;
use super::pauses::Pauses;
use super::peer_kerberos::{Keytabs, PeerKerberos};
use super::pulse::Pulse;
use super::reactor::env::{Reactor, ReactorEnv};
use super::reactor::tcp::TcpStream;
use super::reactor::{self, Executor};
use super::recovery::FolderError;
use super::report::Facts;
use super::ring::{Consumer, Producer, ring};
use super::scrub::{Integrity, Pace};
use super::serving::{self, INITIALIZE};
use super::shard_host::{ScramStore, ShardHost, Shared};
use super::slow::{Explained, Teller};
use super::snapshots::{Policy, Trigger};
use super::tls::{OwnCertificates, TlsAcceptor};
use super::traces::Traces;
use super::{
    core_host, inspect, kerberos, listener, memory_limit, preflight, recovery, service_manager, slow, socket,
};
use crate::config::{Config, ConfigError, Members, ServerSpec, read_scram_users};
use crate::placement::Placement;
use crate::signals::{Request, Requests};

/// Why a server did not start, or ended by itself: one sentence, with the remedy.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Unmet(#[from] preflight::Unmet),
    #[error(transparent)]
    Bind(#[from] listener::BindError),
    #[error(transparent)]
    Tls(#[from] TlsStartError),
    #[error(transparent)]
    Kerberos(#[from] KerberosError),
    #[error(transparent)]
    Audit(#[from] audit::StartError),
    #[error(transparent)]
    Admin(#[from] admin::StartError),
    #[error(transparent)]
    Folder(#[from] FolderError),
    #[error("the signal handlers cannot be installed: {}", thread_refused(.0))]
    Signals(io::Error),
    #[error("a thread for work beside the shards cannot start: {}", thread_refused(.0))]
    Helper(io::Error),
    #[error("the executor cannot start: {0}")]
    Executor(String),
    #[error("the log failed, nothing more can be acknowledged: {0}")]
    Log(LogFailure),
    #[error("the log holds what this server cannot have written, nothing more can be acknowledged: {0}")]
    Broken(String),
    #[error("a task of the server panicked: this is a bug, its message is above")]
    Panicked,
    #[error("the quorum port cannot be opened: {0}")]
    Quorum(String),
    #[error(
        "whoever reaches {0}, the quorum port, could pass for a member and change all data: name a file with a secret that \
         only the ensemble's servers know (ringkeeper.peerSecretFile), have them show certificates (sslQuorum=true \
         without portUnification), or say that only they can reach the port (ringkeeper.trustedNetwork=yes)"
    )]
    Untrusted(SocketAddr),
}

impl StartError {
    /// Whether starting again cannot help, since somebody has to change something first.
    pub(crate) const fn is_final(&self) -> bool {
        match self {
            Self::Config(_)
            | Self::Unmet(_)
            | Self::Tls(_)
            | Self::Kerberos(_)
            | Self::Audit(_)
            | Self::Admin(admin::StartError::Tls(_))
            | Self::Folder(
                FolderError::Identity(_)
                | FolderError::Unfinished(_)
                | FolderError::LogLeftBehind { .. }
                | FolderError::Unusable { .. },
            )
            | Self::Untrusted(_)
            | Self::Broken(_) => true,
            Self::Bind(_)
            | Self::Admin(_)
            | Self::Folder(
                FolderError::Locked(_) | FolderError::BeingMade { .. } | FolderError::Full { .. },
            )
            | Self::Signals(_)
            | Self::Helper(_)
            | Self::Executor(_)
            | Self::Log(_)
            | Self::Panicked
            | Self::Quorum(_) => false,
        }
    }
}

impl From<Failure> for StartError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Log(failure) => Self::Log(failure),
            Failure::Broken(reason) => Self::Broken(reason),
            Failure::Panicked => Self::Panicked,
        }
    }
}

/// The system's answer, with what to do if it has no room for another thread.
pub(super) fn thread_refused(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::WouldBlock => format!(
            "{error}; allow more processes and threads: `ulimit -u` for this user, TasksMax= for the service, pids.max \
             for the container"
        ),
        _ => error.to_string(),
    }
}

/// Capacity of a ring between a shard and the core, in messages, each way.
const RING_CAPACITY: usize = 1024;

/// The time within which shards report the sessions they heard from, milliseconds; the leader extends
/// deadlines by as much.
const REPORTED_WITHIN_MS: u32 = 500;

/// How often they report, milliseconds: they look at a tick whether a report is due, it has a way to go, and
/// a stall that does not count as lost time may hold it up.
const TOUCH_INTERVAL_MS: u64 = 350;

/// How often the engine is told the time.
const TICK: Duration = Duration::from_millis(50);
/// While tenants wait: in each tick those requests pass for which there are tokens since the last one, and
/// others would feel many at once.
const TICK_OF_MUTED: Duration = Duration::from_millis(5);

/// A silent client is not considered gone before this.
const SILENCE_MIN: Duration = Duration::from_secs(30);

/// Runs a server until it is told to stop.
///
/// # Errors
/// It cannot start, or its log failed.
pub(crate) fn run(mut config: Config, notices: &[String]) -> Result<(), StartError> {
    let levels = LogLevels::start(config.log_format).map_err(StartError::Helper)?;
    for notice in notices {
        tracing::warn!(code = "RK0101", "{notice}");
    }
    preflight::check()?;
    let open_files = preflight::raise_open_files();
    if open_files < preflight::OPEN_FILES_MIN {
        tracing::warn!(
            code = "RK0114",
            open_files,
            "few files can be open, and each connection needs one: raise the hard limit with `ulimit -Hn`, or LimitNOFILE= \
             in the systemd unit"
        );
    }
    let folder = recovery::Folder::lock(&config)?;
    let cores = core_affinity::get_core_ids().unwrap_or_default();
    let tls = TlsAcceptor::start(&config.tls, cores.len())?;
    let peer_tls = peer_tls(&config)?;
    let certificates = OwnCertificates::of(&config);
    let kerberos = kerberos::open(config.kerberos.as_ref())?;
    config.principals.default_realm =
        kerberos.as_ref().and_then(|service| service.default_realm()).unwrap_or_default();
    let kerberos = kerberos.map(Kerberos::start).transpose()?;
    let keytabs = Keytabs::open(&config.quorum_auth)?;
    let peer_kerberos = keytabs.map(PeerKerberos::start).transpose()?;
    let scram = scram_users(&config)?;
    let ports = client_ports::bind(&config, tls.as_ref())?;
    let quorum_ports = bind_quorum_ports(&config)?;
    let admin = Admin::start(&config, open_files, levels)?;
    let requests = Requests::on_signals().map_err(StartError::Signals)?;
    block_readers::note_cores();
    let helper = Helper::start("helper", 1).map_err(StartError::Helper)?;
    names::start().map_err(StartError::Helper)?;
    let placement = Placement::choose(&cores, config.shards);
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        data = %folder.data_dir().display(),
        log = %folder.log_dir().display(),
        address = %config.client_socket(),
        cores = cores.len(),
        open_files,
        %placement,
        "ringkeeper starts"
    );
    let executor = Executor::spinning("core", config.busy_poll)
        .map_err(|error| StartError::Executor(thread_refused(&error)))?;
    if let Placement::Pinned { core, .. } = &placement {
        pin_to(*core);
    }
    let audit = config.audit_target().map(|target| AuditLog::start(&target)).transpose()?;
    let server = Server {
        config,
        folder,
        ports,
        quorum_ports,
        requests,
        placement,
        open_files,
        helper,
        tls,
        peer_tls,
        certificates,
        kerberos,
        peer_kerberos,
        scram,
        admin,
        audit: audit.as_ref().map(|(log, _)| log.clone()),
    };
    let served = executor.run(server.serve());
    if let Some((audit, thread)) = audit {
        audit.finish(thread);
    }
    served
}

/// Warns of lines of the configuration that the log contradicts. It may name fewer members: others have
/// joined.
fn tell_of_other_members(config: &Config, logged: &Members) {
    let configured = config.members();
    let lines: Vec<_> = configured
        .iter()
        .filter(|own| logged.get(ServerId(own.id)).map(ServerSpec::describe) != Some(own.describe()))
        .map(|own| format!("server.{}", own.id))
        .collect();
    if !lines.is_empty() {
        tracing::warn!(
            code = "RK0111",
            lines = lines.join(","),
            "the log names the members otherwise than these lines of the configuration, which have no effect: write \
             them anew, for example with `ringkeeper export-config`"
        );
    }
}

/// What a start needs of its configuration and its machine, each with what was found. Nothing is kept or
/// changed.
pub(crate) fn rehearse(config: &Config) -> Vec<(&'static str, Result<String, StartError>)> {
    let tls = TlsAcceptor::start(&config.tls, 1);
    let ports = client_ports::bind(config, tls.as_ref().ok().and_then(Option::as_ref));
    let ports = ports.map_err(StartError::from).map(|ports| {
        let ports: Vec<_> = ports.iter().map(|port| port.address.to_string()).collect();
        format!("{} free", if ports.is_empty() { "none, nothing".to_owned() } else { ports.join(", ") })
    });
    let spoken = |is: bool| if is { "TLS, its certificates are read" } else { "no TLS" }.to_owned();
    let kerberos = kerberos::open(config.kerberos.as_ref())
        .map(|service| if service.is_some() { "its key is in the keytab" } else { "none" }.to_owned());
    let peer_keytabs = Keytabs::open(&config.quorum_auth)
        .map(|keytabs| if keytabs.is_some() { "its keys are in the keytabs" } else { "none" }.to_owned());
    let quorum = bind_quorum_ports(config).map(|ports| match ports.len() {
        0 => "none, a server alone".to_owned(),
        _ => "free".to_owned(),
    });
    vec![
        ("io_uring", preflight::check().map(|()| "usable".to_owned()).map_err(Into::into)),
        ("clients", tls.map(|tls| spoken(tls.is_some())).map_err(Into::into)),
        ("client ports", ports),
        ("Kerberos", kerberos.map_err(Into::into)),
        ("quorum port", quorum),
        (
            "users of SCRAM",
            scram_users(config)
                .map(|users| if users.is_some() { "read" } else { "none" }.to_owned())
                .map_err(Into::into),
        ),
        ("Kerberos between servers", peer_keytabs.map_err(Into::into)),
        ("between servers", peer_tls(config).map(|tls| spoken(tls.is_some())).map_err(Into::into)),
    ]
}

/// Keeps this thread on a core.
fn pin_to(core: CoreId) {
    if !core_affinity::set_for_current(core) {
        tracing::warn!(code = "RK0112", core = core.id, "a thread cannot be kept on its core: it may wander");
    }
}

/// What the executors are built from.
struct Server {
    config: Config,
    folder: recovery::Folder,
    /// Where clients connect.
    ports: Vec<ClientPort>,
    /// Where peers connect; a server alone has none.
    quorum_ports: Vec<QuorumPort>,
    requests: Requests,
    placement: Placement,
    /// Limit of open descriptors of the process.
    open_files: u64,
    helper: Helper,
    tls: Option<Arc<TlsAcceptor>>,
    peer_tls: Option<Arc<PeerTls>>,
    certificates: OwnCertificates,
    kerberos: Option<Kerberos>,
    peer_kerberos: Option<PeerKerberos>,
    scram: Option<Arc<ScramStore>>,
    admin: Admin,
    audit: Option<AuditLog>,
}

/// What a shard is built from, on whichever executor it runs.
struct ShardSeed {
    id: ShardId,
    settings: ShardSettings,
    /// Number of its first connection.
    first_conn: u64,
    view: Arc<State>,
    clock: Clock,
    to_core: Producer<Sent<RequestBatch>>,
    inbox: Consumer<Sent<ToShard>>,
    accepted: Receiver<Accepted>,
    inspections: Receiver<Inspection>,
    pauses: Pauses,
    shared: Shared,
}

impl Server {
    /// The core's executor: runs recovery, then all tasks, until a signal or a failure of the log.
    async fn serve(self) -> Result<(), StartError> {
        let Self { mut config, folder, ports, quorum_ports, requests, placement, open_files, .. } = self;
        let Self {
            helper, tls, peer_tls, certificates, kerberos, peer_kerberos, scram, admin, audit, ..
        } = self;
        let clock = Clock::start();
        let sockets = quorum_ports.iter().map(|port| listener::handle(&port.socket, port.address));
        let sockets = sockets.collect::<Result<Vec<_>, _>>()?;
        let trusting = config.clone();
        let may_listen = move |address| match is_trusted(&trusting, address) {
            true => Ok(()),
            false => Err(io::Error::other(StartError::Untrusted(address))),
        };
        let env = ReactorEnv::new(clock).with_tls(peer_tls.clone()).that_may_listen(may_listen);
        let env = env.with_helper(helper.clone());
        let mut listening = Vec::new();
        for QuorumPort { named, address, socket } in quorum_ports {
            let failed = |error: io::Error| StartError::Quorum(format!("{named}: {error}"));
            let listener = env.listen_on(socket).map_err(failed)?;
            listening.push(Port { named, address, listener });
        }
        let seed = u64::from_le_bytes(random()?);
        let wanted = wanted(&config);
        let starting = reactor::spawn_local(service_manager::starting());
        let recovery_began_us = clock.monotonic_us();
        let recovered =
            folder.recover(env.clone(), seed, u64::from_le_bytes(random()?), Some(&wanted)).await?;
        let recovery_us = clock.monotonic_us() - recovery_began_us;
        config.my_id = Some(recovered.log.meta.meta().server_id.0);
        if let Some(membership) = recovered.state.membership() {
            tell_of_other_members(&config, &membership.members);
        }
        let view = Arc::new(recovered.state.clone());
        let node = Node::new(
            Replica::new(replica_settings(&config)?, recovered.state),
            zab_config(&config),
            recovered.durable,
            u64::from_le_bytes(random()?),
        );
        let log = LogQueue::new(Duration::from_millis(config.fsync_warning_ms));

        let count = placement.shards();
        let (inspection_senders, inspection_receivers): (Vec<_>, Vec<_>) =
            (0..count).map(|_| async_channel::unbounded::<Inspection>()).unzip();
        let descriptors = connections_max(open_files, admin.descriptors(), &config, count);
        let admission =
            Admission::new(config.max_client_connections, config.max_connections, descriptors, count);
        let memory = Arc::<MemoryState>::default();
        reactor::spawn_local(memory_limit::watch(config.memory_limit, Arc::clone(&memory))).detach();
        let (ask_core, asked) = async_channel::unbounded::<CoreInspection>();
        let pulse = Pulse::start(clock, count);
        let (traces, exporter) = Traces::new(config.otlp_endpoint.clone());
        let (teller, told) = Teller::new(traces.clone());
        let (pauses, explained) = (Pauses::new(config.slow_request_ms), Explained::default());
        let facts = Facts {
            config: config.clone(),
            data_dir: folder.data_dir().to_owned(),
            log_dir: folder.log_dir().to_owned(),
            clock,
            recovery_us,
            replayed_txns: recovered.txns,
            shards: count,
            admission: Arc::clone(&admission),
            tls: tls.clone(),
            certificates: certificates.clone(),
            audit: audit.clone(),
            pulse,
            slow: explained.clone(),
            pauses: pauses.clone(),
            traces: traces.clone(),
        };
        reactor::spawn_local(certificates.watch(helper.clone())).detach();
        let inspectors = Inspectors::new(inspection_senders, ask_core, facts, helper.clone());
        if let Some(exporter) = exporter {
            admin.spawn(exporter.run(ServerId(config.server_id()), clock));
        }
        let (accept_senders, accept_receivers): (Vec<Sender<Accepted>>, Vec<_>) =
            (0..count).map(|_| async_channel::unbounded()).unzip();
        let door = Door { admission: Arc::clone(&admission), shards: accept_senders };
        admin.attach(inspectors.clone(), door.clone());

        if let Some(users) = scram.clone() {
            let meaning = "new logins by SCRAM-SHA-256 are those of the users that were changed".to_owned();
            reactor::spawn_local(reload::<Reactor, _, _>(users, meaning, helper.clone())).detach();
        }
        let shared = Shared {
            inspectors,
            memory,
            helper,
            audit: audit.clone(),
            slow: teller.clone(),
            kerberos,
            scram,
        };
        let mut rings = Vec::new();
        let mut seeds = Vec::new();
        let seeded = (0..count).zip(accept_receivers).zip(inspection_receivers);
        for ((id, accepted), inspections) in seeded {
            let (to_core, from_shard) = ring(RING_CAPACITY);
            let (to_shard, inbox) = ring(RING_CAPACITY);
            rings.push((from_shard, to_shard));
            seeds.push(ShardSeed {
                id: ShardId(id),
                settings: shard_settings(&config, count)?,
                first_conn: u64::from_le_bytes(random()?) >> 1,
                view: Arc::clone(&view),
                clock,
                to_core,
                inbox,
                accepted,
                inspections,
                pauses: pauses.clone(),
                shared: shared.clone(),
            });
        }

        let policy = snapshot_policy(&config);
        let trigger = Trigger::new(policy, recovered.txns, recovered.bytes, u64::from_le_bytes(random()?));
        let integrity = Integrity::new(recovered.damage);
        let sampling = Sampling { one_in: config.trace_sample_rate, teller };
        let links = links(env.clone(), &config, peer_kerberos);
        links.require(node.application().required_level());
        let has_peers = !config.servers.is_empty();
        let shards = Shards::new(rings, Rc::clone(&links), Rc::clone(&integrity), clock, has_peers, sampling);
        let core = CoreHost::new(env, shards, links, node, Rc::clone(&log), trigger);
        let _threads = start_shards(&placement, config.busy_poll, seeds)?;
        let settings = tasks::Settings {
            tick: TICK,
            transfer: Limits::with_rate(policy.bytes_per_second),
            scrub: scrub_pace(&config),
        };
        let tasks = Tasks::start(&core, recovered.log, integrity, settings);
        reactor::spawn_local(snapshots_by_command(requests.snapshot.clone(), Rc::clone(&core))).detach();
        reactor::spawn_local(pauses.clone().watch(clock)).detach();
        reactor::spawn_local(slow::explain(Rc::clone(&core), told, pauses, explained, traces)).detach();
        reactor::spawn_local(inspect::serve_core(Rc::clone(&core), config.clone(), asked)).detach();
        core.start_links(listening);

        let silence_max = Duration::from_millis(config.max_session_timeout().into()).max(SILENCE_MIN);
        if let Some(tls) = tls {
            reactor::spawn_local(tls.reload()).detach();
        }
        if let Some(tls) = peer_tls {
            reactor::spawn_local(tls.reload::<Reactor>()).detach();
        }
        let manner = Manner { door, backlog: config.client_backlog, silence_max };
        let ports = ClientPorts::open(ports, manner)?;
        let follows = Rc::clone(&ports).follow_members(Rc::clone(&core), ServerId(config.server_id()));
        reactor::spawn_local(follows).detach();
        drop(starting);
        service_manager::ready();
        reactor::spawn_local(service_manager::keep_alive()).detach();
        if let Some(audit) = &audit {
            audit.started();
        }
        reactor::spawn_local(serving::announce(Rc::clone(&core), config.clone(), Rc::clone(&ports))).detach();

        let stop = async {
            poll_fn(|cx| requests.stop.poll_made(cx)).await;
            service_manager::stopping();
            core_host::hand_over_at_end(&core).await;
            log.stop();
            std::future::pending().await
        };
        let ended = or(stop, tasks.ended()).await;
        ports.close();
        sockets.iter().for_each(listener::stop_listening);
        ended?;
        tracing::info!(zxid = %core.node().application().committed().last_zxid(), "stopped");
        Ok(())
    }
}

fn snapshot_policy(config: &Config) -> Policy {
    Policy {
        txns_max: config.snap_count,
        bytes_max: config.snap_size_limit_kib.saturating_mul(1024),
        log_percent: config.snapshot_log_percent,
        kept: config.snap_retain_count as usize,
        bytes_per_second: config.snapshot_bytes_per_second,
        compressed: config.snapshot_compressed,
    }
}

/// The scrub's interval and rate, if there is one.
fn scrub_pace(config: &Config) -> Option<Pace> {
    let rest = Duration::from_secs(config.scrub_interval_s);
    (!rest.is_zero()).then_some(Pace { bytes_per_second: config.scrub_bytes_per_second, rest })
}

/// Takes a snapshot whenever the operator asks for one.
async fn snapshots_by_command(wanted: Request, core: Rc<CoreHost>) {
    loop {
        poll_fn(|cx| wanted.poll_taken(cx)).await;
        core.trigger().command();
    }
}

/// Starts the shards on the executors of the placement; returns the handles of their threads.
fn start_shards(
    placement: &Placement,
    spin: Duration,
    seeds: Vec<ShardSeed>,
) -> Result<Vec<JoinHandle<()>>, StartError> {
    match placement {
        Placement::Shared { .. } => {
            for seed in seeds {
                reactor::spawn_local(seed.run()).detach();
            }
            Ok(Vec::new())
        }
        Placement::Pinned { shards, .. } => shards
            .iter()
            .zip(seeds)
            .map(|(core, seed)| {
                let name = format!("shard-{}", seed.id.0);
                let core = *core;
                let run = move || {
                    pin_to(core);
                    seed.run()
                };
                reactor::start_thread(&name, spin, run)
                    .map_err(|error| StartError::Executor(thread_refused(&error)))
            })
            .collect(),
    }
}

impl ShardSeed {
    /// Serves the sockets that come in, for as long as the server runs.
    async fn run(self) {
        let shard = Shard::new(self.id, self.settings, self.view);
        let pulse = Arc::clone(&self.shared.inspectors.facts().pulse);
        reactor::spawn_local(pulse.beat_of_shard(self.id)).detach();
        reactor::spawn_local(self.pauses.watch(self.clock)).detach();
        let host = ShardHost::new(shard, self.first_conn, self.clock, self.to_core, self.shared);
        reactor::spawn_local(Rc::clone(&host).pump(self.inbox)).detach();
        reactor::spawn_local(Rc::clone(&host).inspected(self.inspections)).detach();
        let ticking = Rc::clone(&host);
        reactor::spawn_local(async move {
            loop {
                let tick = if ticking.is_in_a_hurry() { TICK_OF_MUTED } else { TICK };
                reactor::sleep(tick).await;
                ticking.tick();
            }
        })
        .detach();
        while let Ok(Accepted { socket, peer, admitted, security }) = self.accepted.recv().await {
            let stream = TcpStream::from(OwnedFd::from(socket));
            reactor::spawn_local(Rc::clone(&host).serve(stream, peer, admitted, security)).detach();
        }
    }
}

/// The number of clients for which the limit of open files leaves room. Descriptors for segments, snapshots,
/// rings, links and the admin listener are kept free, since a log that cannot open its next file ends the
/// server. Segments get as many as the log may need until a snapshot lets the oldest ones go, but not more
/// than three quarters of all.
fn connections_max(open_files: u64, kept_for_admin: u64, config: &Config, shards: u16) -> u32 {
    const PER_SEGMENT: u64 = 2;
    const OTHER_FILES: u64 = 40;
    const PER_EXECUTOR: u64 = 16;
    const PER_PEER: u64 = 4;
    let log_bytes =
        (config.snap_size_limit_kib * 1024).saturating_mul(u64::from(config.snap_retain_count) + 1);
    let files = OTHER_FILES + PER_SEGMENT * log_bytes.div_ceil(config.segment_size_bytes);
    let peers = u64::try_from(config.servers.len()).unwrap_or(u64::MAX).saturating_mul(PER_PEER);
    let kept =
        files.min(open_files / 4 * 3) + kept_for_admin + PER_EXECUTOR * (u64::from(shards) + 1) + peers;
    u32::try_from(open_files.saturating_sub(kept).max(1)).unwrap_or(u32::MAX)
}

/// How the links to the other servers are secured, if there are any.
fn peer_tls(config: &Config) -> Result<Option<Arc<PeerTls>>, TlsStartError> {
    let peers = &config.peer_tls;
    if config.servers.is_empty() || !peers.is_spoken() {
        return Ok(None);
    }
    let clear_patience = (!peers.is_demanded()).then_some(peers.detection);
    PeerTls::start(peers.settings.clone(), peers.quorum, clear_patience).map(Some)
}

/// Who can log in by SCRAM-SHA-256, if that is configured.
fn scram_users(config: &Config) -> Result<Option<Arc<ScramStore>>, ConfigError> {
    let Some(path) = config.scram_file.clone() else { return Ok(None) };
    let users = Stores::open(vec![path.clone()], move || read_scram_users(&path))?;
    Ok(Some(Arc::new(users)))
}

/// A port on which peers connect.
struct QuorumPort {
    named: PeerAddress,
    address: SocketAddr,
    socket: Socket,
}

/// Opens the ports on which peers connect, if this server has peers: one at each of its addresses. A network
/// may be down: one of them is enough, and the others are tried again as long as the server runs.
fn bind_quorum_ports(config: &Config) -> Result<Vec<QuorumPort>, StartError> {
    let Some(own) = config.own_server() else { return Ok(Vec::new()) };
    let mut named: Vec<_> = PeerAddress::of(own).collect();
    if config.quorum_listen_on_all {
        named.iter_mut().for_each(|address| "0.0.0.0".clone_into(&mut address.host));
        named.sort();
        named.dedup();
    }
    let (mut ports, mut failure) = (Vec::new(), None);
    for named in named {
        match bind_quorum_port(config, named) {
            Ok(port) => ports.push(port),
            Err(error @ StartError::Untrusted(_)) => return Err(error),
            Err(error) => failure = Some(error),
        }
    }
    failure.filter(|_| ports.is_empty()).map_or(Ok(ports), Err)
}

fn bind_quorum_port(config: &Config, named: PeerAddress) -> Result<QuorumPort, StartError> {
    let PeerAddress { id, host, port } = &named;
    let failed = |error: String| StartError::Quorum(format!("{named}: {error}"));
    let addresses = (host.as_str(), *port).to_socket_addrs().map_err(|error| failed(error.to_string()))?;
    let mut last = "the name of this server's own server.N line has no address".to_owned();
    for address in addresses {
        check_trust(config, address)?;
        match socket::bind(address).and_then(|socket| socket.listen(64).map(|()| socket)) {
            Ok(socket) => return Ok(QuorumPort { named, address, socket }),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                last = format!(
                    "another server listens there; if this is not server {id}, correct myid; else end that one, or \
                     choose another first port in the line server.{id}, which is the same on all servers"
                );
            }
            Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => {
                last = format!(
                    "not an address of this machine; if this is not server {id}, correct myid; else correct the \
                     line server.{id} on all servers, or listen on all addresses (quorumListenOnAllIPs=yes)"
                );
            }
            Err(error) => last = error.to_string(),
        }
    }
    Err(failed(last))
}

/// Whether peers authenticate themselves, or need not, at a port.
fn is_authenticated(config: &Config, quorum_port: SocketAddr) -> bool {
    let needs_no_trust = quorum_port.ip().is_loopback() || config.servers.len() == 1;
    config.peer_secret.is_some()
        || config.quorum_auth.is_demanded()
        || config.peer_tls.is_demanded()
        || needs_no_trust
}

/// Whether this server may listen there: for unauthenticated peers on a loopback address, or in a network
/// that the operator trusts.
fn is_trusted(config: &Config, quorum_port: SocketAddr) -> bool {
    config.trusted_network || is_authenticated(config, quorum_port)
}

/// Refuses to listen where it may not, and warns of unauthenticated peers.
fn check_trust(config: &Config, quorum_port: SocketAddr) -> Result<(), StartError> {
    if !is_trusted(config, quorum_port) {
        return Err(StartError::Untrusted(quorum_port));
    }
    if !is_authenticated(config, quorum_port) {
        tracing::warn!(
            code = "RK0102",
            %quorum_port,
            "whoever reaches this port is taken for a member (ringkeeper.trustedNetwork=yes)"
        );
    }
    Ok(())
}

/// The links to the ensemble's other servers.
fn links(env: ReactorEnv, config: &Config, kerberos: Option<PeerKerberos>) -> Rc<Links<ReactorEnv>> {
    let ensemble = config.servers.iter().flat_map(PeerAddress::of);
    let secrets = match &config.peer_secret {
        Some(secret) => Secrets::from(&secret.0),
        None => config.quorum_auth.secrets(kerberos.map(PeerKerberos::of_links)),
    };
    let redial = Redial { silence: Duration::from_millis(config.peer_timeout_ms.into()), ..Redial::REAL };
    let links = Links::new(env, ServerId(config.server_id()), ensemble, secrets, redial);
    if admits_joiners(config) {
        links.admit_joiners();
    }
    if config.quorum_listen_on_all {
        links.listen_on_all();
    }
    if config.observer_master_port > 0 {
        links.listen_also_at(config.observer_master_port);
    }
    links.watch_for_silence(&config.members());
    links
}

/// Whether servers may join that the configuration does not name.
const fn admits_joiners(config: &Config) -> bool {
    config.reconfig_enabled && !config.servers.is_empty()
}

/// The configuration of the broadcast; a server alone is an ensemble of one.
fn zab_config(config: &Config) -> zab::Config {
    let own = ServerId(config.server_id());
    let members = config.members();
    let alike = if config.servers.is_empty() {
        zab::Config::new(own, [own].into_iter().collect(), ServerSet::EMPTY)
    } else {
        let quorum = members.quorums();
        zab::Config { quorum: quorum.clone(), ..zab::Config::new(own, *quorum.voters(), members.learners()) }
    };
    let ticks =
        |limit: Option<u32>, default| u64::from(limit.unwrap_or(default)) * u64::from(config.tick_time_ms);
    let alike = alike.with_peer_timeout(config.peer_timeout_ms.into());
    zab::Config {
        preferred: config.preferred_leaders.iter().copied().map(ServerId).collect(),
        prefer_after_ms: u64::from(config.prefer_leader_after_ms),
        lease_ms: u64::from(config.leader_lease_ms),
        observer_masters: config.observer_master_port > 0,
        init_limit_ms: ticks(config.init_limit, 10),
        founding: founding(config),
        sync_limit_ms: ticks(config.sync_limit, 5),
        ..if admits_joiners(config) { alike.admitting_joiners() } else { alike }
    }
}

/// As in ZooKeeper: servers with empty folders found an ensemble by themselves, or if the operator says so.
fn founding(config: &Config) -> Founding {
    if config.data_dir.join(INITIALIZE).exists() {
        Founding::AtOnce
    } else if config.db_autocreate || config.servers.is_empty() {
        Founding::WhenOthersAreSilent
    } else {
        Founding::Never
    }
}

fn replica_settings(config: &Config) -> Result<ReplicaSettings, StartError> {
    Ok(ReplicaSettings {
        tick_ms: config.tick_time_ms,
        reported_within_ms: REPORTED_WITHIN_MS,
        ensemble: config.members().describe(0).into(),
        leader_serves: config.leader_serves,
        requests: config.request_settings(),
        cleaner: CleanerSettings {
            check_interval_ms: config.container_check_interval_ms,
            max_per_minute: config.container_max_per_minute,
            max_never_used_ms: config.container_max_never_used_ms,
        },
        connection_throttle: config.throttles.connections.clone(),
        read_only_after_ms: config.read_only_mode.then(|| READ_ONLY_AFTER_MS.max(config.tick_time_ms.into())),
        local_sessions: config.opens_local_sessions(),
        local_sessions_upgrading: config.local_sessions_upgrading,
        ..ReplicaSettings::new(ServerId(config.server_id()), random()?)
    })
}

/// Time without a leader after which a server serves reads, as in ZooKeeper: or a tick, if that is longer.
const READ_ONLY_AFTER_MS: u64 = 2000;

fn shard_settings(config: &Config, shards: u16) -> Result<ShardSettings, StartError> {
    let share = |total: u32| (total as usize / usize::from(shards.max(1))).max(1);
    let mut four_letter_words = Whitelist::parse(&config.four_letter_words.join(","));
    if config.read_only_mode {
        // Clients of a server that serves reads alone ask the others whether they take writes.
        four_letter_words = four_letter_words.with(Word::Isro);
    }
    let mut rules = config.request_settings();
    let unread = config.unread_notification_bytes_total_max() / u64::from(shards.max(1));
    rules.limits = rules.limits.with(Limit::UnreadNotificationBytesTotal, unread);
    Ok(ShardSettings {
        session_timeout_min_ms: config.min_session_timeout(),
        session_timeout_max_ms: config.max_session_timeout(),
        frame_len_max: config.jute_max_buffer as usize,
        outstanding_max: share(config.own_outstanding_requests_max()),
        outstanding_max_bytes: share(config.outstanding_bytes_max),
        throttle: config.throttles.of_shard(shards, config.jute_max_buffer as usize),
        four_letter_words,
        enforced_auth_schemes: config.required_schemes(),
        sasl: config.sasl_settings(random()?),
        slow_above_us: config.slow_request_ms * 1000,
        tenant_delay_max_ms: config.tenant_delay_max_ms,
        trace_one_in: config.trace_sample_rate,
        audits: config.audit_target().is_some(),
        rules,
        hash_seed: u64::from_le_bytes(random()?),
        touch_interval_ms: TOUCH_INTERVAL_MS,
        ..ShardSettings::default()
    })
}

/// Bytes of the system's random source.
fn random<const N: usize>() -> Result<[u8; N], StartError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| StartError::Executor(format!("no random bytes: {error}")))?;
    Ok(bytes)
}
