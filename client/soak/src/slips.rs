//! Operators' slips: a folder is started as something that it is not, or replaced by an older copy of itself.
//! Each has to be refused, or to do no harm.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rand::Rng;
use rand::rngs::StdRng;
use ringkeeper_testkit::{Program, Seat, Server, wait_for};

use crate::soak::Soak;

/// How long a server that is to be refused may take to end.
const REFUSED_WITHIN: Duration = Duration::from_secs(20);
/// How long one with an old copy of its folder may take to serve: it has to learn what it lacks.
const LEARNED_WITHIN: Duration = Duration::from_secs(60);

/// Who starts servers, and sometimes the wrong way.
pub(crate) struct Operator {
    program: Program,
    settings: String,
}

impl Operator {
    /// One who starts servers of this program with these settings.
    pub(crate) fn new(program: Program, settings: String) -> Self {
        Self { program, settings }
    }

    /// Makes one mistake, and corrects it.
    pub(crate) fn slip(&self, soak: &Soak, rng: &mut StdRng) {
        let victim = rng.random_range(soak.servers.servers());
        let (what, done) = match rng.random_range(0..5) {
            0 => ("slips: a member started alone", self.alone(soak, victim)),
            1 => ("slips: a member started with another list of servers", other_list(soak, victim, rng)),
            2 => ("slips: a copied folder under another id", self.copied_folder(soak, victim, rng)),
            3 => ("slips: two processes on one folder", self.second_process(soak, victim)),
            _ => ("slips: an old copy of a folder put back", old_copy(soak, victim, rng)),
        };
        match done {
            Ok(()) => soak.verdict.count(what),
            Err(error) => soak.verdict.violation(format!("server {victim}, {what}: {error:#}")),
        }
    }

    fn alone(&self, soak: &Soak, victim: usize) -> Result<()> {
        let own = &soak.servers.seats()[victim];
        let server = soak.servers.server(victim);
        server.kill();
        let refused = self.is_refused(soak, own, std::slice::from_ref(own), &server.data());
        server.launch().and(refused)
    }

    fn copied_folder(&self, soak: &Soak, victim: usize, rng: &mut StdRng) -> Result<()> {
        let seats = soak.servers.seats();
        let other = (victim + rng.random_range(1..seats.len())) % seats.len();
        let source = soak.servers.server(other);
        // The copy of a running server's folder could be torn.
        source.kill();
        let copy = soak.servers.folder().join("copied");
        let copied = copy_folder(&source.data(), &copy);
        source.launch()?;
        copied?;
        fs::write(copy.join("myid"), seats[victim].id.to_string())?;
        let server = soak.servers.server(victim);
        server.kill();
        let refused = self.is_refused(soak, &seats[victim], seats, &copy);
        server.launch().and(refused)
    }

    fn second_process(&self, soak: &Soak, victim: usize) -> Result<()> {
        let seats = soak.servers.seats();
        self.is_refused(soak, &seats[victim], seats, &soak.servers.server(victim).data())
    }

    /// Starts a server on this folder, and expects that it ends with a reason.
    fn is_refused(&self, soak: &Soak, own: &Seat, list: &[Seat], data: &Path) -> Result<()> {
        let folder = soak.servers.folder().join("stray");
        // There may be none of before.
        let _ = fs::remove_dir_all(&folder);
        let stray = self.program.server(folder, own, list, &self.settings)?;
        let text = fs::read_to_string(stray.config())?;
        let lines = text.lines().map(|line| match line.strip_prefix("dataDir=") {
            Some(_) => format!("dataDir={}\n", data.display()),
            None => format!("{line}\n"),
        });
        fs::write(stray.config(), lines.collect::<String>())?;
        stray.launch()?;
        let ended = wait_for("a refusal", REFUSED_WITHIN, || Ok(stray.ended()));
        let status = ended.with_context(|| said(&stray))?;
        ensure!(!status.success(), "it ended as if nothing were wrong: {}", said(&stray));
        if !stray.log().lines().any(|line| line.starts_with("ringkeeper: ")) {
            bail!("it ended with {status} and without a reason: {}", said(&stray));
        }
        Ok(())
    }
}

/// A line of the configuration is missing for a while. The others count such a server for nothing.
fn other_list(soak: &Soak, victim: usize, rng: &mut StdRng) -> Result<()> {
    let seats = soak.servers.seats();
    let missing = format!("server.{}=", seats[(victim + 1) % seats.len()].id);
    let server = soak.servers.server(victim);
    let config = fs::read_to_string(server.config())?;
    let lines = config.lines().filter(|line| !line.starts_with(&missing));
    server.kill();
    fs::write(server.config(), lines.map(|line| format!("{line}\n")).collect::<String>())?;
    server.launch()?;
    thread::sleep(Duration::from_millis(rng.random_range(500..6000)));
    server.kill();
    fs::write(server.config(), config)?;
    server.launch()
}

fn old_copy(soak: &Soak, victim: usize, rng: &mut StdRng) -> Result<()> {
    let server = soak.servers.server(victim);
    let copy = soak.servers.folder().join("old");
    server.kill();
    copy_folder(&server.data(), &copy)?;
    server.launch()?;
    thread::sleep(Duration::from_millis(rng.random_range(500..6000)));
    server.kill();
    fs::remove_dir_all(server.data())?;
    fs::rename(&copy, server.data())?;
    server.launch()?;
    // Whoever knows what the copy lacks has to stay until the server has learned it.
    server.wait_until_serving(LEARNED_WITHIN)
}

fn said(server: &Server) -> String {
    format!("its output ends with:\n{}", server.log_tail())
}

/// Copies a folder with all that is in it, in place of what was there.
fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    let _ = fs::remove_dir_all(to);
    let status = Command::new("cp").arg("-a").arg(from).arg(to).status().context("cp cannot be run")?;
    ensure!(status.success(), "cp -a of {} ended with {status}", from.display());
    Ok(())
}
