//! `ringkeeper snapshot verify`.

use clap::Args;
use ringkeeper_log::snapshot::file_name;
use ringkeeper_wire::Zxid;
use serde_json::json;

use crate::server::check_snapshot;
use crate::tools::folder::{Folder, FolderArgs};
use crate::tools::out::{Out, hex};
use crate::tools::{Finding, ToolError};

#[derive(Args)]
pub(crate) struct VerifyArgs {
    #[command(flatten)]
    folder: FolderArgs,
    /// The zxid in the snapshot's name [default: all of them]
    #[arg(long, value_name = "ZXID")]
    zxid: Option<Zxid>,
}

pub(super) async fn verify(args: VerifyArgs) -> Result<Finding, ToolError> {
    let folder = Folder::open_settled(&args.folder).await?;
    let failed = |source| ToolError::Snapshot { folder: folder.data_dir.clone(), source };
    let mut zxids = folder.snapshots.list().await.map_err(failed)?;
    if let Some(zxid) = args.zxid {
        zxids = vec![zxid];
    }
    let mut out = Out::new(args.folder.json);
    let mut finding = Finding::Sound;
    for zxid in zxids {
        let file = file_name(zxid);
        match check_snapshot(&folder.snapshots, zxid).await.map_err(failed)? {
            Ok((state, _)) => {
                let (znodes, sessions) = (state.tree().len(), state.sessions().len());
                out.line(format_args!("{file}: sound, {znodes} znodes, {sessions} sessions"))?;
                out.object(
                    || json!({ "file": file, "zxid": hex(zxid.0), "sound": true, "znodes": znodes, "sessions": sessions }),
                )?;
            }
            Err(why) => {
                finding = Finding::Damaged;
                out.line(format_args!("damage: {why}"))?;
                out.object(|| json!({ "file": file, "zxid": hex(zxid.0), "sound": false, "what": why }))?;
            }
        }
    }
    if finding == Finding::Damaged {
        out.line(format_args!("what can be done: {}", folder.command("log repair")))?;
    }
    out.flush()?;
    Ok(finding)
}
