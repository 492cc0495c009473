//! What a client must hear while a server restores its watches.
//!
//! setWatches is executed in slices, between which transactions may be published: the events of the watches
//! that are restored already are sent among the reports of what the others have missed. The client does not
//! see where a slice ends, so all possibilities are tried.

use std::collections::{HashSet, VecDeque};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
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
#[derive(Hash)]
struct Moment {
    /// The watches that are restored and have not fired.
    watches: Watches,
    /// How many slices are done, transactions published, events told.
    slice: usize,
    entry: usize,
    told: usize,
}

/// Which watches a client has after a setWatches.
pub(crate) struct Left {
    pub(crate) watches: Watches,
    /// There may be fewer of them.
    pub(crate) is_sure: bool,
    /// What the client was told is explained. Otherwise there are too many possibilities to try them all.
    pub(crate) is_explained: bool,
}

/// How many possibilities are tried until one explains everything, and how many others beside it.
const TRIED_MAX: usize = 200_000;
const OTHERS_MAX: usize = 50_000;

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

    /// The watches that are left if the client was told what it had to be told; `None` if it was not. It is
    /// not sure which are left if an event was hidden from the client: it ends a watch that was restored
    /// before, and not one that is restored behind it.
    pub(crate) fn explain(self) -> Option<Left> {
        let hasher = BuildHasherDefault::<DefaultHasher>::default();
        let all: Watches = self.slices.iter().copied().flatten().cloned().collect();
        let hides = self.entries.iter().any(|entry| all.is_kept_from(entry, self.who));
        let mut tried = HashSet::new();
        let mut tried_max = TRIED_MAX;
        let mut found: Option<Watches> = None;
        let mut open = vec![Moment { watches: Watches::default(), slice: 0, entry: 0, told: 0 }];
        while let Some(moment) = open.pop() {
            if !tried.insert(hasher.hash_one(&moment)) {
                continue;
            }
            if tried.len() > tried_max {
                let is_explained = found.is_some();
                return Some(Left { watches: found.unwrap_or(all), is_sure: false, is_explained });
            }
            let at = (moment.slice, moment.entry, moment.told);
            if at != (self.slices.len(), self.entries.len(), self.told.len()) {
                let published = self.publish(&moment);
                open.extend(self.restore(moment));
                open.extend(published);
            } else if let Some(watches) = found.as_mut().filter(|watches| **watches != moment.watches) {
                watches.absorb(moment.watches);
                return found.map(|watches| Left { watches, is_sure: false, is_explained: true });
            } else if found.replace(moment.watches).is_none() {
                if !hides {
                    break;
                }
                tried_max = tried.len() + OTHERS_MAX;
            }
        }
        found.map(|watches| Left { watches, is_sure: true, is_explained: true })
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
