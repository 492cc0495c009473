//! `ringkeeper log repair`: explicit choices, each with what it loses.

use clap::Args;
use ringkeeper_host::identity::Owner;
use ringkeeper_log::examine::{Unobserved, examine};
use ringkeeper_log::repair;
use ringkeeper_log::snapshot::file_name;
use ringkeeper_log::wal::{Options, Wal};
use ringkeeper_wire::Zxid;
use serde_json::json;

use super::plan::{Found, Lost, Plan, Survey};
use super::verify::damage_object;
use crate::server::{check_snapshot, read_state};
use crate::tools::folder::{AS_NEW_MEMBER, Folder, FolderArgs};
use crate::tools::out::{Out, hex};
use crate::tools::{Finding, ToolError};

#[derive(Args)]
pub(crate) struct RepairArgs {
    #[command(flatten)]
    folder: FolderArgs,
    /// Keeps everything up to the first transaction that is lost, and lets go of everything after it
    #[arg(long, group = "choice")]
    cut: bool,
    /// Keeps the newest sound snapshot and what continues it, and lets go of the log before it
    #[arg(long, group = "choice")]
    from_snapshot: bool,
    /// Sets damaged snapshots aside, if an older one and the log hold everything that they did
    #[arg(long, group = "choice")]
    set_aside_snapshots: bool,
    /// Does it; without this, it is only shown
    #[arg(long)]
    yes: bool,
}

/// What the flags ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    Cut,
    FromSnapshot,
    SetAsideSnapshots,
}

impl Choice {
    const fn flag(self) -> &'static str {
        match self {
            Self::Cut => "--cut",
            Self::FromSnapshot => "--from-snapshot",
            Self::SetAsideSnapshots => "--set-aside-snapshots",
        }
    }
}

impl RepairArgs {
    const fn choice(&self) -> Option<Choice> {
        match (self.cut, self.from_snapshot, self.set_aside_snapshots) {
            (true, ..) => Some(Choice::Cut),
            (_, true, _) => Some(Choice::FromSnapshot),
            (.., true) => Some(Choice::SetAsideSnapshots),
            _ => None,
        }
    }
}

pub(super) async fn repair(args: RepairArgs) -> Result<Finding, ToolError> {
    let folder = Folder::open(&args.folder).await?;
    let mut desk = Desk { out: Out::new(args.folder.json), folder };
    let finding = desk.repair(&args).await?;
    desk.out.flush()?;
    Ok(finding)
}

/// A folder, and where what is said about it goes.
struct Desk {
    folder: Folder,
    out: Out,
}

impl Desk {
    async fn repair(&mut self, args: &RepairArgs) -> Result<Finding, ToolError> {
        if self.folder.interrupted {
            return self.finish(args.yes).await;
        }
        let survey = self.survey().await?;
        self.show_damage(&survey)?;
        let Some(choice) = args.choice() else { return self.offer(&survey) };
        let plan = match choice {
            Choice::Cut => survey.cut(),
            Choice::FromSnapshot => survey.snapshot_and_after(),
            Choice::SetAsideSnapshots => return self.snapshots_aside(&survey, args.yes).await,
        };
        if survey.is_sound() {
            return Err(refused("the log is sound: there is nothing to choose"));
        }
        let Some(plan) = plan else {
            let other = self.folder.command("log repair");
            return Err(refused(&format!(
                "{} is no choice here: {other} shows those there are",
                choice.flag()
            )));
        };
        let lost = survey.lost(&plan);
        if self.folder.has_peers && !lost.is_none() {
            return Err(refused(&format!(
                "this server has peers, and they may count on what would be lost: start it, so that they bring it back; \
                 if that fails, {AS_NEW_MEMBER}"
            )));
        }
        self.show(choice, &plan, &survey)?;
        if !args.yes {
            self.ask_for_yes(choice)?;
            return Ok(Finding::Damaged);
        }
        self.folder.keep_meta().await?;
        let options = Options {
            segment_size_bytes: survey.segment_size_bytes(self.folder.options.segment_size_bytes),
            ..self.folder.options.clone()
        };
        let (log, snapshots) = (&self.folder.log, &self.folder.snapshots);
        let repaired = repair::rewrite(log, snapshots, options, survey.extent(&plan)).await;
        let repaired = repaired.map_err(|source| self.failed(source))?;
        self.show_done(&repaired).await
    }

    async fn survey(&self) -> Result<Survey, ToolError> {
        let log = examine(&self.folder.log, self.folder.options.identity, &mut Unobserved).await;
        let log = log.map_err(|source| ToolError::Log { folder: self.folder.log_dir.clone(), source })?;
        let failed = |source| ToolError::Snapshot { folder: self.folder.data_dir.clone(), source };
        let mut snapshots = Vec::new();
        for zxid in self.folder.snapshots.list().await.map_err(failed)? {
            let state = check_snapshot(&self.folder.snapshots, zxid).await.map_err(failed)?;
            snapshots.push(Found { zxid, state: state.map(|(_, head)| head.chain) });
        }
        Ok(Survey { log, snapshots, gone_until: self.folder.gone_until })
    }

    fn show_damage(&mut self, survey: &Survey) -> Result<(), ToolError> {
        for damage in &survey.log.damages {
            self.out.line(format_args!("damage: {damage}"))?;
            self.out.object(|| damage_object(damage))?;
        }
        for (zxid, why) in survey.spoiled() {
            self.out.line(format_args!("damage: {why}"))?;
            self.out.object(|| json!({ "damage": "snapshot", "file": file_name(zxid), "what": why }))?;
        }
        Ok(())
    }

    /// Names the choices.
    fn offer(&mut self, survey: &Survey) -> Result<Finding, ToolError> {
        if survey.is_sound() {
            if survey.spoiled().next().is_none() {
                self.out.line("sound: there is nothing to repair")?;
                self.out.object(|| json!({ "sound": true }))?;
                return Ok(Finding::Sound);
            }
            self.out.line(
                "the log is sound, and holds with an older snapshot all that the damaged ones did: a server starts",
            )?;
            self.ask_for_yes(Choice::SetAsideSnapshots)?;
            self.out.object(|| json!({ "choice": Choice::SetAsideSnapshots.flag(), "lost": null }))?;
            return Ok(Finding::Damaged);
        }
        if survey.gone_until.is_some() {
            self.out.line(
                "a server refuses this folder: the server has served, and no file of its log is there",
            )?;
        }
        if let Err(refused) = &survey.log.verdict {
            self.out.line(format_args!("a server refuses this log: {refused}"))?;
        }
        if self.folder.has_peers && self.folder.is_orphaned {
            self.out.line(format_args!("this server has peers: {AS_NEW_MEMBER}"))?;
        } else if self.folder.has_peers {
            self.out.line("this server has peers: start it, so that they bring back what is damaged")?;
        }
        let plans = [(Choice::FromSnapshot, survey.snapshot_and_after()), (Choice::Cut, survey.cut())];
        let mut choices = 0;
        for (choice, plan) in plans {
            if let Some(plan) = plan {
                choices += 1;
                self.show(choice, &plan, survey)?;
                self.ask_for_yes(choice)?;
            }
        }
        if choices == 0 && survey.gone_until.is_some() {
            self.out.line(
                "no choice: no file of the log is there, and no sound snapshot; put them back from a copy, or begin anew in an \
                 empty folder",
            )?;
        } else if choices == 0 {
            self.out.line(
                "no choice: no sound snapshot reaches as far as the log begins; put one back from a copy of this folder, or \
                 of another server's",
            )?;
        }
        let refusal = survey.log.verdict.as_ref().err().map(ToString::to_string);
        self.out.object(|| json!({ "sound": false, "refusal": refusal, "choices": choices }))?;
        Ok(Finding::Damaged)
    }

    fn show(&mut self, choice: Choice, plan: &Plan, survey: &Survey) -> Result<(), ToolError> {
        let lost = survey.lost(plan);
        let aside: Vec<_> = survey.set_aside(plan).map(file_name).collect();
        let Plan { until_zxid, basis, .. } = plan;
        self.out.line(format_args!("{}", choice.flag()))?;
        self.out.line(format_args!("  keeps: {basis} and the transactions up to zxid {until_zxid}"))?;
        self.out.line(format_args!("  {lost}"))?;
        if !lost.is_none() && lost.is_known {
            let dump =
                self.folder.command(&format!("log dump --from {}", Zxid(until_zxid.0.saturating_add(1))));
            self.out.line(format_args!("  what of it can still be read: {dump}"))?;
        }
        if self.folder.is_orphaned {
            let owner = Owner::of(&self.folder.meta);
            self.out.line(format_args!("  the folder becomes that of {owner}: members refuse it"))?;
        } else if !lost.is_none() {
            self.out.line(format_args!(
                "  a member of an ensemble leads nobody, and votes only for who has all of that, until it has it again; a \
                 server alone is not hindered"
            ))?;
        }
        self.out.line(format_args!(
            "  sets aside, unchanged, as aside.<n>.<name>: all files of the log as it is{}",
            aside.iter().map(|name| format!(", {name}")).collect::<String>()
        ))?;
        self.out.object(|| {
            json!({
                "choice": choice.flag(),
                "basis": basis.to_string(),
                "last_zxid": hex(until_zxid.0),
                "lost": lost_object(lost),
                "snapshots_set_aside": aside,
            })
        })
    }

    fn ask_for_yes(&mut self, choice: Choice) -> Result<(), ToolError> {
        let command = self.folder.command(&format!("log repair {} --yes", choice.flag()));
        self.out.line(format_args!("  do it: {command}"))
    }

    async fn snapshots_aside(&mut self, survey: &Survey, yes: bool) -> Result<Finding, ToolError> {
        let spoiled: Vec<_> = survey.spoiled().map(|(zxid, _)| zxid).collect();
        if spoiled.is_empty() {
            return Err(refused("no snapshot is damaged: there is nothing to set aside"));
        }
        if !survey.is_sound() {
            return Err(refused(
                "without the damaged snapshots the state is not whole: repair the log first",
            ));
        }
        if !yes {
            self.ask_for_yes(Choice::SetAsideSnapshots)?;
            return Ok(Finding::Damaged);
        }
        for zxid in spoiled {
            let aside = self.folder.snapshots.set_aside(zxid).await;
            let aside = aside.map_err(|source| self.failed(source))?;
            self.out.line(format_args!("set aside: {aside}"))?;
            self.out.object(|| json!({ "set_aside": aside }))?;
        }
        self.show_state().await
    }

    /// Does what an interrupted repair has left to do.
    async fn finish(&mut self, yes: bool) -> Result<Finding, ToolError> {
        if !yes {
            let command = self.folder.command("log repair --yes");
            self.out.line(format_args!("an earlier repair was interrupted; finish it: {command}"))?;
            self.out.object(|| json!({ "interrupted": true }))?;
            return Ok(Finding::Damaged);
        }
        let (log, snapshots) = (&self.folder.log, &self.folder.snapshots);
        let repaired = repair::finish(log, snapshots, self.folder.options.identity).await;
        let repaired = repaired.map_err(|source| self.failed(source))?;
        self.show_done(&repaired).await
    }

    async fn show_done(&mut self, repaired: &repair::Repaired) -> Result<Finding, ToolError> {
        let (log, snapshots) = &repaired.set_aside;
        for aside in log.iter().chain(snapshots) {
            self.out.line(format_args!("set aside: {aside}"))?;
            self.out.object(|| json!({ "set_aside": aside }))?;
        }
        self.show_state().await
    }

    /// Reads everything as a server does at its start.
    async fn show_state(&mut self) -> Result<Finding, ToolError> {
        let Folder { log, snapshots, options, log_dir, data_dir, .. } = &self.folder;
        let opened = Wal::open(log.clone(), options.clone(), |_| Ok(())).await;
        let (wal, _) = opened.map_err(|source| ToolError::Log { folder: log_dir.clone(), source })?;
        let state = read_state(snapshots, &wal).await;
        let state = state.map_err(|source| ToolError::State { folder: data_dir.clone(), source })?;
        let (zxid, znodes) = (state.last_zxid(), state.tree().len());
        self.out.line(format_args!("repaired: a server starts with {znodes} znodes as of zxid {zxid}"))?;
        if self.folder.is_orphaned && state.membership().is_some() {
            self.out.line(
                "the state names members, without whom it is not served: export and import the folder",
            )?;
        }
        self.out.object(|| json!({ "repaired": true, "last_zxid": zxid.to_string(), "znodes": znodes }))?;
        Ok(Finding::Sound)
    }

    fn failed(&self, source: repair::RepairError) -> ToolError {
        ToolError::Repair { folder: self.folder.log_dir.clone(), source }
    }
}

fn refused(why: &str) -> ToolError {
    ToolError::Refused(why.to_owned())
}

fn lost_object(lost: Lost) -> serde_json::Value {
    if lost.is_none() {
        return serde_json::Value::Null;
    }
    json!({
        "after_zxid": hex(lost.after_zxid.0),
        "until_zxid": lost.is_known.then(|| hex(lost.until_zxid.0)),
        "transactions": lost.count(),
    })
}
