//! `ringkeeper snapshot ls`.

use clap::Args;
use ringkeeper_log::snapshot::file_name;
use serde_json::json;

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
    let failed = |source| ToolError::Snapshot { folder: folder.data_dir.clone(), source };
    let mut out = Out::new(args.folder.json);
    let mut rows = Vec::new();
    let mut finding = Finding::Sound;
    for zxid in folder.snapshots.list().await.map_err(failed)? {
        let file = file_name(zxid);
        match folder.snapshots.open(zxid).await {
            Ok(reader) => {
                let (head, contents) = (*reader.head(), reader.contents());
                let znodes = contents.items;
                let (bytes, blocks) = (reader.len(), reader.blocks());
                out.object(|| {
                    json!({
                        "file": file,
                        "zxid": hex(zxid.0),
                        "bytes": bytes,
                        "blocks": blocks,
                        "znodes": znodes,
                        "digest": hex(contents.digest),
                        "ensemble": hex(head.cluster),
                    })
                })?;
                let digest = hex(contents.digest);
                rows.push([
                    file,
                    hex(zxid.0),
                    bytes.to_string(),
                    blocks.to_string(),
                    znodes.to_string(),
                    digest,
                ]);
            }
            Err(error) if error.is_damage() => {
                finding = Finding::Damaged;
                out.object(|| json!({ "file": file, "zxid": hex(zxid.0), "damage": error.to_string() }))?;
                rows.push([file, hex(zxid.0), "damaged".into(), "-".into(), "-".into(), "-".into()]);
            }
            Err(error) => return Err(failed(error)),
        }
    }
    out.table(["file", ">zxid", ">bytes", ">blocks", ">znodes", ">digest"], &rows)?;
    out.flush()?;
    Ok(finding)
}
