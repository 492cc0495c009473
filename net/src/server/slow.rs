//! Slow requests, in the log. Shards tell of them; the leader core explains them, since it has the times of
//! their batches.

use std::rc::Rc;

use async_channel::Receiver;
use ringkeeper_engine::fourletter::operation;
use ringkeeper_engine::slow::{Explanation, SlowRequest};

use super::core_host::{self, CoreHost};
use super::pauses::{self, Pauses};

/// Explains and logs slow requests, for as long as the server runs.
pub(crate) async fn explain(core: Rc<CoreHost>, told: Receiver<SlowRequest>, pauses: Pauses) {
    while let Ok(first) = told.recv().await {
        // A pause that has just ended has to be seen before.
        glommio::timer::sleep(pauses::LOOK_EVERY * 2).await;
        let pauses = pauses.list();
        let others = std::iter::from_fn(|| told.try_recv().ok());
        for request in std::iter::once(first).chain(others) {
            log(&core_host::explain_slow(&core, request, &pauses));
        }
    }
}

fn log(explanation: &Explanation) {
    let Explanation { request, paused_us, mostly, peer, .. } = explanation;
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
        paused_ms = paused_us / 1000,
        untold = request.untold,
        "a request was slow"
    );
}
