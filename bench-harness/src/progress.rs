//! What goes on, for whoever watches: one line that changes on a terminal, a line for each step elsewhere.

use std::cell::{Cell, RefCell};
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use crate::measure::as_f64;
use crate::paper::chart::number;
use crate::window::Spectator;

/// Where there is no terminal, a rate is said no more often than this.
const SAID_EVERY: Duration = Duration::from_secs(5);

/// The state of the whole run.
pub(crate) struct Progress {
    started: Instant,
    terminal: bool,
    step: RefCell<Step>,
    /// When a line was written last.
    said: Cell<Instant>,
    last_line: RefCell<String>,
}

#[derive(Default)]
struct Step {
    experiment: String,
    what: String,
}

impl Progress {
    /// Nothing has happened yet.
    pub(crate) fn new() -> Self {
        let now = Instant::now();
        let terminal = std::io::stderr().is_terminal();
        Self {
            started: now,
            terminal,
            step: RefCell::default(),
            said: Cell::new(now),
            last_line: RefCell::default(),
        }
    }

    /// An experiment begins.
    pub(crate) fn experiment(&self, name: &str) {
        self.step.replace(Step { experiment: name.to_owned(), what: String::new() });
    }

    /// What is done now.
    pub(crate) fn at(&self, what: &str) {
        what.clone_into(&mut self.step.borrow_mut().what);
        let line = self.status("");
        self.said.set(Instant::now());
        if self.terminal { self.replace(&line) } else { eprintln!("{line}") }
    }

    /// What came out of it, on a terminal only: elsewhere the tables tell.
    pub(crate) fn result(&self, result: &str) {
        if self.terminal {
            self.replace(&self.status(&format!(": {result}")));
        }
    }

    /// Something to stay on the screen; once, if it is said again and again.
    pub(crate) fn line(&self, text: &str) {
        if *self.last_line.borrow() == text {
            return;
        }
        text.clone_into(&mut self.last_line.borrow_mut());
        if self.terminal {
            eprint!("\r\x1b[K");
        }
        eprintln!("{text}");
    }

    fn status(&self, result: &str) -> String {
        let elapsed = self.started.elapsed().as_secs();
        let Step { experiment, what } = &*self.step.borrow();
        format!("[{:02}:{:02}] {experiment}: {what}{result}", elapsed / 60, elapsed % 60)
    }

    fn replace(&self, line: &str) {
        eprint!("\r\x1b[K{line}");
        // Nothing depends on what the terminal makes of it.
        let _ = std::io::stderr().flush();
    }
}

impl Spectator for Progress {
    fn told(&self, of: &str, so_far: u64, per_second: f64) {
        let (rate, so_far) = (number(per_second), number(as_f64(so_far)));
        let line = self.status(&format!(": {rate} {of}/s now, {so_far} so far"));
        if self.terminal {
            self.replace(&line);
        } else if self.said.get().elapsed() >= SAID_EVERY {
            self.said.set(Instant::now());
            eprintln!("{line}");
        }
    }
}
