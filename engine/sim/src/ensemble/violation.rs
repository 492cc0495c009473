//! What a run says when something that must hold does not.

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
    /// What a server says of its own disk to others is on it.
    #[error("what is acknowledged and promised is durable")]
    Said,
    /// A server promises each epoch to one leader, and no older one afterwards.
    #[error("promises are kept")]
    Promise,
    /// Servers at the same zxid have the same tree, and it is the model's.
    #[error("equal trees at equal zxids")]
    Tree,
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
    /// A leader proposes little that its own log cannot take, however fast the others' logs are.
    #[error("little waits in memory for the leader's log")]
    Backlog,
    /// The log takes and gives back what it was given.
    #[error("the log works")]
    Log,
    /// The server finds no defect of its own.
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
    /// Whoever watches is told of every change, and of nothing else.
    #[error("watches tell programs of every change")]
    Told,
    /// What the library says of a request that failed is so, and what was asked at once is executed up to a
    /// point.
    #[error("the client tells what became of requests")]
    Outcome,
    /// A recipe fails with its session, and not otherwise.
    #[error("recipes fail with their sessions alone")]
    Recipe,
    /// After everything was healed, everyone gets on.
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
