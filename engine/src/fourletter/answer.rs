//! The texts that answer four-letter words.

use std::fmt::Write;

use ringkeeper_wire::OpCode;

use super::report::{Mode, ServerReport};
use super::{Word, dump, mntr};
use crate::metrics::four_places;
use crate::shard::ConnectionReport;

/// Latencies are shown in whole milliseconds, as tools expect.
const US_PER_MS: u64 = 1000;

const NOT_SERVING: &str = "This ZooKeeper instance is not currently serving requests\n";

/// The answer to `word`. The caller has carried out `crst`, `srst` and `stmk` before.
#[must_use]
pub fn format(word: Word, report: &ServerReport) -> String {
    let mut out = String::new();
    write_answer(&mut out, word, report).expect("writing to a String does not fail");
    out
}

fn write_answer(out: &mut String, word: Word, report: &ServerReport) -> std::fmt::Result {
    match (word, report.mode) {
        (Word::Ruok, _) => out.write_str("imok"),
        (Word::Isro, mode) => out.write_str(match mode {
            None => "null",
            Some(Mode::ReadOnly) => "ro",
            Some(_) => "rw",
        }),
        (Word::Envi, _) => {
            out.write_str("Environment:\n")?;
            pairs(out, &report.environment)
        }
        (Word::Srvr, None) => writeln!(out, "{NOT_SERVING}{}", report.missing),
        (Word::Mntr, None) => {
            out.write_str(NOT_SERVING)?;
            mntr::metrics(out, report)
        }
        (_, None) => out.write_str(NOT_SERVING),
        (word, Some(mode)) => write_serving(out, word, mode, report),
    }
}

fn write_serving(out: &mut String, word: Word, mode: Mode, report: &ServerReport) -> std::fmt::Result {
    match word {
        Word::Srvr => {
            version(out, mode, report)?;
            server(out, mode, report)
        }
        Word::Stat => {
            version(out, mode, report)?;
            out.write_str("Clients:\n")?;
            for connection in &report.shards.connections {
                brief(out, connection)?;
                out.write_str(")\n")?;
            }
            out.write_char('\n')?;
            server(out, mode, report)
        }
        Word::Cons => {
            for connection in &report.shards.connections {
                brief(out, connection)?;
                detail(out, connection, report.clock_offset_ms)?;
                out.write_str(")\n")?;
            }
            out.write_char('\n')
        }
        Word::Crst => out.write_str("Connection stats reset.\n"),
        Word::Srst => out.write_str("Server stats reset.\n"),
        Word::Conf => {
            pairs(out, &report.configuration)?;
            match &report.membership {
                Some(membership) => writeln!(out, "membership: \n{membership}"),
                None => Ok(()),
            }
        }
        Word::Dirs => {
            let (data, log) = report.directory_sizes_bytes;
            write!(out, "datadir_size: {data}\nlogdir_size: {log}\n")
        }
        Word::Dump => dump::dump(out, report),
        Word::Wchs => {
            let watches = report.shards.watches;
            let (connections, paths) = (watches.connections, watches.paths);
            writeln!(out, "{connections} connections watching {paths} paths")?;
            writeln!(out, "Total watches:{}", watches.watches)
        }
        Word::Wchc => dump::watches_by_session(out, report),
        Word::Wchp => dump::watches_by_path(out, report),
        Word::Hash => {
            report.digests.iter().try_for_each(|(zxid, digest)| writeln!(out, "{:x}: {digest}", zxid.0))
        }
        Word::Mntr => mntr::mntr(out, mode, report),
        Word::Gtmk | Word::Stmk => write!(out, "{}", report.trace_mask),
        Word::Ruok | Word::Isro | Word::Envi => unreachable!("answered whether or not the server serves"),
    }
}

fn pairs(out: &mut String, pairs: &[(String, String)]) -> std::fmt::Result {
    pairs.iter().try_for_each(|(key, value)| writeln!(out, "{key}={value}"))
}

fn version(out: &mut String, mode: Mode, report: &ServerReport) -> std::fmt::Result {
    writeln!(out, "Zookeeper version: {}", report.version)?;
    if mode == Mode::ReadOnly {
        out.write_str("READ-ONLY mode; serving only read-only clients\n")?;
    }
    Ok(())
}

fn server(out: &mut String, mode: Mode, report: &ServerReport) -> std::fmt::Result {
    let shards = &report.shards;
    let (latency, average_us) = (shards.latency, shards.latency.average());
    let (min_ms, max_ms) = (latency.min / US_PER_MS, latency.max / US_PER_MS);
    writeln!(out, "Latency min/avg/max: {min_ms}/{:?}/{max_ms}", four_places(average_us / 1000.0))?;
    writeln!(out, "Received: {}", shards.counters.received)?;
    writeln!(out, "Sent: {}", shards.counters.sent)?;
    writeln!(out, "Connections: {}", shards.connection_count)?;
    writeln!(out, "Outstanding: {}", shards.outstanding)?;
    writeln!(out, "Zxid: {}", report.last_zxid)?;
    writeln!(out, "Mode: {mode}")?;
    writeln!(out, "Node count: {}", counted_znodes(report))?;
    match report.proposal_sizes {
        Some(sizes) => {
            writeln!(out, "Proposal sizes last/min/max: {}/{}/{}", sizes.last, sizes.min, sizes.max)
        }
        None => Ok(()),
    }
}

/// The number of znodes as ZooKeeper tells it, which counts the root twice, under the paths "" and "/".
#[must_use]
pub const fn counted_znodes(report: &ServerReport) -> usize {
    report.znode_count + 1
}

/// Appends ` /ip:port[1](queued=..,recved=..,sent=..`, without the closing parenthesis.
pub(super) fn brief(out: &mut String, connection: &ConnectionReport) -> std::fmt::Result {
    let ConnectionReport { peer, outstanding, received, sent, .. } = connection;
    write!(out, " /{peer}[1](queued={outstanding},recved={received},sent={sent}")
}

fn detail(out: &mut String, connection: &ConnectionReport, clock_offset_ms: i64) -> std::fmt::Result {
    if connection.session.0 == 0 {
        return Ok(());
    }
    let established_ms = clock_offset_ms.saturating_add_unsigned(connection.established_ms);
    write!(out, ",sid={},lop={}", connection.session, operation(connection.last_op))?;
    write!(out, ",est={established_ms},to={}", connection.timeout_ms)?;
    if connection.last_xid.0 >= 0 {
        write!(out, ",lcxid=0x{:x}", connection.last_xid.0)?;
    }
    let latency = connection.latency;
    let average_ms = latency.sum.checked_div(latency.count).unwrap_or(0) / US_PER_MS;
    write!(out, ",lzxid=0x{:x},lresp={}", connection.last_zxid, connection.last_response_ms)?;
    write!(out, ",llat={}", connection.last_latency_us / US_PER_MS)?;
    write!(out, ",minlat={},avglat={average_ms}", latency.min / US_PER_MS)?;
    write!(out, ",maxlat={}", latency.max / US_PER_MS)
}

/// ZooKeeper's short name of an operation; of an opcode that a connection had last, if it had any.
#[must_use]
pub fn operation(op: Option<i32>) -> &'static str {
    let Some(op) = op else { return "SESS" };
    match OpCode::from_wire(op) {
        Some(OpCode::Create | OpCode::Create2 | OpCode::CreateContainer | OpCode::CreateTtl) => "CREA",
        Some(OpCode::Delete | OpCode::DeleteContainer) => "DELE",
        Some(OpCode::Exists) => "EXIS",
        Some(OpCode::GetData) => "GETD",
        Some(OpCode::SetData) => "SETD",
        Some(OpCode::GetAcl) => "GETA",
        Some(OpCode::SetAcl) => "SETA",
        Some(OpCode::GetChildren | OpCode::GetChildren2) => "GETC",
        Some(OpCode::Sync) => "SYNC",
        Some(OpCode::Ping) => "PING",
        Some(OpCode::Check) => "CHEC",
        Some(OpCode::Multi) => "MULT",
        Some(OpCode::MultiRead) => "MLTR",
        Some(OpCode::Reconfig) => "RECO",
        Some(OpCode::CheckWatches) => "CHKW",
        Some(OpCode::RemoveWatches) => "REMW",
        Some(OpCode::SetWatches) => "SETW",
        Some(OpCode::SetWatches2) => "STW2",
        Some(OpCode::AddWatch) => "ADDW",
        Some(OpCode::GetEphemerals) => "GETE",
        Some(OpCode::GetAllChildrenNumber) => "GETACN",
        Some(OpCode::WhoAmI) => "HOMI",
        Some(OpCode::CloseSession) => "CLOS",
        Some(OpCode::CreateSession) => "SESS",
        _ => "NA",
    }
}
