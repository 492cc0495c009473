//! `ringkeeper log compare`: what one folder's log has and another's lacks.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::path::PathBuf;

use clap::Args;
use ringkeeper_log::examine::{Damage, Examination, Observer, Place, examine};
use ringkeeper_log::frame::Frame;
use ringkeeper_wire::Zxid;

use super::dump::{BatchEnd, Dump};
use crate::tools::folder::{Folder, FolderArgs};
use crate::tools::out::{Out, hex};
use crate::tools::{Finding, ToolError};

#[derive(Args)]
pub(crate) struct CompareArgs {
    /// A stopped server's log folder
    a: PathBuf,
    /// Another one's
    b: PathBuf,
    /// Answers as JSON, one object a line
    #[arg(long)]
    json: bool,
}

/// The batches of a log.
#[derive(Default)]
struct Batches {
    ends: HashSet<BatchEnd>,
    last_zxid: Zxid,
}

impl Observer for Batches {
    async fn frame(&mut self, _: Place<'_>, frame: Frame<'_>) -> ControlFlow<()> {
        self.last_zxid = frame.meta().last_zxid;
        self.ends.insert((self.last_zxid, frame.checksum()));
        ControlFlow::Continue(())
    }

    /// The verdict on the whole log tells.
    fn damage(&mut self, _: &Damage) {}
}

/// A log that was read.
struct Log {
    folder: Folder,
    batches: Batches,
    /// The zxid after which it begins; what was before is in a snapshot.
    base_zxid: Zxid,
    is_sound: bool,
}

impl Log {
    async fn read(path: PathBuf, json: bool) -> Result<Self, ToolError> {
        let folder = Folder::open_settled(&FolderArgs::of(path, json)).await?;
        let mut batches = Batches::default();
        let found = examined(&folder, &mut batches).await?;
        let base_zxid = found.segments.iter().map(|segment| segment.after_zxid).min().unwrap_or_default();
        Ok(Self { folder, batches, base_zxid, is_sound: found.verdict.is_ok() })
    }

    fn name(&self) -> String {
        self.folder.log_dir.display().to_string()
    }

    /// Shows what this log has and `other` lacks; whether there is anything.
    async fn show_missing_in(&self, other: &Self, json: bool) -> Result<bool, ToolError> {
        let missing = |end: &BatchEnd| end.0 > other.base_zxid && !other.batches.ends.contains(end);
        let count = self.batches.ends.iter().filter(|end| missing(end)).count();
        let mut out = Out::new(json);
        if self.base_zxid > other.base_zxid {
            let base = hex(self.base_zxid.0);
            out.line(format_args!(
                "{} begins after {base}: what is before is in its snapshots",
                self.name()
            ))?;
        }
        let names = (self.name(), other.name());
        match count {
            0 => out.line(format_args!("{} has nothing that {} lacks", names.0, names.1))?,
            _ => out.line(format_args!("{} has what {} lacks:", names.0, names.1))?,
        }
        out.flush()?;
        let mut dump = Dump::new(Out::new(json), (Zxid::ZERO, Zxid(u64::MAX)));
        dump.only = Some(Box::new(missing));
        examined(&self.folder, &mut dump).await?;
        dump.finish()?;
        Ok(count > 0)
    }
}

async fn examined(folder: &Folder, observer: &mut impl Observer) -> Result<Examination, ToolError> {
    let found = examine(&folder.log, folder.options.identity, observer).await;
    found.map_err(|source| ToolError::Log { folder: folder.log_dir.clone(), source })
}

pub(super) async fn compare(args: CompareArgs) -> Result<Finding, ToolError> {
    let json = args.json;
    if let (Ok(a), Ok(b)) = (args.a.canonicalize(), args.b.canonicalize())
        && a == b
    {
        let (a, b) = (args.a.display(), args.b.display());
        return Err(ToolError::Refused(format!(
            "{a} and {b} are the same folder: name that of another server"
        )));
    }
    let (a, b) = (Log::read(args.a, json).await?, Log::read(args.b, json).await?);
    let mut out = Out::new(json);
    let common = a.batches.ends.intersection(&b.batches.ends).map(|(zxid, _)| *zxid).max();
    match common {
        Some(zxid) => out.line(format_args!("both have the same transactions up to {}", hex(zxid.0)))?,
        None => out.line("their logs have no transaction in common")?,
    }
    for log in [&a, &b] {
        out.line(format_args!("{} goes up to {}", log.name(), hex(log.batches.last_zxid.0)))?;
        if !log.is_sound {
            out.line(format_args!("it is damaged: {} tells where", log.folder.command("log verify")))?;
        }
    }
    out.flush()?;
    let differ = a.show_missing_in(&b, json).await? | b.show_missing_in(&a, json).await?;
    Ok(if differ || !a.is_sound || !b.is_sound { Finding::Damaged } else { Finding::Sound })
}
