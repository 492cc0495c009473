//! `ringkeeper log dump`.

use std::ops::ControlFlow;

use clap::Args;
use ringkeeper_engine::txn;
use ringkeeper_log::examine::{Damage, Observer, Place, examine};
use ringkeeper_log::frame::{Checksum, Frame};
use ringkeeper_wire::Zxid;
use serde_json::{Value, json};

use super::verify::damage_object;
use crate::tools::folder::{Folder, FolderArgs};
use crate::tools::out::Out;
use crate::tools::{Finding, ToolError};
use crate::transaction::{self, Data};

#[derive(Args)]
pub(crate) struct DumpArgs {
    #[command(flatten)]
    folder: FolderArgs,
    /// The first transaction to show
    #[arg(long, value_name = "ZXID")]
    from: Option<Zxid>,
    /// The last one
    #[arg(long, value_name = "ZXID")]
    to: Option<Zxid>,
}

pub(super) async fn dump(args: DumpArgs) -> Result<Finding, ToolError> {
    let range @ (from, to) = (args.from.unwrap_or_default(), args.to.unwrap_or(Zxid(u64::MAX)));
    if from > to {
        return Err(ToolError::Refused(format!("--from {from} is behind --to {to}: exchange them")));
    }
    let folder = Folder::open_settled(&args.folder).await?;
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
            self.out.line(transaction::text(txn))?;
            self.out.object(|| {
                let mut object = transaction::object(txn, Data::Omitted);
                object.insert("file".into(), place.file.into());
                object.insert("offset".into(), place.offset.into());
                Value::Object(object)
            })?;
        }
        Ok(())
    }
}
