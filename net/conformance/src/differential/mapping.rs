//! Numbers that two servers choose differently but must use alike: session ids, zxids, times.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound::{Excluded, Unbounded};

/// What is known about which of the subject's numbers stands for which of the reference's.
#[derive(Default)]
pub(super) struct Mapping {
    sessions: HashMap<i64, i64>,
    /// Transactions, as Stats and events name them: one to one, in the same order.
    txns: BTreeMap<i64, i64>,
    /// The transactions in the order in which they became known.
    by_age: Vec<(i64, i64)>,
    /// What reply headers said: for each zxid of the reference the lowest of the subject's.
    headers: BTreeMap<i64, i64>,
    /// The same for headers that must be exact: the highest of the subject's.
    exact_headers: BTreeMap<i64, i64>,
    reference_times: Times,
    subject_times: Times,
}

/// How much the zxid of a reply's header has to tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeaderZxid {
    /// The state right after the request: nothing else is under way.
    Exact,
    /// At least that; later requests of the same group may already be in it.
    AtLeast,
}

impl Mapping {
    /// Notes that a session has these ids. `false` if either already belongs to another session.
    pub(super) fn session(&mut self, reference: i64, subject: i64) -> bool {
        if reference == 0 || subject == 0 {
            return reference == subject;
        }
        match self.sessions.get(&reference) {
            Some(known) => *known == subject,
            None => {
                let is_new = !self.sessions.values().any(|known| *known == subject);
                self.sessions.insert(reference, subject);
                is_new
            }
        }
    }

    /// Notes that a transaction has these zxids. `false` if that contradicts what is known.
    pub(super) fn txn(&mut self, reference: i64, subject: i64) -> bool {
        if reference <= 0 || subject <= 0 {
            return reference == subject;
        }
        if let Some(known) = self.txns.get(&reference) {
            return *known == subject;
        }
        let before = self.txns.range(..reference).next_back();
        let after = self.txns.range(reference..).next();
        let in_order = before.is_none_or(|(_, s)| *s < subject) && after.is_none_or(|(_, s)| subject < *s);
        let not_ahead_of_headers = self.headers.range(reference..).next().is_none_or(|(_, s)| subject <= *s);
        let headers_not_ahead =
            self.exact_headers.range(..reference).next_back().is_none_or(|(_, s)| *s < subject);
        if in_order {
            self.txns.insert(reference, subject);
            self.by_age.push((reference, subject));
        }
        in_order && not_ahead_of_headers && headers_not_ahead
    }

    /// Checks the zxid of a reply's header: it names the last transaction that the reply reflects. Zxids
    /// between two transactions mean the same, since a server may number refused requests or not.
    pub(super) fn header(&mut self, reference: i64, subject: i64, mode: HeaderZxid) -> bool {
        if reference <= 0 || subject <= 0 {
            return reference == subject;
        }
        let lowest = self.headers.entry(reference).or_insert(subject);
        *lowest = subject.min(*lowest);
        let reflects = self.txns.range(..=reference).next_back().is_none_or(|(_, s)| *s <= subject);
        if mode == HeaderZxid::AtLeast {
            return reflects;
        }
        let highest = self.exact_headers.entry(reference).or_insert(subject);
        *highest = subject.max(*highest);
        let later = self.txns.range((Excluded(reference), Unbounded)).next();
        reflects && later.is_none_or(|(_, s)| subject < *s)
    }

    /// Notes when a transaction happened. `false` if a server's own times contradict each other.
    pub(super) fn time(&mut self, zxids: (i64, i64), times: (i64, i64)) -> bool {
        let zeros_agree = (times.0 == 0) == (times.1 == 0);
        // The reference takes the wall clock as it is; only its agreement with itself can be asked for.
        let reference = self.reference_times.agree(zxids.0, times.0);
        let subject =
            self.subject_times.agree(zxids.1, times.1) && self.subject_times.in_order(zxids.1, times.1);
        zeros_agree && reference && subject
    }

    /// Number of transactions known so far.
    pub(super) const fn known_txns(&self) -> usize {
        self.by_age.len()
    }

    /// The n-th transaction that became known: its zxid on the reference and on the subject.
    pub(super) fn known_txn(&self, index: usize) -> (i64, i64) {
        self.by_age[index]
    }
}

/// When a server says that its transactions happened.
#[derive(Default)]
struct Times(BTreeMap<i64, i64>);

impl Times {
    fn agree(&mut self, zxid: i64, time: i64) -> bool {
        *self.0.entry(zxid).or_insert(time) == time
    }

    fn in_order(&self, zxid: i64, time: i64) -> bool {
        let before = self.0.range(..zxid).next_back();
        let after = self.0.range((Excluded(zxid), Unbounded)).next();
        before.is_none_or(|(_, t)| *t <= time) && after.is_none_or(|(_, t)| time <= *t)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn txns_must_keep_their_order_and_their_partner() {
        let mut mapping = Mapping::default();
        assert!(mapping.txn(5, 105));
        assert!(mapping.txn(9, 107));
        assert!(mapping.txn(7, 106));
        assert!(mapping.txn(5, 105));
        assert!(!mapping.txn(5, 106));
        assert!(!mapping.txn(8, 107));
        assert!(!mapping.txn(0, 107));
        assert!(mapping.txn(-1, -1));
    }

    #[test]
    fn a_header_between_two_txns_may_be_numbered_differently() {
        let mut mapping = Mapping::default();
        assert!(mapping.txn(5, 105));
        assert!(mapping.header(6, 105, HeaderZxid::Exact));
        assert!(mapping.txn(7, 106));
        assert!(!mapping.header(6, 106, HeaderZxid::Exact));
        assert!(mapping.header(6, 106, HeaderZxid::AtLeast));
        assert!(!mapping.header(7, 105, HeaderZxid::AtLeast));
    }

    #[test]
    fn a_txn_cannot_appear_behind_a_header_that_excluded_it() {
        let mut mapping = Mapping::default();
        assert!(mapping.header(6, 200, HeaderZxid::Exact));
        assert!(!mapping.txn(7, 200));
        assert!(!mapping.txn(6, 201));
    }

    #[test]
    fn times_of_the_subject_must_not_run_backwards() {
        let mut mapping = Mapping::default();
        assert!(mapping.time((1, 1), (1000, 5000)));
        assert!(mapping.time((2, 2), (999, 5000)));
        assert!(!mapping.time((3, 3), (1001, 4999)));
        assert!(!mapping.time((1, 1), (1001, 5000)));
        assert!(!mapping.time((0, 0), (0, 1)));
    }
}
