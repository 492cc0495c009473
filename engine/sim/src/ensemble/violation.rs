//! Violations: which promise of the service was broken, and how.

/// A broken promise of the service.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{oracle}: {what}")]
pub struct Violation {
    /// The promise.
    pub oracle: Oracle,
    /// What was seen, and what should have been.
    pub what: String,
}

/// A promise of the service; every one of them is checked in every run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Oracle {
    /// An epoch has one leader at most.
    #[error("one leader an epoch")]
    OneLeader,
    /// All servers publish the same transactions in the same order.
    #[error("agreeing committed prefixes")]
    Prefix,
    /// Nothing is published or served before it is durable on a quorum, and nothing committed is cut off.
    #[error("committed means durable on a quorum")]
    Durable,
    /// What a server acknowledges and promises to others is durable on its disk.
    #[error("what is acknowledged and promised is durable")]
    Said,
    /// A server promises each epoch to one leader, and no older one afterwards.
    #[error("promises are kept")]
    Promise,
    /// Servers at the same zxid have the same tree, and it is the model's.
    #[error("equal trees at equal zxids")]
    Tree,
    /// The rules of authorisation that a server has are those of its znodes, also after a snapshot or a
    /// recovery. What they say of requests is a part of [`Self::Write`], [`Self::Read`] and [`Self::Watch`].
    #[error("equal rules at equal zxids")]
    Rules,
    /// A write does what the model of the committed order says, and its reply says so.
    #[error("writes follow the committed order")]
    Write,
    /// A write takes effect at most once, in the order of its session, and only from the session's
    /// connection.
    #[error("a session's writes take effect once and in order")]
    SessionOrder,
    /// A read shows the state at the zxid it names, which is no older than anything its session has seen.
    #[error("reads show one state and never an older one")]
    Read,
    /// A read behind a sync sees everything that anyone had seen when the sync was sent.
    #[error("a read behind a sync is linearizable")]
    Sync,
    /// Replies come in the order of the requests, each once.
    #[error("replies in the order of requests")]
    Fifo,
    /// Every event of a watch comes before the state that caused it, none is lost and none invented.
    #[error("watch events before state, none lost, none invented")]
    Watch,
    /// An ephemeral znode ends in the transaction that ends its session, not before and not after.
    #[error("ephemerals live as long as their sessions")]
    Ephemeral,
    /// A session is had with its password while it lives, on one connection.
    #[error("a session belongs to whoever proves it, on one connection")]
    Session,
    /// Time stamps never run backwards.
    #[error("time stamps do not run backwards")]
    Time,
    /// The batches that wait for a leader's own log are bounded, however fast the others' logs are.
    #[error("little waits in memory for the leader's log")]
    Backlog,
    /// A leader's work for multis that are not committed is bounded, however many clients send them.
    #[error("little work is ahead of the commits")]
    Work,
    /// No call of a shard and no turn of a server's task takes more steps than its bound, so that nobody
    /// waits long for a turn.
    #[error("work comes in slices")]
    Slice,
    /// The log returns what was appended.
    #[error("the log works")]
    Log,
    /// Who has not proved to be a server is not treated as one.
    #[error("strangers stay strangers")]
    Stranger,
    /// The scrub finds damage to a running server's files, and repairs it: a start would find everything that
    /// was acknowledged.
    #[error("damage under a running server is repaired")]
    Repair,
    /// What the ensemble uses is within its feature level, and all members can do that.
    #[error("features within the level, which all members can do")]
    Level,
    /// The server detects no defect of its own.
    #[error("the server trusts itself and its peers")]
    Sound,
    /// A lock is held and an election is won by one at a time, by the order of the fencing tokens.
    #[error("one holder at a time, by fencing order")]
    Exclusion,
    /// What is put into a queue is taken once, by whoever is given it.
    #[error("nothing in a queue lost or taken twice")]
    Queue,
    /// Every change of a counter counts once.
    #[error("counters count every change once")]
    Counter,
    /// A program that watches is told of every change, and of nothing else.
    #[error("watches tell programs of every change")]
    Told,
    /// What the library reports about a failed request is true, and of pipelined requests a prefix is
    /// executed.
    #[error("the client tells what became of requests")]
    Outcome,
    /// A recipe fails with its session, and not otherwise.
    #[error("recipes fail with their sessions alone")]
    Recipe,
    /// A hand-over of leadership without faults completes, and no client loses its connection by it.
    #[error("a hand-over goes unnoticed")]
    HandOver,
    /// After healing, everyone makes progress.
    #[error("progress after healing")]
    Progress,
}

impl Oracle {
    /// The promise is broken.
    pub(crate) fn broken(self, what: impl Into<String>) -> Violation {
        Violation { oracle: self, what: what.into() }
    }

    /// Breaks unless `holds`.
    pub(crate) fn check(self, holds: bool, what: impl FnOnce() -> String) -> Result<(), Violation> {
        if holds { Ok(()) } else { Err(self.broken(what())) }
    }
}
