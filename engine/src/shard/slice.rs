//! What takes long, in slices: the shell lets everybody else have their turn between two of them.

use super::{Shard, Slot};

/// Watches of ended connections that are removed at once.
const REMOVED_WATCHES_MAX: usize = 2_000;

impl Shard {
    /// Goes on with what is long: what ended connections have left behind, and the request that has waited
    /// longest for its next slice. Whether more is left. To be called once in each of the shell's turns.
    pub fn next_slice(&mut self, now_ms: u64) -> bool {
        self.visits_left = self.settings.read_visits_max;
        self.forget_departed();
        if let Some(slot) = self.going_on.pop_front()
            && let Some(connection) = self.connections.get_mut(slot)
            && std::mem::take(&mut connection.goes_on)
        {
            self.drain(now_ms, slot);
        }
        !self.departed.is_empty() || !self.going_on.is_empty()
    }

    /// The oldest request of the connection goes on in a later slice.
    pub(super) fn go_on_later(&mut self, slot: Slot) {
        if !std::mem::replace(&mut self.connection(slot).goes_on, true) {
            self.going_on.push_back(slot);
        }
    }

    /// A connection may have left a million watches.
    pub(super) fn forget_departed(&mut self) {
        let mut left = REMOVED_WATCHES_MAX;
        while let Some(&slot) = self.departed.front() {
            left -= self.watches.remove_some(slot, left);
            if left == 0 {
                return;
            }
            self.departed.pop_front();
            self.connections.free(slot);
        }
    }
}
