//! Shows whether the executors still turn, to whoever does not run on one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ringkeeper_engine::message::ShardId;

use super::clock::Clock;
use super::reactor;

/// How often each executor shows that it turns.
const BEAT_EVERY: Duration = Duration::from_millis(500);

/// When each executor turned last: the core's, then each shard's, which may be the same one.
#[derive(Debug)]
pub(crate) struct Pulse {
    clock: Clock,
    beats_ms: Box<[AtomicU64]>,
}

impl Pulse {
    /// Of the core, on whose executor it begins, and of so many shards.
    pub(crate) fn start(clock: Clock, shards: u16) -> Arc<Self> {
        let now_ms = clock.monotonic_ms();
        let pulse = Self { clock, beats_ms: (0..=shards).map(|_| AtomicU64::new(now_ms)).collect() };
        let pulse = Arc::new(pulse);
        reactor::spawn_local(Arc::clone(&pulse).beat(0)).detach();
        pulse
    }

    /// Shows that the shard's executor turns, for as long as it does.
    pub(crate) async fn beat_of_shard(self: Arc<Self>, shard: ShardId) {
        self.beat(1 + usize::from(shard.0)).await;
    }

    async fn beat(self: Arc<Self>, executor: usize) {
        let Some(beat_ms) = self.beats_ms.get(executor) else { return };
        loop {
            beat_ms.store(self.clock.monotonic_ms(), Ordering::Relaxed);
            reactor::sleep(BEAT_EVERY).await;
        }
    }

    /// For how long the core's executor has not shown that it turns, and each shard's.
    pub(crate) fn silences(&self) -> impl Iterator<Item = Duration> {
        let now_ms = self.clock.monotonic_ms();
        let silence = move |beat_ms: &AtomicU64| now_ms.saturating_sub(beat_ms.load(Ordering::Relaxed));
        self.beats_ms.iter().map(silence).map(Duration::from_millis)
    }
}
