//! Four-letter words: the shard that was asked collects reports from all shards and the leader core, each
//! made on its own executor, and formats the answer.

use std::rc::Rc;
use std::sync::Arc;

use async_channel::{Receiver, Sender};
use async_lock::Mutex;
use ringkeeper_engine::fourletter::{Command, Word, format};
use ringkeeper_engine::shard::{Shard, ShardReport};
use ringkeeper_wire::SessionId;

use super::core_host::{self, CoreHost};
use super::helper::Helper;
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
}

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
        }
    }
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
    listing: Mutex<()>,
}

/// A channel is closed: the server is ending.
struct Ending;

impl Inspectors {
    pub(crate) fn new(
        shards: Vec<Sender<Inspection>>,
        core: Sender<CoreInspection>,
        facts: Facts,
        helper: Helper,
    ) -> Self {
        Self(Arc::new(Everybody { shards, core, facts: Arc::new(facts), helper, listing: Mutex::new(()) }))
    }

    /// Carries out a command and returns its answer; an empty one if the server is ending.
    pub(crate) async fn answer(&self, command: Command) -> String {
        if command.word == Word::Ruok {
            // Answered without asking any executor, since the word means that the process runs.
            return "imok".to_owned();
        }
        let answer = match command.word {
            Word::Cons | Word::Dump | Word::Stat | Word::Wchc | Word::Wchp => self.0.list(command).await,
            _ => self.0.answer(command).await,
        };
        answer.unwrap_or_else(|Ending| String::new())
    }
}

impl Everybody {
    async fn answer(&self, command: Command) -> Result<String, Ending> {
        let word = command.word;
        match word {
            Word::Crst => self.tell_shards(|| Inspection::ResetConnections),
            Word::Srst => {
                self.tell_shards(|| Inspection::ResetCounters);
                self.tell_core(CoreInspection::ResetProposals);
            }
            Word::Stmk => self.tell_core(CoreInspection::SetTraceMask(command.trace_mask)),
            _ => {}
        }
        // Each channel is ordered, so the reset is carried out before the report.
        let shards = self.ask_shards(word).await?;
        let (core, trace_mask) = self.ask_core(word).await?;
        let facts = Arc::clone(&self.facts);
        let measured = match word {
            Word::Conf | Word::Dirs | Word::Mntr => {
                let measure = move || system::Measured::take(word, &facts.data_dir, &facts.log_dir);
                glommio::executor().spawn_blocking(measure).await
            }
            _ => system::Measured::default(),
        };
        let mut report = self.facts.assemble(word, shards, core, measured);
        report.trace_mask = trace_mask;
        Ok(format(word, &report))
    }

    /// Answers a word whose answer has a line for each connection, session, ephemeral or watch.
    async fn list(&self, command: Command) -> Result<String, Ending> {
        let word = command.word;
        let _listing = self.listing.lock().await;
        let shards = self.ask_shards(word).await?;
        let (core, _) = self.ask_core(word).await?;
        let facts = Arc::clone(&self.facts);
        let list = move || format(word, &facts.assemble(word, shards, core, system::Measured::default()));
        self.helper.run(list).await.ok_or(Ending)
    }

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
