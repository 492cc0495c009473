//! `ringkeeper folder`: which server a stopped server's folder belongs to, and making it another one's on
//! purpose.

use clap::{Args, Subcommand};
use ringkeeper_engine::zab::ServerSet;
use ringkeeper_host::identity::Owner;
use ringkeeper_log::meta::{Meta, MetaStore, PersistedEpochs};
use ringkeeper_wire::{Epoch, ServerId, Zxid};
use serde_json::json;

use super::folder::{Folder, FolderArgs, random};
use super::out::{Out, hex};
use super::{Finding, ToolError, run};
use crate::server::wanted;

/// The tools for a folder as a whole.
#[derive(Subcommand)]
pub(crate) enum FolderCommand {
    /// Shows which server and ensemble the folder belongs to, and the epochs it has promised
    Show(ShowArgs),
    /// Makes the folder that of a server alone, or with --config that of a member of the ensemble in there
    Adopt(AdoptArgs),
}

#[derive(Args)]
pub(crate) struct ShowArgs {
    #[command(flatten)]
    folder: FolderArgs,
}

#[derive(Args)]
pub(crate) struct AdoptArgs {
    #[command(flatten)]
    folder: FolderArgs,
    /// Does it; without this, it is only shown
    #[arg(long)]
    yes: bool,
}

impl FolderCommand {
    /// Does what it says.
    ///
    /// # Errors
    /// One sentence for the user.
    pub(crate) fn run(self) -> Result<Finding, ToolError> {
        match self {
            Self::Show(args) => run(show(args)),
            Self::Adopt(args) => run(adopt(args)),
        }
    }
}

async fn show(args: ShowArgs) -> Result<Finding, ToolError> {
    let folder = Folder::open_settled(&args.folder).await?;
    let meta = &folder.meta;
    let PersistedEpochs {
        cluster, fork, accepted_epoch, current_epoch, initialized, end_before_damage, ..
    } = meta.promises;
    let (Epoch(accepted_epoch), Epoch(current_epoch)) = (accepted_epoch, current_epoch);
    let mut out = Out::new(args.folder.json);
    out.line(format_args!("{} belongs to {}", folder.log_dir.display(), Owner::of(meta)))?;
    out.line(format_args!("epochs: accepted {accepted_epoch}, current {current_epoch}"))?;
    if end_before_damage > Zxid::ZERO {
        out.line(format_args!(
            "damaged: the log went up to {}, and has to be brought back",
            hex(end_before_damage.0)
        ))?;
    }
    let voters: Vec<_> = ServerSet::from_words(meta.promises.voters).iter().map(|id| id.0).collect();
    out.object(|| {
        json!({
            "server": meta.server_id.0,
            "voters": voters,
            "groups": hex(meta.promises.groups),
            "ensemble": hex(cluster),
            "fork": hex(fork),
            "accepted_epoch": accepted_epoch,
            "current_epoch": current_epoch,
            "initialized": initialized,
            "end_before_damage": hex(end_before_damage.0),
        })
    })?;
    out.flush()?;
    Ok(Finding::Sound)
}

async fn adopt(args: AdoptArgs) -> Result<Finding, ToolError> {
    let wanted = wanted(&args.folder.config()?);
    let folder = Folder::open_settled(&args.folder).await?;
    let meta = &folder.meta;
    let (id, voters) = wanted.resolve(Some(meta));
    let is = Owner::of(meta);
    if id != meta.server_id {
        return Err(ToolError::Refused(format!(
            "{} belongs to {is}, not to server {id}: what a server has promised is no other one's; begin with an \
             empty folder, the ensemble fills it",
            folder.log_dir.display()
        )));
    }
    let mut out = Out::new(args.folder.json);
    if (meta.promises.voters, meta.promises.groups) == (voters.words(), wanted.groups) {
        out.line(format_args!("{} belongs to {is} already", folder.log_dir.display()))?;
        out.flush()?;
        return Ok(Finding::Sound);
    }
    if Owner::of(meta).is_named_by_log() {
        return Err(ToolError::Refused(format!(
            "{}: the log says who belongs to its ensemble, and a list cannot change that: ask the leader for other \
             members (reconfig); if there is none any more, restore a backup, or export and import the folder",
            folder.log_dir.display()
        )));
    }
    let promises = adopted(meta, voters, wanted.groups)?;
    let becomes = Meta { promises, ..*meta };
    out.line(format_args!("{} belongs to {is}", folder.log_dir.display()))?;
    out.line(format_args!("it becomes that of {}", Owner::of(&becomes)))?;
    out.line(consequences(meta.server_id, &voters))?;
    if !args.yes {
        out.line("nothing was changed: add --yes to do it")?;
        out.flush()?;
        return Ok(Finding::Damaged);
    }
    let failed = |source| ToolError::Meta { folder: folder.log_dir.clone(), source };
    let mut store = MetaStore::open(folder.log.clone(), id, meta.salt).await.map_err(failed)?;
    let written = store.promise(promises).await;
    written.map_err(|error| ToolError::Refused(format!("{}: {error}", folder.log_dir.display())))?;
    out.line("done")?;
    out.object(|| json!({ "server": id.0, "voters": voters.iter().map(|id| id.0).collect::<Vec<_>>() }))?;
    out.flush()?;
    Ok(Finding::Sound)
}

/// What the folder says afterwards. A server alone begins a fork: its history must not mix with the other
/// members'.
fn adopted(meta: &Meta, voters: ServerSet, groups: u64) -> Result<PersistedEpochs, ToolError> {
    let promises = PersistedEpochs { voters: voters.words(), groups, ..meta.promises };
    if !is_alone(meta.server_id, &voters) {
        return Ok(promises);
    }
    Ok(PersistedEpochs { fork: random()?.max(1), ..promises })
}

fn is_alone(id: ServerId, voters: &ServerSet) -> bool {
    voters.iter().eq([id])
}

fn consequences(id: ServerId, voters: &ServerSet) -> &'static str {
    if is_alone(id, voters) {
        "what the other members have acknowledged and this folder lacks is not in it, and from now on they refuse \
         it: to come back as a member it has to be emptied"
    } else {
        "members that go by another list can acknowledge writes that those of this list never see: stop all \
         servers, and give every one of them the same list, before any is started"
    }
}
