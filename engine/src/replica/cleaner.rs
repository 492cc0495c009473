//! Finds empty containers and expired TTL znodes on the leader, and limits the rate of their deletion.

use std::collections::VecDeque;

use super::Now;
use crate::state::State;
use crate::tree::{Owner, Znode};

/// How containers and TTL znodes are cleaned up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CleanerSettings {
    /// Time between two scans, milliseconds (`znode.container.checkIntervalMs`).
    pub check_interval_ms: u64,
    /// Deletions a minute at most (`znode.container.maxPerMinute`).
    pub max_per_minute: u32,
    /// Age from which a container that never had a child is deleted, milliseconds; 0 means never
    /// (`znode.container.maxNeverUsedIntervalMs`).
    pub max_never_used_ms: u64,
}

impl Default for CleanerSettings {
    fn default() -> Self {
        Self { check_interval_ms: 60_000, max_per_minute: 10_000, max_never_used_ms: 0 }
    }
}

#[derive(Debug)]
pub(super) struct Cleaner {
    settings: CleanerSettings,
    next_check_ms: u64,
    /// Progress of the running scan: at the beginning, or after this path. `None` between two scans.
    look: Option<Option<String>>,
    /// Paths that the last scan found, not yet deleted.
    found: VecDeque<String>,
    next_deletion_us: u64,
}

/// Znodes scanned, and deleted, in one tick at most, so that requests are handled in between.
const LOOKED_AT_MAX: usize = 2_000;
const DELETED_MAX: usize = 500;

impl Cleaner {
    pub(super) fn new(settings: CleanerSettings, now_ms: u64) -> Self {
        let next_check_ms = now_ms + settings.check_interval_ms;
        Self { settings, next_check_ms, look: None, found: VecDeque::new(), next_deletion_us: 0 }
    }

    /// The znodes to delete now.
    pub(super) fn removable(&mut self, now: Now, state: &State) -> Vec<String> {
        let now_us = now.monotonic_ms * 1000;
        if now.monotonic_ms >= self.next_check_ms && self.found.is_empty() && self.look.is_none() {
            self.next_check_ms = now.monotonic_ms + self.settings.check_interval_ms;
            self.next_deletion_us = now_us;
            self.look = Some(None);
        }
        if let Some(after) = self.look.take() {
            self.look = self.look_on(now, state, after.as_deref());
        }
        let spacing_us = 60_000_000 / u64::from(self.settings.max_per_minute.max(1));
        let mut due = Vec::new();
        while now_us >= self.next_deletion_us && due.len() < DELETED_MAX {
            let Some(path) = self.found.pop_front() else { break };
            self.next_deletion_us += spacing_us;
            // The znode may have been used again since the scan found it.
            let over = |znode: &Znode| is_over(znode, now.wall_ms, self.settings.max_never_used_ms);
            if state.znode(&path).is_some_and(over) {
                due.push(path);
            }
        }
        due
    }

    /// Scans the next znodes after `after`; returns where the scan continues, if it does.
    fn look_on(&mut self, now: Now, state: &State, after: Option<&str>) -> Option<Option<String>> {
        let mut last = None;
        for (number, (path, znode)) in (1..).zip(state.reapable(after).take(LOOKED_AT_MAX)) {
            if is_over(znode, now.wall_ms, self.settings.max_never_used_ms) {
                self.found.push_back(path.to_owned());
            }
            last = (number == LOOKED_AT_MAX).then(|| path.to_owned());
        }
        last.map(Some)
    }
}

fn is_over(znode: &Znode, wall_ms: i64, max_never_used_ms: u64) -> bool {
    let stat = znode.stat();
    let older_than =
        |since: i64, age_ms: u64| u64::try_from(wall_ms.saturating_sub(since)).is_ok_and(|age| age > age_ms);
    if stat.num_children != 0 {
        return false;
    }
    match znode.owner() {
        Owner::Container if znode.persisted_cversion() > 0 => true,
        Owner::Container => max_never_used_ms != 0 && older_than(stat.ctime, max_never_used_ms),
        Owner::Ttl(ttl_ms) => older_than(stat.mtime, ttl_ms),
        Owner::None | Owner::Session(_) => false,
    }
}
