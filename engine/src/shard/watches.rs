//! Watch events: who is sent an event for a change (docs/protocol.md, 6.2), and what a client missed while it
//! changed servers (6.4).

use std::sync::Arc;

use ringkeeper_wire::{CATCH_UP_ZXID, EventType, Perms, SessionId, SetWatchesRequest, encode_notification};

use super::connection::{Connection, Phase};
use super::outbox::Notification;
use super::{CloseReason, Shard, Slot, US_PER_MS};
use crate::acl::{Acl, Caller};
use crate::authorisation::Authorisation;
use crate::limits::Limit;
use crate::message::Committed;
use crate::mutation::planted;
use crate::path;
use crate::steps;
use crate::tree::Znode;
use crate::txn::{Change, ChangeKind};
use crate::watch::{Modes, Table};

/// Entries of the watch table that are listed in one call.
const LISTED_WATCHES_MAX: u32 = 4_000;

/// The kind of a watch in setWatches.
#[derive(Clone, Copy, Debug)]
enum Left {
    Data,
    Exist,
    Child,
    Persistent,
    Recursive,
}

/// What decides who may see an event of a znode.
#[derive(Clone, Copy)]
struct Judge<'a> {
    authorisation: &'a Authorisation,
    acl: &'a Acl,
}

impl Shard {
    /// Sends the events of a transaction to the connections that watch: those of the changes from number
    /// `from` on, which is moved on. Returns whether all are sent; the others are left to the next slice.
    pub(super) fn fire(&mut self, committed: &Committed, from: &mut usize) -> bool {
        if self.watches.is_empty() {
            return true;
        }
        let zxid = committed.zxid().to_wire();
        let old = planted!(self.settings.rules, NotifyByOldRules).then(|| self.view.authorisation().clone());
        let authorisation = old.as_ref().unwrap_or(&committed.authorisation);
        for change in committed.changes().skip(*from) {
            if self.notifications_left == 0 && !planted!(self.settings.rules, NotifyAtOnce) {
                return false;
            }
            let looked_up = 1 + self.watches.ancestors_of(change.path);
            self.notifications_left = self.notifications_left.saturating_sub(looked_up);
            self.fire_change(zxid, &change, authorisation);
            *from += 1;
        }
        true
    }

    fn fire_change(&mut self, zxid: i64, change: &Change<'_>, authorisation: &Authorisation) {
        let &Change { kind, path, acl, parent_acl } = change;
        let mut watchers = std::mem::take(&mut self.watchers);
        self.watches.begin_event();
        self.watches.collect(Table::Data, path, &mut watchers);
        let event = match kind {
            ChangeKind::Created => EventType::NodeCreated,
            ChangeKind::DataChanged => EventType::NodeDataChanged,
            ChangeKind::Deleted => {
                // One event: a connection that was collected for its data watch is not collected again.
                self.watches.collect(Table::Child, path, &mut watchers);
                EventType::NodeDeleted
            }
        };
        let judge = Judge { authorisation, acl };
        self.notify(zxid, event, path, judge, &mut watchers);
        if kind != ChangeKind::DataChanged
            && let Some(parent) = path::parent(path)
        {
            self.watches.begin_event();
            self.watches.collect(Table::Child, parent, &mut watchers);
            let judge = Judge { authorisation, acl: parent_acl };
            self.notify(zxid, EventType::NodeChildrenChanged, parent, judge, &mut watchers);
        }
        self.watchers = watchers;
    }

    /// Sends one event, encoded once, to the `watchers` that may read the znode. If they are many, they share
    /// its bytes.
    fn notify(
        &mut self,
        zxid: i64,
        event: EventType,
        path: &str,
        judge: Judge<'_>,
        watchers: &mut Vec<Slot>,
    ) {
        if watchers.is_empty() {
            return;
        }
        self.counters.fired.record(event, watchers.len());
        let mut frame = std::mem::take(&mut self.notification);
        frame.clear();
        encode_notification(&mut frame, zxid, event, path);
        self.notifications_left = self.notifications_left.saturating_sub(watchers.len());
        if let Some(tenant) = self.view.tenants().covering(path) {
            // As of the last tick: a change has no time of its own on this shard.
            tenant.charge(self.ticked_ms * US_PER_MS, 0, (frame.len() * watchers.len()) as u64);
        }
        let are_many = watchers.len() > self.settings.notification_copies_max;
        let shared = are_many.then(|| self.blocks.push(&frame));
        let notification = shared.as_ref().map_or(Notification::Copied(&frame), Notification::Shared);
        for slot in watchers.drain(..) {
            if self.may_see(slot, path, judge) {
                self.push_notification(slot, notification);
            }
        }
        self.notification = frame;
    }

    fn may_see(&mut self, slot: Slot, path: &str, judge: Judge<'_>) -> bool {
        let Judge { authorisation, acl } = judge;
        if acl.is_open() && !authorisation.is_active() {
            return true;
        }
        let skip_acl = self.settings.rules.skip_acl;
        self.connections.get_mut(slot).is_some_and(|connection| {
            let identities = &*connection.identities;
            let bounds = connection.bounds.bounds(authorisation, identities).map(|bounds| &**bounds);
            Caller { identities, skip_acl, bounds }.may(Perms::READ, path, acl)
        })
    }

    fn push_notification(&mut self, slot: Slot, notification: Notification<'_>) {
        // Watches of an ended connection are removed in slices, so some may still fire.
        if self.connections.get(slot).is_none_or(|connection| connection.phase == Phase::Closed) {
            return;
        }
        self.counters.notifications += 1;
        self.counters.notification_bytes += notification.len() as u64;
        let past_long_reads = planted!(self.settings.rules, NotifyPastLongReads);
        steps::count(1 + steps::kib(notification.len()));
        let group = self.group;
        let unread = self.change_output(slot, |connection| {
            connection.seen_group = group;
            if connection.reads_beside && !past_long_reads {
                connection.held_notifications.push(notification);
            } else {
                connection.outbox.push(notification);
            }
            connection.unread_notification_bytes()
        });
        self.count_sent(slot, notification.len());
        self.mark_notified(slot);
        if !self.settings.rules.limits.allow(Limit::UnreadNotificationBytes, unread) {
            self.counters.limits.count(Limit::UnreadNotificationBytes);
            self.abort(slot, Some(CloseReason::SlowReader(unread)));
        }
        if !self.has_notification_room() {
            self.abort_slowest();
        }
    }

    /// Whether the notifications that wait for their clients to read take no more memory than they may.
    fn has_notification_room(&self) -> bool {
        let bytes = self.notification_bytes + self.blocks.bytes();
        self.settings.rules.limits.allow(Limit::UnreadNotificationBytesTotal, bytes)
    }

    /// Closes the connections with most unread notifications until the others are within the bound. Looks at
    /// all connections, which is seldom: at least an average connection's share of the bound has to be filled
    /// again before the next time.
    fn abort_slowest(&mut self) {
        steps::count(self.connections.len());
        let unread = |(slot, connection): (Slot, &Connection)| (connection.unread_notification_bytes(), slot);
        let mut slowest: Vec<_> = self.connections.iter().map(unread).collect();
        slowest.sort_unstable();
        while !self.has_notification_room()
            && let Some((unread, slot)) = slowest.pop()
        {
            self.counters.limits.count(Limit::UnreadNotificationBytesTotal);
            self.reset(slot, Some(CloseReason::SlowReader(unread)));
        }
    }

    /// Registers the watches of a client that reconnects, or sends it the events that it missed: one slice of
    /// them, from where the last slice ended. Returns whether all are done. Each path is compared with the
    /// state at its own slice, so a change between two slices is not missed.
    pub(super) fn set_watches(&mut self, slot: Slot, request: &SetWatchesRequest<'_>) -> bool {
        let lists = [
            (Left::Data, request.data_watches),
            (Left::Exist, request.exist_watches),
            (Left::Child, request.child_watches),
            (Left::Persistent, request.persistent_watches),
            (Left::Recursive, request.persistent_recursive_watches),
        ];
        let left =
            lists.into_iter().flat_map(|(kind, paths)| paths.into_iter().map(move |path| (kind, path)));
        let from = std::mem::take(&mut self.connection(slot).watches_set);
        let at_once = planted!(self.settings.rules, RestoreAtOnce);
        let max = if at_once { u32::MAX } else { self.settings.watches_of_slice() };
        let mut set = 0;
        for (kind, path) in left.skip(from as usize).take(max as usize) {
            self.set_watch(slot, request.relative_zxid, kind, &path);
            set += 1;
        }
        if set < max || self.connection(slot).phase == Phase::Closed {
            return true;
        }
        self.connection(slot).watches_set = from + set;
        false
    }

    fn set_watch(&mut self, slot: Slot, since: i64, kind: Left, path: &str) {
        let znode = self.view.znode(path).map(Znode::stat);
        let (modes, missed) = match (kind, znode) {
            (Left::Persistent, _) => return self.leave_watch(slot, path, Modes::PERSISTENT),
            (Left::Recursive, _) => return self.leave_watch(slot, path, Modes::RECURSIVE),
            (Left::Data, None) => (Modes::DATA, Some(EventType::NodeDeleted)),
            (Left::Data, Some(stat)) => {
                (Modes::DATA, (stat.mzxid > since).then_some(EventType::NodeDataChanged))
            }
            (Left::Exist, znode) => (Modes::DATA, znode.map(|_| EventType::NodeCreated)),
            (Left::Child, None) => (Modes::CHILD, Some(EventType::NodeDeleted)),
            (Left::Child, Some(stat)) => {
                (Modes::CHILD, (stat.pzxid > since).then_some(EventType::NodeChildrenChanged))
            }
        };
        self.catch_up(slot, path, modes, missed);
    }

    /// Whether the client may see an event of the znode as it is now.
    fn may_see_now(&mut self, slot: Slot, path: &str) -> bool {
        let view = Arc::clone(&self.view);
        let acl = view.znode(path).map_or(&Acl::OPEN, |znode| view.acl_of(znode));
        self.may_see(slot, path, Judge { authorisation: view.authorisation(), acl })
    }

    /// Registers a watch; if a bound forbids it, closes the connection. A client that reconnects relies on
    /// all its watches, so it must not continue with some of them.
    fn leave_watch(&mut self, slot: Slot, path: &str, modes: Modes) {
        if self.connection(slot).phase == Phase::Closed {
            return;
        }
        if let Err(limit) = self.watches.add_within(&self.settings.rules.limits, slot, path, modes) {
            self.abort(slot, Some(CloseReason::Limit(limit)));
        }
    }

    fn catch_up(&mut self, slot: Slot, path: &str, modes: Modes, missed: Option<EventType>) {
        let missed = missed.filter(|_| !planted!(self.settings.rules, ForgetMissedEvents));
        // Had the client stayed connected, it would have been sent what it may see.
        let Some(event) = missed.filter(|_| self.may_see_now(slot, path)) else {
            self.leave_watch(slot, path, modes);
            return;
        };
        let mut frame = std::mem::take(&mut self.notification);
        frame.clear();
        encode_notification(&mut frame, CATCH_UP_ZXID, event, path);
        self.push_notification(slot, Notification::Copied(&frame));
        self.notification = frame;
    }

    /// The pairs of session and path in the data table, unordered, as `wchc` and `wchp` list them. Begins at
    /// entry `from`; returns where the next call continues. In parts, since a client may leave a million
    /// watches and other connections must not wait for the whole list.
    #[must_use]
    pub fn data_watches(&self, from: u32) -> (Vec<(SessionId, String)>, Option<u32>) {
        let session = |slot| self.connections.get(slot).map_or(SessionId(0), |connection| connection.session);
        let (pairs, next) = self.watches.data_watches(from, LISTED_WATCHES_MAX);
        (pairs.map(|(path, slot)| (session(slot), path.to_owned())).collect(), next)
    }
}
