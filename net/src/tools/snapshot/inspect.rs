//! `ringkeeper snapshot inspect`: what a state is made of.

mod census;

use clap::Args;
use ringkeeper_engine::state::State;
use ringkeeper_log::snapshot::Head;
use serde_json::json;

use self::census::{Census, Subtree};
use super::OneArgs;
use crate::tools::out::{Out, hex, printable};
use crate::tools::{Finding, ToolError};

#[derive(Args)]
pub(crate) struct InspectArgs {
    #[command(flatten)]
    snapshot: OneArgs,
    /// How many of the largest subtrees, widest parents and sessions are shown
    #[arg(long, value_name = "N", default_value_t = 10)]
    top: usize,
}

pub(super) async fn inspect(args: InspectArgs) -> Result<Finding, ToolError> {
    let (state, head) = args.snapshot.read().await?;
    let census = Census::take(&state);
    let mut out = Out::new(args.snapshot.folder.json);
    totals(&state, &head, &census, &mut out)?;
    subtrees(&census, args.top, &mut out)?;
    parents(&census, args.top, &mut out)?;
    sessions(&state, args.top, &mut out)?;
    out.flush()?;
    Ok(Finding::Sound)
}

fn totals(state: &State, head: &Head, census: &Census, out: &mut Out) -> Result<(), ToolError> {
    let znodes = state.tree().len();
    let (sessions, ephemerals) = (state.sessions().len(), state.ephemeral_count());
    let (containers, ttls, acls) = (census.containers, census.ttls, state.acl_count());
    let total = census.total();
    let (data_bytes, path_bytes) = (total.data_bytes, total.bytes - total.data_bytes);
    out.line(format_args!("zxid {}, ensemble {:#x}, digest {:#x}", head.zxid, head.cluster, state.digest()))?;
    out.line(format_args!("{znodes} znodes, {data_bytes} bytes of data, {path_bytes} bytes of paths"))?;
    out.line(format_args!(
        "{ephemerals} ephemerals, {containers} containers, {ttls} with a time to live, {sessions} sessions, {acls} access \
         control lists"
    ))?;
    out.object(|| {
        json!({
            "zxid": hex(head.zxid.0),
            "ensemble": hex(head.cluster),
            "digest": hex(state.digest()),
            "znodes": znodes,
            "data_bytes": data_bytes,
            "path_bytes": path_bytes,
            "ephemerals": ephemerals,
            "containers": containers,
            "ttl_znodes": ttls,
            "sessions": sessions,
            "access_control_lists": acls,
        })
    })
}

fn subtrees(census: &Census, top: usize, out: &mut Out) -> Result<(), ToolError> {
    let largest = census.largest(top);
    out.line("\nlargest subtrees, by bytes of paths and data")?;
    let row = |(path, subtree): &(&str, Subtree)| {
        [subtree.bytes.to_string(), subtree.znodes.to_string(), printable(path)]
    };
    out.table([">bytes", ">znodes", "path"], &largest.iter().map(row).collect::<Vec<_>>())?;
    largest.iter().try_for_each(|(path, subtree)| {
        out.object(|| json!({ "subtree": path, "bytes": subtree.bytes, "znodes": subtree.znodes }))
    })
}

fn parents(census: &Census, top: usize, out: &mut Out) -> Result<(), ToolError> {
    let widest = census.widest(top);
    out.line("\nwidest parents")?;
    let row = |(path, children): &(&str, u32)| [children.to_string(), printable(path)];
    out.table([">children", "path"], &widest.iter().map(row).collect::<Vec<_>>())?;
    widest
        .iter()
        .try_for_each(|(path, children)| out.object(|| json!({ "parent": path, "children": children })))
}

fn sessions(state: &State, top: usize, out: &mut Out) -> Result<(), ToolError> {
    let mut sessions: Vec<_> = state
        .sessions()
        .map(|(id, session)| (state.ephemerals(id).count(), id, session.timeout_ms))
        .collect();
    sessions.sort_unstable_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
    out.line("\nsessions, by their ephemerals")?;
    let shown = &sessions[..top.min(sessions.len())];
    let rows: Vec<_> = shown
        .iter()
        .map(|(ephemerals, id, timeout_ms)| {
            let first = state.ephemerals(*id).next().map(printable).unwrap_or_default();
            [id.to_string(), timeout_ms.to_string(), ephemerals.to_string(), first]
        })
        .collect();
    out.table(["session", ">timeout ms", ">ephemerals", "the first of them"], &rows)?;
    if shown.len() < sessions.len() {
        out.line(format_args!("... and {} more", sessions.len() - shown.len()))?;
    }
    // Programs get all of them.
    sessions.iter().try_for_each(|(_, id, timeout_ms)| {
        out.object(|| {
            let ephemerals: Vec<_> = state.ephemerals(*id).collect();
            json!({ "session": id.to_string(), "timeout_ms": timeout_ms, "ephemerals": ephemerals })
        })
    })
}
