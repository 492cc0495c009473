//! Which path is answered by what.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, STRICT_TRANSPORT_SECURITY, X_CONTENT_TYPE_OPTIONS,
};
use hyper::{Method, Request, Response, StatusCode};
use ringkeeper_engine::fourletter::{Command as Asked, ServerReport, Word};
use ringkeeper_engine::level::{Level, LevelChange};
use ringkeeper_engine::settings::Settings;
use ringkeeper_wire::ServerId;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use super::command::{COMMANDS, Command, GET, Kind};
use super::credentials;
use super::dashboard::Dashboard;
use super::feed::Feeds;
use super::health::Probe;
use super::json::{self, Fields, Shown};
use super::query::Query;
use super::snapshot::{self, Snapshots};
use crate::config::{AdminConfig, Config};
use crate::server::door::Door;
use crate::server::inspect::{Collected, Ending, Inspectors};
use crate::server::log_levels::LogLevels;
use crate::server::system;

/// How long an answer may take.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// Commands that are carried out or wait for one another.
const COMMANDS_AT_ONCE: usize = 16;

/// What ZooKeeper says about every command that needs a serving server.
pub(super) const NOT_SERVING: &str = "This ZooKeeper instance is not currently serving requests";

pub(super) type Body = BoxBody<Bytes, snapshot::Broken>;

/// What a port offers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Offer {
    All,
    /// `/metrics` alone.
    Metrics,
}

/// Who asks.
#[derive(Clone, Copy)]
pub(super) struct Client {
    pub(super) peer: IpAddr,
    pub(super) encrypted: bool,
}

/// Answers requests.
pub(super) struct Service {
    config: AdminConfig,
    /// Set when the server is recovered.
    running: OnceLock<Inspectors>,
    commands: Semaphore,
    feeds: Feeds,
    snapshots: Snapshots,
    settings: Settings,
    levels: LogLevels,
    dashboard: Option<Dashboard>,
}

impl Service {
    pub(super) fn new(config: &Config, levels: LogLevels) -> Self {
        Self {
            config: config.admin.clone(),
            running: OnceLock::new(),
            commands: Semaphore::new(COMMANDS_AT_ONCE),
            feeds: Feeds::new(config),
            snapshots: Snapshots::new(config),
            settings: config.request_settings(),
            levels,
            dashboard: Dashboard::new(config),
        }
    }

    /// The server is recovered.
    pub(super) fn attach(&self, inspectors: Inspectors, door: Door) {
        if let Some(dashboard) = &self.dashboard {
            dashboard.attach(door);
        }
        // Attached once.
        let _ = self.running.set(inspectors);
    }

    pub(super) fn idle_timeout(&self) -> Duration {
        self.config.idle_timeout
    }

    /// Answers a request within a bounded time.
    pub(super) async fn answer(
        &self,
        request: Request<Incoming>,
        offer: Offer,
        client: Client,
    ) -> Response<Body> {
        let answered = timeout(ANSWER_MAX, self.dispatch(request, offer, client)).await;
        let mut response = answered.unwrap_or_else(|_| {
            let text = format!("no answer within {} s: see /livez and /readyz\n", ANSWER_MAX.as_secs());
            plain(StatusCode::SERVICE_UNAVAILABLE, text)
        });
        let headers = response.headers_mut();
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        if client.encrypted {
            headers.insert(STRICT_TRANSPORT_SECURITY, HeaderValue::from_static("max-age=86400"));
        }
        response
    }

    async fn dispatch(&self, mut request: Request<Incoming>, offer: Offer, client: Client) -> Response<Body> {
        if let Some(dashboard) = self.dashboard.as_ref().filter(|_| offer == Offer::All)
            && let Some(response) = dashboard.answer(&mut request, self.running.get(), client).await
        {
            return response;
        }
        self.route(&request, offer, client).await
    }

    async fn route(&self, request: &Request<Incoming>, offer: Offer, client: Client) -> Response<Body> {
        let path = request.uri().path();
        let query = Query(request.uri().query().unwrap_or_default());
        if let Some(rest) = path.strip_prefix(&self.config.command_url)
            && offer == Offer::All
        {
            match rest.strip_prefix('/').unwrap_or(rest) {
                "" => return getting(request, || self.index()),
                name if rest.starts_with('/') => return self.command(request, name, &query, client).await,
                _ => {}
            }
        }
        if let Some(refused) = refuse(request, GET) {
            return refused;
        }
        match path {
            "/metrics" => self.metrics().await,
            _ if offer == Offer::Metrics => not_found(path),
            "/version" => json_of(StatusCode::OK, &version()),
            _ => self.probe(path, &query).await.unwrap_or_else(|| not_found(path)),
        }
    }

    async fn probe(&self, path: &str, query: &Query<'_>) -> Option<Response<Body>> {
        let (probe, only) = match Probe::of(path) {
            Some(probe) => (probe, None),
            None => {
                let (probe, check) = path.rsplit_once('/')?;
                (Probe::of(probe)?, Some(check))
            }
        };
        let (status, text) = probe.answer(self.running.get(), only, query).await?;
        Some(plain(status, text))
    }

    async fn metrics(&self) -> Response<Body> {
        match self.collect(Word::Mntr, 0).await {
            Ok(collected) => on_thread(move || collected.show(metrics)).await,
            Err(Ending) => {
                plain(StatusCode::SERVICE_UNAVAILABLE, "log and snapshots are being read\n".to_owned())
            }
        }
    }

    async fn collect(&self, word: Word, trace_mask: i64) -> Result<Collected, Ending> {
        self.running.get().ok_or(Ending)?.collect(Asked { word, trace_mask }).await
    }

    /// The names of all commands.
    fn index(&self) -> Response<Body> {
        let url = &self.config.command_url;
        let link = |command: &Command| {
            let name = command.name();
            format!("<a href=\"{url}/{name}\">{name}</a>\n<br/>\n")
        };
        let page: String = COMMANDS.iter().map(link).collect();
        respond(StatusCode::OK, "text/html;charset=utf-8", page)
    }

    async fn command(
        &self,
        request: &Request<Incoming>,
        name: &str,
        query: &Query<'_>,
        client: Client,
    ) -> Response<Body> {
        let Some(command) = Command::named(name) else {
            return of_command(
                StatusCode::OK,
                name,
                Fields::new(),
                Some(&format!("Unknown command: {name}")),
            );
        };
        let name = command.name();
        if let Some(refused) = refuse(request, command.methods()) {
            return refused;
        }
        // Feeds wait for transactions, and must not keep others from asking: they have permits of their own.
        let permit = match command.kind {
            Kind::Feed => Ok(None),
            _ => self.commands.try_acquire().map(Some),
        };
        let Ok(_permit) = permit else {
            let text = format!("{COMMANDS_AT_ONCE} commands are being answered: ask again later");
            return of_command(StatusCode::TOO_MANY_REQUESTS, name, Fields::new(), Some(&text));
        };
        match command.kind {
            Kind::Shows { word, show } => self.show(name, word, show, false, query).await,
            Kind::ShowsAlways { word, show } => self.show(name, word, show, true, query).await,
            Kind::Feed => {
                let answered = self.feeds.answer(request, self.running.get(), query, client).await;
                answered.unwrap_or_else(|why| refused(name, why))
            }
            Kind::Snapshot => {
                let answered = self.snapshots.answer(request, self.running.get(), query, client).await;
                answered.unwrap_or_else(|why| refused(name, why))
            }
            Kind::LogLevel => done(name, self.log_level(request, query, client).await),
            Kind::HandOver => done(name, self.hand_over(request, query, client).await),
            Kind::FeatureLevel => done(name, self.feature_level(request, query, client).await),
            Kind::Restore => {
                let text = "a running server is not restored: stop the servers, make a folder from the \
                            snapshot (ringkeeper import), and start them on it";
                of_command(StatusCode::SERVICE_UNAVAILABLE, name, Fields::new(), Some(text))
            }
        }
    }

    /// Shows the levels of the log, after a change if the method is POST.
    async fn log_level(
        &self,
        request: &Request<Incoming>,
        query: &Query<'_>,
        client: Client,
    ) -> Result<Fields, (StatusCode, String)> {
        if *request.method() == Method::POST {
            self.permitted(request, client).await?;
            let (target, level, lasts) = (query.first("target"), query.first("level"), query.first("for"));
            let lasts = self
                .levels
                .change(target, level.unwrap_or_default(), lasts)
                .map_err(|refusal| (StatusCode::BAD_REQUEST, refusal.to_string()))?;
            tracing::info!(peer = %client.peer, target, level, ?lasts, "the level of the log was changed");
            if let Some(lasts) = lasts {
                let levels = self.levels.clone();
                tokio::spawn(async move {
                    sleep(lasts).await;
                    levels.expire();
                });
            }
        }
        Ok(json::fields(json::log_levels(&self.levels)))
    }

    /// The running server, for a client that may change it.
    async fn permitted(
        &self,
        request: &Request<Incoming>,
        client: Client,
    ) -> Result<&Inspectors, (StatusCode, String)> {
        let running = self.running.get().ok_or_else(not_serving)?;
        let core = running.core().await.map_err(|_| not_serving())?;
        credentials::check(request, client, &self.settings, &core.state)
            .map_err(|(status, error)| (status, error.to_owned()))?;
        Ok(running)
    }

    /// Has the leader hand over, to the server that the parameter `server` names or to any.
    async fn hand_over(
        &self,
        request: &Request<Incoming>,
        query: &Query<'_>,
        client: Client,
    ) -> Result<Fields, (StatusCode, String)> {
        let running = self.permitted(request, client).await?;
        let wanted = query.first("server").map(str::parse).transpose();
        let wanted = wanted
            .map_err(|_| (StatusCode::BAD_REQUEST, "server: not the id of a server".to_owned()))?
            .map(ServerId);
        tracing::info!(peer = %client.peer, ?wanted, "leadership is to be handed over");
        let outcome = running.hand_over(wanted).await.map_err(|_| not_serving())?;
        let leader = outcome.map_err(|error| (StatusCode::CONFLICT, error))?;
        Ok(Fields::from_iter([("leader_id".to_owned(), json!(leader.0))]))
    }

    /// Shows the feature level, after a change if the method is POST.
    async fn feature_level(
        &self,
        request: &Request<Incoming>,
        query: &Query<'_>,
        client: Client,
    ) -> Result<Fields, (StatusCode, String)> {
        let running = self.running.get().ok_or_else(not_serving)?;
        if *request.method() == Method::POST {
            self.permitted(request, client).await?;
            let change = level_change(query).ok_or_else(|| {
                (StatusCode::BAD_REQUEST, "lower: not a level, or neither lower nor raise".to_owned())
            })?;
            tracing::info!(peer = %client.peer, ?change, "the feature level is to be changed");
            let outcome = running.change_level(change).await.map_err(|_| not_serving())?;
            outcome.map_err(|error| (StatusCode::CONFLICT, error))?;
        }
        let core = running.core().await.map_err(|_| not_serving())?;
        Ok(json::fields(json::feature_level(&core)))
    }

    async fn show(
        &self,
        name: &'static str,
        word: Word,
        show: fn(&Shown<'_>) -> Value,
        always: bool,
        query: &Query<'_>,
    ) -> Response<Body> {
        let trace_mask = match trace_mask(word, query) {
            Ok(mask) => mask,
            Err(error) => return of_command(StatusCode::OK, name, json::fields(error), None),
        };
        let Ok(collected) = self.collect(word, trace_mask).await else {
            return of_command(StatusCode::OK, name, Fields::new(), Some(NOT_SERVING));
        };
        on_thread(move || {
            let mut collected = collected;
            let facts = Arc::clone(&collected.facts);
            let (status, synced) = (collected.core.status, std::mem::take(&mut collected.core.synced));
            let ensemble = facts.members(&collected.core.state);
            let slow_appends = collected.core.slow_appends;
            let members = std::mem::take(&mut collected.core.members);
            let sessions = std::mem::take(&mut collected.sessions);
            collected.show(|report| {
                if report.mode.is_none() && !always {
                    return of_command(StatusCode::OK, name, Fields::new(), Some(NOT_SERVING));
                }
                let shown = Shown {
                    facts: &facts,
                    report,
                    status,
                    ensemble,
                    synced,
                    members,
                    slow_appends,
                    sessions,
                };
                of_command(StatusCode::OK, name, json::fields(show(&shown)), None)
            })
        })
        .await
    }
}

fn not_serving() -> (StatusCode, String) {
    (StatusCode::OK, NOT_SERVING.to_owned())
}

/// The parameter `lower` names the level that is wanted; with `raise` it may be raised again.
fn level_change(query: &Query<'_>) -> Option<LevelChange> {
    match query.first("lower") {
        Some(level) => level.parse().ok().map(|level| LevelChange::Lower(Level(level))),
        None => query.first("raise").map(|_| LevelChange::Raise),
    }
}

/// The new mask, if the command sets one.
fn trace_mask(word: Word, query: &Query<'_>) -> Result<i64, Value> {
    const ARGUMENT: &str = "setTraceMask requires long traceMask argument";
    match query.first("traceMask") {
        _ if word != Word::Stmk => Ok(0),
        None => Err(json!({ "error": ARGUMENT })),
        Some(value) => value.parse().map_err(|_| json!({ "error": format!("{ARGUMENT}, got {value}") })),
    }
}

fn version() -> Value {
    json!({
        "ringkeeper": env!("CARGO_PKG_VERSION"),
        "zookeeper": system::version().split('-').next(),
        "built_on": env!("RINGKEEPER_BUILT_ON"),
    })
}

/// What Prometheus scrapes.
fn metrics(report: &ServerReport) -> Response<Body> {
    respond(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", report.metrics.prometheus())
}

/// Makes an answer that takes blocking system calls, or long, beside the listener's connections.
async fn on_thread(make: impl FnOnce() -> Response<Body> + Send + 'static) -> Response<Body> {
    let made = spawn_blocking(make).await;
    made.unwrap_or_else(|_| {
        plain(StatusCode::INTERNAL_SERVER_ERROR, "the answer cannot be made\n".to_owned())
    })
}

/// Refuses other methods than these.
pub(super) fn refuse(request: &Request<Incoming>, methods: &'static str) -> Option<Response<Body>> {
    if methods.split(", ").any(|method| request.method() == method) {
        return None;
    }
    let text = format!("{} is not for this path, only {methods}\n", request.method());
    let mut refused = plain(StatusCode::METHOD_NOT_ALLOWED, text);
    refused.headers_mut().insert(ALLOW, HeaderValue::from_static(methods));
    Some(refused)
}

fn getting(request: &Request<Incoming>, answer: impl FnOnce() -> Response<Body>) -> Response<Body> {
    refuse(request, GET).unwrap_or_else(answer)
}

pub(super) fn not_found(path: &str) -> Response<Body> {
    plain(StatusCode::NOT_FOUND, format!("there is nothing at {path}\n"))
}

/// What a command shows, then its name and what went wrong.
pub(super) fn of_command(
    status: StatusCode,
    name: &str,
    mut fields: Fields,
    error: Option<&str>,
) -> Response<Body> {
    fields.insert("command".to_owned(), json!(name));
    // A command that tells its error itself has it in front, as in ZooKeeper.
    fields.entry("error").or_insert_with(|| json!(error));
    json_of(status, &Value::Object(fields))
}

/// What a command shows that may be refused.
fn done(name: &str, shown: Result<Fields, (StatusCode, String)>) -> Response<Body> {
    match shown {
        Ok(fields) => of_command(StatusCode::OK, name, fields, None),
        Err(why) => refused(name, why),
    }
}

fn refused(name: &str, (status, error): (StatusCode, impl AsRef<str>)) -> Response<Body> {
    of_command(status, name, Fields::new(), Some(error.as_ref()))
}

pub(super) fn json_of(status: StatusCode, value: &Value) -> Response<Body> {
    respond(status, "application/json", format!("{value:#}\n"))
}

pub(super) fn plain(status: StatusCode, text: String) -> Response<Body> {
    respond(status, "text/plain;charset=utf-8", text)
}

pub(super) fn respond(status: StatusCode, kind: &'static str, text: String) -> Response<Body> {
    let body = Full::new(Bytes::from(text)).map_err(|never: Infallible| match never {}).boxed();
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
