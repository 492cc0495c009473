//! Kerberos between servers: threads of their own get and check tickets, since a KDC may be slow and keytabs
//! are files.

use std::io;
use std::rc::Rc;
use std::sync::Arc;

use futures_lite::future::BoxedLocal;
use ringkeeper_engine::sasl::SecurityContext;
use ringkeeper_host::links;
use ringkeeper_runtime::kerberos::{Initiator, KerberosError, Service};

use super::helper::Helper;
use super::start::StartError;
use crate::config::{QuorumAuth, ServicePattern};

/// Tickets that are asked for at once: a KDC that does not answer holds up the dials of one peer each.
const ASKING_THREADS: usize = 4;

/// What the keytabs of `quorum.auth` are good for.
pub(crate) struct Keytabs {
    initiator: Option<Arc<Initiator>>,
    service: Option<Arc<Service>>,
    peers: ServicePattern,
}

/// Kerberos between servers, with its threads.
pub(crate) struct PeerKerberos {
    keytabs: Keytabs,
    asking: Helper,
    checking: Helper,
}

impl Keytabs {
    /// Loads MIT's library and looks the principals up, if there is a keytab.
    ///
    /// # Errors
    /// The library is not installed, or a keytab has no key of its principal.
    pub(crate) fn open(auth: &QuorumAuth) -> Result<Option<Self>, KerberosError> {
        let initiator =
            auth.own_keytab().map(|own| Initiator::open(&own.principal, &own.keytab)).transpose()?;
        let service =
            auth.service().map(|own| Service::open(&own.principal, own.keytab.as_deref())).transpose()?;
        let is_any = initiator.is_some() || service.is_some();
        Ok(is_any.then(|| Self { initiator, service, peers: auth.peers().clone() }))
    }
}

impl PeerKerberos {
    /// Starts the threads. To be called before executors are pinned.
    ///
    /// # Errors
    /// The system refuses another thread.
    pub(crate) fn start(keytabs: Keytabs) -> Result<Self, StartError> {
        Ok(Self {
            keytabs,
            asking: Helper::start("peer-tickets", ASKING_THREADS).map_err(StartError::Helper)?,
            checking: Helper::start("peer-kerberos", 1).map_err(StartError::Helper)?,
        })
    }

    /// How links speak it.
    pub(crate) fn of_links(self) -> links::Kerberos {
        let Keytabs { initiator, service, peers } = self.keytabs;
        let dials = initiator.as_ref().map(|initiator| initiator.principal());
        let takes = service.as_ref().map(|service| service.principal());
        let realm =
            dials.or(takes).and_then(|own| own.rsplit_once('@')).map_or("", |(_, realm)| realm).to_owned();
        let service_name = dials.and_then(|own| own.split(['/', '@']).next()).map(ToOwned::to_owned);
        let asking = self.asking;
        let asks = initiator.map(|initiator| {
            Rc::new(Asking { initiator, peers, realm: realm.clone(), helper: asking })
                as Rc<dyn links::Initiator>
        });
        let checks = service
            .map(|service| Rc::new(Checking { service, helper: self.checking }) as Rc<dyn links::Acceptor>);
        links::Kerberos { initiator: asks, acceptor: checks, realm, service: service_name }
    }
}

struct Asking {
    initiator: Arc<Initiator>,
    peers: ServicePattern,
    realm: String,
    helper: Helper,
}

impl links::Initiator for Asking {
    fn begin(&self, host: &str) -> BoxedLocal<io::Result<links::Ticket>> {
        let (initiator, helper) = (Arc::clone(&self.initiator), self.helper.clone());
        let peer = self.peers.of(host, &self.realm);
        Box::pin(async move {
            let asked = Arc::clone(&initiator);
            let (own, to) = (initiator.principal().to_owned(), peer.clone());
            let begun = helper.run(move || asked.begin(&to)).await.ok_or_else(ending)?;
            let (token, initiation) =
                begun.map_err(|reason| io::Error::other(format!("{own} for {peer}: {reason}")))?;
            let finish = move |answer: Vec<u8>| -> BoxedLocal<io::Result<links::Key>> {
                Box::pin(async move {
                    let finished = helper.run(move || match answer.is_empty() {
                        true => {
                            initiation.refused();
                            Err(format!("it refuses the ticket of {own}; its log says why"))
                        }
                        false => initiation
                            .finish(&answer)
                            .map_err(|reason| format!("it has not proved that it is {peer}: {reason}")),
                    });
                    let refused = |reason| io::Error::new(io::ErrorKind::PermissionDenied, reason);
                    finished.await.ok_or_else(ending)?.map_err(refused)
                })
            };
            Ok(links::Ticket { token, finish: Box::new(finish) })
        })
    }
}

struct Checking {
    service: Arc<Service>,
    helper: Helper,
}

impl links::Acceptor for Checking {
    fn accept(&self, token: Vec<u8>) -> BoxedLocal<io::Result<links::Accepted>> {
        let mut context = self.service.context();
        let checked = self.helper.clone();
        let check = move || {
            let accepted = context.accept(&token)?;
            Ok((accepted, context.key()?))
        };
        Box::pin(async move {
            let refused = |error: ringkeeper_engine::sasl::LoginError| {
                io::Error::new(io::ErrorKind::PermissionDenied, error.to_string())
            };
            let (accepted, key) = checked.run(check).await.ok_or_else(ending)?.map_err(refused)?;
            let unfinished = || io::Error::other("it takes more than one token");
            let principal = accepted.principal.ok_or_else(unfinished)?;
            Ok(links::Accepted { principal, token: accepted.token, key })
        })
    }
}

fn ending() -> io::Error {
    io::Error::other("this server ends")
}
