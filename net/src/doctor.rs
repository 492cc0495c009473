//! `ringkeeper doctor`: whether this machine is as a server needs it, before the first start.
//!
//! What a start checks, the doctor checks with the start's own code. Beyond that the doctor looks at what
//! makes a server slow or forgetful later: the disk, limits, swap, the clock, the cores, the names and ports
//! of the other servers. The files that it writes to measure the disk are gone when it ends.

mod certificates;
mod cores;
mod disk;
mod machine;
mod peers;

use std::io::{self, Write};
use std::process::ExitCode;

use serde_json::json;

use crate::config::Config;
use crate::server;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// As it should be.
    Fine,
    /// A server starts, and is slower or less safe than it could be.
    Warning,
    /// A server does not start, or may lose what it acknowledges.
    Failure,
}

/// What one check found: one sentence, with the remedy if there is something to do.
#[derive(Clone, Debug)]
pub(crate) struct Finding {
    check: &'static str,
    verdict: Verdict,
    says: String,
}

impl Finding {
    fn fine(check: &'static str, says: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Fine, says: says.into() }
    }

    fn warning(check: &'static str, says: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Warning, says: says.into() }
    }

    fn failure(check: &'static str, says: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Failure, says: says.into() }
    }
}

/// Checks everything, and says what was found as soon as it is found. The exit code is 1 if a server would
/// not start or may lose data.
///
/// # Errors
/// The output cannot be written.
pub(crate) fn run(config: &Config, notices: &[String], as_json: bool) -> io::Result<ExitCode> {
    let settings = notices.iter().map(|notice| Finding::warning("configuration", notice));
    let start = server::rehearse(config).into_iter().map(|(check, found)| match found {
        Ok(says) => Finding::fine(check, says),
        Err(error) => Finding::failure(check, error.to_string()),
    });
    let findings = settings
        .chain(start)
        .chain(certificates::check(config))
        .chain(machine::check())
        .chain(cores::check(config))
        .chain(disk::check(config))
        .chain(peers::check(config));
    let mut failures = 0;
    for finding in findings {
        failures += u32::from(finding.verdict == Verdict::Failure);
        say(&finding, as_json)?;
    }
    Ok(if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn say(finding: &Finding, as_json: bool) -> io::Result<()> {
    let Finding { check, verdict, says } = finding;
    let verdict = match verdict {
        Verdict::Fine => "ok",
        Verdict::Warning => "warning",
        Verdict::Failure => "FAILURE",
    };
    let mut out = io::stdout().lock();
    match as_json {
        true => writeln!(out, "{}", json!({ "check": check, "verdict": verdict, "says": says })),
        false => writeln!(out, "{verdict:<8} {check:<14} {says}"),
    }
}
