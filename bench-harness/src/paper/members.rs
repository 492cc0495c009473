//! The members of figure 7 as processes: of ringkeeper's broadcast, or Apache ZooKeeper's servers with a
//! leader that generates transactions. Both take the same commands on their standard input.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use ringkeeper_testkit::{Seat, WorkFolder, interrupt};

use crate::server_cpu::ServerProcesses;
use crate::supervise;
use crate::system::{System, seats};
use crate::window::Rate;

/// ZooKeeper's member, compiled by the JVM that runs it.
const ZOOKEEPER_MEMBER: &str = include_str!("../../java/BroadcastMember.java");

/// How long members may take to find a leader, and to hear of everything.
const PATIENCE: Duration = Duration::from_secs(60);

const RETRY_PAUSE: Duration = Duration::from_millis(20);

/// How much of a member's output is shown when it has ended.
const LOG_LINES_SHOWN: usize = 10;

/// How often a member is asked how much it has heard while the leader generates.
const HEARD_EVERY: Duration = Duration::from_millis(500);

/// Whose broadcast.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    /// ringkeeper's, as a library, inside this very program.
    Ringkeeper,
    /// That of Apache ZooKeeper's server.
    ZooKeeper(System),
}

impl Kind {
    /// The broadcast of a system, where it can be driven.
    pub(crate) fn of(system: &System) -> Option<Self> {
        if system.is_zookeeper() {
            return Some(Self::ZooKeeper(system.clone()));
        }
        // The library is this program's own: there is none of an older ringkeeper.
        (system.name() == "ringkeeper").then_some(Self::Ringkeeper)
    }

    /// As tables and pictures name it.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Ringkeeper => "ringkeeper",
            Self::ZooKeeper(_) => "ZooKeeper",
        }
    }

    /// The command that runs a member in `folder`, which is empty and its own.
    fn command(&self, folder: &Path, own: &Seat, all: &[Seat]) -> Result<Command> {
        let words = match self {
            Self::Ringkeeper => {
                let addresses: Vec<String> = all.iter().map(|seat| seat.client().to_string()).collect();
                let (id, data) = (own.id.to_string(), folder.join("data").into_os_string());
                let mut words =
                    [supervise::OWN_PROGRAM, "broadcast-member", "--id", &id].map(OsString::from).to_vec();
                words.extend(["--folder".into(), data, "--members".into(), addresses.join(",").into()]);
                words
            }
            Self::ZooKeeper(system) => {
                system.configure(folder, own, all, "")?;
                let source = folder.join("BroadcastMember.java");
                fs::write(&source, ZOOKEEPER_MEMBER)?;
                system.java_command(folder, &source)?
            }
        };
        let mut words = own.within.iter().cloned().chain(words);
        let mut command = Command::new(words.next().context("a program")?);
        command.args(words);
        Ok(command)
    }
}

/// What the leader says of its work.
pub(crate) struct Generated {
    /// Proposals, all of them delivered.
    pub(crate) all: u64,
    /// Those delivered at the leader within the window.
    pub(crate) in_window: u64,
    /// From the proposal to its delivery at the leader.
    pub(crate) p50_ns: u64,
    pub(crate) p99_ns: u64,
}

/// Members as processes; killed when they are dropped, before their folder goes.
pub(crate) struct Members {
    members: Vec<Member>,
    _folder: WorkFolder,
}

struct Member {
    child: Child,
    /// What it says beside its answers.
    log: PathBuf,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Members {
    /// Starts `size` members in folders of their own inside `work_dir`, on three ports each from `port` on
    /// or, without one, on any that are free.
    pub(crate) fn start(kind: &Kind, size: usize, work_dir: &Path, port: Option<u16>) -> Result<Self> {
        let folder = WorkFolder::new("broadcast", work_dir)?;
        let seats = seats(size, port)?;
        let mut members = Vec::new();
        for seat in &seats {
            let own = folder.path().join(seat.id.to_string());
            fs::create_dir(&own)?;
            members.push(Member::start(kind.command(&own, seat, &seats)?, &own)?);
        }
        Ok(Self { members, _folder: folder })
    }

    /// The members' processes.
    pub(crate) fn processes(&self) -> Result<ServerProcesses> {
        let pids = self.members.iter().map(|member| i32::try_from(member.child.id()));
        ServerProcesses::of_pids(&pids.collect::<Result<Vec<_>, _>>()?)
    }

    /// Waits until one leads and all others follow.
    pub(crate) fn leader(&mut self) -> Result<usize> {
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

    /// Has the leader propose for this long, as many as `outstanding` at a time, and waits until all are
    /// delivered there. `rate` is told of deliveries.
    pub(crate) fn generate(
        &mut self,
        leader: usize,
        outstanding: usize,
        (warmup, window): (Duration, Duration),
        rate: &mut Rate<'_>,
    ) -> Result<Generated> {
        let end = Instant::now() + warmup + window;
        let (warmup, window) = (warmup.as_millis(), window.as_millis());
        self.members[leader].tell(&format!("generate {outstanding} {warmup} {window}"))?;
        // The leader has its hands full; another member knows as well how many have been delivered.
        let other = (leader + 1) % self.members.len();
        while Instant::now() < end {
            interrupt::sleep_until(end.min(Instant::now() + HEARD_EVERY), || false)?;
            rate.look(self.members[other].heard()?);
        }
        let answer = self.members[leader].hear()?;
        let numbers =
            answer.strip_prefix("generated ").with_context(|| format!("the leader says {answer:?}"))?;
        let numbers: Vec<u64> = numbers.split(' ').map(str::parse).collect::<Result<_, _>>()?;
        let [all, in_window, p50_ns, p99_ns] = numbers[..] else { bail!("the leader says {answer:?}") };
        Ok(Generated { all, in_window, p50_ns, p99_ns })
    }

    /// Waits until every member has heard of all proposals, and of no more.
    pub(crate) fn wait_until_all_heard(&mut self, all: u64) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        for (index, member) in self.members.iter_mut().enumerate() {
            loop {
                let heard = member.heard()?;
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
    fn start(mut command: Command, folder: &Path) -> Result<Self> {
        let log = folder.join("member.log");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(File::create(&log)?);
        let mut child = command.spawn()?;
        let input = child.stdin.take().context("a piped input")?;
        let output = BufReader::new(child.stdout.take().context("a piped output")?).lines();
        Ok(Self { child, log, input, output })
    }

    /// How many proposals it has heard of.
    fn heard(&mut self) -> Result<u64> {
        let answer = self.ask("heard")?;
        answer.parse().with_context(|| format!("a member says {answer:?} in the place of a number"))
    }

    fn ask(&mut self, question: &str) -> Result<String> {
        self.tell(question)?;
        self.hear()
    }

    fn tell(&mut self, command: &str) -> Result<()> {
        writeln!(self.input, "{command}").or_else(|_| self.has_ended())
    }

    fn hear(&mut self) -> Result<String> {
        match self.output.next() {
            Some(answer) => Ok(answer?),
            None => self.has_ended(),
        }
    }

    fn has_ended<T>(&self) -> Result<T> {
        let log = String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned();
        let lines: Vec<_> = log.lines().collect();
        let last = lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..].join("\n");
        bail!("a member has ended, and said:\n{last}")
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        // Both fail only if it has ended already and been waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
