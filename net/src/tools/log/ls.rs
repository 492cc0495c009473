//! `ringkeeper log ls`.

use clap::Args;
use ringkeeper_log::examine::{Examination, Segment, Unobserved, examine};
use serde_json::{Value, json};

use crate::tools::folder::{Folder, FolderArgs};
use crate::tools::out::{Out, hex};
use crate::tools::{Finding, ToolError};

#[derive(Args)]
pub(crate) struct LsArgs {
    #[command(flatten)]
    folder: FolderArgs,
}

pub(super) async fn ls(args: LsArgs) -> Result<Finding, ToolError> {
    let folder = Folder::open_settled(&args.folder).await?;
    let found = examine(&folder.log, folder.options.identity, &mut Unobserved).await;
    let found = found.map_err(|source| ToolError::Log { folder: folder.log_dir.clone(), source })?;
    let mut out = Out::new(args.folder.json);
    show(&found, &mut out)?;
    if found.verdict.is_ok() {
        out.flush()?;
        return Ok(Finding::Sound);
    }
    out.line(format_args!("the log is damaged: {} tells where", folder.command("log verify")))?;
    out.flush()?;
    Ok(Finding::Damaged)
}

fn show(found: &Examination, out: &mut Out) -> Result<(), ToolError> {
    let rows: Vec<_> = found.segments.iter().map(row).collect();
    out.table(["file", "role", ">after zxid", ">last zxid", ">batches", ">used", ">size"], &rows)?;
    found.segments.iter().try_for_each(|segment| out.object(|| object(segment)))
}

fn row(segment: &Segment) -> [String; 7] {
    let counts = segment.frames > 0 || segment.groups > 0;
    let zxid = |zxid| if counts { hex(zxid) } else { "-".to_owned() };
    [
        segment.file.clone(),
        segment.role.to_string(),
        zxid(segment.after_zxid.0),
        zxid(segment.last_zxid.0),
        segment.frames.to_string(),
        segment.used_bytes.to_string(),
        segment.size_bytes.to_string(),
    ]
}

fn object(segment: &Segment) -> Value {
    json!({
        "file": segment.file,
        "role": segment.role.to_string(),
        "after_zxid": hex(segment.after_zxid.0),
        "last_zxid": hex(segment.last_zxid.0),
        "groups": segment.groups,
        "batches": segment.frames,
        "used_bytes": segment.used_bytes,
        "size_bytes": segment.size_bytes,
    })
}
