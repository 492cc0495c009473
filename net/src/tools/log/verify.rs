//! `ringkeeper log verify`.

use std::ops::ControlFlow;

use clap::Args;
use ringkeeper_engine::txn;
use ringkeeper_log::Tail;
use ringkeeper_log::examine::{Damage, Examination, Observer, Place, examine};
use ringkeeper_log::frame::Frame;
use ringkeeper_wire::Zxid;
use serde_json::{Value, json};

use crate::tools::folder::{Folder, FolderArgs};
use crate::tools::out::{Out, hex};
use crate::tools::{Finding, ToolError};

#[derive(Args)]
pub(crate) struct VerifyArgs {
    #[command(flatten)]
    folder: FolderArgs,
}

/// Reads the transactions of every batch.
#[derive(Default)]
struct Contents {
    txns: u64,
    batches: u64,
    /// Batches that are whole and hold no transactions of this version.
    unreadable: Vec<Unreadable>,
}

struct Unreadable {
    file: String,
    offset: u64,
    zxid: Zxid,
    why: String,
}

impl Observer for Contents {
    async fn frame(&mut self, place: Place<'_>, frame: Frame<'_>) -> ControlFlow<()> {
        self.batches += 1;
        let meta = frame.meta();
        let why = match txn::decode_batch(frame.payload()) {
            Ok(txns) => {
                self.txns += txns.len() as u64;
                let ends = txns.last().map(|txn| txn.zxid);
                (ends != Some(meta.last_zxid)).then(|| "it holds other zxids than it says".to_owned())
            }
            Err(error) => Some(error.to_string()),
        };
        let unreadable = why.map(|why| Unreadable {
            file: place.file.to_owned(),
            offset: place.offset,
            zxid: meta.first_zxid,
            why,
        });
        self.unreadable.extend(unreadable);
        ControlFlow::Continue(())
    }

    fn damage(&mut self, _: &Damage) {}
}

pub(super) async fn verify(args: VerifyArgs) -> Result<Finding, ToolError> {
    let folder = Folder::open_settled(&args.folder).await?;
    let mut contents = Contents::default();
    let found = examine(&folder.log, folder.options.identity, &mut contents).await;
    let found = found.map_err(|source| ToolError::Log { folder: folder.log_dir.clone(), source })?;
    let mut out = Out::new(args.folder.json);
    for damage in &found.damages {
        out.line(format_args!("damage: {damage}"))?;
        out.object(|| damage_object(damage))?;
    }
    for Unreadable { file, offset, zxid, why } in &contents.unreadable {
        out.line(format_args!("damage: {file} at offset {offset}, the batch of zxid {zxid}: {why}"))?;
        out.object(|| {
            json!({ "damage": "contents", "file": file, "offset": offset, "zxid": hex(zxid.0), "what": why })
        })?;
    }
    if folder.gone_until.is_some() {
        out.line("damage: the server has served, and no file of its log is there")?;
        out.object(|| json!({ "damage": "log", "what": "no file of it is there" }))?;
    }
    let sound = folder.gone_until.is_none() && found.verdict.is_ok() && contents.unreadable.is_empty();
    conclude(&folder, &found, &contents, sound, &mut out)?;
    out.flush()?;
    Ok(if sound { Finding::Sound } else { Finding::Damaged })
}

pub(super) fn damage_object(damage: &Damage) -> Value {
    json!({
        "damage": "log",
        "file": damage.file,
        "offset": damage.offset,
        "after_zxid": hex(damage.after_zxid.0),
        "until_zxid": hex(damage.until_zxid.0),
        "loses": damage.loses(),
        "what": damage.fault.to_string(),
    })
}

fn conclude(
    folder: &Folder,
    found: &Examination,
    contents: &Contents,
    sound: bool,
    out: &mut Out,
) -> Result<(), ToolError> {
    let Contents { txns, batches, .. } = contents;
    let base = found.base().zxid;
    let last = found.fragments.last().map_or(base, |fragment| fragment.last.zxid);
    let torn = match &found.verdict {
        Ok(recovered) => match &recovered.tail {
            Tail::Torn { file, offset } => Some((file.clone(), *offset)),
            Tail::Clean => None,
        },
        Err(refused) => {
            out.line(format_args!("a server refuses this log: {refused}"))?;
            None
        }
    };
    if let Some((file, offset)) = &torn {
        out.line(format_args!(
            "{file} ends at offset {offset} with an append that a crash interrupted: nobody was told of it, and the \
             next start drops it"
        ))?;
    }
    out.line(format_args!(
        "{}: {txns} transactions in {batches} batches can be read, after zxid {base} up to {last}",
        if sound { "sound" } else { "damaged" }
    ))?;
    if !sound {
        out.line(format_args!("what can be done: {}", folder.command("log repair")))?;
    }
    out.object(|| {
        json!({
            "sound": sound,
            "refusal": found.verdict.as_ref().err().map(ToString::to_string),
            "torn_tail": torn.map(|(file, offset)| json!({ "file": file, "offset": offset })),
            "after_zxid": hex(base.0),
            "last_zxid": hex(last.0),
            "last_known_zxid": hex(found.last_known_zxid.0),
            "transactions": txns,
            "batches": batches,
        })
    })
}
