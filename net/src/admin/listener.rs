//! Where a running server is asked, and by whom.

use std::io::{self, IsTerminal};

use bytes::Bytes;
use clap::Args;
use http_body_util::Empty;
use hyper::Request;
use hyper::header::AUTHORIZATION;
use ringkeeper_backup::Source;
use ringkeeper_backup::http::{Http, HttpError, whole};
use ringkeeper_shell::TlsArgs;
use tokio::runtime::Runtime;

/// A server's admin listener.
#[derive(Args)]
pub(crate) struct Listener {
    /// The server's admin listener: ADDRESS:PORT, or with http:// or https:// [default: 127.0.0.1:8080]
    #[arg(short, long, short_alias = 'a', alias = "address", value_name = "URL")]
    server: Option<String>,
    /// What stands in front of the names of commands (admin.commandURL)
    #[arg(long, value_name = "PATH", default_value = "/commands")]
    command_url: String,
    #[command(flatten)]
    tls: TlsArgs,
}

/// Who asks for a change: whoever has every permission on `/`.
#[derive(Args)]
pub(crate) struct Credentials {
    /// A user of the scheme digest; asks for the password at the terminal, or reads a line from standard
    /// input. Without it the scheme ip is used
    #[arg(short, long, value_name = "USER")]
    user: Option<String>,
}

/// Who asks a server for its transactions or its state.
#[derive(Args)]
pub(crate) struct SourceArgs {
    #[command(flatten)]
    listener: Listener,
    #[command(flatten)]
    credentials: Credentials,
}

/// Why there is no answer: one sentence for the user.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ListenerError {
    #[error("{url} does not answer: {source}; name the server's admin listener (--server)")]
    Silent { url: String, source: HttpError },
    #[error("{url} is not the address of a command: {source}")]
    Address { url: String, source: hyper::http::Error },
    #[error("the password cannot be read: {0}")]
    Password(io::Error),
    #[error(transparent)]
    Http(#[from] HttpError),
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl Listener {
    /// The answer of a command.
    ///
    /// # Errors
    /// See [`ListenerError`].
    pub(crate) fn get(&self, command: &str) -> Result<String, ListenerError> {
        self.ask(Request::get(self.url(command)))
    }

    /// The answer of a command that changes something, with these parameters as far as they are there.
    ///
    /// # Errors
    /// See [`ListenerError`].
    pub(crate) fn post(
        &self,
        command: &str,
        pairs: &[(&str, Option<&str>)],
        credentials: &Credentials,
    ) -> Result<String, ListenerError> {
        let pairs = pairs.iter().filter_map(|(key, value)| Some(format!("{key}={}", escaped((*value)?))));
        let url = self.url(&format!("{command}?{}", pairs.collect::<Vec<_>>().join("&")));
        self.ask(Request::post(url).header(AUTHORIZATION, credentials.header()?))
    }

    fn ask(&self, request: hyper::http::request::Builder) -> Result<String, ListenerError> {
        let url = request.uri_ref().map(ToString::to_string).unwrap_or_default();
        let address = |source| ListenerError::Address { url: url.clone(), source };
        let request = request.body(Empty::<Bytes>::new()).map_err(address)?;
        let http = self.http()?;
        let answer = runtime()?.block_on(async { whole(http.send(request).await?.into_body()).await });
        let answer = answer.map_err(|source| ListenerError::Silent { url, source })?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }

    fn http(&self) -> Result<Http, HttpError> {
        Http::new(self.tls.settings().as_ref())
    }

    fn url(&self, command: &str) -> String {
        let server = self.server.as_deref().unwrap_or("127.0.0.1:8080").trim_end_matches('/');
        let scheme = if server.contains("://") { "" } else { "http://" };
        format!("{scheme}{server}{}/{command}", self.command_url)
    }
}

impl Credentials {
    /// The value of the header `Authorization`.
    fn header(&self) -> Result<String, ListenerError> {
        let Some(user) = &self.user else { return Ok("ip".to_owned()) };
        let password = match io::stdin().is_terminal() {
            true => rpassword::prompt_password(format!("Password of {user}: ")),
            false => {
                io::read_to_string(io::stdin()).map(|line| line.trim_end_matches(['\r', '\n']).to_owned())
            }
        };
        let password = password.map_err(ListenerError::Password)?;
        let visible = |c: char| !c.is_ascii_control();
        if !user.chars().chain(password.chars()).all(visible) {
            return Err(ListenerError::Password(io::ErrorKind::InvalidInput.into()));
        }
        Ok(format!("digest {user}:{password}"))
    }
}

impl SourceArgs {
    /// Whether a server is named.
    pub(crate) fn is_named(&self) -> bool {
        self.listener.server.is_some()
    }

    /// The server; asks for a password if a user is named.
    ///
    /// # Errors
    /// The stores for TLS or the password cannot be read.
    pub(crate) fn source(&self) -> Result<Source, ListenerError> {
        let commands = self.listener.url("");
        let commands = commands.trim_end_matches('/').to_owned();
        Ok(Source::new(self.listener.http()?, commands, self.credentials.header()?))
    }
}

/// What requests are sent by.
///
/// # Errors
/// The operating system refuses what it needs.
pub(crate) fn runtime() -> io::Result<Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

/// A value as it stands in a URL.
fn escaped(value: &str) -> String {
    value
        .bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b':' | b'_' | b'-' | b'.' => {
                char::from(byte).to_string()
            }
            _ => format!("%{byte:02X}"),
        })
        .collect()
}
