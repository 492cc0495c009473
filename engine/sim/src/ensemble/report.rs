//! Statistics of runs.

use std::fmt;

/// Figures of one run, or of many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Report {
    pub seeds: u64,
    pub simulated_us: u64,
    pub events: u64,
    pub transactions: u64,
    pub writes_checked: u64,
    pub reads_checked: u64,
    pub watch_events_checked: u64,
    /// Answers to setWatches that were not checked, for too many possibilities.
    pub restores_unexplained: u64,
    /// Changes of the rules, and replies NOAUTH.
    pub rules_changed: u64,
    pub forbidden: u64,
    /// Sessions of servers in read-only mode, and local sessions that were resumed there.
    pub read_only_sessions: u64,
    pub resumed_read_only: u64,
    pub leaderships: u64,
    pub crashes: u64,
    pub wipes: u64,
    pub old_copies: u64,
    /// Starts with a slip of the operator, and how many of them were refused.
    pub slips: u64,
    pub slips_refused: u64,
    pub damaged: u64,
    /// Damages to files of running servers, and how often the scrub had repaired everything after some.
    pub damaged_running: u64,
    pub repaired: u64,
    pub pauses: u64,
    pub disconnects: u64,
    pub partitions: u64,
    /// Times that a server began to hear from another one later and later.
    pub fallen_behind: u64,
    pub networks_lost: u64,
    pub strangers: u64,
    /// Hand-overs that were asked for, and how often a server went over with its clients.
    pub hand_overs: u64,
    pub reconfigurations: u64,
    pub unchanged: u64,
    /// Changes of the members that leaders gave up.
    pub abandoned: u64,
    /// Changes from majorities to groups, or back.
    pub regroupings: u64,
    /// Changes of the feature level.
    pub level_changes: u64,
    /// Builds that were replaced by an older or newer one, and starts that older ones refused.
    pub builds_replaced: u64,
    pub builds_refused: u64,
    pub handed_over: u64,
    pub observers_joined: u64,
    pub passed_on: u64,
    pub clock_jumps: u64,
    pub packets_lost: u64,
    pub client_breaks: u64,
    pub client_silences: u64,
    pub client_moves: u64,
    pub impostors: u64,
    pub sessions_expired: u64,
    pub truncations: u64,
    pub refusals: u64,
    /// Leaders with a full disk that another server has replaced.
    pub full_leaders: u64,
    pub disks_full: u64,
    pub sync_errors: u64,
    pub crashes_in_recovery: u64,
    pub installs: u64,
    /// Passes of the scrub over a whole log and all snapshots.
    pub scrubs: u64,
    pub snapshots: u64,
    pub workers: u64,
    pub worker_pauses: u64,
    pub worker_aborts: u64,
    /// Completed rounds of recipes.
    pub rounds: u64,
    /// Facts stated by programs and compared with the committed order.
    pub facts: u64,
    /// The longest time from the end of all faults until everyone was done.
    pub recovery_max_us: u64,
}

impl Report {
    /// Adds another one.
    pub fn add(&mut self, other: &Self) {
        self.seeds += other.seeds;
        self.simulated_us += other.simulated_us;
        self.events += other.events;
        self.transactions += other.transactions;
        self.writes_checked += other.writes_checked;
        self.reads_checked += other.reads_checked;
        self.watch_events_checked += other.watch_events_checked;
        self.restores_unexplained += other.restores_unexplained;
        self.rules_changed += other.rules_changed;
        self.forbidden += other.forbidden;
        self.read_only_sessions += other.read_only_sessions;
        self.resumed_read_only += other.resumed_read_only;
        self.leaderships += other.leaderships;
        self.crashes += other.crashes;
        self.wipes += other.wipes;
        self.old_copies += other.old_copies;
        self.slips += other.slips;
        self.slips_refused += other.slips_refused;
        self.damaged += other.damaged;
        self.damaged_running += other.damaged_running;
        self.repaired += other.repaired;
        self.pauses += other.pauses;
        self.disconnects += other.disconnects;
        self.partitions += other.partitions;
        self.fallen_behind += other.fallen_behind;
        self.networks_lost += other.networks_lost;
        self.strangers += other.strangers;
        self.hand_overs += other.hand_overs;
        self.reconfigurations += other.reconfigurations;
        self.unchanged += other.unchanged;
        self.abandoned += other.abandoned;
        self.regroupings += other.regroupings;
        self.level_changes += other.level_changes;
        self.builds_replaced += other.builds_replaced;
        self.builds_refused += other.builds_refused;
        self.handed_over += other.handed_over;
        self.observers_joined += other.observers_joined;
        self.passed_on += other.passed_on;
        self.clock_jumps += other.clock_jumps;
        self.packets_lost += other.packets_lost;
        self.client_breaks += other.client_breaks;
        self.client_silences += other.client_silences;
        self.client_moves += other.client_moves;
        self.impostors += other.impostors;
        self.sessions_expired += other.sessions_expired;
        self.truncations += other.truncations;
        self.refusals += other.refusals;
        self.full_leaders += other.full_leaders;
        self.disks_full += other.disks_full;
        self.sync_errors += other.sync_errors;
        self.crashes_in_recovery += other.crashes_in_recovery;
        self.installs += other.installs;
        self.scrubs += other.scrubs;
        self.snapshots += other.snapshots;
        self.workers += other.workers;
        self.worker_pauses += other.worker_pauses;
        self.worker_aborts += other.worker_aborts;
        self.rounds += other.rounds;
        self.facts += other.facts;
        self.recovery_max_us = self.recovery_max_us.max(other.recovery_max_us);
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.simulated_us / 1_000_000;
        writeln!(f, "seeds                 {}", self.seeds)?;
        writeln!(f, "simulated             {} h {} min", seconds / 3600, seconds / 60 % 60)?;
        writeln!(f, "events                {}", self.events)?;
        writeln!(f, "transactions          {}", self.transactions)?;
        writeln!(f, "write replies checked {}", self.writes_checked)?;
        writeln!(f, "reads checked         {}", self.reads_checked)?;
        writeln!(
            f,
            "watch events checked  {}; {} restores of watches with too many possibilities",
            self.watch_events_checked, self.restores_unexplained
        )?;
        writeln!(
            f,
            "rules                 {} changes, {} requests forbidden",
            self.rules_changed, self.forbidden
        )?;
        writeln!(f, "leaderships           {}", self.leaderships)?;
        writeln!(
            f,
            "hand-overs            {} asked for, {} servers went over",
            self.hand_overs, self.handed_over
        )?;
        writeln!(
            f,
            "reconfigurations      {} asked for, {} refused, {} given up; {} from majorities to groups or back",
            self.reconfigurations, self.unchanged, self.abandoned, self.regroupings
        )?;
        writeln!(
            f,
            "feature level         {} changes, {} builds replaced, {} starts refused",
            self.level_changes, self.builds_replaced, self.builds_refused
        )?;
        writeln!(
            f,
            "observers             {} taken by followers, {} messages passed on",
            self.observers_joined, self.passed_on
        )?;
        writeln!(
            f,
            "sessions              {} expired, {} of servers in read-only mode, {} resumed there",
            self.sessions_expired, self.read_only_sessions, self.resumed_read_only
        )?;
        writeln!(f, "logs truncated        {}", self.truncations)?;
        writeln!(f, "snapshots             {} taken, {} installed by a peer", self.snapshots, self.installs)?;
        writeln!(f, "scrub                 {} passes", self.scrubs)?;
        if self.workers > 0 {
            writeln!(f, "workers               {}, {} rounds of recipes", self.workers, self.rounds)?;
            writeln!(f, "facts checked         {}", self.facts)?;
        }
        writeln!(f, "longest recovery      {} ms", self.recovery_max_us / 1000)?;
        writeln!(
            f,
            "faults: {} crashes ({} disks wiped, {} old copies put back, {} logs damaged), {} in recovery, {} failed syncs",
            self.crashes,
            self.wipes,
            self.old_copies,
            self.damaged,
            self.crashes_in_recovery,
            self.sync_errors
        )?;
        writeln!(
            f,
            "        {} damages under running servers ({} times all repaired)",
            self.damaged_running, self.repaired
        )?;
        writeln!(f, "        {} slips of operators ({} starts refused)", self.slips, self.slips_refused)?;
        writeln!(f, "        {} full disks ({} writes refused)", self.disks_full, self.refusals)?;
        writeln!(f, "        {} leaders replaced whose disk was full for good", self.full_leaders)?;
        writeln!(f, "        {} pauses, {} clock jumps", self.pauses, self.clock_jumps)?;
        writeln!(f, "        {} peer connections broken, {} partitions", self.disconnects, self.partitions)?;
        writeln!(f, "        {} times heard later and later", self.fallen_behind)?;
        writeln!(f, "        {} losses of one of two networks", self.networks_lost)?;
        writeln!(f, "        {} packets lost, {} strangers", self.packets_lost, self.strangers)?;
        writeln!(
            f,
            "        {} client connections broken, {} silenced",
            self.client_breaks, self.client_silences
        )?;
        write!(
            f,
            "        {} sessions moved, {} wrong passwords, {} workers paused, {} programs dropped",
            self.client_moves, self.impostors, self.worker_pauses, self.worker_aborts
        )
    }
}
