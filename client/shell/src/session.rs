//! The session that commands run in.

use std::time::Duration;

use ringkeeper_client::core::User;
use ringkeeper_client::{Client, Error, TlsSettings};

use crate::error::ShellError;
use crate::interrupt;
use crate::watches::Watches;

/// How long the end of the session may take: the service ends it by itself later.
const CLOSE_MAX: Duration = Duration::from_secs(2);

/// Where to connect, and as whom.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) servers: String,
    pub(crate) session_timeout: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) read_only: bool,
    pub(crate) credentials: Vec<(String, Vec<u8>)>,
    /// Who logs in by SASL.
    pub(crate) login: Option<User>,
    pub(crate) tls: Option<TlsSettings>,
}

/// A session, open or closed, and the watches left in it.
pub(crate) struct Session {
    target: Target,
    client: Option<Client>,
    pub(crate) watches: Watches,
}

impl Session {
    /// Opens a session: returns when a server has granted it. `json`: how watches are shown.
    pub(crate) fn open(target: Target, json: bool) -> Result<Self, ShellError> {
        let client = connect(&target)?;
        Ok(Self { target, client: Some(client), watches: Watches::new(json) })
    }

    /// The client.
    pub(crate) fn client(&self) -> Result<&Client, ShellError> {
        self.client.as_ref().ok_or(ShellError::NotConnected)
    }

    /// Waits for what was asked of the client. `what` is told with an error.
    pub(crate) fn call<T, R>(
        &self,
        what: impl Into<String>,
        request: impl FnOnce(&Client) -> R,
    ) -> Result<T, ShellError>
    where
        R: Future<Output = Result<T, Error>>,
    {
        interrupt::wait(request(self.client()?))?.map_err(ShellError::client(what))
    }

    /// As [`Self::call`], where no such znode is an answer, too.
    pub(crate) fn find<T, R>(
        &self,
        what: impl Into<String>,
        request: impl FnOnce(&Client) -> R,
    ) -> Result<Option<T>, ShellError>
    where
        R: Future<Output = Result<T, Error>>,
    {
        match interrupt::wait(request(self.client()?))? {
            Err(Error::NoNode(_)) => Ok(None),
            other => other.map(Some).map_err(ShellError::client(what)),
        }
    }

    /// Shows a proof of identity, now and after each `connect`.
    pub(crate) fn authenticate(&mut self, scheme: &str, auth: &str) -> Result<(), ShellError> {
        self.call(format!("addauth {scheme}"), |client| client.add_credential(scheme, auth))?;
        self.target.credentials.push((scheme.to_owned(), auth.as_bytes().to_vec()));
        Ok(())
    }

    /// Ends the session, if there is one, and opens another.
    pub(crate) fn reconnect(&mut self, servers: Option<String>) -> Result<(), ShellError> {
        let target =
            Target { servers: servers.unwrap_or_else(|| self.target.servers.clone()), ..self.target.clone() };
        // The old one stays if there is no new one.
        let client = connect(&target)?;
        self.close();
        self.target = target;
        self.client = Some(client);
        Ok(())
    }

    /// Ends the session: its ephemeral znodes go.
    pub(crate) fn close(&mut self) {
        use ringkeeper_client::Wait;
        if let Some(client) = self.client.take() {
            // A service that does not answer ends it when its time is over.
            if let Some(_ended) = client.close().wait_timeout(CLOSE_MAX) {
                self.watches.finish();
            }
        }
    }

    /// Where the session is, in words for a prompt.
    pub(crate) fn place(&self) -> String {
        match &self.client {
            None => format!("{} (closed)", self.target.servers),
            Some(client) if client.state().is_connected() => self.target.servers.clone(),
            Some(client) => format!("{} ({:?})", self.target.servers, client.state()).to_lowercase(),
        }
    }
}

fn connect(target: &Target) -> Result<Client, ShellError> {
    let builder = Client::builder(&target.servers)
        .session_timeout(target.session_timeout)
        .connect_timeout(target.connect_timeout)
        .read_only(target.read_only);
    let builder = match &target.login {
        Some(User { name, password, mechanism }) => builder.login_by(*mechanism, name, password),
        None => builder,
    };
    let builder = match &target.tls {
        Some(settings) => builder.tls(settings.clone()),
        None => builder,
    };
    let with_credentials = target
        .credentials
        .iter()
        .fold(builder, |builder, (scheme, auth)| builder.credential(scheme, auth.clone()));
    interrupt::wait(with_credentials.connect())?.map_err(ShellError::client("connect"))
}
