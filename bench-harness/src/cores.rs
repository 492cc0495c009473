//! Which cores generate load and which serve: apart where the machine has enough of them, so that neither
//! waits for the other; shared, and said so, where it has not.

use std::sync::OnceLock;

use anyhow::{Context, Result, bail};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// With fewer cores than this, a share for the generator would take from the servers more than it gives.
const APART_FROM: usize = 4;

static DIVISION: OnceLock<Division> = OnceLock::new();

/// Who has which cores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Division {
    /// Both have all of them.
    Shared { cores: usize },
    Apart {
        /// One for each thread.
        generator: Vec<usize>,
        servers: Vec<usize>,
    },
}

impl Division {
    /// Divides the cores that this process may run on: one for each of `threads`, if at least half are left
    /// for the servers.
    pub(crate) fn of_this_machine(threads: usize) -> Result<Self> {
        Ok(Self::of(&allowed()?, threads))
    }

    fn of(cores: &[usize], threads: usize) -> Self {
        if cores.len() < APART_FROM || threads > cores.len() / 2 {
            return Self::Shared { cores: cores.len() };
        }
        // The first ones serve: interrupts and whatever else runs tend to be there on every machine alike.
        let (servers, generator) = cores.split_at(cores.len() - threads);
        Self::Apart { generator: generator.to_vec(), servers: servers.to_vec() }
    }

    /// From here on, threads of this process and the servers that it starts keep to their cores.
    pub(crate) fn install(self) -> Result<()> {
        if let Self::Apart { generator, .. } = &self {
            keep_to(generator)?;
        }
        if DIVISION.set(self).is_err() {
            bail!("the cores are divided already");
        }
        Ok(())
    }
}

impl std::fmt::Display for Division {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Shared { cores } => write!(out, "on the servers' cores: {cores} are too few to divide"),
            Self::Apart { generator, servers } => {
                write!(out, "on cores {}, servers on {}", list(generator), list(servers))
            }
        }
    }
}

/// Has the calling thread, number `thread` of those that generate load, run on a core of its own, if it has
/// one.
pub(crate) fn take(thread: usize) {
    if let Some(Division::Apart { generator, .. }) = DIVISION.get()
        && let Some(core) = generator.get(thread)
    {
        // It may run there: `install` has put the whole process there. Elsewhere it would be slower, not
        // wrong.
        let _ = keep_to(&[*core]);
    }
}

/// The cores that the calling thread may run on.
pub(crate) fn allowed() -> Result<Vec<usize>> {
    let allowed = sched_getaffinity(None).context("asking for the cores to run on")?;
    Ok((0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core)).collect())
}

/// Whether servers run on this core.
pub(crate) fn serves(core: usize) -> bool {
    match DIVISION.get() {
        Some(Division::Apart { servers, .. }) => servers.contains(&core),
        Some(Division::Shared { .. }) | None => true,
    }
}

/// The servers' cores as [`keep_to_list`] takes them, if they are not the generator's too.
pub(crate) fn of_servers() -> Option<String> {
    match DIVISION.get()? {
        Division::Shared { .. } => None,
        Division::Apart { servers, .. } => Some(list(servers)),
    }
}

/// Keeps the calling thread, and what it starts, to cores separated by commas.
pub(crate) fn keep_to_list(cores: &str) -> Result<()> {
    let cores = cores.split(',').map(str::parse).collect::<Result<Vec<usize>, _>>();
    keep_to(&cores.context("expected numbers of cores, separated by commas")?)
}

/// Keeps the calling thread, and what it starts, to these.
pub(crate) fn keep_to(cores: &[usize]) -> Result<()> {
    let mut set = CpuSet::new();
    for core in cores {
        if *core >= CpuSet::MAX_CPU {
            bail!("no core {core}");
        }
        set.set(*core);
    }
    sched_setaffinity(None, &set).with_context(|| format!("keeping to cores {}", list(cores)))
}

fn list(cores: &[usize]) -> String {
    cores.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_cores_generate_and_the_others_serve() {
        let division = Division::of(&[0, 1, 2, 3, 6, 7], 2);
        assert_eq!(division, Division::Apart { generator: vec![6, 7], servers: vec![0, 1, 2, 3] });
        assert_eq!(division.to_string(), "on cores 6,7, servers on 0,1,2,3");
    }

    #[test]
    fn few_cores_are_shared_and_that_is_said() {
        for (cores, threads) in [(&[0, 1][..], 1), (&[0, 1, 2, 3], 3)] {
            let division = Division::of(cores, threads);
            assert_eq!(division, Division::Shared { cores: cores.len() });
            assert!(division.to_string().starts_with("on the servers' cores"), "{division}");
        }
    }

    #[test]
    fn a_thread_keeps_to_the_cores_that_it_is_given() {
        let seen = std::thread::spawn(|| {
            let core =
                (0..CpuSet::MAX_CPU).find(|core| sched_getaffinity(None).unwrap().is_set(*core)).unwrap();
            keep_to_list(&core.to_string()).unwrap();
            (core, sched_getaffinity(None).unwrap())
        });
        let (core, allowed) = seen.join().unwrap();
        assert!(allowed.count() == 1 && allowed.is_set(core), "{allowed:?}");
    }
}
