//! State shared by the programs and the world.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt::Display;

use super::desk::Desk;
use super::examiner::{Fact, Kind};

/// A holder that was not told that it has lost its lock.
#[derive(Debug)]
struct Belief {
    line: String,
    node: String,
    kind: Kind,
    desk: Desk,
}

/// Ends a belief when it is dropped.
pub(super) struct Believer<'a> {
    stage: &'a Stage,
    number: u64,
}

impl Drop for Believer<'_> {
    fn drop(&mut self) {
        self.stage.beliefs.borrow_mut().remove(&self.number);
    }
}

/// One for all workers of a run.
#[derive(Debug, Default)]
pub(crate) struct Stage {
    healed: Cell<bool>,
    facts: RefCell<Vec<Fact>>,
    /// What each worker is doing.
    posts: RefCell<Vec<String>>,
    /// Who is certain of what, by number.
    beliefs: RefCell<BTreeMap<u64, Belief>>,
    next_belief: Cell<u64>,
    pub(super) deeds: Cell<u64>,
}

impl Stage {
    /// Nothing goes wrong any more: everyone does its work once more and ends.
    pub(crate) fn heal(&self) {
        self.healed.set(true);
    }

    pub(super) const fn is_healed(&self) -> bool {
        self.healed.get()
    }

    /// A worker states what it believes.
    pub(super) fn state(&self, fact: Fact) {
        self.facts.borrow_mut().push(fact);
    }

    /// What was stated since the last call.
    pub(crate) fn take_facts(&self) -> Vec<Fact> {
        self.facts.take()
    }

    pub(super) fn at(&self, worker: usize, doing: impl Display) {
        let mut posts = self.posts.borrow_mut();
        if posts.len() <= worker {
            posts.resize(worker + 1, String::new());
        }
        posts[worker] = doing.to_string();
    }

    pub(super) fn post(&self, worker: usize) -> String {
        self.posts.borrow().get(worker).cloned().unwrap_or_default()
    }

    /// Records a new holder. Other holders that are still certain by their own clocks contradict it.
    pub(super) fn believe(&self, line: &str, node: &str, kind: Kind, desk: &Desk) -> Believer<'_> {
        let mut beliefs = self.beliefs.borrow_mut();
        let now_ms = desk.alarms.now_us() / 1000;
        for other in beliefs.values().filter(|other| other.line == line) {
            let together = kind == Kind::Reader && other.kind == Kind::Reader;
            // Its clock stands still while it does.
            let until_ms = other.desk.alarms.now_us() / 1000 + other.desk.lease_ms();
            if !together && until_ms > now_ms {
                let (holder, node) = (other.node.clone(), node.to_owned());
                self.state(Fact::HeldTwice { holder, node, certain_ms: until_ms - now_ms });
            }
        }
        let number = self.next_belief.replace(self.next_belief.get() + 1);
        let (line, node) = (line.to_owned(), node.to_owned());
        beliefs.insert(number, Belief { line, node, kind, desk: desk.clone() });
        Believer { stage: self, number }
    }

    /// How many rounds of recipes were carried through.
    pub(crate) const fn deeds(&self) -> u64 {
        self.deeds.get()
    }
}
