//! The examiner: compares the facts that programs state with the committed order.

use std::collections::{BTreeMap, BTreeSet};

use ringkeeper_client::EventKind;
use ringkeeper_wire::EventType;

use super::super::judge::{Entry, Judge};
use super::super::model::{Tree, split};
use super::super::violation::{Oracle, Violation};
use super::{counters, lines, queues, watchers};

/// How something is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// By one at a time.
    Alone,
    /// Together with other readers.
    Reader,
}

/// What the library said of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    Done,
    NotDone,
    Unknown,
    /// Nobody waited for it.
    Nothing,
}

/// A fact that a program states.
#[derive(Debug)]
pub(crate) enum Fact {
    /// It holds a lock or leads, by this znode. `seen` is the newest zxid that it had seen by then.
    Holds {
        line: String,
        node: String,
        kind: Kind,
        token: i64,
        seen: i64,
    },
    /// `node` acquired the lock while `holder` was certain of it for this much longer.
    HeldTwice {
        holder: String,
        node: String,
        certain_ms: u64,
    },
    /// During a read lock, the data had these versions.
    Rested {
        node: String,
        before: i32,
        after: i32,
    },
    /// The entry is in the queue.
    Put {
        entry: String,
    },
    PerhapsPut {
        entry: String,
    },
    NotPut {
        entry: String,
    },
    /// The entry was taken from the queue, by it alone.
    Took {
        session: i64,
        entry: String,
    },
    /// The session has ended, and may have taken one entry that no program got.
    PerhapsTook {
        session: i64,
    },
    /// The counter was incremented to this sum.
    Added {
        sum: i64,
    },
    PerhapsAdded,
    /// A watch has fired, and reports this zxid as the last change since the read that left it.
    ToldOfChange {
        path: &'static str,
        before: i64,
        after: i64,
    },
    /// From this zxid on, it sees every event of the tree.
    WatchesTree {
        worker: usize,
        from: i64,
    },
    /// Events may have been missed.
    Gap {
        worker: usize,
    },
    Saw {
        worker: usize,
        kind: EventKind,
        path: String,
        zxid: i64,
    },
    /// A configuration that the library has reported as consistent.
    ReadWhole {
        entries: BTreeMap<String, Vec<u8>>,
    },
    /// Znodes were to be created, one behind the other, at once.
    Wrote(Vec<(String, Said)>),
    /// A program has read after its own write.
    ReadOwn {
        path: String,
        said: Said,
        exists: bool,
    },
}

/// Collects all facts of a run.
#[derive(Debug, Default)]
pub(crate) struct Examiner {
    /// The servers' clocks are quicker than the workers': what those are certain of may be over.
    clocks_drift: bool,
    put: BTreeSet<String>,
    perhaps_put: BTreeSet<String>,
    not_put: BTreeSet<String>,
    /// Entry, and the session that took it.
    taken: BTreeMap<String, i64>,
    perhaps_taken: BTreeMap<i64, u64>,
    sums: BTreeSet<i64>,
    perhaps_added: u64,
    /// Where each tree watcher is: the zxid and how many of its events were seen; `None` in a gap.
    trees: BTreeMap<usize, Option<(i64, usize)>>,
    lines: BTreeSet<String>,
    pipelines: Vec<Vec<(String, Said)>>,
    pub(crate) facts: u64,
}

impl Examiner {
    pub(crate) fn new(clocks_drift: bool) -> Self {
        Self { clocks_drift, ..Self::default() }
    }

    /// A worker states something.
    pub(crate) fn hear(&mut self, fact: Fact, judge: &Judge) -> Result<(), Violation> {
        self.facts += 1;
        match fact {
            Fact::Holds { line, node, kind, token, seen } => {
                self.held(&line, &node, kind, token, seen, judge)?;
                self.lines.insert(line);
            }
            Fact::HeldTwice { holder, node, certain_ms } => {
                Oracle::Exclusion.check(self.clocks_drift, || {
                    format!(
                        "{node} is had, and for {certain_ms} ms yet the holder of {holder} is certain of it"
                    )
                })?;
            }
            Fact::Rested { node, before, after } => Oracle::Exclusion.check(before == after, || {
                format!("{node} was held by a reader from version {before} of what it reads to {after}")
            })?,
            Fact::Put { entry } => drop(self.put.insert(entry)),
            Fact::PerhapsPut { entry } => drop(self.perhaps_put.insert(entry)),
            Fact::NotPut { entry } => drop(self.not_put.insert(entry)),
            Fact::Took { session, entry } => {
                let other = self.taken.insert(entry.clone(), session);
                Oracle::Queue.check(other.is_none(), || {
                    format!("{entry} was taken by the sessions {other:x?} and {session:x}")
                })?;
            }
            Fact::PerhapsTook { session } => *self.perhaps_taken.entry(session).or_default() += 1,
            Fact::Added { sum } => {
                let fresh = self.sums.insert(sum);
                Oracle::Counter.check(fresh, || format!("two were told that they made it {sum}"))?;
            }
            Fact::PerhapsAdded => self.perhaps_added += 1,
            Fact::ToldOfChange { path, before, after } => Oracle::Told.check(after > before, || {
                format!("a watch on {path} fired after {before:#x}, and the last change is {after:#x}")
            })?,
            Fact::WatchesTree { worker, from } => drop(self.trees.insert(worker, Some((from, usize::MAX)))),
            Fact::Gap { worker } => drop(self.trees.insert(worker, None)),
            Fact::ReadWhole { entries } => {
                let mut data = entries.values();
                let first = data.next();
                Oracle::Told.check(first.is_some() && data.all(|other| Some(other) == first), || {
                    format!("a configuration is read half-way through a change: {entries:?}")
                })?;
            }
            Fact::Wrote(pipeline) => self.pipelines.push(pipeline),
            Fact::ReadOwn { path, said, exists } => {
                let fits = match said {
                    Said::Done => exists,
                    Said::NotDone => !exists,
                    Said::Unknown | Said::Nothing => true,
                };
                Oracle::Outcome
                    .check(fits, || format!("{path}: {said:?}, and a read behind says {exists}"))?;
            }
            Fact::Saw { worker, kind, path, zxid } => self.saw(worker, kind, &path, zxid, judge)?,
        }
        Ok(())
    }

    /// Checks a holder by the fencing order: in the state that it has seen, every earlier candidate is gone.
    fn held(
        &self,
        line: &str,
        node: &str,
        kind: Kind,
        token: i64,
        seen: i64,
        judge: &Judge,
    ) -> Result<(), Violation> {
        let Some(tree) = judge.tree_at(seen) else {
            return Err(
                Oracle::Exclusion.broken(format!("{node} is held at {seen:#x}, which is not committed"))
            );
        };
        let waits_for = |name: &str| kind == Kind::Alone || !name.contains("__rlock__");
        let before = tree.znodes.get(line).into_iter().flat_map(|znode| znode.children.iter()).find(|name| {
            let path = format!("{line}/{name}");
            waits_for(name) && tree.znodes.get(&*path).is_some_and(|znode| znode.stat().czxid < token)
        });
        Oracle::Exclusion.check(before.is_none(), || {
            format!("{node}, fenced by {token:#x}, is held at {seen:#x}, and before it is {before:?}")
        })
    }

    fn saw(
        &mut self,
        worker: usize,
        kind: EventKind,
        path: &str,
        zxid: i64,
        judge: &Judge,
    ) -> Result<(), Violation> {
        let events = |entry: &Entry| -> Vec<(EventKind, String)> {
            let seen = |path: &str| path == watchers::WATCHED || split(path).0 == watchers::WATCHED;
            let of_tree = entry.changes.iter().filter(|change| seen(&change.path));
            of_tree.map(|change| (kind_of(change.event), change.path.to_string())).collect()
        };
        let seen = (kind, path.to_owned());
        let of_this = judge.between(zxid - 1, zxid).first().map(&events).unwrap_or_default();
        let nth = match self.trees.get(&worker).copied().flatten() {
            // After a gap, any event may be the first.
            None => of_this.iter().position(|event| *event == seen),
            Some((last, nth)) if last == zxid => Some(nth.wrapping_add(1)),
            Some((last, nth)) => {
                let rest = judge.between(last - 1, last).first().map(&events).unwrap_or_default();
                let left = rest.get(nth.saturating_add(1)..).unwrap_or_default();
                let missed = judge.between(last, zxid - 1).iter().flat_map(&events);
                let missed: Vec<_> = left.iter().cloned().chain(missed).collect();
                Oracle::Told.check(missed.is_empty(), || {
                    format!("tree watcher {worker} sees {seen:?} at {zxid:#x} and was not told of {missed:?}")
                })?;
                Some(0)
            }
        };
        let fits = nth.is_some_and(|nth| of_this.get(nth) == Some(&seen));
        Oracle::Told.check(fits, || {
            format!(
                "tree watcher {worker} sees {seen:?} as event {nth:?} of {zxid:#x}, which are {of_this:?}"
            )
        })?;
        self.trees.insert(worker, nth.map(|nth| (zxid, nth)));
        Ok(())
    }

    /// Everyone is done.
    pub(crate) fn finish(&self, judge: &Judge) -> Result<(), Violation> {
        self.check_fences(judge)?;
        self.check_queue(judge)?;
        self.check_pipelines(judge.tree())?;
        self.check_counter(judge.tree())
    }

    /// The counts of holders are those written, and no token follows a greater one.
    fn check_fences(&self, judge: &Judge) -> Result<(), Violation> {
        for line in &self.lines {
            let fence = lines::fence(line);
            let mut last_token = 0;
            for entry in judge.history().iter().filter(|entry| entry.touches(&fence)) {
                let Some(znode) = entry.tree.znodes.get(&*fence) else { continue };
                let text = String::from_utf8_lossy(&znode.data).into_owned();
                let mut words = text.split(' ').map(|word| word.parse::<i64>().unwrap_or(-1));
                let (count, token) = (words.next().unwrap_or(-1), words.next().unwrap_or(-1));
                let version = znode.stat().version;
                Oracle::Exclusion.check(count == i64::from(version) && token >= last_token, || {
                    format!(
                        "version {version} of {fence} is {text:?} after the token {last_token:#x}: \
                         two held at once"
                    )
                })?;
                last_token = token;
            }
        }
        Ok(())
    }

    fn check_queue(&self, judge: &Judge) -> Result<(), Violation> {
        let (mut inside, mut ever) = (BTreeSet::new(), BTreeSet::new());
        let mut spare = self.perhaps_taken.clone();
        let empty = Tree::new(usize::MAX);
        let mut before = &empty;
        for entry in judge.history() {
            for change in entry.changes.iter().filter(|change| split(&change.path).0 == queues::QUEUE) {
                let tree = if change.event == EventType::NodeCreated { &entry.tree } else { before };
                let Some(znode) = tree.znodes.get(&change.path) else { continue };
                let text = String::from_utf8_lossy(&znode.data).into_owned();
                if change.event == EventType::NodeCreated {
                    let may = self.put.contains(&text) || self.perhaps_put.contains(&text);
                    let fresh = ever.insert(text.clone());
                    Oracle::Queue.check(may && fresh, || {
                        format!("{text} is put at {:#x}; put before: {}; may be: {may}", entry.zxid, !fresh)
                    })?;
                    inside.insert(text);
                    continue;
                }
                inside.remove(&text);
                let session = entry.session();
                let taker = self.taken.get(&text);
                let known = match (taker, spare.get_mut(&session)) {
                    (None, Some(left @ 1..)) => {
                        *left -= 1;
                        true
                    }
                    _ => taker == Some(&session),
                };
                Oracle::Queue.check(known, || {
                    format!(
                        "session {session:x} takes {text} at {:#x}, which {taker:x?} was given",
                        entry.zxid
                    )
                })?;
            }
            before = &entry.tree;
        }
        let lost: Vec<_> = self.put.difference(&ever).collect();
        Oracle::Queue.check(lost.is_empty(), || format!("{lost:?} were put, and never were in the queue"))?;
        let invented: Vec<_> = self.taken.keys().filter(|entry| !ever.contains(*entry)).collect();
        Oracle::Queue.check(invented.is_empty(), || format!("{invented:?} were taken, and never put"))?;
        let phantoms: Vec<_> = self.taken.keys().filter(|entry| inside.contains(*entry)).collect();
        Oracle::Queue
            .check(phantoms.is_empty(), || format!("{phantoms:?} were taken, and are still there"))?;
        let wrong: Vec<_> = self.not_put.intersection(&ever).collect();
        Oracle::Queue.check(wrong.is_empty(), || format!("{wrong:?} were not put, and were in the queue"))?;
        Oracle::Queue
            .check(inside.is_empty(), || format!("{inside:?} are left over, and all looked for more"))
    }

    /// Of pipelined requests the servers have executed a prefix, and the library's reports are true.
    fn check_pipelines(&self, tree: &Tree) -> Result<(), Violation> {
        for pipeline in &self.pipelines {
            let mut before = Some(0);
            for (path, said) in pipeline {
                let at = tree.znodes.get(&**path).map(|znode| znode.stat().czxid);
                let fits = match said {
                    Said::Done => at.is_some(),
                    Said::NotDone => at.is_none(),
                    Said::Unknown | Said::Nothing => true,
                };
                Oracle::Outcome.check(fits, || format!("{path}: {said:?}, and created: {at:x?}"))?;
                // One that still waited for room when its program was dropped was taken back.
                if *said == Said::Nothing {
                    continue;
                }
                let in_order = at.is_none() || (before.is_some() && at > before);
                Oracle::Outcome.check(in_order, || {
                    format!("{path} was created at {at:x?}, the one before it at {before:x?}: {pipeline:?}")
                })?;
                before = at;
            }
        }
        Ok(())
    }

    fn check_counter(&self, tree: &Tree) -> Result<(), Violation> {
        let text = tree.znodes.get(counters::COUNTER).map(|znode| String::from_utf8_lossy(&znode.data));
        let sum: u64 = text.and_then(|text| text.parse().ok()).unwrap_or_default();
        let added = self.sums.len() as u64;
        Oracle::Counter.check((added..=added + self.perhaps_added).contains(&sum), || {
            format!("{added} were added, {} more perhaps, and the counter is at {sum}", self.perhaps_added)
        })
    }
}

const fn kind_of(event: EventType) -> EventKind {
    match event {
        EventType::NodeCreated => EventKind::Created,
        EventType::NodeDeleted => EventKind::Deleted,
        EventType::NodeDataChanged => EventKind::DataChanged,
        EventType::NodeChildrenChanged => EventKind::ChildrenChanged,
    }
}
