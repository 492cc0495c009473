//! The servers that the tests start themselves, and how they are set.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use ringkeeper_testkit::{Ensemble, Program, Seat, WorkFolder};

/// The super user's password is `test`.
pub(crate) const SUPER_DIGEST: &str = "super:D/InIHSb7yEEbrWz8b9l71RjZJU=";

pub(crate) const START_LIMIT: Duration = Duration::from_secs(30);

/// Settings that decide what clients see; the same for every program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// Whether hard quotas are enforced.
    pub(crate) enforce_quota: bool,
    /// Whether writes are forced to the medium before they are acknowledged.
    pub(crate) force_sync: bool,
    /// The shortest session timeout that clients may have, in milliseconds.
    pub(crate) session_timeout_min_ms: u32,
}

/// Apache ZooKeeper from a folder of jars, with more arguments of the JVM; what runs by the clock (removal of
/// containers) is off.
pub(crate) fn zookeeper(jars: &Path, java: &[&str]) -> Result<Program> {
    let own = ["-Xmx1g", "-XX:+UseSerialGC", "-Dznode.container.checkIntervalMs=3600000"];
    Program::zookeeper(jars, &[&own, java].concat())
}

/// Starts a server alone in a folder of its own, and waits until it serves.
pub(crate) fn start(program: &Program, settings: Settings) -> Result<Ensemble> {
    start_ensemble(program, 1, settings, "")
}

/// Starts so many servers, with more lines of their configuration, and waits until they serve.
pub(crate) fn start_ensemble(
    program: &Program,
    servers: usize,
    settings: Settings,
    more: &str,
) -> Result<Ensemble> {
    let folder = WorkFolder::new("conformance", &std::env::temp_dir())?;
    let lines = settings.lines() + more;
    Ensemble::start(program, Seat::on_own_addresses(servers), &lines, folder, START_LIMIT)
}

impl Settings {
    /// Every feature that a client can reach is on; what runs by the clock (removal of containers) is off.
    fn lines(self) -> String {
        let Self { enforce_quota, force_sync, session_timeout_min_ms } = self;
        let force_sync = if force_sync { "yes" } else { "no" };
        format!(
            "tickTime=2000\ninitLimit=10\nsyncLimit=5\nmaxClientCnxns=0\nminSessionTimeout={session_timeout_min_ms}\n\
             maxSessionTimeout=600000\n4lw.commands.whitelist=*\nextendedTypesEnabled=true\n\
             enforceQuota={enforce_quota}\nforceSync={force_sync}\nreconfigEnabled=true\n\
             znode.container.checkIntervalMs=3600000\n\
             DigestAuthenticationProvider.superDigest={SUPER_DIGEST}\n"
        )
    }
}
