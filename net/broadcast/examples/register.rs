//! A register machine, replicated on three processes.
//!
//! ```sh
//! cargo run -p ringkeeper-broadcast --example register                   # the demonstration
//! cargo run -p ringkeeper-broadcast --example register -- member 1 DIR 127.0.0.1:33901,127.0.0.1:33902,127.0.0.1:33903
//! ```
//!
//! The demonstration starts three members as processes, adds to registers through all of them, kills the
//! leader with SIGKILL while it does, goes on with the two others, starts the third one again, and compares.
//!
//! A member takes commands from its standard input, one a line, and answers each with one line: `add NAME
//! NUMBER`, `get NAME` (linearizable), `all`, `status`, `quit`.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::{BufRead, BufReader, Lines, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ringkeeper_broadcast::{Broadcast, Config, Handle, ProposeError, StateError, StateMachine, Status, Zxid};

type Registers = BTreeMap<String, i64>;

/// Registers that only the broadcast changes, and everybody may read.
#[derive(Clone, Default)]
struct RegisterMachine(Arc<Mutex<Registers>>);

impl RegisterMachine {
    fn read<T>(&self, look: impl FnOnce(&Registers) -> T) -> T {
        look(&self.0.lock().expect("no thread panics with it"))
    }
}

/// `NAME NUMBER`, as it is proposed and as a state has it on each line.
fn parse(line: &str) -> Option<(String, i64)> {
    let (name, number) = line.split_once(' ')?;
    Some((name.to_owned(), number.trim().parse().ok()?))
}

fn describe(registers: &Registers) -> String {
    registers.iter().map(|(name, value)| format!("{name} {value}\n")).collect()
}

impl StateMachine for RegisterMachine {
    fn deliver(&mut self, _: Zxid, proposal: &[u8]) {
        // The same on every member: what is no addition is none anywhere.
        if let Some((name, number)) = std::str::from_utf8(proposal).ok().and_then(parse) {
            let mut registers = self.0.lock().expect("no thread panics with it");
            let value = registers.entry(name).or_default();
            *value = value.wrapping_add(number);
        }
    }

    fn get_state(&mut self) -> Vec<u8> {
        self.read(describe).into_bytes()
    }

    fn set_state(&mut self, _: Zxid, state: &[u8]) -> Result<(), StateError> {
        let lines = std::str::from_utf8(state)?.lines();
        let registers: Option<Registers> = lines.map(parse).collect();
        *self.0.lock().expect("no thread panics with it") = registers.ok_or("a line is no register")?;
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => demonstrate(),
        ["member", id, folder, addresses] => member(id.parse()?, folder, addresses),
        _ => Err("usage: register [member ID FOLDER ADDRESS,ADDRESS,ADDRESS]".into()),
    }
}

/// One member of three, until its input ends.
fn member(id: u64, folder: &str, addresses: &str) -> Result<(), Box<dyn Error>> {
    let mut config = Config::ensemble(id, folder).snapshot_after(1000, 1 << 20);
    for (id, address) in (1..).zip(addresses.split(',')) {
        config = config.member(id, address);
    }
    let registers = RegisterMachine::default();
    let broadcast = Broadcast::start(config, registers.clone())?;
    let handle = broadcast.handle();
    for line in std::io::stdin().lines() {
        let line = line?;
        let (word, rest) = line.split_once(' ').unwrap_or((&line, ""));
        if word == "quit" {
            break;
        }
        println!("{}", answer(word, rest, &handle, &registers));
    }
    handle.shutdown();
    Ok(broadcast.join()?)
}

fn answer(word: &str, rest: &str, handle: &Handle, registers: &RegisterMachine) -> String {
    let synced = |look: &dyn Fn(&Registers) -> String| match handle.sync().wait() {
        Ok(_) => registers.read(look),
        Err(error) => format!("error: {error}"),
    };
    match word {
        "add" if parse(rest).is_none() => "error: add NAME NUMBER".to_owned(),
        "add" => match handle.propose(rest.as_bytes().to_vec()).wait() {
            Ok(zxid) => format!("added {zxid}"),
            Err(ProposeError::Unknown) => "unknown".to_owned(),
            Err(error) => format!("error: {error}"),
        },
        "get" => synced(&|registers| format!("value {}", registers.get(rest.trim()).copied().unwrap_or(0))),
        "all" => synced(&|registers| format!("all {}", describe(registers).replace('\n', ", "))),
        "status" => match handle.status() {
            Status::Looking => "looking".to_owned(),
            Status::Following { leader, .. } => format!("following {leader}"),
            Status::Leading { .. } => "leading".to_owned(),
        },
        _ => "error: add NAME NUMBER, get NAME, all, status, or quit".to_owned(),
    }
}

/// A member as a process of its own; killed when it is dropped.
struct Process {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Process {
    fn start(id: u64, folder: &Path, addresses: &str) -> Result<Self, Box<dyn Error>> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["member", &id.to_string(), &folder.join(id.to_string()).to_string_lossy(), addresses])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let input = child.stdin.take().ok_or("no input")?;
        let output = BufReader::new(child.stdout.take().ok_or("no output")?).lines();
        Ok(Self { child, input, output })
    }

    fn ask(&mut self, question: &str) -> Result<String, Box<dyn Error>> {
        writeln!(self.input, "{question}")?;
        Ok(self.output.next().ok_or("the member has ended")??)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // SIGKILL, and it may be gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Additions that were acknowledged, and those whose outcome nobody knows.
#[derive(Default)]
struct Tally {
    acknowledged: i64,
    unknown: i64,
}

impl Tally {
    /// Adds one, again and again while the member says that nothing was done.
    fn add(&mut self, process: &mut Process) -> Result<(), Box<dyn Error>> {
        let start = Instant::now();
        loop {
            match process.ask("add total 1")?.as_str() {
                "unknown" => self.unknown += 1,
                answer if answer.starts_with("added") => self.acknowledged += 1,
                _ if start.elapsed() < Duration::from_secs(60) => {
                    std::thread::sleep(Duration::from_millis(20));
                    continue;
                }
                answer => return Err(format!("for a minute: {answer}").into()),
            }
            return Ok(());
        }
    }
}

fn total(process: &mut Process) -> Result<i64, Box<dyn Error>> {
    let start = Instant::now();
    loop {
        let answer = process.ask("get total")?;
        match answer.strip_prefix("value ") {
            Some(value) => return Ok(value.parse()?),
            None if start.elapsed() < Duration::from_secs(60) => {
                std::thread::sleep(Duration::from_millis(20))
            }
            None => return Err(format!("for a minute: {answer}").into()),
        }
    }
}

fn demonstrate() -> Result<(), Box<dyn Error>> {
    let folder = std::env::temp_dir().join(format!("register-{}", std::process::id()));
    let ports: Vec<_> = (0..3).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<Result<_, _>>()?;
    let addresses: Result<Vec<_>, _> =
        ports.iter().map(|port| port.local_addr().map(|address| address.to_string())).collect();
    let addresses = addresses?.join(",");
    drop(ports);
    let mut members = Vec::new();
    for id in 1..=3 {
        members.push(Process::start(id, &folder, &addresses)?);
    }
    println!("three members at {addresses}, their data in {}", folder.display());

    let mut tally = Tally::default();
    for round in 0..300 {
        tally.add(&mut members[round % 3])?;
    }
    let mut leading = None;
    for (index, member) in members.iter_mut().enumerate() {
        let status = member.ask("status")?;
        println!("member {} is {status}", index + 1);
        if status == "leading" {
            leading = Some(index);
        }
    }
    let leading = leading.ok_or("nobody leads")?;
    println!("{} additions acknowledged", tally.acknowledged);

    // Through a follower, so that the killing comes in between.
    let killed = members.remove(leading);
    writeln!(members[0].input, "add total 1")?;
    drop(killed);
    println!("member {} was killed (SIGKILL) while an addition was under way", leading + 1);
    match members[0].output.next().ok_or("the member has ended")??.as_str() {
        answer if answer.starts_with("added") => tally.acknowledged += 1,
        "unknown" => tally.unknown += 1,
        _ => {}
    }
    let start = Instant::now();
    tally.add(&mut members[1])?;
    println!("the next addition was acknowledged {} ms later", start.elapsed().as_millis());
    for round in 0..200 {
        tally.add(&mut members[round % 2])?;
    }

    members.push(Process::start(leading as u64 + 1, &folder, &addresses)?);
    println!("member {} is back", leading + 1);
    let mut totals = Vec::new();
    for member in &mut members {
        totals.push(total(member)?);
    }
    println!("acknowledged {}, outcome unknown {}, totals {totals:?}", tally.acknowledged, tally.unknown);
    members.clear();
    std::fs::remove_dir_all(&folder)?;
    let may_be = tally.acknowledged..=tally.acknowledged + tally.unknown;
    if totals.iter().any(|total| *total != totals[0] || !may_be.contains(total)) {
        return Err("the members disagree, or an acknowledged addition is lost".into());
    }
    println!("all members agree, and nothing acknowledged is lost");
    Ok(())
}
