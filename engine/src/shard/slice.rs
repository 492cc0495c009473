//! Long work in slices: between two slices the shell handles other connections.

use super::{Shard, Slot};

impl Shard {
    /// Executes one slice: sends notifications, removes watches of ended connections, and continues the long
    /// request that has waited longest. Returns whether more is left. To be called once in each pass of the
    /// shell.
    pub fn next_slice(&mut self, now_us: u64) -> bool {
        self.visits_left = self.settings.slice_visits_max;
        self.notifications_left = self.settings.notifications_max;
        if self.publication.is_some() {
            self.continue_publication(now_us);
            self.resume_stalled(now_us);
        }
        self.forget_departed();
        if let Some(slot) = self.going_on.pop_front()
            && let Some(connection) = self.connections.get_mut(slot)
            && (std::mem::take(&mut connection.goes_on) | std::mem::take(&mut connection.rests))
        {
            self.drain(now_us, slot);
        }
        self.resume_muted(now_us);
        if self.settings.throttle.is_on() {
            // A place is needed by connections, too, that have no unanswered request of their own.
            self.resume_stalled(now_us);
        }
        // To count a watch costs about as much as to visit four znodes.
        self.watches.count_some(self.settings.watches_of_slice());
        self.publication.is_some()
            || self.watches.is_counting()
            || self.resumes_after.is_some()
            || !self.departed.is_empty()
            || !self.going_on.is_empty()
    }

    /// Schedules the connection's oldest request for a later slice.
    pub(super) fn go_on_later(&mut self, slot: Slot) {
        let connection = self.connection(slot);
        if !std::mem::replace(&mut connection.goes_on, true) && !connection.rests {
            self.going_on.push_back(slot);
        }
    }

    /// Leaves the connection's input to a later slice. Its earlier requests are answered meanwhile.
    pub(super) fn take_input_later(&mut self, slot: Slot) {
        let connection = self.connection(slot);
        connection.waits = true;
        if !std::mem::replace(&mut connection.rests, true) && !connection.goes_on {
            self.going_on.push_back(slot);
        }
    }

    /// Removes watches of ended connections: one slice.
    pub(super) fn forget_departed(&mut self) {
        // To remove a watch costs about as much as to visit two znodes.
        let mut left = (self.settings.slice_visits_max / 2).max(1);
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
