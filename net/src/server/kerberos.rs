//! Logins of clients by Kerberos: threads of their own evaluate the tokens, since the keytab and the cache of
//! tickets seen before are files.

use std::sync::Arc;

use ringkeeper_engine::sasl::{Answer, LoginError, Negotiation};
use ringkeeper_runtime::kerberos::{Context, KerberosError, Service};

use super::helper::Helper;
use super::start::StartError;
use crate::config::KerberosService;

/// Tokens that are evaluated at once.
const THREADS: usize = 2;

/// The login of one client.
pub(crate) type Login = Box<Negotiation<Context>>;

/// Evaluates the tokens of all shards' clients.
#[derive(Clone)]
pub(crate) struct Kerberos {
    service: Arc<Service>,
    helper: Helper,
}

/// Opens the service, if there is one.
///
/// # Errors
/// MIT's library is not installed, or has no key of the service.
pub(crate) fn open(service: Option<&KerberosService>) -> Result<Option<Arc<Service>>, KerberosError> {
    service.map(|service| Service::open(&service.principal, service.keytab.as_deref())).transpose()
}

impl Kerberos {
    /// Starts the threads. To be called before executors are pinned.
    ///
    /// # Errors
    /// The system refuses another thread.
    pub(crate) fn start(service: Arc<Service>) -> Result<Self, StartError> {
        let helper = Helper::start("kerberos", THREADS).map_err(StartError::Helper)?;
        Ok(Self { service, helper })
    }

    /// Has a token evaluated, the first one of a login or another; `None` if the process is ending.
    pub(crate) async fn answer(
        &self,
        begun: Option<Login>,
        token: Vec<u8>,
    ) -> Option<(Login, Result<Answer, LoginError>)> {
        let mut login = begun.unwrap_or_else(|| Box::new(Negotiation::new(self.service.context())));
        let work = move || {
            let answer = login.answer(&token);
            (login, answer)
        };
        self.helper.run(work).await
    }
}
