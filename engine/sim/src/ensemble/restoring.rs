//! What a client must hear while a server restores its watches.
//!
//! setWatches is executed in slices, between which transactions may be published: the events of the watches
//! that are restored already are sent among the reports of what the others have missed. The client does not
//! see where a slice ends, so all possibilities are tried.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use ringkeeper_wire::EventType;

use super::judge::{Entry, Judge};
use super::model::Tree;
use super::watching::{Event, Watch, Watches};

/// An event that comes before the reply to setWatches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// The server reports that it was missed.
    Missed(EventType, Arc<str>),
    /// It happened meanwhile.
    Now(Event),
}

/// A setWatches that is answered, and what its client was told meanwhile.
pub(crate) struct Restoring<'a> {
    slices: Vec<&'a [Watch]>,
    since: i64,
    told: &'a [Told],
    /// The transactions that the client had not seen, up to the reply.
    entries: &'a [Entry],
    start: &'a Tree,
    /// Slices, transactions and events that have been tried in vain.
    failed: HashSet<(usize, usize, usize)>,
}

impl<'a> Restoring<'a> {
    /// `None` if a zxid is not one of a committed transaction.
    pub(crate) fn new(
        watches: &'a [Watch],
        (since, upto): (i64, i64),
        told: &'a [Told],
        judge: &'a Judge,
    ) -> Option<Self> {
        let max = judge.watches_of_slice;
        let mut slices: Vec<_> = watches.chunks(max).collect();
        if watches.len().is_multiple_of(max) {
            // The server sees in one more slice that nothing is left.
            slices.push(&[]);
        }
        let (entries, start) = (judge.between(since, upto), judge.tree_at(since)?);
        Some(Self { slices, since, told, entries, start, failed: HashSet::new() })
    }

    /// The watches that are left if the client was told what it had to be told.
    pub(crate) fn explain(mut self) -> Option<Watches> {
        self.go_on(Watches::default(), 0, 0, 0)
    }

    /// What may have happened after so many slices, transactions and events.
    fn go_on(&mut self, watches: Watches, slice: usize, entry: usize, told: usize) -> Option<Watches> {
        if (slice, entry, told) == (self.slices.len(), self.entries.len(), self.told.len()) {
            return Some(watches);
        }
        if !self.failed.insert((slice, entry, told)) {
            return None;
        }
        self.publish(&watches, slice, entry, told).or_else(|| self.restore(watches, slice, entry, told))
    }

    fn publish(&mut self, watches: &Watches, slice: usize, entry: usize, told: usize) -> Option<Watches> {
        let next = self.entries.get(entry)?;
        let (mut watches, mut events) = (watches.clone(), VecDeque::new());
        watches.fire_all(next.zxid, &next.changes, &mut events);
        let heard = self.told[told..].iter().take(events.len());
        if !heard.eq(events.iter().map(|event| Told::Now(event.clone())).collect::<Vec<_>>().iter()) {
            return None;
        }
        self.go_on(watches, slice, entry + 1, told + events.len())
    }

    fn restore(
        &mut self,
        mut watches: Watches,
        slice: usize,
        entry: usize,
        mut told: usize,
    ) -> Option<Watches> {
        let tree = entry.checked_sub(1).map_or(self.start, |last| &self.entries[last].tree);
        for watch in *self.slices.get(slice)? {
            match watch.missed(self.since, tree) {
                None => watches.add(&watch.path, watch.kind),
                Some(event) => {
                    if self.told.get(told) != Some(&Told::Missed(event, Arc::clone(&watch.path))) {
                        return None;
                    }
                    told += 1;
                }
            }
        }
        self.go_on(watches, slice + 1, entry, told)
    }
}
