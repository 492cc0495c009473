//! `ringkeeper snapshot export`: a znode a line, as JSON.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use clap::Args;
use ringkeeper_engine::acl::Acl;
use ringkeeper_engine::state::State;
use ringkeeper_engine::tree::{Owner, Znode};
use ringkeeper_wire::Perms;
use serde_json::{Value, json};

use super::OneArgs;
use crate::tools::out::{Out, hex};
use crate::tools::{Finding, ToolError};

/// The letters of permissions, in zkCli's order.
const LETTERS: [(char, Perms); 5] = [
    ('c', Perms::CREATE),
    ('d', Perms::DELETE),
    ('r', Perms::READ),
    ('w', Perms::WRITE),
    ('a', Perms::ADMIN),
];

#[derive(Args)]
pub(crate) struct ExportArgs {
    #[command(flatten)]
    snapshot: OneArgs,
    /// Only this znode and what is below it
    #[arg(long, value_name = "PATH", default_value = "/")]
    path: String,
}

pub(super) async fn export(args: ExportArgs) -> Result<Finding, ToolError> {
    let (state, _) = args.snapshot.read().await?;
    let Some(root) = state.znode(&args.path) else {
        return Err(ToolError::Refused(format!("there is no znode {} in the snapshot", args.path)));
    };
    let mut out = Out::new(true);
    out.object(|| object(&state, root))?;
    for znode in state.tree().descendants(&args.path) {
        out.object(|| object(&state, znode))?;
    }
    out.flush()?;
    Ok(Finding::Sound)
}

/// A znode as `ringkeeper shell` exports and imports it: with its path below `top`.
pub(crate) fn portable_object(state: &State, znode: &Znode, top: &str) -> Value {
    let mut object = object(state, znode);
    let path = znode.path();
    object["path"] = path.strip_prefix(top).unwrap_or(&path).into();
    if object.get("data").is_some_and(Value::is_null) {
        object["data"] = "".into();
    }
    object
}

fn object(state: &State, znode: &Znode) -> Value {
    let mut object = json!({
        "path": znode.path(),
        "stat": stat(znode),
        "acl": acl(state.acl_of(znode)),
    });
    // Null and empty data are two things.
    match znode.data().map(|data| (data, std::str::from_utf8(data))) {
        None => object["data"] = Value::Null,
        Some((_, Ok(text))) => object["data"] = text.into(),
        Some((data, Err(_))) => object["data_base64"] = BASE64_STANDARD.encode(data).into(),
    }
    match znode.owner() {
        Owner::Container => object["container"] = true.into(),
        Owner::Ttl(ms) => object["ttl_ms"] = ms.into(),
        Owner::None | Owner::Session(_) => {}
    }
    object
}

fn stat(znode: &Znode) -> Value {
    let stat = znode.stat();
    json!({
        "czxid": hex(stat.czxid.cast_unsigned()),
        "mzxid": hex(stat.mzxid.cast_unsigned()),
        "ctime_ms": stat.ctime,
        "mtime_ms": stat.mtime,
        "version": stat.version,
        "cversion": stat.cversion,
        "aversion": stat.aversion,
        "ephemeral_owner": hex(stat.ephemeral_owner.cast_unsigned()),
        "data_length": stat.data_length,
        "num_children": stat.num_children,
        "pzxid": hex(stat.pzxid.cast_unsigned()),
    })
}

fn acl(acl: &Acl) -> Value {
    let letters = |perms: Perms| -> String {
        LETTERS.iter().filter(|(_, bit)| perms.0 & bit.0 != 0).map(|(letter, _)| *letter).collect()
    };
    let entries = acl.entries().iter();
    entries
        .map(|entry| json!({ "scheme": entry.scheme, "id": entry.id, "perms": letters(entry.perms) }))
        .collect()
}
