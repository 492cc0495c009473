//! The table for people: which permissions each request needs.

use std::collections::BTreeMap;
use std::fmt;

use super::case::{ALL, Answer, Case, Requester, Restricted, letters};
use super::probe::{PROBES, Probe};

type Cell = (&'static str, Requester, Restricted);

/// The sets of permissions with which each probe is allowed, as bits of a word.
#[derive(Default)]
pub(super) struct Table {
    allowed: BTreeMap<Cell, u32>,
    /// The same of probes that leave watches: the sets with which their events are sent.
    told: BTreeMap<Cell, u32>,
    requesters: Vec<Requester>,
    asked: u64,
}

impl Table {
    pub(super) fn add(&mut self, case: &Case, probe: &Probe, answer: &Answer) {
        if !self.requesters.contains(&case.requester) {
            self.requesters.push(case.requester);
        }
        let cell = (probe.name, case.requester, case.restricted);
        *self.allowed.entry(cell).or_default() |= u32::from(answer.is_allowed()) << case.permissions;
        *self.told.entry(cell).or_default() |= u32::from(answer.has_events()) << case.permissions;
        self.asked += 1;
    }

    pub(super) const fn asked(&self) -> u64 {
        self.asked
    }

    fn row(&self, f: &mut fmt::Formatter<'_>, cells: &BTreeMap<Cell, u32>, probe: &Probe) -> fmt::Result {
        for requester in &self.requesters {
            let needed = |restricted| {
                let sets = cells.get(&(probe.name, *requester, restricted));
                needed(sets.copied().unwrap_or_default())
            };
            let (parent, node) = (needed(Restricted::Parent), needed(Restricted::Node));
            match parent == node {
                true => write!(f, " {node} |")?,
                false => write!(f, " {parent} / {node} |")?,
            }
        }
        writeln!(f)
    }
}

/// The least of these sets of permissions.
fn needed(sets: u32) -> String {
    let allows = |permissions: i32| sets & (1 << permissions) != 0;
    let within = |smaller: i32, larger: i32| smaller != larger && smaller & !larger == 0;
    let least = (0..=ALL).filter(|set| allows(*set) && !(0..=ALL).any(|s| allows(s) && within(s, *set)));
    let least: Vec<String> = least.map(letters).collect();
    match least.as_slice() {
        [] => "never".to_owned(),
        [all] if all.is_empty() => "free".to_owned(),
        sets => sets.join(" or "),
    }
}

/// A row for each probe, a column for each requester: what it needs on the parent / on the znode itself.
impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.requesters.iter().map(|requester| requester.name).collect();
        writeln!(f, "| request | {} |", names.join(" | "))?;
        writeln!(f, "| --- |{}", " --- |".repeat(names.len()))?;
        for probe in PROBES {
            write!(f, "| {} |", probe.name)?;
            self.row(f, &self.allowed, probe)?;
            if probe.watches {
                write!(f, "| its events |")?;
                self.row(f, &self.told, probe)?;
            }
        }
        Ok(())
    }
}
