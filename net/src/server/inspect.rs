//! Four-letter words: every shard and the leader core are asked what they know, each on its own executor, and
//! the answer is put together where the question came in.

use std::rc::Rc;
use std::sync::Arc;

use async_channel::{Receiver, Sender};
use async_lock::Mutex;
use ringkeeper_engine::fourletter::{Command, Word, format};
use ringkeeper_engine::shard::{Shard, ShardReport};
use ringkeeper_wire::SessionId;

use super::core_host::CoreHost;
use super::helper::Helper;
use super::report::{CoreReport, Facts};
use super::{serving, system};
use crate::config::Config;

/// ZooKeeper's default, which `gtmk` shows until `stmk` sets another. Nothing is traced by it here.
const TRACE_MASK_DEFAULT: i64 = 0b1_0011_0010;

/// A question to one shard, answered on its executor.
pub(crate) enum Inspection {
    /// What does it know?
    Report(Detail, Sender<ShardReport>),
    /// Who watches what, from this number on, a part at a time?
    Watches(u32, Sender<ListedWatches>),
    /// Forget the server's statistics.
    ResetCounters,
    /// Forget the connections' statistics.
    ResetConnections,
}

/// How much a shard is to say of itself: connections may be many.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Detail {
    Numbers,
    Connections,
}

/// Some watches, and where the next ones begin.
type ListedWatches = (Vec<(SessionId, String)>, Option<u32>);

/// What all shards say.
#[derive(Default)]
pub(crate) struct ShardAnswer {
    pub(crate) report: ShardReport,
    /// Who watches what, if it was asked for.
    pub(crate) data_watches: Vec<(SessionId, String)>,
}

impl Inspection {
    pub(crate) fn carry_out(self, shard: &mut Shard, now_ms: u64) {
        match self {
            // Whoever asked may be gone.
            Self::Report(Detail::Numbers, answer) => drop(answer.try_send(shard.report())),
            Self::Report(Detail::Connections, answer) => drop(answer.try_send(shard.detailed_report())),
            Self::Watches(from, answer) => drop(answer.try_send(shard.data_watches(from))),
            Self::ResetCounters => shard.reset_counters(),
            Self::ResetConnections => shard.reset_connections(now_ms),
        }
    }
}

/// A question to the leader core, answered on its executor.
pub(crate) enum CoreInspection {
    /// What does it know, and which trace mask is set?
    Report(Sender<(CoreReport, i64)>),
    /// Forget the sizes of proposals.
    ResetProposals,
    /// Set the trace mask.
    SetTraceMask(i64),
}

/// Answers questions to the core, for as long as the server runs.
pub(crate) async fn serve_core(core: Rc<CoreHost>, config: Config, inspections: Receiver<CoreInspection>) {
    let mut trace_mask = TRACE_MASK_DEFAULT;
    while let Ok(inspection) = inspections.recv().await {
        match inspection {
            CoreInspection::Report(answer) => {
                let report = core.report(serving::missing(&core, &config));
                // Whoever asked may be gone.
                let _ = answer.try_send((report, trace_mask));
            }
            CoreInspection::ResetProposals => core.counters().reset_proposals(),
            CoreInspection::SetTraceMask(mask) => trace_mask = mask,
        }
    }
}

/// The way to every shard and to the core.
#[derive(Clone)]
pub(crate) struct Inspectors(Arc<Everybody>);

struct Everybody {
    shards: Vec<Sender<Inspection>>,
    core: Sender<CoreInspection>,
    facts: Arc<Facts>,
    helper: Helper,
    /// Held while a long listing is made: one at a time bounds the memory that they take.
    listing: Mutex<()>,
}

/// Whoever was asked is gone: the server is ending.
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

    /// Does what the command asks, and answers it; with nothing if the server is ending.
    pub(crate) async fn answer(&self, command: Command) -> String {
        if command.word == Word::Ruok {
            // Says that the process runs, whoever else may be busy.
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
        // Their channels keep the order: a reset is carried out before the report.
        let shards = self.ask_shards(word).await?;
        let (core, trace_mask) = self.ask_core().await?;
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
        let (core, _) = self.ask_core().await?;
        let facts = Arc::clone(&self.facts);
        let list = move || format(word, &facts.assemble(word, shards, core, system::Measured::default()));
        self.helper.run(list).await.ok_or(Ending)
    }

    fn tell_shards(&self, inspection: impl Fn() -> Inspection) {
        for shard in &self.shards {
            // The questions that follow notice that it is gone.
            let _ = shard.try_send(inspection());
        }
    }

    fn tell_core(&self, inspection: CoreInspection) {
        let _ = self.core.try_send(inspection);
    }

    async fn ask_shards(&self, word: Word) -> Result<ShardAnswer, Ending> {
        let detail = match word {
            Word::Cons | Word::Dump | Word::Stat => Detail::Connections,
            _ => Detail::Numbers,
        };
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

    async fn ask_core(&self) -> Result<(CoreReport, i64), Ending> {
        let (answer, answers) = async_channel::bounded(1);
        self.core.try_send(CoreInspection::Report(answer)).map_err(|_| Ending)?;
        answers.recv().await.map_err(|_| Ending)
    }
}

/// Adds the watches of a shard, which has others to serve between two parts of the list.
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
