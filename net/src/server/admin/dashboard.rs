//! The dashboard: pages for a browser, built into the binary. They show what the admin listener tells
//! everybody, and load nothing from elsewhere (docs/decisions/0045-dashboard.md).

mod change;
mod history;
mod tree;

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::header::{
    AUTHORIZATION, CONTENT_SECURITY_POLICY, HOST, HeaderName, HeaderValue, LOCATION, ORIGIN, REFERRER_POLICY,
};
use hyper::http::uri::Authority;
use hyper::{Method, Request, Response, StatusCode};
use ringkeeper_engine::acl::{Caller, is_super};
use ringkeeper_engine::authorisation::Bounds;
use ringkeeper_engine::path;
use ringkeeper_engine::settings::Settings;
use ringkeeper_engine::state::State;
use ringkeeper_wire::{ErrorCode, Identity, Zxid};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::Instant;

use super::command::GET;
use super::credentials;
use super::service::{Body, Client, NOT_SERVING, json_of, not_found, plain, refuse, respond};
use crate::config::{AuditTarget, Config, Editors};
use crate::server::door::Door;
use crate::server::feed::Place;
use crate::server::inspect::{Fed, Inspectors};
use change::{Change, Failed};
use history::Page;
use tree::Wanted;

/// Where it is.
const PLACE: &str = "/dashboard";

/// Scripts, styles and data of its own alone, and no other page may show it in a frame.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);

const HTML: &str = "text/html;charset=utf-8";
const CSS: &str = "text/css;charset=utf-8";
const IMAGE: &str = "image/svg+xml";
const SCRIPT: &str = "text/javascript;charset=utf-8";

/// A file of the folder net/dashboard: its name, its kind, its contents.
macro_rules! files {
    ($($kind:ident $name:literal,)*) => {
        &[$(($name, $kind, include_str!(concat!("../../../dashboard/", $name))),)*]
    };
}

const PAGE: &str = "index.html";
const FILES: &[(&str, &str, &str)] = files! {
    HTML "index.html",
    CSS "style.css",
    IMAGE "icon.svg",
    SCRIPT "main.js",
    SCRIPT "chart.js",
    SCRIPT "data.js",
    SCRIPT "dom.js",
    SCRIPT "ensemble.js",
    SCRIPT "history.js",
    SCRIPT "lists.js",
    SCRIPT "load.js",
    SCRIPT "recipes.js",
    SCRIPT "server.js",
    SCRIPT "session.js",
    SCRIPT "settings.js",
    SCRIPT "tree.js",
};

/// Questions about the tree, which take credentials. They have method POST, so that paths and searches are in
/// nobody's log of addresses.
const QUESTIONS: [&str; 6] = ["login", "children", "znode", "history", "change", "audit"];

/// Questions that are answered at once, each on a thread; others wait.
pub(super) const QUESTIONS_AT_ONCE: usize = 2;

/// Histories that are read at once. They read the log, and other questions do not wait for that.
pub(super) const HISTORIES_AT_ONCE: usize = 1;

/// A question has at most so many bytes; a change more, as it has the data of a znode.
const QUESTION_BYTES_MAX: usize = 64 << 10;
const CHANGE_BYTES_MAX: usize = 4 << 20;

/// How much of the audit log is shown.
const AUDIT_BYTES: u64 = 64 << 10;

/// Who a browser says that it sends a request for.
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Why a question is not answered.
type Refusal = (StatusCode, String);

/// Serves the dashboard, if there is one.
pub(super) struct Dashboard {
    /// Names by which browsers may ask for it, beside addresses and `localhost`.
    hosts: Vec<String>,
    command_url: String,
    settings: Settings,
    editors: Editors,
    /// What clients have to show, and so whoever reads the tree here.
    required_schemes: Vec<String>,
    certificates_required: bool,
    /// The folder of the audit log.
    audit: Option<PathBuf>,
    questions: Semaphore,
    histories: Semaphore,
    /// Set when the server is recovered.
    door: OnceLock<Door>,
}

/// Who asks a question.
struct Asker {
    identities: Vec<Identity>,
    /// What an auth packet of the scheme `digest` has, if they have come so.
    credentials: Option<Vec<u8>>,
    peer: IpAddr,
}

impl Dashboard {
    pub(super) fn new(config: &Config) -> Option<Self> {
        let admin = &config.admin;
        let own = config.own_server().into_iter().flat_map(|own| &own.addresses);
        let own = own.map(|address| address.host.clone());
        let audit = match config.audit_target() {
            Some(AuditTarget::Folder { folder, .. }) => Some(folder),
            _ => None,
        };
        let is_wanted = admin.dashboard && !admin.command_url.starts_with(PLACE);
        is_wanted.then(|| Self {
            hosts: admin.dashboard_hosts.iter().cloned().chain(own).collect(),
            command_url: admin.command_url.clone(),
            settings: config.request_settings(),
            editors: admin.dashboard_editors,
            required_schemes: config.required_schemes(),
            certificates_required: config.clients_need_certificates(),
            audit,
            questions: Semaphore::new(QUESTIONS_AT_ONCE),
            histories: Semaphore::new(HISTORIES_AT_ONCE),
            door: OnceLock::new(),
        })
    }

    /// The server is recovered.
    pub(super) fn attach(&self, door: Door) {
        // Attached once.
        let _ = self.door.set(door);
    }

    /// Answers a request, if it is for the dashboard.
    pub(super) async fn answer(
        &self,
        request: &mut Request<Incoming>,
        running: Option<&Inspectors>,
        client: Client,
    ) -> Option<Response<Body>> {
        let path = request.uri().path();
        let rest = match path {
            "/" if !self.command_url.is_empty() => "",
            path => path.strip_prefix(PLACE)?,
        };
        let name = rest.strip_prefix('/').map(str::to_owned);
        let mut response = match name {
            None if rest.is_empty() => redirect(),
            None => return None,
            Some(name) => self.guarded(request, &name, running, client).await,
        };
        let headers = response.headers_mut();
        headers.insert(CONTENT_SECURITY_POLICY, POLICY);
        headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
        Some(response)
    }

    async fn guarded(
        &self,
        request: &mut Request<Incoming>,
        name: &str,
        running: Option<&Inspectors>,
        client: Client,
    ) -> Response<Body> {
        let host = header(request, &HOST).unwrap_or_default();
        if !self.is_known(host) {
            let text = format!(
                "{host:?} is not known as a name of this server: add it to ringkeeper.dashboard.hosts\n"
            );
            return plain(StatusCode::MISDIRECTED_REQUEST, text);
        }
        if !QUESTIONS.contains(&name) {
            return refuse(request, GET).unwrap_or_else(|| self.file(name));
        }
        if let Some(refused) = refuse(request, Method::POST.as_str()) {
            return refused;
        }
        match self.question(request, name, running, client).await {
            Ok(value) => json_of(StatusCode::OK, &value),
            Err((status, error)) => json_of(status, &json!({ "error": error })),
        }
    }

    async fn question(
        &self,
        request: &mut Request<Incoming>,
        name: &str,
        running: Option<&Inspectors>,
        client: Client,
    ) -> Result<Value, Refusal> {
        if !is_of_same_origin(request) {
            return Err((StatusCode::FORBIDDEN, "the request is from a page of another origin".to_owned()));
        }
        let asker = self.asker(request, client)?;
        let bytes_max = match name {
            "change" => self.may_edit(&asker).map(|_| CHANGE_BYTES_MAX)?,
            _ => QUESTION_BYTES_MAX,
        };
        let wanted = question_body(request, bytes_max).await?;
        let not_serving = || (StatusCode::SERVICE_UNAVAILABLE, NOT_SERVING.to_owned());
        let permits = if name == "history" { &self.histories } else { &self.questions };
        let _permit = permits.acquire().await.map_err(|_| not_serving())?;
        let running = running.ok_or_else(not_serving)?;
        let core = running.core().await.map_err(|_| not_serving())?;
        if !core.missing.is_empty() {
            return Err((StatusCode::SERVICE_UNAVAILABLE, core.missing));
        }
        match name {
            "login" => Ok(self.login(&asker)),
            "change" => self.change(asker, &wanted).await,
            "audit" => self.audit(&asker).await,
            "history" => self.history(asker, running, core.state, &wanted).await,
            name => {
                let (is_list, settings, state) = (name == "children", self.settings.clone(), core.state);
                let read = move || asker.read(&settings, &state, &wanted, is_list);
                beside(read).await?.map_err(|code| (status_of(code), format!("{code:?}")))
            }
        }
    }

    /// Who sends this request, if they may ask for anything.
    fn asker<B>(&self, request: &Request<B>, client: Client) -> Result<Asker, Refusal> {
        let identities = credentials::of(request, client, &self.settings);
        let mut identities = identities.map_err(|(status, error)| (status, error.to_owned()))?;
        let credentials = header(request, &AUTHORIZATION).and_then(|header| header.strip_prefix("digest "));
        let credentials = credentials.map(|credentials| credentials.as_bytes().to_vec());
        // As every client has it.
        let ip = Identity { scheme: "ip".to_owned(), id: client.peer.to_canonical().to_string() };
        if !identities.contains(&ip) {
            identities.push(ip);
        }
        let required = &self.required_schemes;
        let lacks_login = !required.is_empty() && !identities.iter().any(|it| required.contains(&it.scheme));
        if lacks_login || (self.certificates_required && !is_super(&identities)) {
            let error = "clients have to prove who they are in a way that the dashboard does not know: only super \
                         users can use it for the tree, where the scheme digest suffices";
            return Err((StatusCode::FORBIDDEN, error.to_owned()));
        }
        Ok(Asker { identities, credentials, peer: client.peer })
    }

    fn login(&self, asker: &Asker) -> Value {
        json!({
            "super": is_super(&asker.identities),
            "edits": self.may_edit(asker).is_ok(),
        })
    }

    fn may_edit(&self, asker: &Asker) -> Result<Vec<u8>, Refusal> {
        let allowed = match self.editors {
            Editors::Super => is_super(&asker.identities),
            Editors::Users => true,
            Editors::Nobody => false,
        };
        let forbidden = || {
            let error = "ringkeeper.dashboard.editors does not let you change anything here";
            (StatusCode::FORBIDDEN, error.to_owned())
        };
        asker.credentials.clone().filter(|_| allowed).ok_or_else(forbidden)
    }

    async fn change(&self, asker: Asker, wanted: &Value) -> Result<Value, Refusal> {
        let credentials = self.may_edit(&asker)?;
        let change = Change::parse(wanted).map_err(|error| (StatusCode::BAD_REQUEST, error))?;
        let unavailable = |error: String| (StatusCode::SERVICE_UNAVAILABLE, error);
        let door = self.door.get().ok_or_else(|| unavailable(NOT_SERVING.to_owned()))?;
        let stream = door.enter(SocketAddr::new(asker.peer, 0));
        let stream = stream.map_err(|error| unavailable(error.to_string()))?;
        let made = beside(move || change.make(stream, &credentials)).await?;
        match made {
            Ok(()) => Ok(json!({ "changed": true })),
            Err(Failed::Refused(code)) => Err((status_of(code), format!("{code:?}"))),
            Err(failed) => Err(unavailable(failed.to_string())),
        }
    }

    /// A page of the history of a znode, for who may read its data now. The ACL at the time of a change is
    /// not known, as the log may begin later: once the ACL has changed, the data is for super users alone.
    async fn history(
        &self,
        asker: Asker,
        running: &Inspectors,
        state: Arc<State>,
        wanted: &Value,
    ) -> Result<Value, Refusal> {
        let before = wanted["before_hex"].as_str().map(str::parse::<Zxid>).transpose();
        let before = before.map_err(|_| (StatusCode::BAD_REQUEST, "before_hex is a zxid".to_owned()))?;
        let path = wanted["path"].as_str().unwrap_or_default().to_owned();
        // What is committed later may be another znode's, which has not been checked.
        let end = Zxid(state.last_zxid().0.saturating_add(1));
        let settings = self.settings.clone();
        let begin = move || {
            path::validate(&path).map_err(|_| ErrorCode::BadArguments)?;
            let (_, stat) = asker.with_caller(&settings, &state, |caller| state.get_data(&path, caller))?;
            let created = Zxid::from_wire(stat.czxid);
            // -1 is that of the znode of the configuration, which the server makes.
            let shows_data = matches!(stat.aversion, 0 | -1) || is_super(&asker.identities);
            Ok(Page::new(path, created, shows_data, before.map_or(end, |before| before.min(end))))
        };
        let refused = |code: ErrorCode| (status_of(code), format!("{code:?}"));
        let mut page = beside(begin).await?.map_err(refused)?;
        let until = Instant::now() + history::LOOKED_MAX;
        let failed = |error: String| (StatusCode::INTERNAL_SERVER_ERROR, error);
        for _ in 0..history::SLICES {
            let not_serving = || (StatusCode::SERVICE_UNAVAILABLE, NOT_SERVING.to_owned());
            let fed = running.feed(Place::Before(page.before())).await.map_err(|_| not_serving())?;
            let (after, batches) = match fed {
                Fed::Batches { after, batches, .. } => (after, batches),
                Fed::Purged { after } => return Ok(page.shown(Some(after))),
                Fed::NotServing => return Err(not_serving()),
                Fed::Unreadable => return Err(failed("the log cannot be read".to_owned())),
            };
            let add = move || page.add(after, &batches).map(|looks_on| (page, looks_on));
            let looks_on;
            (page, looks_on) = beside(add).await?.map_err(failed)?;
            if !looks_on || Instant::now() >= until {
                break;
            }
        }
        Ok(page.shown(None))
    }

    async fn audit(&self, asker: &Asker) -> Result<Value, Refusal> {
        if !is_super(&asker.identities) {
            return Err((StatusCode::FORBIDDEN, "the audit log is for super users".to_owned()));
        }
        let nowhere = || (StatusCode::NOT_FOUND, "there is no folder with an audit log".to_owned());
        let folder = self.audit.clone().ok_or_else(nowhere)?;
        let tail = beside(move || tail(&folder)).await?;
        let tail = tail.map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
        Ok(json!({ "lines": tail.lines().collect::<Vec<_>>() }))
    }

    /// Whether a browser may ask by this name. A page from elsewhere can have its own name mean this
    /// server's address, and would then be taken for a part of the dashboard.
    fn is_known(&self, host: &str) -> bool {
        let Ok(authority) = host.parse::<Authority>() else { return false };
        let name = authority.host().trim_start_matches('[').trim_end_matches(']');
        name.parse::<IpAddr>().is_ok()
            || name.eq_ignore_ascii_case("localhost")
            || self.hosts.iter().any(|known| known == "*" || known.eq_ignore_ascii_case(name))
    }

    fn file(&self, name: &str) -> Response<Body> {
        if name == "facts" {
            let facts = json!({ "commands": self.command_url, "version": env!("CARGO_PKG_VERSION") });
            return json_of(StatusCode::OK, &facts);
        }
        let name = if name.is_empty() { PAGE } else { name };
        match FILES.iter().find(|(known, ..)| *known == name) {
            Some((_, kind, text)) => respond(StatusCode::OK, kind, (*text).to_owned()),
            None => not_found(&format!("{PLACE}/{name}")),
        }
    }
}

impl Asker {
    /// Does what takes a caller of the tree, as a client with the identities of who asks.
    fn with_caller<T>(&self, settings: &Settings, state: &State, act: impl FnOnce(Caller<'_>) -> T) -> T {
        let bounds = Bounds::of(state.authorisation(), &self.identities);
        let (identities, bounds) = (&*self.identities, bounds.as_ref());
        act(Caller { identities, skip_acl: settings.skip_acl, bounds })
    }

    fn read(
        &self,
        settings: &Settings,
        state: &State,
        wanted: &Value,
        is_list: bool,
    ) -> Result<Value, ErrorCode> {
        let text = |key: &str| wanted[key].as_str().unwrap_or_default();
        let count = wanted["count"].as_u64().and_then(|count| usize::try_from(count).ok()).unwrap_or(100);
        let (path, after, search) = (text("path"), text("after"), text("search"));
        self.with_caller(settings, state, |caller| match is_list {
            true => tree::children(state, caller, &Wanted { path, after, search, count }),
            false => tree::znode(state, caller, path),
        })
    }
}

fn header<'a, B>(request: &'a Request<B>, name: &HeaderName) -> Option<&'a str> {
    request.headers().get(name).and_then(|value| value.to_str().ok())
}

/// Whether a request is from the dashboard's own page, or from no page at all. It has a header that a page
/// from elsewhere cannot send either; so this is the second bolt.
fn is_of_same_origin(request: &Request<Incoming>) -> bool {
    match (header(request, &SEC_FETCH_SITE), header(request, &ORIGIN)) {
        (Some(site), _) => site == "same-origin",
        (None, Some(origin)) => origin.split_once("://").map(|(_, host)| host) == header(request, &HOST),
        (None, None) => true,
    }
}

async fn question_body(request: &mut Request<Incoming>, bytes_max: usize) -> Result<Value, Refusal> {
    let wrong = |error: String| (StatusCode::BAD_REQUEST, error);
    let body = Limited::new(request.body_mut(), bytes_max).collect().await;
    let body = body.map_err(|error| wrong(error.to_string()))?.to_bytes();
    serde_json::from_slice(&body).map_err(|error| wrong(error.to_string()))
}

/// Does what may take long, or blocks, beside the listener's connections.
async fn beside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Refusal> {
    let failed = |_| (StatusCode::INTERNAL_SERVER_ERROR, "the answer cannot be made".to_owned());
    spawn_blocking(work).await.map_err(failed)
}

fn status_of(code: ErrorCode) -> StatusCode {
    match code {
        ErrorCode::NoNode => StatusCode::NOT_FOUND,
        ErrorCode::NoAuth => StatusCode::FORBIDDEN,
        ErrorCode::BadVersion | ErrorCode::NodeExists | ErrorCode::NotEmpty => StatusCode::CONFLICT,
        _ => StatusCode::BAD_REQUEST,
    }
}

/// The end of the newest file of the audit log.
fn tail(folder: &Path) -> io::Result<String> {
    let names = fs::read_dir(folder)?.flatten().map(|entry| entry.path());
    let newest = names.filter(|path| path.extension().is_some_and(|it| it == "log")).max();
    let Some(newest) = newest else { return Ok(String::new()) };
    let mut file = File::open(newest)?;
    let skipped = file.metadata()?.len().saturating_sub(AUDIT_BYTES);
    file.seek(SeekFrom::Start(skipped))?;
    let mut bytes = Vec::new();
    file.take(AUDIT_BYTES).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    // The first line is not whole.
    let whole = if skipped == 0 { &*text } else { text.split_once('\n').map_or("", |(_, rest)| rest) };
    Ok(whole.to_owned())
}

/// To the page. The address is relative, so that it holds behind a proxy, too.
fn redirect() -> Response<Body> {
    let mut response = plain(StatusCode::TEMPORARY_REDIRECT, "the dashboard is at dashboard/\n".to_owned());
    response.headers_mut().insert(LOCATION, HeaderValue::from_static("dashboard/"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_the_operator_has_not_given_is_refused() {
        let dashboard = |hosts: &[&str]| {
            let mut config = Config::default();
            config.admin.dashboard_hosts = hosts.iter().map(|&host| host.to_owned()).collect();
            Dashboard::new(&config).expect("on by default")
        };
        let strict = dashboard(&["zk1.example.org"]);
        for known in ["127.0.0.1:8080", "[::1]:8080", "localhost", "LOCALHOST:1", "zk1.example.org:8080"] {
            assert!(strict.is_known(known), "{known}");
        }
        for unknown in ["", "evil.example.org", "127.0.0.1.evil.example.org:8080", "zk1.example.org.evil"] {
            assert!(!strict.is_known(unknown), "{unknown}");
        }
        assert!(dashboard(&["*"]).is_known("anything"));
    }

    #[test]
    fn where_every_client_shows_a_certificate_super_users_alone_read_the_tree() {
        let mut config = Config { client_port: 0, ..Config::default() };
        config.super_digest = Some("super:D/InIHSb7yEEbrWz8b9l71RjZJU=".to_owned());
        let client = Client { peer: IpAddr::from([127, 0, 0, 1]), encrypted: true };
        let is_let_in = |config: &Config, credentials: &str| {
            let request = Request::builder().header(AUTHORIZATION, credentials).body(()).expect("a request");
            Dashboard::new(config).expect("on by default").asker(&request, client).is_ok()
        };
        assert!(!is_let_in(&config, "ip") && !is_let_in(&config, "digest bob:secret"));
        assert!(is_let_in(&config, "digest super:test"));
        config.client_port = 2181;
        assert!(is_let_in(&config, "ip"));
    }

    #[test]
    fn the_page_has_no_script_and_no_style_in_itself_and_loads_nothing_from_elsewhere() {
        let (_, _, page) = FILES.iter().find(|(name, ..)| *name == PAGE).expect("the page");
        assert!(!page.contains("style=") && !page.contains(" on") && !page.contains("<style"));
        assert!(page.split("<script").skip(1).all(|script| script.contains(" src=\"main.js\"></script>")));
        for (name, _, text) in FILES {
            let addresses = text.matches("://").count() - text.matches("http://www.w3.org/2000/svg").count();
            assert_eq!(addresses, 0, "{name} names an address");
        }
    }
}
