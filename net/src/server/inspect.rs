//! What four-letter words and the admin listener tell: whoever is asked collects reports from all shards and
//! the leader core, each made on its own executor, and shows them.

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;

use async_channel::{Receiver, Sender};
use async_lock::{Mutex, MutexGuardArc};
use ringkeeper_engine::fourletter::{Command as Asked, ServerReport, Word, format};
use ringkeeper_engine::level::LevelChange;
use ringkeeper_engine::replica::ListedSession;
use ringkeeper_engine::shard::{Shard, ShardReport};
use ringkeeper_engine::snapshot::Encoder;
use ringkeeper_engine::zab::{Batch, LogPosition};
use ringkeeper_log::error::ReadError;
use ringkeeper_wire::{ServerId, SessionId, Zxid};

use super::core_host::{self, CoreHost};
use super::feed::{Feed, Place, Slice};
use super::helper::Helper;
use super::log_task::Command;
use super::reactor;
use super::report::{CoreReport, Facts};
use super::{serving, system};
use crate::config::Config;

/// ZooKeeper's default, which `gtmk` shows until `stmk` sets another mask. The mask has no effect here.
const TRACE_MASK_DEFAULT: i64 = 0b1_0011_0010;

/// A request to one shard, answered on its executor.
pub(crate) enum Inspection {
    /// Its report.
    Report(Detail, Sender<ShardReport>),
    /// Its watches, from this entry on: one part of them.
    Watches(u32, Sender<ListedWatches>),
    /// Forget the server's statistics.
    ResetCounters,
    /// Forget the connections' statistics.
    ResetConnections,
}

/// The detail of a report, since connections may be many and distributions take room.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Detail {
    Numbers,
    /// With the distributions of times, for `mntr`.
    Times,
    Connections,
}

impl Detail {
    /// What `word` shows.
    const fn of(word: Word) -> Self {
        match word {
            Word::Cons | Word::Dump | Word::Stat => Self::Connections,
            Word::Mntr => Self::Times,
            _ => Self::Numbers,
        }
    }
}

/// A part of the watches, and the entry where the next part begins.
type ListedWatches = (Vec<(SessionId, String)>, Option<u32>);

/// The reports of all shards.
#[derive(Default)]
pub(crate) struct ShardAnswer {
    pub(crate) report: ShardReport,
    /// All pairs of session and path that are watched, if the word shows them.
    pub(crate) data_watches: Vec<(SessionId, String)>,
}

impl Inspection {
    pub(crate) fn carry_out(self, shard: &mut Shard, now_us: u64) {
        match self {
            // Whoever asked may be gone.
            Self::Report(Detail::Numbers, answer) => drop(answer.try_send(shard.report())),
            Self::Report(Detail::Times, answer) => drop(answer.try_send(shard.timed_report())),
            Self::Report(Detail::Connections, answer) => drop(answer.try_send(shard.detailed_report())),
            Self::Watches(from, answer) => drop(answer.try_send(shard.data_watches(from))),
            Self::ResetCounters => shard.reset_counters(),
            Self::ResetConnections => shard.reset_connections(now_us),
        }
    }
}

/// A request to the leader core, answered on its executor.
pub(crate) enum CoreInspection {
    /// Its report, and the trace mask.
    Report(Detail, Sender<(CoreReport, i64)>),
    /// Reset the sizes of proposals.
    ResetProposals,
    /// Set the trace mask.
    SetTraceMask(i64),
    /// The sessions whose silence the server counts, from the one behind this on: one part of them.
    Sessions(Option<SessionId>, Sender<Vec<ListedSession>>),
    /// Take a snapshot.
    TakeSnapshot,
    /// Committed transactions from the log.
    Feed(Place, Sender<Fed>),
    /// The committed state, its end in the log, and the ensemble's number; nothing while it does not serve.
    Hold(Sender<Option<Held>>),
    /// Hand leadership over to this server, or to any; the new leader, or why there is none.
    HandOver(Option<ServerId>, Sender<Result<ServerId, String>>),
    /// Change the feature level; why it is as it was.
    ChangeLevel(LevelChange, Sender<Result<(), String>>),
}

/// A state, of which each part is kept until it is sent, and where the log goes on behind it.
pub(crate) struct Held {
    pub(crate) image: Encoder,
    pub(crate) position: LogPosition,
    /// Time of its last transaction, milliseconds since the Unix epoch.
    pub(crate) time_ms: i64,
    pub(crate) ensemble: u64,
}

/// A part of the log.
pub(crate) enum Fed {
    /// The batches at the place that was asked for, which begin behind `after`, the zxid that is committed,
    /// and the ensemble's number.
    Batches { after: Zxid, batches: Vec<Batch>, committed: Zxid, ensemble: u64 },
    /// The log begins after this zxid.
    Purged { after: Zxid },
    /// The log cannot be read.
    Unreadable,
    /// The server serves nobody, so it does not know what is committed.
    NotServing,
}

/// Bytes of batches that are read at once, about.
const FED_BYTES: usize = 4 << 20;

/// The same of the log read backwards, where most of it is not what is looked for.
const LOOKED_BACK_BYTES: usize = 1 << 20;

/// Answers requests to the core, for as long as the server runs.
pub(crate) async fn serve_core(core: Rc<CoreHost>, config: Config, inspections: Receiver<CoreInspection>) {
    let mut trace_mask = TRACE_MASK_DEFAULT;
    while let Ok(inspection) = inspections.recv().await {
        match inspection {
            CoreInspection::Report(detail, answer) => {
                let mut report = core_host::report(&core, serving::missing(&core, &config));
                if detail == Detail::Times {
                    report.times = Some(core_host::times(&core));
                }
                // The asking task may have ended.
                let _ = answer.try_send((report, trace_mask));
            }
            CoreInspection::ResetProposals => core.frontend().counters().borrow_mut().reset_proposals(),
            CoreInspection::SetTraceMask(mask) => trace_mask = mask,
            CoreInspection::Sessions(after, answer) => {
                drop(answer.try_send(core.node().application().listed_sessions(after)));
            }
            CoreInspection::TakeSnapshot => core.trigger().command(),
            CoreInspection::Feed(place, answer) => feed(&core, &config, place, answer),
            CoreInspection::Hold(answer) => {
                let serves = serving::missing(&core, &config).is_empty();
                let core = Rc::clone(&core);
                reactor::spawn_local(async move {
                    let held = if serves { hold(&core).await } else { None };
                    drop(answer.try_send(held));
                })
                .detach();
            }
            CoreInspection::HandOver(wanted, answer) => {
                let core = Rc::clone(&core);
                reactor::spawn_local(async move {
                    drop(answer.try_send(core_host::hand_over(&core, wanted).await));
                })
                .detach();
            }
            CoreInspection::ChangeLevel(change, answer) => {
                let core = Rc::clone(&core);
                reactor::spawn_local(async move {
                    drop(answer.try_send(core_host::change_level(&core, change).await));
                })
                .detach();
            }
        }
    }
}

/// Answers with committed batches. The log is read beside the core's other work, in the background.
fn feed(core: &CoreHost, config: &Config, place: Place, answer: Sender<Fed>) {
    if !serving::missing(core, config).is_empty() {
        return drop(answer.try_send(Fed::NotServing));
    }
    let (committed, ensemble) = (core.node().application().committed().last_zxid(), core.cluster());
    let bytes_max = match place {
        Place::After(after) if after >= committed => {
            // Whoever waits asks often, and the log need not be read for that.
            let batches = Vec::new();
            return drop(answer.try_send(Fed::Batches { after, batches, committed, ensemble }));
        }
        Place::After(_) => FED_BYTES,
        Place::Before(_) => LOOKED_BACK_BYTES,
    };
    let read = Feed::new(place, committed, bytes_max);
    core.log().push(Command::Feed(Rc::clone(&read)));
    reactor::spawn_local(async move {
        let fed = match poll_fn(|cx| read.poll_done(cx)).await {
            Ok(Slice { after, batches }) => Fed::Batches { after, batches, committed, ensemble },
            Err(ReadError::Purged { after_zxid, .. }) => Fed::Purged { after: after_zxid },
            Err(error) => {
                tracing::error!(code = "RK0414", %error, "the log cannot be read for a feed or a backup");
                Fed::Unreadable
            }
        };
        // The asking task may have ended.
        let _ = answer.try_send(fed);
    })
    .detach();
}

async fn hold(core: &CoreHost) -> Option<Held> {
    let ensemble = core.cluster();
    if ensemble == 0 {
        return None;
    }
    // Of the state that is held at once, though its log may have to become durable first.
    let time_ms = core.node().application().committed().last_time_ms();
    let (image, position) = core.hold().await?;
    Some(Held { image, position, time_ms, ensemble })
}

/// Channels to every shard and to the core.
#[derive(Clone)]
pub(crate) struct Inspectors(Arc<Everybody>);

struct Everybody {
    shards: Vec<Sender<Inspection>>,
    core: Sender<CoreInspection>,
    facts: Arc<Facts>,
    helper: Helper,
    /// Held during a long listing: one listing at a time bounds the memory.
    listing: Arc<Mutex<()>>,
}

/// What was collected for a command.
pub(crate) struct Collected {
    word: Word,
    pub(crate) facts: Arc<Facts>,
    shards: ShardAnswer,
    pub(crate) core: CoreReport,
    trace_mask: i64,
    /// The sessions whose silence the server counts; for `dump`.
    pub(crate) sessions: Vec<ListedSession>,
    /// Held until a long listing is shown.
    _listing: Option<MutexGuardArc<()>>,
}

/// A channel is closed: the server is ending.
#[derive(Debug, thiserror::Error)]
#[error("the server is ending")]
pub(crate) struct Ending;

impl Inspectors {
    pub(crate) fn new(
        shards: Vec<Sender<Inspection>>,
        core: Sender<CoreInspection>,
        facts: Facts,
        helper: Helper,
    ) -> Self {
        Self(Arc::new(Everybody { shards, core, facts: Arc::new(facts), helper, listing: Arc::default() }))
    }

    /// The constants of the server.
    pub(crate) fn facts(&self) -> &Arc<Facts> {
        &self.0.facts
    }

    /// The leader core's report.
    pub(crate) async fn core(&self) -> Result<CoreReport, Ending> {
        Ok(self.0.ask_core(Word::Isro).await?.0)
    }

    /// Committed transactions at this place of the log.
    pub(crate) async fn feed(&self, place: Place) -> Result<Fed, Ending> {
        let (answer, answers) = async_channel::bounded(1);
        self.0.tell_core(CoreInspection::Feed(place, answer));
        answers.recv().await.map_err(|_| Ending)
    }

    /// The committed state, if the server serves.
    pub(crate) async fn hold(&self) -> Result<Option<Held>, Ending> {
        let (answer, answers) = async_channel::bounded(1);
        self.0.tell_core(CoreInspection::Hold(answer));
        answers.recv().await.map_err(|_| Ending)
    }

    /// Has a snapshot written to the server's folder.
    pub(crate) fn take_snapshot(&self) {
        self.0.tell_core(CoreInspection::TakeSnapshot);
    }

    /// Has the leader hand over. Returns the new leader, or why there is none.
    pub(crate) async fn hand_over(
        &self,
        wanted: Option<ServerId>,
    ) -> Result<Result<ServerId, String>, Ending> {
        let (answer, answers) = async_channel::bounded(1);
        self.0.core.try_send(CoreInspection::HandOver(wanted, answer)).map_err(|_| Ending)?;
        answers.recv().await.map_err(|_| Ending)
    }

    /// Changes the feature level; returns why it is as it was.
    pub(crate) async fn change_level(&self, change: LevelChange) -> Result<Result<(), String>, Ending> {
        let (answer, answers) = async_channel::bounded(1);
        self.0.core.try_send(CoreInspection::ChangeLevel(change, answer)).map_err(|_| Ending)?;
        answers.recv().await.map_err(|_| Ending)
    }

    /// The answer to a four-letter word; empty if the server is ending.
    pub(crate) async fn answer(&self, command: Asked) -> String {
        if command.word == Word::Ruok {
            // Answered without asking any executor, since the word means that the process runs.
            return "imok".to_owned();
        }
        let Ok(collected) = self.collect(command).await else { return String::new() };
        let word = command.word;
        let show = move || collected.show(|report| format(word, report));
        if is_listing(word) {
            self.0.helper.run(show).await.unwrap_or_default()
        } else if system::Measured::is_shown_by(word) {
            reactor::unblock(show).await
        } else {
            show()
        }
    }

    /// Carries out a command, and collects what it shows.
    pub(crate) async fn collect(&self, command: Asked) -> Result<Collected, Ending> {
        let (everybody, word) = (&self.0, command.word);
        let listing = match is_listing(word) {
            true => Some(everybody.listing.lock_arc().await),
            false => None,
        };
        match word {
            Word::Crst => everybody.tell_shards(|| Inspection::ResetConnections),
            Word::Srst => {
                everybody.tell_shards(|| Inspection::ResetCounters);
                everybody.tell_core(CoreInspection::ResetProposals);
            }
            Word::Stmk => everybody.tell_core(CoreInspection::SetTraceMask(command.trace_mask)),
            _ => {}
        }
        // Each channel is ordered, so a reset is carried out before the report.
        let shards = everybody.ask_shards(word).await?;
        let (core, trace_mask) = everybody.ask_core(word).await?;
        let sessions = if word == Word::Dump { everybody.list_sessions().await? } else { Vec::new() };
        let facts = Arc::clone(&everybody.facts);
        Ok(Collected { word, facts, shards, core, trace_mask, sessions, _listing: listing })
    }
}

/// Whether an answer has a line for each connection, session, ephemeral or watch.
fn is_listing(word: Word) -> bool {
    matches!(word, Word::Cons | Word::Dump | Word::Stat | Word::Wchc | Word::Wchp)
}

impl Collected {
    /// Shows the report. May take blocking system calls, see [`system::Measured`].
    pub(crate) fn show<T>(self, show: impl FnOnce(&ServerReport) -> T) -> T {
        let Self { word, facts, shards, core, trace_mask, sessions, _listing } = self;
        let measured = system::Measured::take(word, &facts.data_dir, &facts.log_dir);
        let mut report = facts.assemble(word, shards, core, measured);
        report.trace_mask = trace_mask;
        if facts.config.opens_local_sessions() {
            let local = sessions.iter().filter(|session| session.local);
            report.local_sessions = Some(local.map(|local| (local.session, local.timeout_ms)).collect());
        }
        show(&report)
    }
}

impl Everybody {
    fn tell_shards(&self, inspection: impl Fn() -> Inspection) {
        for shard in &self.shards {
            // If the shard is gone, the requests that follow report it.
            let _ = shard.try_send(inspection());
        }
    }

    fn tell_core(&self, inspection: CoreInspection) {
        let _ = self.core.try_send(inspection);
    }

    async fn ask_shards(&self, word: Word) -> Result<ShardAnswer, Ending> {
        let detail = Detail::of(word);
        let (answer, answers) = async_channel::bounded(self.shards.len().max(1));
        for shard in &self.shards {
            shard.try_send(Inspection::Report(detail, answer.clone())).map_err(|_| Ending)?;
        }
        drop(answer);
        let mut all = ShardAnswer::default();
        for _ in &self.shards {
            all.report.merge(answers.recv().await.map_err(|_| Ending)?);
        }
        if matches!(word, Word::Wchc | Word::Wchp) {
            for shard in &self.shards {
                list_watches(shard, &mut all.data_watches).await?;
            }
        }
        Ok(all)
    }

    async fn ask_core(&self, word: Word) -> Result<(CoreReport, i64), Ending> {
        let (answer, answers) = async_channel::bounded(1);
        self.core.try_send(CoreInspection::Report(Detail::of(word), answer)).map_err(|_| Ending)?;
        answers.recv().await.map_err(|_| Ending)
    }

    /// Lists sessions in parts, between which the core does other work.
    async fn list_sessions(&self) -> Result<Vec<ListedSession>, Ending> {
        let mut listed = Vec::new();
        loop {
            let (answer, answers) = async_channel::bounded(1);
            let after = listed.last().map(|listed: &ListedSession| listed.session);
            self.core.try_send(CoreInspection::Sessions(after, answer)).map_err(|_| Ending)?;
            let part = answers.recv().await.map_err(|_| Ending)?;
            if part.is_empty() {
                return Ok(listed);
            }
            listed.extend(part);
        }
    }
}

/// Adds the watches of a shard in parts, between which the shard serves others.
async fn list_watches(
    shard: &Sender<Inspection>,
    listed: &mut Vec<(SessionId, String)>,
) -> Result<(), Ending> {
    let mut next = Some(0);
    while let Some(from) = next {
        let (answer, answers) = async_channel::bounded(1);
        shard.try_send(Inspection::Watches(from, answer)).map_err(|_| Ending)?;
        let (watches, more) = answers.recv().await.map_err(|_| Ending)?;
        listed.extend(watches);
        next = more;
    }
    Ok(())
}
