//! A running server, asked by its admin listener for committed transactions and for its state.

use std::fmt::Display;
use std::str::FromStr;

use bytes::Bytes;
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, HeaderMap};
use hyper::{Request, Response, StatusCode};
use ringkeeper_frame::{self as frame, Batch, Checksum, LogPosition};
use ringkeeper_wire::Zxid;

use crate::http::{Http, HttpError, next_part, whole};

/// How long an answer waits for a transaction, seconds.
const WAIT_SECONDS: u64 = 10;

/// Why a server gives nothing.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// It is not reached.
    #[error("{url} does not answer: {source}; name the server's admin listener")]
    Silent {
        /// What was asked.
        url: String,
        /// Why.
        source: HttpError,
    },
    /// It refuses.
    #[error("the server says: {text} (status {status})")]
    Refused {
        /// The answer's status.
        status: StatusCode,
        /// The answer's reason.
        text: String,
    },
    /// The log begins behind what was asked for.
    #[error("the server's log begins after {after}: transactions before that are in its snapshots alone")]
    Purged {
        /// The last zxid before the log.
        after: Zxid,
    },
    /// It is no answer of a ringkeeper server.
    #[error("{url} does not answer as ringkeeper does: {reason}")]
    Malformed {
        /// What was asked.
        url: String,
        /// Why.
        reason: String,
    },
}

impl SourceError {
    /// Whether it may pass: the server is not reached, or serves nobody at the moment.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Silent { .. } => true,
            Self::Refused { status, .. } => {
                status.is_server_error() || *status == StatusCode::TOO_MANY_REQUESTS
            }
            Self::Purged { .. } | Self::Malformed { .. } => false,
        }
    }
}

/// A part of the log.
#[derive(Debug)]
pub struct Part {
    /// Where it was asked to begin.
    pub after: Zxid,
    /// In order, without a gap.
    pub batches: Vec<Batch>,
    /// What is committed.
    pub committed: Zxid,
    /// The ensemble's number.
    pub ensemble: u64,
}

/// A state that is being sent: blocks, each behind its length in four bytes, little-endian.
pub struct Full {
    /// Where the log goes on behind it.
    pub position: LogPosition,
    /// The ensemble's number.
    pub ensemble: u64,
    /// Version of the blocks' contents.
    pub state_version: u32,
    /// Time of its last transaction, milliseconds since the Unix epoch.
    pub time_ms: i64,
    url: String,
    body: Incoming,
}

/// A server.
#[derive(Clone, Debug)]
pub struct Source {
    http: Http,
    commands: String,
    authorization: String,
}

impl Source {
    /// The server whose admin commands are at `commands`, such as `http://127.0.0.1:8080/commands`.
    /// `authorization` is the header's value, of whoever has every permission on `/`.
    #[must_use]
    pub fn new(http: Http, commands: String, authorization: String) -> Self {
        Self { http, commands, authorization }
    }

    /// Committed transactions behind `after`, or from now on; if there is none, the answer takes a while if
    /// `waits`, and is empty then.
    ///
    /// # Errors
    /// See [`SourceError`].
    pub async fn feed(&self, after: Option<Zxid>, waits: bool) -> Result<Part, SourceError> {
        let wait = if waits { WAIT_SECONDS } else { 0 };
        let after = after.map_or_else(String::new, |after| format!("&after={after}"));
        let (url, answer) = self.ask(&format!("feed?wait={wait}{after}")).await?;
        let malformed = |reason: String| SourceError::Malformed { url: url.clone(), reason };
        let headers = answer.headers();
        let after = parsed(headers, "after_zxid").map_err(malformed)?;
        let committed = parsed(headers, "committed_zxid").map_err(malformed)?;
        let ensemble = parsed(headers, "ensemble").map_err(malformed)?;
        let silent = |source| SourceError::Silent { url: url.clone(), source };
        let bytes = whole(answer.into_body()).await.map_err(silent)?;
        let batches = batches(&bytes).map_err(malformed)?;
        Ok(Part { after, batches, committed, ensemble })
    }

    /// The committed state.
    ///
    /// # Errors
    /// See [`SourceError`].
    pub async fn full(&self) -> Result<Full, SourceError> {
        let (url, answer) = self.ask("snapshot?format=native").await?;
        let malformed = |reason: String| SourceError::Malformed { url: url.clone(), reason };
        let headers = answer.headers();
        let zxid = parsed(headers, "last_zxid").map_err(malformed)?;
        let chain = header(headers, "chain").and_then(|text| {
            u32::from_str_radix(text, 16).map_err(|_| format!("chain: {text} is no checksum"))
        });
        let checksum = Checksum(chain.map_err(malformed)?);
        let ensemble = parsed(headers, "ensemble").map_err(malformed)?;
        let state_version = parsed(headers, "state_version").map_err(malformed)?;
        let time_ms = parsed(headers, "last_time_ms").map_err(malformed)?;
        let position = LogPosition { zxid, checksum };
        Ok(Full { position, ensemble, state_version, time_ms, url, body: answer.into_body() })
    }

    async fn ask(&self, command: &str) -> Result<(String, Response<Incoming>), SourceError> {
        let url = format!("{}/{command}", self.commands);
        let request = Request::get(&url).header(AUTHORIZATION, &self.authorization);
        let request = request.body(Empty::<Bytes>::new());
        let malformed = |error: hyper::http::Error| SourceError::Malformed {
            url: url.clone(),
            reason: error.to_string(),
        };
        let silent = |source| SourceError::Silent { url: url.clone(), source };
        let answer = self.http.send(request.map_err(malformed)?).await.map_err(silent)?;
        // A server that does not serve answers a command with status 200 and an error, as ZooKeeper does.
        let is_text = answer.headers().get("content-type").is_some_and(|kind| kind == "application/json");
        let status = answer.status();
        if status.is_success() && !is_text {
            return Ok((url, answer));
        }
        let status = if is_text && status.is_success() { StatusCode::SERVICE_UNAVAILABLE } else { status };
        let text = whole(answer.into_body()).await.map_err(silent)?;
        Err(refusal(status, &text))
    }
}

impl Full {
    /// The next bytes of the blocks.
    ///
    /// # Errors
    /// The server or the connection broke.
    pub async fn next(&mut self) -> Result<Option<Bytes>, SourceError> {
        let silent = |source| SourceError::Silent { url: self.url.clone(), source };
        next_part(&mut self.body).await.map_err(silent)
    }
}

fn refusal(status: StatusCode, text: &[u8]) -> SourceError {
    let said: serde_json::Value = serde_json::from_slice(text).unwrap_or_default();
    let begins = said["log_begins_after"].as_str().and_then(|text| text.parse().ok());
    if let (StatusCode::GONE, Some(after)) = (status, begins) {
        return SourceError::Purged { after };
    }
    let plain = || String::from_utf8_lossy(text).chars().take(80).collect();
    let text = said["error"].as_str().map_or_else(plain, str::to_owned);
    SourceError::Refused { status, text }
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Result<&'a str, String> {
    let value = headers.get(name).and_then(|value| value.to_str().ok());
    value.ok_or_else(|| format!("the header {name} is missing"))
}

fn parsed<T: FromStr<Err: Display>>(headers: &HeaderMap, name: &str) -> Result<T, String> {
    let text = header(headers, name)?;
    text.parse().map_err(|error| format!("{name}: {text}: {error}"))
}

/// The batches that lie one behind the other in these bytes, each of them verified, and their order.
pub(crate) fn batches(mut bytes: &[u8]) -> Result<Vec<Batch>, String> {
    let mut batches: Vec<Batch> = Vec::new();
    while !bytes.is_empty() {
        let frame = frame::parse(bytes).map_err(|error| error.to_string())?;
        if let Some(last) = batches.last()
            && (!frame::follows(last.last(), frame.meta().first_zxid)
                || frame.previous() != last.end().checksum)
        {
            return Err(format!(
                "the batch from {} does not continue the one before",
                frame.meta().first_zxid
            ));
        }
        batches.push(Batch::from(&frame));
        bytes = &bytes[frame.bytes().len()..];
    }
    Ok(batches)
}
