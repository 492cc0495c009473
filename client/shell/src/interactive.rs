//! The shell that asks for commands: at a terminal with completion and history, or from a script.

use std::borrow::Cow;
use std::cell::RefCell;
use std::io::Write;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use clap::{CommandFactory, Parser};
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::history::{FileHistory, History, SearchDirection};
use rustyline::{CompletionType, Config, Context, Editor, ExternalPrinter, Helper, Hinter, Validator};
use serde_json::json;

use crate::command::{Line, normalize};
use crate::error::ShellError;
use crate::out::Out;
use crate::run::{self, Next};
use crate::session::{Session, Target};
use crate::{interrupt, lines, watches};

/// How long the service may take to complete a path.
const COMPLETION_MAX: Duration = Duration::from_millis(500);

/// Commands that `history` keeps.
const HISTORY_MAX: usize = 1000;

/// Asks for commands until the end of the input. From a script, the first error ends it.
pub(crate) fn run(target: Target, json: bool, asks: bool, terminal: bool) -> Result<(), ShellError> {
    let session = Rc::new(RefCell::new(Session::open(target, json)?));
    let result = if terminal { at_terminal(&session, json, asks) } else { from_script(&session, json) };
    session.borrow_mut().close();
    result
}

fn from_script(session: &Rc<RefCell<Session>>, json: bool) -> Result<(), ShellError> {
    for line in std::io::stdin().lines() {
        let line = line.map_err(ShellError::io("reading commands"))?;
        interrupt::forget();
        match execute(session, &line, json, false)? {
            Next::Quit => break,
            Next::Continue => {}
            Next::History | Next::Redo(_) => {
                return Err(ShellError::Usage("a script has no history".to_owned()));
            }
        }
    }
    Ok(())
}

/// Runs one line.
fn execute(session: &RefCell<Session>, line: &str, json: bool, asks: bool) -> Result<Next, ShellError> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return Ok(Next::Continue);
    }
    let words = shlex::split(line).ok_or_else(|| ShellError::Usage("a quote is not closed".to_owned()))?;
    let Line { command } = Line::try_parse_from(normalize(words))?;
    let mut stdout = std::io::stdout().lock();
    let mut out = Out::new(&mut stdout, json);
    let next = run::run(&mut session.borrow_mut(), command, &mut out, asks)?;
    stdout.flush()?;
    Ok(next)
}

type Terminal = Editor<Assistant, FileHistory>;

fn at_terminal(session: &Rc<RefCell<Session>>, json: bool, asks: bool) -> Result<(), ShellError> {
    let failed =
        |what: &'static str| move |error: ReadlineError| ShellError::io(what)(std::io::Error::other(error));
    let config = Config::builder()
        .max_history_size(HISTORY_MAX)
        .map_err(failed("the history"))?
        .auto_add_history(false)
        // As in bash: what all candidates have in common, then the candidates.
        .completion_type(CompletionType::List);
    let mut editor: Terminal = Editor::with_config(config.build()).map_err(failed("the terminal"))?;
    editor.set_helper(Some(Assistant { session: Rc::clone(session), commands: command_names() }));
    let history = history_file();
    if let Some(file) = &history {
        // There is none before the first time.
        let _ = editor.load_history(file);
    }
    if let Ok(printer) = editor.create_external_printer() {
        session.borrow().watches.show_through(show_above_prompt(printer));
    }
    eprintln!("`help` lists the commands, Tab completes commands and paths, Ctrl-D leaves.");
    loop {
        let prompt = format!("{}> ", session.borrow().place());
        interrupt::forget();
        let line = match editor.readline(&prompt) {
            Ok(line) => line,
            Err(ReadlineError::Interrupted) => continue,
            Err(ReadlineError::Eof) => break,
            Err(error) => return Err(failed("reading the terminal")(error)),
        };
        if run_all(session, &mut editor, &line, json, asks)? == Next::Quit {
            break;
        }
    }
    if let Some(file) = &history
        && let Err(error) = editor.save_history(file)
    {
        eprintln!("the history could not be kept in {}: {error}", file.display());
    }
    Ok(())
}

/// Runs what was typed, or the lines of what was pasted at once. Ctrl-C ends all of it.
fn run_all(
    session: &RefCell<Session>,
    editor: &mut Terminal,
    text: &str,
    json: bool,
    asks: bool,
) -> Result<Next, ShellError> {
    for line in lines::split(text) {
        if step(session, editor, line, json, asks)? == Next::Quit {
            return Ok(Next::Quit);
        }
        if interrupt::check().is_err() {
            break;
        }
    }
    Ok(Next::Continue)
}

/// Runs a line and shows its error, which ends nothing.
fn step(
    session: &RefCell<Session>,
    editor: &mut Terminal,
    line: &str,
    json: bool,
    asks: bool,
) -> Result<Next, ShellError> {
    let mut line = Cow::Borrowed(line.trim());
    loop {
        if keeps(&line) {
            // Kept in memory; writing it comes at the end.
            let _ = editor.add_history_entry(line.as_ref());
        }
        match execute(session, &line, json, asks) {
            Ok(Next::History) => show_history(editor, json)?,
            Ok(Next::Redo(number)) => match editor.history().get(number, SearchDirection::Forward) {
                Ok(Some(found)) if !found.entry.starts_with("redo") => {
                    line = Cow::Owned(found.entry.into_owned());
                    eprintln!("{line}");
                    continue;
                }
                _ => eprintln!("no command with number {number} to run again: see `history`"),
            },
            Ok(next) => return Ok(next),
            Err(error @ ShellError::OutputClosed) => return Err(error),
            Err(error) => error.print(),
        }
        return Ok(Next::Continue);
    }
}

/// Passwords are not kept.
fn keeps(line: &str) -> bool {
    !line.is_empty() && !line.starts_with("addauth")
}

fn show_history(editor: &Terminal, json: bool) -> Result<(), ShellError> {
    let mut stdout = std::io::stdout().lock();
    let mut out = Out::new(&mut stdout, json);
    for (number, entry) in editor.history().iter().enumerate() {
        out.put(&format!("{number} - {entry}"), || json!({ "number": number, "command": entry }))?;
    }
    Ok(())
}

fn show_above_prompt(mut printer: impl ExternalPrinter + Send + 'static) -> watches::Printer {
    Box::new(move |line| {
        if printer.print(format!("{line}\n")).is_err() {
            eprintln!("{line}");
        }
    })
}

fn history_file() -> Option<PathBuf> {
    std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".ringkeeper_history"))
}

fn command_names() -> Vec<String> {
    let mut names: Vec<_> =
        Line::command().get_subcommands().map(|command| command.get_name().to_owned()).collect();
    names.push("help".to_owned());
    names.sort_unstable();
    names
}

/// Completes commands and paths.
#[derive(Helper, Hinter, Validator)]
struct Assistant {
    session: Rc<RefCell<Session>>,
    commands: Vec<String>,
}

impl Highlighter for Assistant {}

impl Completer for Assistant {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        position: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        let before = &line[..position];
        let start = before.rfind(char::is_whitespace).map_or(0, |space| space + 1);
        let word = &before[start..];
        if start == 0 || before[..start].trim() == "help" {
            let begins = |name: &&String| name.to_lowercase().starts_with(&word.to_lowercase());
            let mut found: Vec<_> = self.commands.iter().filter(begins).cloned().collect();
            // What comes next is another word.
            if let [only] = &mut found[..] {
                only.push(' ');
            }
            return Ok((start, found));
        }
        let Some(slash) = word.rfind('/').filter(|_| word.starts_with('/')) else {
            return Ok((start, Vec::new()));
        };
        let parent = if slash == 0 { "/" } else { &word[..slash] };
        let session = self.session.borrow();
        Ok((start, run::complete(&session, parent, &word[slash + 1..], COMPLETION_MAX)))
    }
}
