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
use super::rules::{Does, Who};
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
    who: Who,
}

/// What may have happened so far.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Moment {
    /// The watches that are restored and have not fired.
    watches: Watches,
    /// How many slices are done, transactions published, events told.
    slice: usize,
    entry: usize,
    told: usize,
}

impl<'a> Restoring<'a> {
    /// `None` if a zxid is not one of a committed transaction.
    pub(crate) fn new(
        watches: &'a [Watch],
        (since, upto): (i64, i64),
        told: &'a [Told],
        judge: &'a Judge,
        who: Who,
    ) -> Option<Self> {
        let max = judge.watches_of_slice;
        let mut slices: Vec<_> = watches.chunks(max).collect();
        if watches.len().is_multiple_of(max) {
            // The server sees in one more slice that nothing is left.
            slices.push(&[]);
        }
        let (entries, start) = (judge.between(since, upto), judge.tree_at(since)?);
        Some(Self { slices, since, told, entries, start, who })
    }

    /// The watches that may be left if the client was told what it had to be told; none if it was not. There
    /// are several possibilities if an event was hidden from the client: it ends a watch that was restored
    /// before, and not one that is restored behind it.
    pub(crate) fn explain(self) -> Vec<Watches> {
        let mut tried = HashSet::new();
        let mut left = Vec::new();
        let mut open = vec![Moment { watches: Watches::default(), slice: 0, entry: 0, told: 0 }];
        while let Some(moment) = open.pop() {
            if !tried.insert(moment.clone()) {
                continue;
            }
            if (moment.slice, moment.entry, moment.told)
                == (self.slices.len(), self.entries.len(), self.told.len())
            {
                left.push(moment.watches);
                continue;
            }
            let published = self.publish(&moment);
            open.extend(self.restore(moment));
            open.extend(published);
        }
        left
    }

    fn publish(&self, moment: &Moment) -> Option<Moment> {
        let Moment { watches, slice, entry, told } = moment;
        let next = self.entries.get(*entry)?;
        let (mut watches, mut events) = (watches.clone(), VecDeque::new());
        watches.fire_all(next, self.who, &mut events);
        let heard = self.told[*told..].iter().take(events.len());
        let expected: Vec<_> = events.iter().map(|event| Told::Now(event.clone())).collect();
        heard.eq(&expected).then_some(Moment {
            watches,
            slice: *slice,
            entry: entry + 1,
            told: told + events.len(),
        })
    }

    fn restore(&self, moment: Moment) -> Option<Moment> {
        let Moment { mut watches, slice, entry, mut told } = moment;
        let tree = entry.checked_sub(1).map_or(self.start, |last| &self.entries[last].tree);
        for watch in *self.slices.get(slice)? {
            let closed = tree.znodes.get(&watch.path).is_some_and(|znode| znode.closed);
            let may_see = self.who.may_with(Does::Read, &watch.path, closed, tree);
            match watch.missed(self.since, tree).filter(|_| may_see) {
                None => watches.add(&watch.path, watch.kind),
                Some(event) => {
                    if self.told.get(told) != Some(&Told::Missed(event, Arc::clone(&watch.path))) {
                        return None;
                    }
                    told += 1;
                }
            }
        }
        Some(Moment { watches, slice: slice + 1, entry, told })
    }
}
