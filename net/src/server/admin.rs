//! The admin listener: HTTP on ports of their own, for operators, probes and monitoring. It runs on a thread
//! of its own, so that no scrape delays a request. What it tells is collected from the executors as for a
//! four-letter word (`inspect.rs`).

mod command;
mod connections;
mod credentials;
mod dashboard;
mod feed;
mod health;
mod json;
mod query;
mod service;
mod snapshot;
mod tls;

use std::future::pending;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread;

use connections::Port;
use ringkeeper_tls::Error as TlsError;
use service::{Offer, Service};
use tls::Acceptor;
use tokio::runtime::Handle;

use super::door::Door;
use super::helper;
use super::inspect::Inspectors;
use super::log_levels::LogLevels;
use super::start::thread_refused;
use crate::config::Config;

/// What is made at once: a snapshot, a long listing, what does not take long, the look-up of a collector's
/// name, and answers of the dashboard.
const BLOCKING_THREADS: usize = 4 + dashboard::QUESTIONS_AT_ONCE + dashboard::HISTORIES_AT_ONCE;

/// Why a server does not start, since its operator has asked for an admin listener that cannot be.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    #[error("the admin listener cannot listen on {0}: {1}; choose another port (admin.serverPort)")]
    Admin(SocketAddr, io::Error),
    #[error("metrics cannot be served on {0}: {1}; choose another port (metricsProvider.httpPort)")]
    Metrics(SocketAddr, io::Error),
    #[error("the admin listener cannot speak TLS: {0}")]
    Tls(#[from] TlsError),
    #[error("the thread of the admin listener cannot start: {}", thread_refused(.0))]
    Thread(#[from] io::Error),
}

/// Descriptors of a port and its connections' thread beside those of the connections.
const OTHER_DESCRIPTORS: u64 = 6;

/// The admin listener, if there is one.
pub(crate) struct Admin {
    service: Option<Arc<Service>>,
    /// The thread's tasks.
    thread: Option<Handle>,
    descriptors: u64,
}

impl Admin {
    /// Opens the ports and starts the thread. To be called before executors are pinned. Until
    /// [`Self::attach`], it tells that the server starts.
    ///
    /// # Errors
    /// A port that the operator has named cannot be opened, or the material for TLS cannot be used.
    pub(crate) fn start(config: &Config, open_files: u64, levels: LogLevels) -> Result<Self, StartError> {
        let ports = ports(config, connections::connections_max(open_files))?;
        if ports.is_empty() && config.otlp_endpoint.is_none() {
            return Ok(Self { service: None, thread: None, descriptors: 0 });
        }
        let descriptors = ports.iter().map(|port| port.connections_max + OTHER_DESCRIPTORS).sum();
        let service = Arc::new(Service::new(config, levels));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .max_blocking_threads(BLOCKING_THREADS)
            .build()?;
        let serving = Arc::clone(&service);
        let handle = runtime.handle().clone();
        thread::Builder::new().name("admin".to_owned()).spawn(move || {
            helper::yield_to_others();
            runtime.block_on(async {
                connections::serve(ports, serving).await;
                // Other tasks go on.
                pending::<()>().await;
            });
        })?;
        Ok(Self { service: Some(service), thread: Some(handle), descriptors })
    }

    /// The server is recovered, and tells about itself.
    pub(super) fn attach(&self, inspectors: Inspectors, door: Door) {
        if let Some(service) = &self.service {
            service.attach(inspectors, door);
        }
    }

    /// Runs a task on the thread, if there is one.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        if let Some(thread) = &self.thread {
            thread.spawn(task);
        }
    }

    /// How many descriptors it may hold.
    pub(crate) fn descriptors(&self) -> u64 {
        self.descriptors
    }
}

/// Opens the ports. Without the one that ZooKeeper has by default, which many programs use, the server
/// starts.
fn ports(config: &Config, connections_max: u64) -> Result<Vec<Port>, StartError> {
    let mut ports = Vec::new();
    if let Some(address) = config.admin_socket() {
        match listen(address) {
            Ok((listener, address)) => {
                let tls = config.admin.speaks_tls().then(|| Acceptor::open(config)).transpose()?;
                let (clear, encrypted) = (config.admin.speaks_in_the_clear(), tls.is_some());
                tracing::info!(%address, clear, tls = encrypted, "the admin listener is open");
                if !address.ip().is_loopback() && (clear || !config.admin.needs_client_certificate) {
                    tracing::warn!(
                        code = "RK0103",
                        %address,
                        "whoever reaches this address reads nearly all that it tells"
                    );
                }
                ports.push(Port { listener, clear, tls, offer: Offer::All, connections_max });
            }
            Err(error) if config.admin.is_named() => return Err(StartError::Admin(address, error)),
            Err(error) => {
                tracing::warn!(
                    code = "RK0104",
                    %address,
                    %error,
                    "there is no admin listener: choose another port (admin.serverPort), or switch it off \
                     (admin.enableServer=false)"
                );
            }
        }
    }
    if let Some(address) = config.admin.metrics_socket() {
        let (listener, address) = listen(address).map_err(|error| StartError::Metrics(address, error))?;
        tracing::info!(%address, "metrics are served");
        ports.push(Port { listener, clear: true, tls: None, offer: Offer::Metrics, connections_max });
    }
    Ok(ports)
}

fn listen(address: SocketAddr) -> io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}
