//! Slow requests, in the log and for the admin listener. Shards tell of them; the leader core explains them,
//! since it has the times of their batches.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use async_channel::Receiver;
use ringkeeper_engine::fourletter::operation;
use ringkeeper_engine::slow::{Explanation, SlowRequest};

use super::core_host::{self, CoreHost};
use super::pauses::{self, Pauses};

/// How many are kept for the admin listener.
const KEPT_MAX: usize = 256;

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

/// Explains, logs and keeps slow requests, for as long as the server runs.
pub(crate) async fn explain(
    core: Rc<CoreHost>,
    told: Receiver<SlowRequest>,
    pauses: Pauses,
    explained: Explained,
) {
    while let Ok(first) = told.recv().await {
        // A pause that has just ended has to be seen before.
        glommio::timer::sleep(pauses::LOOK_EVERY * 2).await;
        let pauses = pauses.list();
        let others = std::iter::from_fn(|| told.try_recv().ok());
        for request in std::iter::once(first).chain(others) {
            let explanation = core_host::explain_slow(&core, request, &pauses);
            log(&explanation);
            explained.add(explanation);
        }
    }
}

fn log(explanation: &Explanation) {
    let Explanation { request, mostly, peer, .. } = explanation;
    tracing::warn!(
        operation = operation(Some(request.op)),
        path = request.path.as_deref(),
        session = %request.session,
        xid = request.xid.0,
        zxid = request.zxid.map(|zxid| zxid.to_string()),
        bytes = request.bytes,
        total_ms = request.total_us() / 1000,
        mostly = mostly.name(),
        stages = explanation.to_string(),
        peer = peer.map(|peer| peer.0),
        untold = request.untold,
        "a request was slow"
    );
}
