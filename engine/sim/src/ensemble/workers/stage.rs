//! What programs and the world have in common.

use std::cell::{Cell, RefCell};
use std::fmt::Display;

use super::examiner::Fact;

/// One for all workers of a run.
#[derive(Debug, Default)]
pub(crate) struct Stage {
    healed: Cell<bool>,
    facts: RefCell<Vec<Fact>>,
    /// What each worker is doing.
    posts: RefCell<Vec<String>>,
    /// What was done, by name.
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

    /// How many rounds of recipes were carried through.
    pub(crate) const fn deeds(&self) -> u64 {
        self.deeds.get()
    }
}
