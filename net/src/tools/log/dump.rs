//! `ringkeeper log dump`.

use std::ops::ControlFlow;

use clap::Args;
use jiff::Timestamp;
use ringkeeper_engine::txn::{self, Create, SetAcl, SetData, Txn, TxnOp, Update};
use ringkeeper_log::examine::{Damage, Observer, Place, examine};
use ringkeeper_log::frame::{Checksum, Frame};
use ringkeeper_wire::Zxid;
use serde_json::{Map, Value, json};

use super::verify::damage_object;
use crate::tools::folder::{Folder, FolderArgs};
use crate::tools::out::{Out, printable};
use crate::tools::{Finding, ToolError, parse_zxid};

#[derive(Args)]
pub(crate) struct DumpArgs {
    #[command(flatten)]
    folder: FolderArgs,
    /// The first transaction to show
    #[arg(long, value_name = "ZXID", value_parser = parse_zxid)]
    from: Option<Zxid>,
    /// The last one
    #[arg(long, value_name = "ZXID", value_parser = parse_zxid)]
    to: Option<Zxid>,
}

pub(super) async fn dump(args: DumpArgs) -> Result<Finding, ToolError> {
    let folder = Folder::open_settled(&args.folder).await?;
    let range = (args.from.unwrap_or_default(), args.to.unwrap_or(Zxid(u64::MAX)));
    let mut dump = Dump::new(Out::new(args.folder.json), range);
    let found = examine(&folder.log, folder.options.identity, &mut dump).await;
    let found = found.map_err(|source| ToolError::Log { folder: folder.log_dir.clone(), source })?;
    dump.finish()?;
    Ok(if found.verdict.is_ok() { Finding::Sound } else { Finding::Damaged })
}

/// Last zxid and checksum of a batch. Servers of one ensemble have the same bytes for a batch, and its
/// checksum covers all before it.
pub(super) type BatchEnd = (Zxid, Checksum);

/// Which batches are wanted.
pub(super) type Choice<'a> = Box<dyn Fn(&BatchEnd) -> bool + 'a>;

/// Shows transactions as they come.
pub(super) struct Dump<'a> {
    out: Out,
    range: (Zxid, Zxid),
    /// The batches to show, by last zxid and checksum; all of them if there is no choice.
    pub(super) only: Option<Choice<'a>>,
    failed: Option<ToolError>,
}

impl Observer for Dump<'_> {
    async fn frame(&mut self, place: Place<'_>, frame: Frame<'_>) -> ControlFlow<()> {
        let (from, to) = self.range;
        let meta = frame.meta();
        if meta.last_zxid < from {
            return ControlFlow::Continue(());
        }
        if meta.first_zxid > to {
            return ControlFlow::Break(());
        }
        let end = (meta.last_zxid, frame.checksum());
        if self.only.as_ref().is_some_and(|wanted| !wanted(&end)) {
            return ControlFlow::Continue(());
        }
        self.failed = self.batch(place, frame).err();
        if self.failed.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn damage(&mut self, damage: &Damage) {
        let (from, to) = self.range;
        if damage.until_zxid < from || damage.after_zxid > to || self.failed.is_some() {
            return;
        }
        let shown = self.out.line(format_args!("damage: {damage}"));
        self.failed = shown.and_then(|()| self.out.object(|| damage_object(damage))).err();
    }
}

impl Dump<'_> {
    /// Shows what is from one zxid to another.
    pub(super) fn new(out: Out, range: (Zxid, Zxid)) -> Self {
        Self { out, range, only: None, failed: None }
    }

    /// Everything has come.
    ///
    /// # Errors
    /// What was shown could not be written.
    pub(super) fn finish(mut self) -> Result<(), ToolError> {
        match self.failed {
            Some(error) => Err(error),
            None => self.out.flush(),
        }
    }

    fn batch(&mut self, place: Place<'_>, frame: Frame<'_>) -> Result<(), ToolError> {
        let (from, to) = self.range;
        let txns = match txn::decode_batch(frame.payload()) {
            Ok(txns) => txns,
            Err(error) => {
                let (file, offset) = (place.file, place.offset);
                self.out.line(format_args!("damage: {file} at offset {offset}: {error}"))?;
                return self.out.object(
                    || json!({ "damage": "contents", "file": file, "offset": offset, "what": error.to_string() }),
                );
            }
        };
        for txn in txns.iter().filter(|txn| (from..=to).contains(&txn.zxid)) {
            self.out.line(text(txn))?;
            self.out.object(|| object(txn, place))?;
        }
        Ok(())
    }
}

fn text(txn: &Txn) -> String {
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

fn object(txn: &Txn, place: Place<'_>) -> Value {
    let mut object = Map::new();
    let Txn { zxid, session, xid, time_ms, op } = txn;
    object.insert("zxid".into(), zxid.to_string().into());
    object.insert("session".into(), session.to_string().into());
    object.insert("xid".into(), xid.0.into());
    object.insert("time_ms".into(), (*time_ms).into());
    match op {
        TxnOp::Update(update) => update_object(update, &mut object),
        TxnOp::Reconfig(update) => {
            update_object(update, &mut object);
            object.insert("op".into(), "reconfig".into());
        }
        TxnOp::Multi(updates) => {
            let op = |update| {
                let mut object = Map::new();
                update_object(update, &mut object);
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
    object.insert("file".into(), place.file.into());
    object.insert("offset".into(), place.offset.into());
    Value::Object(object)
}

fn update_object(update: &Update, object: &mut Map<String, Value>) {
    object.insert("path".into(), update.path().into());
    let op = match update {
        Update::Create(Create { data, raw_owner, .. }) => {
            object.insert("bytes".into(), len(data.as_deref()).into());
            if *raw_owner != 0 {
                object.insert("owner".into(), format!("{raw_owner:#x}").into());
            }
            "create"
        }
        Update::Delete(_) => "delete",
        Update::SetData(SetData { data, version, .. }) => {
            object.insert("bytes".into(), len(data.as_deref()).into());
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
