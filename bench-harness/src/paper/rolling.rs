//! Rolling restarts: one server after the other is stopped and started again, with another build where there
//! is one.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use ringkeeper_testkit::WorkFolder;

use super::bench::{Bench, Turn};
use super::experiment::{Experiment, Plan};
use super::gaps::{self, Gaps, SERVERS_MIN};
use super::service::{Service, Subject};

/// Rolling restarts.
pub(crate) struct Rolling;

/// A way through all servers, and the program that they are started with.
#[derive(Clone)]
struct Round {
    name: &'static str,
    /// Without one, the same as before.
    build: Option<PathBuf>,
}

impl Experiment for Rolling {
    fn plan(&self) -> Plan {
        gaps::plan(
            "rolling",
            "Time without writes while servers are restarted or upgraded one by one",
            "A writer for each server, one setData after the other; when its connection ends it goes to the \
             next server. One server after the other is stopped (SIGTERM) and started again, the leader \
             where its turn is. For each, the longest gap between two acknowledged writes of all writers \
             together, from the stop until all writers write while it follows again. With --before, \
             ringkeeper's servers begin with that build, and go to this one and back.",
            "server",
        )
    }

    fn run(&self, bench: &mut Bench<'_>) -> Result<()> {
        let size = bench.first_size().max(SERVERS_MIN);
        let folder = WorkFolder::new("bench", &bench.settings.work_dir)?;
        let installed = folder.path().join("ringkeeper");
        let builds = builds(bench);
        let begins_with = builds.as_ref().map(|(before, _)| before.clone());
        bench.turns_on(
            &[(size, ())],
            |settings, subject, size, ()| match (&begins_with, subject.name()) {
                (Some(before), "ringkeeper") => {
                    install(&installed, before)?;
                    let system = subject.system().context("a system that can be started")?;
                    Service::start(&system.at(&installed)?, size, &settings.work_dir, settings.port)
                }
                _ => settings.serve(subject, size),
            },
            |turn, ()| {
                let rounds = match (&builds, turn.system) {
                    (Some((before, this)), "ringkeeper") => vec![
                        Round { name: "upgrade", build: Some(this.clone()) },
                        Round { name: "downgrade", build: Some(before.clone()) },
                    ],
                    _ => vec![Round { name: "restart", build: None }],
                };
                rounds.iter().try_for_each(|round| roll(turn, round, &installed))
            },
        )
    }
}

/// The build before, and this one.
fn builds(bench: &Bench<'_>) -> Option<(PathBuf, PathBuf)> {
    let binary = |name: &str| {
        let systems = bench.subjects().filter_map(Subject::system);
        systems.filter(|system| system.name() == name).find_map(|system| system.binary().map(Path::to_owned))
    };
    binary("before").zip(binary("ringkeeper"))
}

/// Names the program that servers are started with from now on; those that run keep theirs. If copies took
/// each other's place, the last server to end would free a deleted file, and all others' writes would wait.
fn install(installed: &Path, build: &Path) -> Result<()> {
    if installed.is_symlink() {
        fs::remove_file(installed)?;
    }
    let build = build.canonicalize();
    build.and_then(|build| symlink(build, installed)).context("naming the build to start")
}

fn roll(turn: &mut Turn<'_, '_>, round: &Round, installed: &Path) -> Result<()> {
    if let Some(build) = &round.build {
        install(installed, build)?;
    }
    let mut gaps = Gaps::start(turn, round.name)?;
    for server in turn.service.ensemble()?.servers() {
        gaps.around(turn, |turn, leader| {
            let stopping = turn.service.ensemble()?.server(server);
            stopping.stop()?;
            stopping.launch()?;
            turn.service.wait_for_leader()?;
            let role = if server == leader { "the leader" } else { "a follower" };
            Ok(format!(", server {server}, {role}"))
        })?;
    }
    gaps.end(turn)
}
