//! Traces on their way to a collector: a bounded queue, and a task on the admin listener's thread that sends
//! them by OTLP over HTTP. No request waits for it. What there is no room for, and what the collector does
//! not take, is left out and counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_channel::{Receiver, Sender};
use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONNECTION, CONTENT_TYPE};
use hyper::{Request, StatusCode};
use ringkeeper_backup::http::{Http, HttpError};
use ringkeeper_engine::slow::Explanation;
use ringkeeper_engine::trace::ProposalTimes;
use ringkeeper_wire::ServerId;
use tokio::time::{sleep, timeout};

use super::clock::Clock;
use super::otlp;
use crate::config::Endpoint;

/// Traces that may wait to be sent, and that are sent at once.
const WAITING_MAX: usize = 4096;
const SENT_AT_ONCE: usize = 256;

/// How long traces are gathered before they are sent.
const GATHER: Duration = Duration::from_millis(500);

/// How long the collector may take for one request.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// What a server tells of a request.
pub(super) enum Trace {
    /// The whole, by the server of its client.
    Request(Explanation),
    /// The leader's part of a write.
    Proposal(ProposalTimes),
}

/// Where traces are left.
#[derive(Clone, Default)]
pub(crate) struct Traces {
    /// `None` without a collector.
    queue: Option<Sender<Trace>>,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    exported: AtomicU64,
    dropped: AtomicU64,
}

/// Sends them.
pub(crate) struct Exporter {
    endpoint: Endpoint,
    waiting: Receiver<Trace>,
    counts: Arc<Counts>,
}

/// Why the collector has not taken traces.
#[derive(Debug, thiserror::Error)]
enum Unsent {
    #[error("{0}")]
    Http(#[from] HttpError),
    #[error("the request cannot be made: {0}")]
    Request(#[from] hyper::http::Error),
    #[error("the collector answers with status {0}")]
    Status(StatusCode),
    #[error("no answer within {} s", ANSWER_MAX.as_secs())]
    Late,
}

impl Traces {
    /// With an exporter if there is a collector.
    pub(crate) fn new(endpoint: Option<Endpoint>) -> (Self, Option<Exporter>) {
        let Some(endpoint) = endpoint else { return (Self::default(), None) };
        let (queue, waiting) = async_channel::bounded(WAITING_MAX);
        let traces = Self { queue: Some(queue), counts: Arc::default() };
        let counts = Arc::clone(&traces.counts);
        (traces, Some(Exporter { endpoint, waiting, counts }))
    }

    /// Whether there is a collector.
    pub(crate) const fn are_wanted(&self) -> bool {
        self.queue.is_some()
    }

    /// Leaves a trace to be sent, if there is room.
    pub(super) fn offer(&self, trace: Trace) {
        if self.queue.as_ref().is_some_and(|queue| queue.try_send(trace).is_err()) {
            self.drop_one();
        }
    }

    /// A trace is left out.
    pub(super) fn drop_one(&self) {
        self.counts.dropped.fetch_add(1, Ordering::Relaxed);
    }

    /// Those that the collector has taken.
    pub(crate) fn exported(&self) -> u64 {
        self.counts.exported.load(Ordering::Relaxed)
    }

    /// Those that were left out.
    pub(crate) fn dropped(&self) -> u64 {
        self.counts.dropped.load(Ordering::Relaxed)
    }
}

impl Exporter {
    /// Sends traces of this server for as long as it runs.
    pub(crate) async fn run(self, server: ServerId, clock: Clock) {
        let mut failing = false;
        while let Ok(first) = self.waiting.recv().await {
            if self.waiting.len() + 1 < SENT_AT_ONCE {
                sleep(GATHER).await;
            }
            let others = std::iter::from_fn(|| self.waiting.try_recv().ok());
            let traces: Vec<_> = std::iter::once(first).chain(others).take(SENT_AT_ONCE).collect();
            let body = otlp::encode(&traces, server, clock);
            let sent = timeout(ANSWER_MAX, post(&self.endpoint, body)).await.unwrap_or(Err(Unsent::Late));
            let counter = if sent.is_ok() { &self.counts.exported } else { &self.counts.dropped };
            counter.fetch_add(traces.len() as u64, Ordering::Relaxed);
            match &sent {
                Err(error) if !failing => {
                    let endpoint = &self.endpoint;
                    tracing::warn!(
                        code = "RK0211",
                        %endpoint,
                        %error,
                        "traces are left out: the collector does not take them"
                    );
                }
                Ok(()) if failing => tracing::info!("the collector takes traces again"),
                _ => {}
            }
            failing = sent.is_err();
        }
    }
}

/// Sends one request, on a connection of its own.
async fn post(endpoint: &Endpoint, body: Vec<u8>) -> Result<(), Unsent> {
    let request = Request::post(endpoint.uri())
        .header(CONTENT_TYPE, "application/x-protobuf")
        .header(CONNECTION, "close")
        .body(Full::new(Bytes::from(body)))?;
    match Http::new(None)?.send(request).await?.status() {
        status if status.is_success() => Ok(()),
        status => Err(Unsent::Status(status)),
    }
}
