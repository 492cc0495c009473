//! The long listings: sessions, ephemerals, connections, watches.

use std::collections::BTreeMap;
use std::fmt::Write;

use ringkeeper_wire::SessionId;

use super::answer::brief;
use super::report::ServerReport;

pub(super) fn dump(out: &mut String, report: &ServerReport) -> std::fmt::Result {
    out.write_str("SessionTracker dump:\n")?;
    if let Some(local) = &report.local_sessions {
        sessions(out, "Local", local)?;
    }
    sessions(out, "Global", &report.sessions)?;
    out.write_str("ephemeral nodes dump:\n")?;
    writeln!(out, "Sessions with Ephemerals ({}):", report.ephemerals.len())?;
    for (session, paths) in &report.ephemerals {
        writeln!(out, "{session}:")?;
        paths.iter().try_for_each(|path| writeln!(out, "\t{path}"))?;
    }
    out.write_str("Connections dump:\n")?;
    for connection in &report.shards.connections {
        brief(out, connection)?;
        out.write_str(")\n")?;
    }
    Ok(())
}

fn sessions(out: &mut String, kind: &str, sessions: &[(SessionId, u32)]) -> std::fmt::Result {
    writeln!(out, "{kind} Sessions({}):", sessions.len())?;
    sessions.iter().try_for_each(|(session, timeout_ms)| writeln!(out, "{session}\t{timeout_ms}ms"))
}

pub(super) fn watches_by_session(out: &mut String, report: &ServerReport) -> std::fmt::Result {
    let pairs = report.data_watches.iter().map(|(session, path)| (*session, path.as_str()));
    let mut by_session = BTreeMap::<SessionId, Vec<&str>>::new();
    pairs.for_each(|(session, path)| by_session.entry(session).or_default().push(path));
    for (session, mut paths) in by_session {
        paths.sort_unstable();
        writeln!(out, "{session}")?;
        paths.iter().try_for_each(|path| writeln!(out, "\t{path}"))?;
    }
    out.write_char('\n')
}

pub(super) fn watches_by_path(out: &mut String, report: &ServerReport) -> std::fmt::Result {
    let mut by_path = BTreeMap::<&str, Vec<SessionId>>::new();
    for (session, path) in &report.data_watches {
        by_path.entry(path).or_default().push(*session);
    }
    for (path, mut sessions) in by_path {
        sessions.sort_unstable();
        writeln!(out, "{path}")?;
        sessions.iter().try_for_each(|session| writeln!(out, "\t{session}"))?;
    }
    out.write_char('\n')
}
