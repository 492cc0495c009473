//! What was seen to be wrong, and how much was done.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// More are counted, and not shown.
const SHOWN_MAX: usize = 20;

/// Shared by all who check.
#[derive(Debug, Default)]
pub(crate) struct Verdict(Mutex<Findings>);

#[derive(Debug, Default)]
struct Findings {
    violations: Vec<String>,
    counts: BTreeMap<&'static str, u64>,
}

impl Verdict {
    fn lock(&self) -> MutexGuard<'_, Findings> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A promise was broken.
    pub(crate) fn violation(&self, what: String) {
        let mut findings = self.lock();
        if findings.violations.len() < SHOWN_MAX {
            eprintln!("VIOLATION: {what}");
        }
        findings.violations.push(what);
    }

    /// Something that the summary tells the number of.
    pub(crate) fn count(&self, what: &'static str) {
        *self.lock().counts.entry(what).or_default() += 1;
    }

    /// How often something was counted.
    pub(crate) fn counted(&self, what: &str) -> u64 {
        self.lock().counts.get(what).copied().unwrap_or_default()
    }

    /// Whether every promise was kept.
    pub(crate) fn is_good(&self) -> bool {
        self.lock().violations.is_empty()
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let findings = self.lock();
        for (what, count) in &findings.counts {
            writeln!(f, "{count:>9}  {what}")?;
        }
        writeln!(f, "{:>9}  VIOLATIONS", findings.violations.len())?;
        for violation in findings.violations.iter().take(SHOWN_MAX) {
            writeln!(f, "           {violation}")?;
        }
        Ok(())
    }
}
