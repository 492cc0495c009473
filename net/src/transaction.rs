//! Transactions as lines for people and as JSON for programs.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use ringkeeper_engine::txn::{Create, SetAcl, SetData, Txn, TxnOp, Update};
use serde_json::{Map, Value};

use crate::tools::printable;

/// Whether the data of znodes is shown, or its length alone.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Data {
    Omitted,
    Shown,
}

/// A line for people.
pub(crate) fn text(txn: &Txn) -> String {
    let time = Timestamp::from_millisecond(txn.time_ms)
        .map_or_else(|_| format!("{} ms", txn.time_ms), |time| format!("{time:.3}"));
    let Txn { zxid, session, xid, .. } = txn;
    format!("{zxid} {time} session {session} xid {} {}", xid.0, op_text(&txn.op))
}

fn op_text(op: &TxnOp) -> String {
    match op {
        TxnOp::Update(update) => update_text(update),
        TxnOp::Reconfig(update) => format!("reconfig {}", update_text(update)),
        TxnOp::Multi(updates) => {
            let updates: Vec<_> = updates.iter().map(update_text).collect();
            format!("multi [{}]", updates.join("; "))
        }
        TxnOp::FailedMulti(failed) => {
            format!("multi of {} failed at number {} with {:?}", failed.ops, failed.failed, failed.code)
        }
        TxnOp::Error(code) => format!("failed with {code:?}"),
        TxnOp::CreateSession(session) => format!("createSession timeout {} ms", session.timeout_ms),
        TxnOp::CloseSession => "closeSession deletes the session's ephemerals".to_owned(),
        TxnOp::CloseSessionListed(paths) => {
            let paths: Vec<_> = paths.iter().map(|path| printable(path)).collect();
            format!("closeSession deletes [{}]", paths.join(" "))
        }
    }
}

fn update_text(update: &Update) -> String {
    let path = printable(update.path());
    match update {
        Update::Create(Create { data, raw_owner, .. }) => {
            let owner = if *raw_owner == 0 { String::new() } else { format!(" owner {raw_owner:#x}") };
            format!("create {path} {} bytes{owner}", len(data.as_deref()))
        }
        Update::Delete(_) => format!("delete {path}"),
        Update::SetData(SetData { data, version, .. }) => {
            format!("setData {path} {} bytes version {version}", len(data.as_deref()))
        }
        Update::SetAcl(SetAcl { acl, aversion, .. }) => {
            format!("setACL {path} {} entries version {aversion}", acl.entries().len())
        }
        Update::Check(_) => format!("check {path}"),
    }
}

fn len(data: Option<&[u8]>) -> usize {
    data.map_or(0, <[u8]>::len)
}

/// An object for programs.
pub(crate) fn object(txn: &Txn, data: Data) -> Map<String, Value> {
    let mut object = Map::new();
    let Txn { zxid, session, xid, time_ms, op } = txn;
    object.insert("zxid".into(), zxid.to_string().into());
    object.insert("session".into(), session.to_string().into());
    object.insert("xid".into(), xid.0.into());
    object.insert("time_ms".into(), (*time_ms).into());
    match op {
        TxnOp::Update(update) => update_object(update, data, &mut object),
        TxnOp::Reconfig(update) => {
            update_object(update, data, &mut object);
            object.insert("op".into(), "reconfig".into());
        }
        TxnOp::Multi(updates) => {
            let op = |update| {
                let mut object = Map::new();
                update_object(update, data, &mut object);
                Value::Object(object)
            };
            object.insert("op".into(), "multi".into());
            object.insert("ops".into(), updates.iter().map(op).collect());
        }
        TxnOp::FailedMulti(failed) => {
            object.insert("op".into(), "multi".into());
            object.insert("error".into(), failed.code.to_wire().into());
            object.insert("failed".into(), failed.failed.into());
        }
        TxnOp::Error(code) => {
            object.insert("op".into(), "error".into());
            object.insert("error".into(), code.to_wire().into());
        }
        TxnOp::CreateSession(session) => {
            object.insert("op".into(), "createSession".into());
            object.insert("timeout_ms".into(), session.timeout_ms.into());
        }
        TxnOp::CloseSession => {
            object.insert("op".into(), "closeSession".into());
        }
        TxnOp::CloseSessionListed(paths) => {
            object.insert("op".into(), "closeSession".into());
            object.insert("deletes".into(), paths.iter().map(|path| Value::from(&**path)).collect());
        }
    }
    object
}

/// Adds what an update does.
pub(crate) fn update_object(update: &Update, shown: Data, object: &mut Map<String, Value>) {
    object.insert("path".into(), update.path().into());
    let op = match update {
        Update::Create(Create { data, raw_owner, .. }) => {
            object.insert("bytes".into(), len(data.as_deref()).into());
            add_data(data.as_deref(), shown, object);
            if *raw_owner != 0 {
                object.insert("owner".into(), format!("{raw_owner:#x}").into());
            }
            "create"
        }
        Update::Delete(_) => "delete",
        Update::SetData(SetData { data, version, .. }) => {
            object.insert("bytes".into(), len(data.as_deref()).into());
            add_data(data.as_deref(), shown, object);
            object.insert("version".into(), (*version).into());
            "setData"
        }
        Update::SetAcl(SetAcl { acl, aversion, .. }) => {
            object.insert("entries".into(), acl.entries().len().into());
            object.insert("version".into(), (*aversion).into());
            "setACL"
        }
        Update::Check(_) => "check",
    };
    object.insert("op".into(), op.into());
}

/// The data as text, or in base64 if it is none.
fn add_data(data: Option<&[u8]>, shown: Data, object: &mut Map<String, Value>) {
    if shown == Data::Omitted {
        return;
    }
    match data.map(str::from_utf8) {
        None => object.insert("data".into(), Value::Null),
        Some(Ok(text)) => object.insert("data".into(), text.into()),
        Some(Err(_)) => object.insert("data_base64".into(), STANDARD.encode(data.unwrap_or_default()).into()),
    };
}
