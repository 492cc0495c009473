//! Watches the memory of the process, so that the tree stops growing before the kernel kills the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use ringkeeper_engine::shard::Memory;
use ringkeeper_runtime::allocator;

use super::reactor;
use super::system;
use crate::config::MemoryLimit;

/// How often the memory is measured.
const INTERVAL: Duration = Duration::from_millis(100);

/// Intervals between two times that freed memory is returned to the system, while memory is short.
const RETURN_INTERVALS: u32 = 10;

/// New sessions are refused above this percentage of the limit, growth of the tree above 100.
const SESSIONS_PERCENT: u64 = 105;

/// Nothing is refused any more below this percentage; the gap to 100 keeps the state from flapping.
const AMPLE_PERCENT: u64 = 97;

/// The memory state of the server, shared by all shards.
#[derive(Debug, Default)]
pub(crate) struct MemoryState(AtomicU8);

impl MemoryState {
    pub(crate) fn get(&self) -> Memory {
        match self.0.load(Ordering::Relaxed) {
            0 => Memory::Ample,
            1 => Memory::Short,
            _ => Memory::Scarce,
        }
    }

    fn set(&self, memory: Memory) {
        let level = match memory {
            Memory::Ample => 0,
            Memory::Short => 1,
            Memory::Scarce => 2,
        };
        self.0.store(level, Ordering::Relaxed);
    }
}

/// Keeps `state` up to date for as long as the server runs.
pub(crate) async fn watch(limit: MemoryLimit, state: Arc<MemoryState>) {
    let Some(limit_bytes) = limit.bytes() else { return };
    let mut intervals = RETURN_INTERVALS;
    loop {
        reactor::sleep(INTERVAL).await;
        let Some(mut taken_bytes) = system::own_memory_bytes() else { continue };
        let before = state.get();
        let mut now = judge(before, taken_bytes, limit_bytes);
        intervals = intervals.saturating_add(1);
        if now != Memory::Ample && intervals >= RETURN_INTERVALS {
            // The allocator keeps freed memory for a while. That is no reason to refuse anything.
            reactor::unblock(allocator::return_freed).await;
            intervals = 0;
            let Some(left_bytes) = system::own_memory_bytes() else { continue };
            taken_bytes = left_bytes;
            now = judge(before, taken_bytes, limit_bytes);
        }
        if now == before {
            continue;
        }
        state.set(now);
        let (taken_mib, limit_mib) = (taken_bytes >> 20, limit_bytes >> 20);
        match now {
            Memory::Ample => tracing::info!(taken_mib, limit_mib, "memory is below its limit again"),
            Memory::Short => tracing::warn!(
                code = "RK0208",
                taken_mib,
                limit_mib,
                "memory is above ringkeeper.memoryLimit: the tree may not grow; reads and deletes go on"
            ),
            Memory::Scarce => {
                tracing::warn!(
                    code = "RK0209",
                    taken_mib,
                    limit_mib,
                    "memory is far above its limit: no new sessions, either"
                );
            }
        }
    }
}

fn judge(before: Memory, taken_bytes: u64, limit_bytes: u64) -> Memory {
    let percent = |share: u64| limit_bytes / 100 * share;
    if taken_bytes > percent(SESSIONS_PERCENT) {
        Memory::Scarce
    } else if taken_bytes > limit_bytes || (before != Memory::Ample && taken_bytes > percent(AMPLE_PERCENT)) {
        Memory::Short
    } else {
        Memory::Ample
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_short_is_ample_only_well_below_the_limit() {
        let judged = |before, taken| judge(before, taken, 1000);
        assert_eq!(judged(Memory::Ample, 1000), Memory::Ample);
        assert_eq!(judged(Memory::Ample, 1001), Memory::Short);
        assert_eq!(judged(Memory::Short, 1060), Memory::Scarce);
        assert_eq!(judged(Memory::Scarce, 980), Memory::Short);
        assert_eq!(judged(Memory::Short, 970), Memory::Ample);
    }
}
