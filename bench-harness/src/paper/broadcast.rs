//! Figure 7: the broadcast alone. The leader's process generates the proposals; there are no clients.

use std::io::{BufRead, BufReader, Lines, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use super::bench::{Bench, LATENCY_P50, LATENCY_P99, Origin, Pace, Place, SERVER_CPU, THROUGHPUT};
use super::experiment::{Experiment, Plan, View};
use super::scale::{Axis, Scale};
use super::service::Subject;
use crate::compare::{IN_PROCESS_MAX, System};
use crate::ensemble::ports;
use crate::machine::Machine;
use crate::measure::as_f64;
use crate::server_cpu::ServerProcesses;
use crate::{interrupt, supervise};

const NAME: &str = "ringkeeper-broadcast";

/// How long members may take to find a leader, and to hear of everything.
const PATIENCE: Duration = Duration::from_secs(60);

const RETRY_PAUSE: Duration = Duration::from_millis(20);

/// Figure 7.
pub(crate) struct BroadcastAlone;

impl Experiment for BroadcastAlone {
    fn plan(&self) -> Plan {
        Plan {
            id: "fig7",
            title: "The atomic broadcast alone",
            about: "Proposals of 1 KiB, generated inside the leader's process, without clients, sessions or tree; 2,000 are \
                    outstanding, as many as the servers of the other experiments take at once. Each carries its number, and every member must hear of all of them in order. The \
                    CPU time is that of all members, the generator included. Apache ZooKeeper's broadcast is not to be had without its \
                    server; figures 5 and table2 have the servers side by side.",
            x: Axis { label: "servers", scale: Scale::Whole },
            views: vec![View {
                figure: THROUGHPUT,
                suffix: "",
                y: Axis { label: "proposals delivered/s", scale: Scale::Linear },
            }],
            figures: vec![THROUGHPUT, LATENCY_P50, LATENCY_P99, SERVER_CPU],
            published: Vec::new(),
            over_servers: true,
            own_servers: true,
            etcd: false,
            many_generators: false,
        }
    }

    fn run(&self, bench: &mut Bench<'_>) -> Result<()> {
        let settings = bench.settings;
        let is_ours = |subject: &Subject| matches!(subject.system(), Some(System::Ringkeeper { .. }));
        if !settings.subjects.iter().any(is_ours) {
            return Ok(());
        }
        let sizes = bench.sizes();
        for run in 1..=settings.pace.runs {
            for size in &sizes {
                bench.progress.at(&format!("run {run}/{}, {size} servers", settings.pace.runs));
                if let Err(error) = measure(bench, *size, run) {
                    interrupt::check()?;
                    bench.fail(NAME, *size, run, &error, None);
                }
            }
        }
        Ok(())
    }
}

fn measure(bench: &mut Bench<'_>, size: usize, run: usize) -> Result<()> {
    let settings = bench.settings;
    let mut members = Members::start(size, &settings.work_dir, settings.port)?;
    let processes = members.processes()?;
    let leader = members.leader()?;
    let before = (processes.cpu_time()?, Machine::now(None));
    let generated = members.generate(leader, IN_PROCESS_MAX, settings.pace)?;
    let after = (processes.cpu_time()?, Machine::now(None));
    members.wait_until_all_heard(generated.all)?;
    let cpu = after.0.saturating_sub(before.0).as_secs_f64() * 1e6 / as_f64(generated.all.max(1));
    let window = settings.pace.window.as_secs_f64();
    let figures = [
        (THROUGHPUT, "operations/s", as_f64(generated.in_window) / window),
        (LATENCY_P50, "us", as_f64(generated.p50_ns) / 1e3),
        (LATENCY_P99, "us", as_f64(generated.p99_ns) / 1e3),
        (SERVER_CPU, "s per million operations", cpu),
    ];
    // The generator is inside the leader: what it takes is the leader's.
    let invalid = after.1.since(&before.1).disturbances().join("; ");
    let place = Place { series: "", x: as_f64(size as u64) };
    bench.push(Origin { system: NAME, servers: size, run }, place, &figures, &invalid);
    Ok(())
}

/// What the leader says of its work.
struct Generated {
    all: u64,
    in_window: u64,
    p50_ns: u64,
    p99_ns: u64,
}

/// Members as processes; killed when they are dropped, before their folder goes.
struct Members {
    members: Vec<Member>,
    _folder: TempDir,
}

struct Member {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Members {
    fn start(size: usize, work_dir: &Path, port: Option<u16>) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("broadcast-").tempdir_in(work_dir)?;
        let addresses: Vec<String> =
            ports(size, port)?.iter().step_by(3).map(|port| format!("127.0.0.1:{port}")).collect();
        let member = |id: usize| Member::start(id, &folder.path().join(id.to_string()), &addresses.join(","));
        let members = (1..=size).map(member).collect::<Result<_>>()?;
        Ok(Self { members, _folder: folder })
    }

    fn processes(&self) -> Result<ServerProcesses> {
        let pids = self.members.iter().map(|member| i32::try_from(member.child.id()));
        ServerProcesses::of_pids(&pids.collect::<Result<Vec<_>, _>>()?)
    }

    /// Waits until one leads and all others follow.
    fn leader(&mut self) -> Result<usize> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let parts: Vec<String> =
                self.members.iter_mut().map(|member| member.ask("status")).collect::<Result<_>>()?;
            let leader = parts.iter().position(|part| part == "leading");
            if let Some(leader) = leader.filter(|_| parts.iter().all(|part| part != "looking")) {
                return Ok(leader);
            }
            if Instant::now() > deadline {
                bail!("no leader with all followers within {} s, but {parts:?}", PATIENCE.as_secs());
            }
            interrupt::sleep_until(Instant::now() + RETRY_PAUSE, || false)?;
        }
    }

    fn generate(&mut self, leader: usize, outstanding: usize, pace: Pace) -> Result<Generated> {
        let (warmup, window) = (pace.warmup.as_millis(), pace.window.as_millis());
        let answer = self.members[leader].ask(&format!("generate {outstanding} {warmup} {window}"))?;
        let numbers =
            answer.strip_prefix("generated ").with_context(|| format!("the leader says {answer:?}"))?;
        let numbers: Vec<u64> = numbers.split(' ').map(str::parse).collect::<Result<_, _>>()?;
        let [all, in_window, p50_ns, p99_ns] = numbers[..] else { bail!("the leader says {answer:?}") };
        Ok(Generated { all, in_window, p50_ns, p99_ns })
    }

    fn wait_until_all_heard(&mut self, all: u64) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        for (index, member) in self.members.iter_mut().enumerate() {
            loop {
                let heard: u64 = member.ask("heard")?.parse()?;
                if heard == all {
                    break;
                }
                if heard > all || Instant::now() > deadline {
                    bail!("member {} has heard of {heard} proposals of {all}", index + 1);
                }
                interrupt::sleep_until(Instant::now() + RETRY_PAUSE, || false)?;
            }
        }
        Ok(())
    }
}

impl Member {
    fn start(id: usize, folder: &Path, addresses: &str) -> Result<Self> {
        let mut command = supervise::command(Path::new(supervise::OWN_PROGRAM));
        command.arg("broadcast-member").arg("--id").arg(id.to_string());
        command.arg("--folder").arg(folder).arg("--members").arg(addresses);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = child.stdin.take().context("a piped input")?;
        let output = BufReader::new(child.stdout.take().context("a piped output")?).lines();
        Ok(Self { child, input, output })
    }

    fn ask(&mut self, question: &str) -> Result<String> {
        writeln!(self.input, "{question}").context("the member has ended")?;
        Ok(self.output.next().context("the member has ended: see above")??)
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        // Both fail only if it has ended already and been waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
