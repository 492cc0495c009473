//! The command `snapshot`: the tree as a snapshot of Apache ZooKeeper's, which its servers start from and
//! `ringkeeper import` reads, or in the blocks of ours, for a backup. A snapshot is made while it is sent,
//! from a state that does not change meanwhile, so it takes neither a file nor memory, however slow the
//! client is. One of Apache ZooKeeper's is made once more before, for its length.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_channel::{Receiver, Sender};
use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use hyper::{Request, Response, StatusCode};
use ringkeeper_apache::snapshot;
use ringkeeper_engine::settings::Settings;
use ringkeeper_engine::snapshot::STATE_VERSION;
use ringkeeper_engine::state::State;
use rkyv::util::AlignedVec;
use tokio::runtime::Handle;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::credentials::{self, Refused};
use super::feed::insert;
use super::json::Fields;
use super::query::Query;
use super::service::{Body, Client, NOT_SERVING, of_command};
use crate::config::Config;
use crate::server::inspect::{Held, Inspectors};

const NAME: &str = "snapshot";

/// Bytes that are sent at once, and how many such parts wait for the client.
const PART_BYTES: usize = 64 * 1024;
const PARTS_WAITING: usize = 4;

/// How long the client may take to make room for one more part.
const PATIENCE: Duration = Duration::from_secs(30);

/// A snapshot that ends before its end.
#[derive(Debug, thiserror::Error)]
#[error("the snapshot cannot be sent: {0}")]
pub(super) struct Broken(#[from] io::Error);

/// Sends snapshots, one at a time.
pub(super) struct Snapshots {
    enabled: bool,
    /// Time from one to the next, at least.
    interval: Duration,
    settings: Settings,
    under_way: Arc<AtomicBool>,
    last: Mutex<Option<Instant>>,
}

/// The one under way.
struct UnderWay(Arc<AtomicBool>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

impl Snapshots {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            enabled: config.admin.snapshots,
            // ZooKeeper counts microseconds here, whatever the name of the key says.
            interval: Duration::from_micros(config.admin.rate_limiter_interval),
            settings: config.request_settings(),
            under_way: Arc::default(),
            last: Mutex::default(),
        }
    }

    /// Answers the command. Credentials come first, so that strangers learn nothing: a snapshot has all
    /// znodes and the hashes of all passwords.
    pub(super) async fn answer(
        &self,
        request: &Request<Incoming>,
        running: Option<&Inspectors>,
        query: &Query<'_>,
        client: Client,
    ) -> Result<Response<Body>, Refused> {
        let not_serving = (StatusCode::OK, NOT_SERVING);
        let running = running.ok_or(not_serving)?;
        let core = running.core().await.map_err(|_| not_serving)?;
        if !core.missing.is_empty() {
            return Err(not_serving);
        }
        credentials::check(request, client, &self.settings, &core.state)?;
        if !self.enabled {
            return Err((StatusCode::SERVICE_UNAVAILABLE, "Snapshot command is disabled"));
        }
        let under_way =
            self.begin().ok_or((StatusCode::TOO_MANY_REQUESTS, "Snapshot request was rate limited"))?;
        if query.first("streaming").is_some_and(|streaming| !streaming.eq_ignore_ascii_case("true")) {
            running.take_snapshot();
            return Ok(of_command(StatusCode::OK, NAME, Fields::new(), None));
        }
        let made = match query.first("format") {
            None | Some("zookeeper") => stream(core.state, under_way).await,
            Some("native") => {
                let held = running.hold().await.map_err(|_| not_serving)?;
                let held = held.ok_or((
                    StatusCode::SERVICE_UNAVAILABLE,
                    "Nothing is committed yet, or this server's log lags behind",
                ))?;
                Ok(stream_native(held, under_way))
            }
            Some(_) => return Err((StatusCode::BAD_REQUEST, "format is zookeeper or native")),
        };
        made.map_err(|_| (StatusCode::INTERNAL_SERVER_ERROR, "the snapshot cannot be made"))
    }

    fn begin(&self) -> Option<UnderWay> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.is_some_and(|last| last.elapsed() < self.interval)
            || self.under_way.swap(true, Ordering::Relaxed)
        {
            return None;
        }
        *last = Some(Instant::now());
        Some(UnderWay(Arc::clone(&self.under_way)))
    }
}

/// Answers with a snapshot of this state.
async fn stream(state: Arc<State>, under_way: UnderWay) -> io::Result<Response<Body>> {
    let (zxid, measured) = (state.last_zxid(), Arc::clone(&state));
    let size_bytes = spawn_blocking(move || {
        let mut length = Length(0);
        snapshot::write(&measured, &mut length).map(|_| length.0)
    })
    .await??;
    let sent = send(under_way, move |out| snapshot::write(&state, out).map(drop));
    let mut response = Response::new(StreamBody::new(sent).boxed());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(CONTENT_LENGTH, size_bytes.into());
    insert(headers, "last_zxid", &zxid.to_string());
    insert(headers, "snapshot_size", &size_bytes.to_string());
    Ok(response)
}

/// Answers with the blocks of this state, each behind its length in four bytes, little-endian. The headers
/// say where the log goes on behind it.
fn stream_native(held: Held, under_way: UnderWay) -> Response<Body> {
    let Held { mut image, position, time_ms, ensemble } = held;
    let sent = send(under_way, move |out| {
        let mut block = AlignedVec::new();
        while image.next(&mut block) {
            let length = u32::try_from(block.len()).map_err(io::Error::other)?;
            out.write_all(&length.to_le_bytes())?;
            out.write_all(&block)?;
        }
        Ok(())
    });
    let mut response = Response::new(StreamBody::new(sent).boxed());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    insert(headers, "last_zxid", &position.zxid.to_string());
    insert(headers, "last_time_ms", &time_ms.to_string());
    insert(headers, "chain", &position.checksum.to_string());
    insert(headers, "ensemble", &ensemble.to_string());
    insert(headers, "state_version", &STATE_VERSION.to_string());
    response
}

/// What is written on a thread of its own, in parts. Without its end, if the client is too slow.
fn send(
    under_way: UnderWay,
    write: impl FnOnce(&mut Parts) -> io::Result<()> + Send + 'static,
) -> Receiver<Result<Frame<Bytes>, Broken>> {
    let (parts, sent) = async_channel::bounded(PARTS_WAITING);
    spawn_blocking(move || {
        let mut out = Parts { parts, part: BytesMut::new() };
        let written = write(&mut out);
        // Whoever has the last part may ask for the next snapshot.
        drop(under_way);
        if let Err(error) = written.and_then(|()| out.send()) {
            // The client sees that the end is missing.
            let _ = out.parts.try_send(Err(error.into()));
        }
    });
    sent
}

/// Counts what is written.
struct Length(u64);

impl Write for Length {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Passes what is written to a connection, in parts. The last one waits for [`Self::send`].
struct Parts {
    parts: Sender<Result<Frame<Bytes>, Broken>>,
    part: BytesMut,
}

impl Parts {
    fn send(&mut self) -> io::Result<()> {
        let part = Frame::data(self.part.split().freeze());
        let sent = Handle::current().block_on(timeout(PATIENCE, self.parts.send(Ok(part))));
        match sent {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(io::ErrorKind::BrokenPipe.into()),
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }
}

impl Write for Parts {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.part.len() >= PART_BYTES {
            self.send()?;
        }
        self.part.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
