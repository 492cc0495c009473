//! What goes on, for whoever watches: one line that changes on a terminal, a line for each step elsewhere.

use std::cell::RefCell;
use std::io::{IsTerminal, Write};
use std::time::Instant;

/// The state of the whole run.
pub(crate) struct Progress {
    started: Instant,
    terminal: bool,
    step: RefCell<Step>,
}

#[derive(Default)]
struct Step {
    experiment: String,
    what: String,
}

impl Progress {
    /// Nothing has happened yet.
    pub(crate) fn new() -> Self {
        Self { started: Instant::now(), terminal: std::io::stderr().is_terminal(), step: RefCell::default() }
    }

    /// An experiment begins: number `index` of `count`.
    pub(crate) fn experiment(&self, id: &str, index: usize, count: usize) {
        self.step.replace(Step { experiment: format!("{index}/{count} {id}"), what: String::new() });
    }

    /// What is done now.
    pub(crate) fn at(&self, what: &str) {
        what.clone_into(&mut self.step.borrow_mut().what);
        let line = self.status("");
        if self.terminal { self.replace(&line) } else { eprintln!("{line}") }
    }

    /// What came out of it, on a terminal only: elsewhere the tables tell.
    pub(crate) fn result(&self, result: &str) {
        if self.terminal {
            self.replace(&self.status(&format!(": {result}")));
        }
    }

    /// Something to stay on the screen.
    pub(crate) fn line(&self, text: &str) {
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
