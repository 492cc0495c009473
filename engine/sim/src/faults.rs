//! What can go wrong in a run, and how often.

use crate::random::Random;

/// The setting of one run. Rates are per mille of the fault steps, of which there is one each 10 ms.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Faults {
    pub voters: u64,
    pub observers: u64,
    /// The shell says at the start that all disks are new on purpose.
    pub known_new: bool,
    pub crash: u64,
    /// Share of crashes, per mille, that also lose the disk.
    pub wipe: u64,
    /// Share of crashes, per mille, after which a part of the log is found damaged.
    pub rot: u64,
    pub pause: u64,
    pub disconnect: u64,
    pub partition: u64,
    pub clock_jump: u64,
    /// Clock speeds differ by up to this many per mille.
    pub drift: u64,
    pub snapshot: u64,
    /// Some messages of a connection overtake others, vanish or come twice. No real connection does that:
    /// safety must hold all the same.
    pub datagrams: bool,
    pub latency_us: u64,
    pub fsync_us: u64,
    /// Batches kept in memory and in flight are few.
    pub small_buffers: bool,
    /// Epochs are used up after a few transactions.
    pub short_epochs: bool,
    /// Three voters start with the disks that unfinished leaderships have left.
    pub forked: bool,
    /// Time between proposals.
    pub proposal_us: u64,
}

impl Faults {
    pub(crate) fn draw(random: &mut Random) -> Self {
        let mut rate = |max: u64| if random.chance(500) { random.between(1, max) } else { 0 };
        let (mut crash, pause, disconnect) = (rate(25), rate(15), rate(40));
        let (mut partition, clock_jump, drift, snapshot) = (rate(25), rate(10), rate(200), rate(50));
        let forked = random.chance(150);
        if forked {
            (crash, partition) = (crash.max(15), partition.max(15));
        }
        let voters = if forked { 3 } else { [1, 2, 3, 3, 3, 3, 4, 5, 5][random.index(9)] };
        Self {
            voters,
            forked,
            observers: if random.chance(250) { random.between(1, 2) } else { 0 },
            known_new: random.chance(300),
            crash,
            wipe: if random.chance(400) { 400 } else { 0 },
            rot: if random.chance(300) { 400 } else { 0 },
            pause,
            disconnect,
            partition,
            clock_jump,
            drift,
            snapshot,
            datagrams: random.chance(150),
            latency_us: [100, 1000, 5000, 20_000][random.index(4)],
            fsync_us: [50, 2000, 10_000, 50_000][random.index(4)],
            small_buffers: random.chance(300),
            short_epochs: random.chance(150),
            proposal_us: [500, 2000, 10_000, 30_000][random.index(4)],
        }
    }
}
