//! Slow and sampled requests, in the log, for the admin listener and for traces. Shards tell of them; the
//! leader core explains them, since it has the times of their batches.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use async_channel::{Receiver, Sender};
use ringkeeper_engine::fourletter::operation;
use ringkeeper_engine::slow::{Explanation, SlowRequest};
use ringkeeper_engine::trace::Proposal;

use super::core_host::{self, CoreHost};
use super::pauses::{self, Pauses};
use super::reactor;
use super::traces::{Trace, Traces};

/// How many are kept for the admin listener.
const KEPT_MAX: usize = 256;

/// Above so many that wait to be explained, sampled ones are left out.
const WAITING_MAX: usize = 4096;

/// How many are explained before the core's other tasks have their turn.
const EXPLAINED_AT_ONCE: usize = 32;

/// The last slow requests of a server that were logged, oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Explained(Arc<Mutex<VecDeque<Explanation>>>);

impl Explained {
    fn add(&self, explanation: Explanation) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() == KEPT_MAX {
            kept.pop_front();
        }
        kept.push_back(explanation);
    }

    /// All that are kept.
    pub(crate) fn list(&self) -> Vec<Explanation> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

/// What is to be explained.
pub(crate) enum Told {
    /// A request that was slow or is sampled.
    Request(SlowRequest),
    /// A sampled write of another server's client, on the leader.
    Proposal(Proposal),
}

/// Where the shards and the core tell of requests.
#[derive(Clone)]
pub(crate) struct Teller {
    told: Sender<Told>,
    traces: Traces,
}

impl Teller {
    pub(crate) fn new(traces: Traces) -> (Self, Receiver<Told>) {
        let (told, receiver) = async_channel::unbounded();
        (Self { told, traces }, receiver)
    }

    /// Whether there is a collector of traces.
    pub(crate) const fn exports(&self) -> bool {
        self.traces.are_wanted()
    }

    /// Tells of one. Shards limit the rate of the slow ones. Of the sampled ones some are left out if too
    /// many wait.
    pub(crate) fn tell(&self, told: Told) {
        let is_slow = matches!(&told, Told::Request(request) if !request.sampled);
        if is_slow || self.told.len() < WAITING_MAX {
            // Nobody explains them any more when the server is ending.
            drop(self.told.try_send(told));
        } else {
            self.traces.drop_one();
        }
    }
}

/// Explains requests, logs and keeps the slow ones, and passes all on as traces, for as long as the server
/// runs.
pub(crate) async fn explain(
    core: Rc<CoreHost>,
    told: Receiver<Told>,
    pauses: Pauses,
    explained: Explained,
    traces: Traces,
) {
    while let Ok(first) = told.recv().await {
        // A pause that has just ended has to be seen before, and acknowledgements are on their way.
        reactor::sleep(pauses::LOOK_EVERY * 2).await;
        let pauses = pauses.list();
        let others = std::iter::from_fn(|| told.try_recv().ok()).take(WAITING_MAX);
        for (number, told) in (1..).zip(std::iter::once(first).chain(others)) {
            let trace = match told {
                Told::Request(request) => {
                    let explanation = core_host::explain_slow(&core, request, &pauses);
                    log(&explanation);
                    if !explanation.request.sampled {
                        explained.add(explanation.clone());
                    }
                    Some(Trace::Request(explanation))
                }
                Told::Proposal(proposal) => core_host::explain_proposal(&core, proposal).map(Trace::Proposal),
            };
            match trace {
                Some(trace) => traces.offer(trace),
                None => traces.drop_one(),
            }
            if number % EXPLAINED_AT_ONCE == 0 {
                reactor::yield_now().await;
            }
        }
    }
}

/// Writes a line with the same fields, whatever its level.
macro_rules! line {
    ($level:ident, $code:expr, $explanation:expr, $text:literal) => {{
        let explanation = $explanation;
        let request = &explanation.request;
        tracing::$level!(
            code = $code,
            operation = operation(Some(request.op)),
            path = request.path.as_deref(),
            session = %request.session,
            client = %request.client,
            xid = request.xid.0,
            zxid = request.zxid.map(|zxid| zxid.to_string()),
            bytes = request.bytes,
            total_ms = request.total_us() / 1000,
            mostly = explanation.mostly.name(),
            stages = explanation.to_string(),
            peer = explanation.peer.map(|peer| peer.0),
            untold = Some(request.untold).filter(|_| !request.sampled),
            $text
        );
    }};
}

fn log(explanation: &Explanation) {
    if explanation.request.sampled {
        line!(debug, None::<&str>, explanation, "a request was sampled");
    } else {
        line!(warn, "RK0207", explanation, "a request was slow");
    }
}
