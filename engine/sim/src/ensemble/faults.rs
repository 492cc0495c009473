//! The fault mix of a run: which faults, and how often.

use ringkeeper_engine::level::Level;
use ringkeeper_log::storage::WriteMode;

use super::founding::Founding;
use crate::random::Random;

/// Which servers keep the sessions of their clients by themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeping {
    Nobody,
    /// Those with odd ids.
    Some,
    All,
}

/// The setting of one run. Rates are per mille of the fault steps, of which there is one each 10 ms.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the names say it")]
pub struct FaultMix {
    pub voters: u64,
    pub observers: u64,
    /// Observers learn from followers.
    pub observer_masters: bool,
    pub founding: Founding,
    pub clients: u64,
    /// Number of these clients that do not write, so that they wait for no write of their own.
    pub readers: u64,
    pub crash: u64,
    /// Share of crashes, per mille, that also lose the disk.
    pub wipe: u64,
    /// Share of crashes, per mille, after which log or snapshots are damaged: flipped bits, lost or misplaced
    /// writes, missing files.
    pub rot: u64,
    /// Damages a file of a running server.
    pub rot_running: u64,
    pub pause: u64,
    /// The longest pause; beyond every timeout in some runs.
    pub pause_max_us: u64,
    /// Share of pauses, per mille, with an isolation that outlasts them: a leader that was replaced and does
    /// not know it.
    pub isolation: u64,
    /// Breaks a connection between two servers.
    pub disconnect: u64,
    /// Share of the packets between servers, per mille, in the middle of which their connection breaks.
    pub cut: u64,
    /// After a crash, the longest time in which the other servers do not learn that its connections are dead.
    pub silence_us: u64,
    /// Someone who is no server connects to the port for servers.
    pub stranger: u64,
    pub partition: u64,
    /// What one server hears from another comes later and later for a while. Leaders are patient then, so
    /// that the sessions of those whom they hear so late are in their hands.
    pub behind: u64,
    /// The servers are connected by two networks.
    pub two_networks: bool,
    /// One of two networks is down for a while, or one server's interface to it. After healing one is down
    /// for good, unless members change.
    pub network_down: u64,
    pub clock_jump: u64,
    /// Clock speeds differ by up to this many per mille.
    pub drift: u64,
    /// Share of the packets between servers, per mille, that are lost and sent again later.
    pub loss: u64,
    /// Breaks the connection of a client.
    pub client_break: u64,
    /// A client's connection goes silent, and neither end notices.
    pub client_silence: u64,
    /// A client goes to another connection and leaves the old one open.
    pub client_move: u64,
    /// Someone tries a session with a wrong password.
    pub impostor: u64,
    pub latency_us: u64,
    pub client_latency_us: u64,
    pub fsync_us: u64,
    /// Longest time from one executor of a server to another.
    pub ring_us: u64,
    /// Time between the bursts of a client.
    pub burst_us: u64,
    pub write_mode: WriteMode,
    /// Small limits on outstanding requests and on batches in memory and in flight.
    pub small_buffers: bool,
    /// Epochs are used up after a few transactions.
    pub short_epochs: bool,
    /// What is sent arrives in pieces of any size.
    pub pieces: bool,
    /// A server takes a snapshot.
    pub snapshot: u64,
    /// Snapshots that are kept; the log goes back to the oldest of them.
    pub snapshots_kept: usize,
    pub segment_size_bytes: u64,
    /// Share of the starts, per mille, in the middle of which the power fails.
    pub crash_in_recovery: u64,
    /// A server crashes while it is sent a snapshot.
    pub crash_in_transfer: u64,
    /// A sync fails, and what it was to write is given up.
    pub sync_error: u64,
    /// A disk runs full for a while.
    pub disk_full: u64,
    /// After healing, the disk of the leader runs full, and stays so until another leads.
    pub full_leader: bool,
    /// After healing, the run goes on until sessions would have expired.
    pub linger: bool,
    /// Share of crashes, per mille, after which an old copy of the server's folder is put back.
    pub old_copy: u64,
    /// Share of crashes, per mille, after which the server is started as something that its folder is not.
    pub slip: u64,
    /// A leader is asked to hand over.
    pub hand_over: u64,
    /// Some servers are to lead rather than others.
    pub prefers: bool,
    /// After healing, a leader hands over.
    pub hands_over: bool,
    /// The operator changes the members of the ensemble.
    pub reconfigure: u64,
    /// With changes of the members, this one has another port for servers at times.
    pub mover: Option<u64>,
    /// This server has a build at times that can do no more than this feature level.
    pub older: Option<(usize, Level)>,
    /// Its build is replaced.
    pub replace_build: u64,
    /// The operator lowers the feature level, or lets it be raised again.
    pub change_level: u64,
    /// The clients have identities, and one of them, the administrator, changes the rules for the others.
    pub rules: bool,
    /// Which servers keep the sessions of their clients by themselves.
    pub local_sessions: Keeping,
    /// Whether such a session becomes one of the ensemble with its first ephemeral.
    pub upgrades: bool,
    /// Leaders may answer readers by a lease.
    pub leases: bool,
    /// Silence after which a server counts as gone.
    pub peer_timeout_ms: u64,
    /// The voters stand in groups by their configurations, with weights.
    pub grouped: bool,
    /// Clients send many and large requests at once.
    pub greedy: bool,
    /// A worker stands still, for longer than its session in some cases.
    pub worker_pause: u64,
    /// A worker's program is dropped wherever it is, and begins anew with the same client.
    pub worker_abort: u64,
}

/// How much faster than the slowest clock the fastest one is, per mille, beside leases: as much as they
/// assume at most.
const LEASE_DRIFT: u64 = 333;

impl FaultMix {
    pub(crate) fn draw(random: &mut Random) -> Self {
        let mut aside = random.aside();
        let (rules, two_networks, leases) = (aside.chance(250), aside.chance(200), aside.chance(100));
        let mut rate = |max: u64| if random.chance(500) { random.between(1, max) } else { 0 };
        let (mut crash, pause, disconnect, mut partition) = (rate(25), rate(15), rate(30), rate(25));
        let (clock_jump, drift, loss) = (rate(10), rate(200), rate(300));
        let (client_break, client_silence, client_move, impostor) = (rate(40), rate(15), rate(25), rate(100));
        let (snapshot, crash_in_recovery) = (rate(150), rate(500));
        let (sync_error, disk_full) = (rate(6), rate(20));
        let write_modes = [WriteMode::Synced, WriteMode::Through, WriteMode::Adaptive];
        let founding = match random.below(20) {
            0..=2 => Founding::Forked,
            3..=6 => Founding::KnownNew,
            7..=8 => Founding::Unfinished,
            _ => Founding::Blank,
        };
        let old_copy = if random.chance(200) { 600 } else { 0 };
        if old_copy > 0 {
            crash = crash.max(25);
        }
        let slip = if random.chance(200) { 400 } else { 0 };
        let forked = founding == Founding::Forked;
        if forked {
            (crash, partition) = (crash.max(15), partition.max(15));
        }
        let mut mix = Self {
            founding,
            voters: if forked { 3 } else { [1, 1, 2, 3, 3, 3, 3, 3, 3, 4, 5, 5][random.index(12)] },
            observers: if !forked && random.chance(200) { random.between(1, 2) } else { 0 },
            observer_masters: false,
            clients: random.between(2, 4),
            readers: [0, 0, 1, 2][random.index(4)],
            crash,
            wipe: if random.chance(400) { 300 } else { 0 },
            pause,
            pause_max_us: [20_000, 300_000, 2_500_000][random.index(3)],
            isolation: [0, 500][random.index(2)],
            disconnect,
            cut: [0, 0, 0, 3][random.index(4)],
            silence_us: [0, 0, 30_000, 300_000][random.index(4)],
            stranger: if random.chance(300) { 100 } else { 0 },
            partition,
            behind: 0,
            two_networks: false,
            network_down: 0,
            clock_jump,
            drift,
            loss,
            client_break,
            client_silence,
            client_move,
            impostor,
            latency_us: [100, 1000, 5000, 20_000][random.index(4)],
            client_latency_us: [50, 500, 5000][random.index(3)],
            fsync_us: [50, 1000, 5000, 30_000][random.index(4)],
            ring_us: [1, 50, 3000][random.index(3)],
            burst_us: [4000, 15_000, 40_000][random.index(3)],
            write_mode: write_modes[random.index(3)],
            small_buffers: random.chance(300),
            short_epochs: random.chance(100),
            pieces: random.chance(300),
            snapshot,
            snapshots_kept: [1, 1, 2, 3][random.index(4)],
            segment_size_bytes: [64 * 1024, 128 * 1024][random.index(2)],
            crash_in_recovery,
            // Of the same kind, and as often.
            crash_in_transfer: crash_in_recovery / 2,
            sync_error,
            disk_full,
            linger: random.chance(150),
            rot: if random.chance(300) { 400 } else { 0 },
            full_leader: random.chance(150),
            old_copy,
            slip,
            rot_running: if random.chance(300) { random.between(1, 20) } else { 0 },
            greedy: random.chance(100),
            hand_over: if random.chance(500) { random.between(1, 30) } else { 0 },
            prefers: false,
            local_sessions: Keeping::Nobody,
            upgrades: true,
            hands_over: random.chance(400),
            reconfigure: 0,
            mover: None,
            older: None,
            replace_build: 0,
            change_level: 0,
            rules,
            leases,
            peer_timeout_ms: 100,
            grouped: false,
            worker_pause: 0,
            worker_abort: 0,
        };
        // By what is drawn already: so the seeds without it keep their course. The hand-over without faults
        // would be undone at once.
        mix.prefers = mix.hand_over > 0 && mix.snapshots_kept == 2;
        mix.hands_over &= !mix.prefers;
        if mix.snapshots_kept == 3 {
            mix.local_sessions = if mix.burst_us == 15_000 { Keeping::Some } else { Keeping::All };
            mix.upgrades = mix.client_latency_us != 5000;
        }
        // With groups, a leader may be in every quorum, so that nobody can replace it whose disk is full.
        mix.grouped = !forked && !mix.full_leader && mix.voters > 2 && mix.snapshots_kept == 3;
        if two_networks && mix.voters > 1 {
            (mix.two_networks, mix.network_down) = (true, aside.between(1, 30));
            // The network that is lost after healing would break the connections that are to stay.
            mix.hands_over = false;
        }
        // A build that knows no second network would hold nothing but the first one against its peers.
        if aside.chance(250) && !mix.two_networks {
            let level = if mix.grouped { 1 } else { aside.below(2) };
            let server = aside.below(mix.voters);
            mix.older = usize::try_from(server).ok().zip(u8::try_from(level).ok().map(Level));
            mix.replace_build = aside.between(1, 20);
        }
        mix.change_level = if aside.chance(250) { aside.between(1, 30) } else { 0 };
        if aside.chance(200) && mix.voters > 1 && !forked {
            (mix.observer_masters, mix.observers) = (true, mix.observers.max(aside.between(1, 2)));
        }
        mix.behind = if aside.chance(200) { aside.between(3, 30) } else { 0 };
        if leases {
            mix.suit_leases();
        }
        if forked || !random.chance(300) {
            return mix;
        }
        // The members change, not what the servers' lists and folders say.
        Self {
            reconfigure: random.between(2, 40),
            // Runs for leases are quiet.
            mover: (!leases && aside.chance(300)).then(|| aside.between(1, mix.voters)),
            founding: Founding::Blank,
            observers: random.below(3).max(u64::from(mix.observer_masters)),
            rot: 0,
            rot_running: 0,
            old_copy: 0,
            slip: 0,
            full_leader: false,
            hands_over: false,
            ..mix
        }
    }

    /// Clocks are as different as leases allow, and leaders with clients are often cut off. The rest is quiet
    /// and fast, so that another leader is elected while the one before would still use its lease: it resigns
    /// when it hears no quorum for the peer timeout.
    fn suit_leases(&mut self) {
        (self.voters, self.clients, self.drift) = (self.voters.max(3), 4, LEASE_DRIFT);
        (self.pause, self.isolation, self.peer_timeout_ms) = (20, 800, 400);
        (self.crash, self.partition) = (self.crash.min(2), self.partition.min(4));
        (self.slip, self.old_copy, self.disk_full) = (0, 0, 0);
        self.latency_us = self.latency_us.min(1000);
        (self.fsync_us, self.ring_us) = (self.fsync_us.min(1000), self.ring_us.min(50));
    }

    /// Whether leaders take clients.
    pub(super) const fn leader_serves(&self) -> bool {
        self.clients != 2
    }

    /// With workers: one plain client beside them. The disks do not run full, since the recipes do not handle
    /// the refusal of writes; they report it to their programs.
    pub(crate) fn draw_with_workers(random: &mut Random) -> Self {
        let mix = Self::draw(random);
        let mut rate = |max: u64| if random.chance(500) { random.between(1, max) } else { 0 };
        let (worker_pause, worker_abort) = (rate(20), rate(60));
        Self {
            clients: 1,
            readers: 0,
            rules: false,
            disk_full: 0,
            full_leader: false,
            // Recipes count on their ephemerals.
            upgrades: true,
            worker_pause,
            worker_abort,
            ..mix
        }
    }
}
