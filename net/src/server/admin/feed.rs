//! The command `feed`: the committed transactions behind a zxid, as frames of the log. Whoever wants to
//! follow asks again with the zxid where an answer ends; with `wait`, an answer waits for the first one.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{Request, Response, StatusCode};
use ringkeeper_engine::settings::Settings;
use ringkeeper_wire::Zxid;
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep};

use super::credentials::{self, Refused};
use super::json::Fields;
use super::query::Query;
use super::service::{Body, Client, NOT_SERVING, of_command};
use crate::config::Config;
use crate::server::feed::Place;
use crate::server::inspect::{Fed, Inspectors};

const NAME: &str = "feed";

/// Feeds that are answered or wait at once.
const AT_ONCE: usize = 16;

/// The longest time that a client may have an answer wait.
const WAIT_MAX: Duration = Duration::from_secs(20);

/// How often a waiting answer looks for transactions.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Answers feeds.
pub(super) struct Feeds {
    settings: Settings,
    permits: Semaphore,
}

impl Feeds {
    pub(super) fn new(config: &Config) -> Self {
        Self { settings: config.request_settings(), permits: Semaphore::new(AT_ONCE) }
    }

    /// Answers the command. Transactions have the data of all znodes and the secrets of sessions, so they are
    /// for whoever may have a snapshot.
    pub(super) async fn answer(
        &self,
        request: &Request<Incoming>,
        running: Option<&Inspectors>,
        query: &Query<'_>,
        client: Client,
    ) -> Result<Response<Body>, Refused> {
        let not_serving = (StatusCode::SERVICE_UNAVAILABLE, NOT_SERVING);
        let running = running.ok_or(not_serving)?;
        let core = running.core().await.map_err(|_| not_serving)?;
        credentials::check(request, client, &self.settings, &core.state)?;
        let Ok(_permit) = self.permits.try_acquire() else {
            return Err((StatusCode::TOO_MANY_REQUESTS, "Too many feeds at once: ask again later"));
        };
        // Without a zxid: from now on.
        let after = query.first("after").map(str::parse).transpose();
        let after = after
            .map_err(|_| (StatusCode::BAD_REQUEST, "after is a zxid, such as 0x100000001"))?
            .unwrap_or_else(|| core.state.last_zxid());
        let wait = query.first("wait").map_or(Ok(0), str::parse);
        let wait = wait.map_err(|_| (StatusCode::BAD_REQUEST, "wait is a number of seconds"))?;
        let until = Instant::now() + Duration::from_secs(wait).min(WAIT_MAX);
        loop {
            match running.feed(Place::After(after)).await.map_err(|_| not_serving)? {
                Fed::Batches { batches, committed, ensemble, .. } => {
                    if batches.is_empty() && Instant::now() < until {
                        sleep(LOOK_EVERY).await;
                        continue;
                    }
                    let parts = batches.into_iter().map(|batch| Ok(Frame::data(batch.bytes().clone())));
                    return Ok(frames(parts.collect(), after, committed, ensemble));
                }
                Fed::Purged { after } => return Ok(purged(after)),
                Fed::NotServing => return Err(not_serving),
                Fed::Unreadable => {
                    return Err((StatusCode::INTERNAL_SERVER_ERROR, "The log cannot be read"));
                }
            }
        }
    }
}

/// Says that the log begins after this zxid.
fn purged(after: Zxid) -> Response<Body> {
    let fields = Fields::from_iter([("log_begins_after".to_owned(), json!(after.to_string()))]);
    let text = format!("the log begins after {after}: ask for what is behind that, or begin with a snapshot");
    of_command(StatusCode::GONE, NAME, fields, Some(&text))
}

type Part = Result<Frame<Bytes>, super::snapshot::Broken>;

fn frames(parts: Vec<Part>, after: Zxid, committed: Zxid, ensemble: u64) -> Response<Body> {
    let mut response = Response::new(StreamBody::new(futures_lite::stream::iter(parts)).boxed());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    for (name, value) in [
        ("after_zxid", after.to_string()),
        ("committed_zxid", committed.to_string()),
        ("ensemble", ensemble.to_string()),
    ] {
        insert(headers, name, &value);
    }
    response
}

/// Adds a header of our own.
pub(super) fn insert(headers: &mut hyper::HeaderMap, name: &'static str, value: &str) {
    let value = HeaderValue::from_str(value).expect("a number as text");
    headers.insert(HeaderName::from_static(name), value);
}
