//! `ringkeeper admin why-slow`: what the slow requests of a running server waited for, on one screen. What
//! makes it slow is decided by the server, in [`ringkeeper_engine::findings`].

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write as _};

use clap::Args;
use jiff::Timestamp;
use ringkeeper_engine::slow::Stage;
use serde_json::Value;

use crate::admin::listener::Listener;
use crate::admin::{AdminError, parse};

/// Paths, and sessions, that are shown.
const TOP: usize = 5;

#[derive(Args)]
pub(crate) struct WhySlowArgs {
    #[command(flatten)]
    listener: Listener,
}

/// Asks, and shows the answer.
///
/// # Errors
/// One sentence for the user.
pub(crate) fn run(args: &WhySlowArgs) -> Result<(), AdminError> {
    let text = show(&args.listener.get("slow_requests")?)?;
    Ok(io::stdout().write_all(text.as_bytes())?)
}

/// A slow request.
struct Slow<'a>(&'a Value);

impl<'a> Slow<'a> {
    fn text(&self, field: &str) -> &'a str {
        self.0[field].as_str().unwrap_or_default()
    }

    fn number(&self, field: &str) -> f64 {
        self.0[field].as_f64().unwrap_or_default()
    }

    /// What it was about, in a few words.
    fn describe(&self) -> String {
        let path = if self.0["path"].is_null() { "without a path" } else { self.text("path") };
        format!(
            "{} {} of session {}",
            self.text("operation"),
            path.escape_debug(),
            self.text("session_id_hex")
        )
    }
}

/// One screen about an answer of the command `slow_requests`.
fn show(answer: &str) -> Result<String, AdminError> {
    let (answer, other) = (parse(answer)?, || AdminError::other(answer));
    let list = answer["slow_requests"].as_array().ok_or_else(other)?;
    let slow: Vec<_> = list.iter().map(Slow).collect();
    let (total, above_ms) = (&answer["total"], &answer["slow_request_ms"]);
    let mut out = findings(&answer);
    let slowest = slow.iter().max_by(|a, b| a.number("total_ms").total_cmp(&b.number("total_ms")));
    let Some(slowest) = slowest else {
        let _ = writeln!(
            out,
            "No request took longer than {above_ms} ms (ringkeeper.slowRequestMs) from when this server read it."
        );
        return Ok(out);
    };
    let _ = writeln!(
        out,
        "Requests that took longer than {above_ms} ms, as far as is counted: {total}. Of the last {} that were logged\n\
         the slowest took {:.1} ms: {}, received {}.\n",
        slow.len(),
        slowest.number("total_ms"),
        slowest.describe(),
        slowest.0["received"]
            .as_i64()
            .and_then(|ms| Timestamp::from_millisecond(ms).ok())
            .unwrap_or_default(),
    );
    stages(&mut out, &slow);
    let count = |name: fn(&Slow<'_>) -> String| top(&slow, name);
    let _ = writeln!(out, "paths:    {}", count(|slow| slow.text("path").escape_debug().to_string()));
    let _ = writeln!(out, "sessions: {}", count(|slow| slow.text("session_id_hex").to_owned()));
    let _ = writeln!(
        out,
        "peers:    {}",
        count(|slow| slow.0["peer"].as_u64().map(|id| id.to_string()).unwrap_or_default())
    );
    Ok(out)
}

/// What made the server slow in the last minutes, as the server tells; nothing of a server that does not.
fn findings(answer: &Value) -> String {
    let Some(found) = answer["findings"].as_array() else { return String::new() };
    if found.is_empty() {
        return "In the last 5 minutes neither disk, peers, clients nor host were found slow.\n\n".to_owned();
    }
    let mut out = "In the last 5 minutes, by the worst ten seconds:\n".to_owned();
    for (number, finding) in (1..).zip(found) {
        // A terminal obeys control characters.
        let text = |field: &str| finding[field].as_str().unwrap_or_default().replace(char::is_control, "?");
        let _ = writeln!(out, "{number}. {}.\n   {}", text("text"), text("advice"));
    }
    out.push('\n');
    out
}

/// The stages by their share of the time, each with what to do about it.
fn stages(out: &mut String, slow: &[Slow<'_>]) {
    let all_ms: f64 = slow.iter().map(|slow| slow.number("total_ms")).sum();
    let mut shares: Vec<_> = Stage::ALL
        .into_iter()
        .map(|stage| {
            let of = |slow: &Slow<'_>| slow.0["stages_ms"][stage.name()].as_f64().unwrap_or_default();
            let mostly = slow.iter().filter(|slow| slow.text("mostly") == stage.name()).count();
            (stage, slow.iter().map(of).sum::<f64>() / all_ms.max(f64::MIN_POSITIVE), mostly)
        })
        .filter(|(_, share, mostly)| *share >= 0.005 || *mostly > 0)
        .collect();
    shares.sort_by(|(_, a, _), (_, b, _)| b.total_cmp(a));
    let _ = writeln!(out, "stage      share  mostly");
    for (stage, share, mostly) in shares {
        let _ = writeln!(out, "{:<8} {:>5.1} %  {mostly:>6}  {}", stage.name(), share * 100.0, advice(stage));
    }
    out.push('\n');
}

/// The names that occur most, each with how often.
fn top(slow: &[Slow<'_>], name: fn(&Slow<'_>) -> String) -> String {
    let mut counts = BTreeMap::<String, usize>::new();
    for slow in slow {
        let name = name(slow);
        if !name.is_empty() {
            *counts.entry(name).or_default() += 1;
        }
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let shown: Vec<_> = counts.iter().take(TOP).map(|(name, count)| format!("{name} ({count})")).collect();
    if shown.is_empty() { "none".to_owned() } else { shown.join(", ") }
}

/// What to do about a long stage, in one sentence.
const fn advice(stage: Stage) -> &'static str {
    match stage {
        Stage::Input => "Clients ask for too much at once (globalOutstandingLimit): use more shards.",
        Stage::Unread => "Clients do not read the replies to their requests before: see the sessions below.",
        Stage::Queue => "The leader core is busy: look for large multis, and give it a core of its own.",
        Stage::Prepare => "Requests take long to execute: make multis smaller, and do not share the CPU.",
        Stage::Batch => "Batches wait for the append before them: look at the log's disk (fsynctime).",
        Stage::Leader => "The leader, or the network to it, is slow: ask the leader why.",
        Stage::Log => "This server's disk is slow: give the log one of its own (dataLogDir), or replace it.",
        Stage::Quorum => "Other servers are slow: look at disk, host and network of the peers below.",
        Stage::Commit => "Replication is slow: look at fsynctime and quorum_ack_latency.",
        Stage::Publish => "Very many watches fire at once: look at node_*_watch_count.",
        Stage::Wait => "Reads wait for writes of their session: use another session for reads.",
        Stage::Read => "Reads list or count very many znodes: spread them over more parents.",
        Stage::Output => "Clients take their replies late: they are busy, or the network is slow.",
        Stage::Pause => "The host took the CPU away: it is overcommitted or was stopped. No setting helps.",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn slow(path: Option<&str>, mostly: &str, stages: &Value) -> Value {
        json!({
            "received": 1_000, "operation": "SETD", "path": path, "session_id_hex": "0x1",
            "total_ms": 100.0, "mostly": mostly, "stages_ms": stages, "peer": 3,
        })
    }

    #[test]
    fn stages_are_shown_by_their_share_with_what_to_do() {
        let list = [
            slow(Some("/a"), "quorum", &json!({ "log": 10.0, "quorum": 90.0 })),
            slow(Some("/a"), "quorum", &json!({ "quorum": 100.0 })),
            slow(None, "pause", &json!({ "log": 1.0, "read": 39.0, "pause": 60.0 })),
        ];
        let found = json!([{ "text": "the disk of server 3 is slow", "advice": "Ask it." }]);
        let answer = json!({
            "slow_request_ms": 50, "total": 7, "findings": found, "slow_requests": list, "error": null,
        });
        let text = show(&answer.to_string()).expect("an answer");
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[1..3], ["1. the disk of server 3 is slow.", "   Ask it."]);
        let lines = &lines[4..];
        assert_eq!(
            lines[0],
            "Requests that took longer than 50 ms, as far as is counted: 7. Of the last 3 that were logged"
        );
        let order: Vec<_> =
            lines[4..8].iter().map(|line| line.split("  ").next().unwrap_or_default()).collect();
        assert_eq!(order, ["quorum", "pause", "read", "log"], "{text}");
        assert!(lines[4].contains("63.3 %       2  Other servers are slow"), "{text}");
        assert!(text.contains("paths:    /a (2)") && text.contains("peers:    3 (3)"), "{text}");
    }

    #[test]
    fn nothing_slow_is_said_so_and_other_answers_are_told_apart() {
        let none = json!({ "slow_request_ms": 50, "total": 0, "slow_requests": [], "error": null });
        let text = show(&none.to_string()).expect("an answer");
        let said =
            "No request took longer than 50 ms (ringkeeper.slowRequestMs) from when this server read it.\n";
        assert_eq!(text, said);
        let unknown = show(r#"{"command":"slow_requests","error":"Unknown command: slow_requests"}"#);
        assert!(matches!(unknown, Err(AdminError::Refused(_))));
        assert!(matches!(show("<html>"), Err(AdminError::Other(_))));
    }
}
