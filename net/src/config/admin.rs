//! The keys of the admin listener and of the port for metrics (Apache ZooKeeper 3.9's administrator guide,
//! "AdminServer configuration" and "Metrics Providers").

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use super::keys::Treatment::{self, Honoured, NoEffect};
use super::keys::{I32_MAX, address, flag, number};
use super::{Config, socket_address};

/// The class that serves metrics on a port of their own, and those that do not.
const PROMETHEUS: &str = "org.apache.zookeeper.metrics.prometheus.PrometheusMetricsProvider";
const OTHER_PROVIDERS: [&str; 2] = [
    "org.apache.zookeeper.metrics.impl.DefaultMetricsProvider",
    "org.apache.zookeeper.metrics.impl.NullMetricsProvider",
];

const DEFAULT_PORT: u16 = 8080;
const DEFAULT_METRICS_PORT: u16 = 7000;

/// The admin listener.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AdminConfig {
    enabled: bool,
    /// Its address, and the link that a link-local IPv6 address belongs to.
    address: Option<(IpAddr, u32)>,
    port: Option<u16>,
    /// In front of the names of commands; begins with a slash and does not end with one.
    pub(crate) command_url: String,
    /// How long a connection may be silent.
    pub(crate) idle_timeout: Duration,
    /// Whether connections with TLS and in the clear are both accepted.
    port_unification: bool,
    /// Whether connections in the clear are refused.
    force_https: bool,
    /// Whether who connects with TLS has to show a certificate.
    pub(crate) needs_client_certificate: bool,
    /// Whether the command `snapshot` is answered.
    pub(crate) snapshots: bool,
    /// The number of `admin.rateLimiterIntervalInMS`.
    pub(crate) rate_limiter_interval: u64,
    /// Whether there is a dashboard.
    pub(crate) dashboard: bool,
    /// Names by which browsers may ask for it, beside addresses and `localhost`; `*` for all.
    pub(crate) dashboard_hosts: Vec<String>,
    /// Who may change the tree by it.
    pub(crate) dashboard_editors: Editors,
    /// Whether there is a port for metrics, and where.
    metrics: bool,
    metrics_address: (IpAddr, u32),
    metrics_port: u16,
}

/// Who may change the tree by the dashboard, as far as ACLs and rules permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Editors {
    /// Super users.
    Super,
    /// Whoever gives a user and a password.
    Users,
    /// Nobody.
    Nobody,
}

impl Default for AdminConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            address: None,
            port: None,
            command_url: "/commands".to_owned(),
            idle_timeout: Duration::from_secs(30),
            port_unification: false,
            force_https: false,
            needs_client_certificate: false,
            snapshots: true,
            rate_limiter_interval: 300_000,
            dashboard: true,
            dashboard_hosts: Vec::new(),
            dashboard_editors: Editors::Super,
            metrics: false,
            metrics_address: (IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0),
            metrics_port: DEFAULT_METRICS_PORT,
        }
    }
}

impl AdminConfig {
    /// Whether the operator has named the port, so that a server without it is not what was asked for.
    pub(crate) fn is_named(&self) -> bool {
        self.port.is_some()
    }

    /// Whether connections speak TLS, or may.
    pub(crate) fn speaks_tls(&self) -> bool {
        self.port_unification || self.force_https
    }

    /// Whether connections in the clear are accepted.
    pub(crate) fn speaks_in_the_clear(&self) -> bool {
        !self.force_https
    }

    /// Where metrics alone are served, if there is such a port.
    pub(crate) fn metrics_socket(&self) -> Option<SocketAddr> {
        let (address, scope_id) = self.metrics_address;
        self.metrics.then(|| socket_address(address, self.metrics_port, scope_id))
    }
}

impl Config {
    /// Where the admin listener is, if there is one. Unless the operator names an address, it is reached from
    /// this machine alone: nearly all of its answers are given to everybody.
    pub(crate) fn admin_socket(&self) -> Option<SocketAddr> {
        let loopback = if self.client_address.is_loopback() {
            self.client_address
        } else {
            IpAddr::V4(Ipv4Addr::LOCALHOST)
        };
        let (address, scope_id) = self.admin.address.unwrap_or((loopback, 0));
        let port = self.admin.port.unwrap_or(DEFAULT_PORT);
        self.admin.enabled.then(|| socket_address(address, port, scope_id))
    }
}

/// Keys by their name in the file, without the prefix `zookeeper.`.
pub(super) const KEYS: &[(&str, Treatment)] = &[
    ("admin.enableServer", Honoured(|c, v| flag(v).map(|on| c.admin.enabled = on))),
    ("admin.serverAddress", Honoured(|c, v| address(v).map(|a| c.admin.address = Some(a)))),
    ("admin.serverPort", Honoured(|c, v| number(v, 0, 65535).map(|n| c.admin.port = Some(n)))),
    ("admin.commandURL", Honoured(|c, v| command_url(v).map(|url| c.admin.command_url = url))),
    (
        "admin.idleTimeout",
        Honoured(|c, v| number(v, 1, I32_MAX).map(|n| c.admin.idle_timeout = Duration::from_millis(n))),
    ),
    ("admin.portUnification", Honoured(|c, v| flag(v).map(|on| c.admin.port_unification = on))),
    ("admin.forceHttps", Honoured(|c, v| flag(v).map(|on| c.admin.force_https = on))),
    ("admin.needClientAuth", Honoured(|c, v| flag(v).map(|on| c.admin.needs_client_certificate = on))),
    (
        "admin.rateLimiterIntervalInMS",
        Honoured(|c, v| number(v, 0, I32_MAX).map(|n| c.admin.rate_limiter_interval = n)),
    ),
    ("admin.snapshot.enabled", Honoured(|c, v| flag(v).map(|on| c.admin.snapshots = on))),
    (
        "admin.restore.enabled",
        NoEffect("a running server is not restored: `ringkeeper import` makes a folder to start from"),
    ),
    ("admin.httpVersion", NoEffect("the admin listener speaks HTTP/1.1")),
    ("ringkeeper.dashboard.enabled", Honoured(|c, v| flag(v).map(|on| c.admin.dashboard = on))),
    (
        "ringkeeper.dashboard.hosts",
        Honoured(|c, v| {
            c.admin.dashboard_hosts = v.split(',').map(|host| host.trim().to_owned()).collect();
            Ok(())
        }),
    ),
    ("ringkeeper.dashboard.editors", Honoured(|c, v| editors(v).map(|e| c.admin.dashboard_editors = e))),
    ("metricsProvider.className", Honoured(|c, v| serves_metrics(v).map(|on| c.admin.metrics = on))),
    ("metricsProvider.httpHost", Honoured(|c, v| address(v).map(|a| c.admin.metrics_address = a))),
    ("metricsProvider.httpPort", Honoured(|c, v| number(v, 0, 65535).map(|n| c.admin.metrics_port = n))),
];

fn command_url(value: &str) -> Result<String, String> {
    let url = value.trim_end_matches('/');
    if url.starts_with('/') {
        Ok(url.to_owned())
    } else {
        Err(format!("{value:?} is no path such as /commands"))
    }
}

fn editors(value: &str) -> Result<Editors, String> {
    match value {
        "super" => Ok(Editors::Super),
        "users" => Ok(Editors::Users),
        "nobody" => Ok(Editors::Nobody),
        _ => Err(format!("{value:?} is none of super, users and nobody")),
    }
}

fn serves_metrics(class: &str) -> Result<bool, String> {
    match class {
        PROMETHEUS => Ok(true),
        other if OTHER_PROVIDERS.contains(&other) => Ok(false),
        other => {
            Err(format!("{other:?} names a Java class, which cannot be run here; {PROMETHEUS} is built in"))
        }
    }
}
