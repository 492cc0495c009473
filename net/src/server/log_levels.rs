//! The log on standard error, and its levels, which change while the server runs.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::reload::{self, Handle};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry};

use super::log_writer;
use crate::config::LogFormat;

/// The levels there are, from the fewest lines to the most.
const LEVELS: [(&str, LevelFilter); 6] = [
    ("off", LevelFilter::OFF),
    ("error", LevelFilter::ERROR),
    ("warn", LevelFilter::WARN),
    ("info", LevelFilter::INFO),
    ("debug", LevelFilter::DEBUG),
    ("trace", LevelFilter::TRACE),
];

/// What the targets begin with: the names of the crates that write to the log.
const CRATES: [&str; 3] = ["ringkeeper", "glommio", "mio"];

/// Takes a change back.
const USUAL: &str = "usual";

/// Changes at once.
const CHANGES_MAX: usize = 64;

/// The longest time after which a change is taken back.
const LASTS_MAX: Duration = Duration::from_secs(30 * 24 * 3600);

/// What is logged: as the server was started, and what was changed since.
#[derive(Clone)]
pub(crate) struct LogLevels {
    usual: Targets,
    in_force: Handle<Targets, Registry>,
    changes: Arc<Mutex<Changes>>,
}

/// By target; that of the rest has no name.
type Changes = BTreeMap<String, Change>;

/// A level other than at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) level: LevelFilter,
    /// When it is taken back.
    pub(crate) until: Option<Instant>,
}

/// Why a change is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    #[error(
        "{0:?} is not a level: choose one of off, error, warn, info, debug, trace; or usual, as at the start"
    )]
    Level(String),
    #[error("{0:?} is not a target: it is the beginning of a module's name, such as ringkeeper_host::links")]
    Target(String),
    #[error("{0:?} is not a time: such as 30s, 10m or 2h, up to 30 days")]
    Lasts(String),
    #[error("{CHANGES_MAX} levels are changed already: take some back (usual)")]
    TooMany,
}

impl LogLevels {
    /// Starts the log with what `RUST_LOG` asks for, such as `debug` or `info,ringkeeper_log=trace`.
    ///
    /// # Errors
    /// The thread that writes cannot start.
    pub(crate) fn start(format: LogFormat) -> io::Result<Self> {
        let asked = std::env::var("RUST_LOG").ok().and_then(|asked| asked.parse().ok());
        let usual = asked.unwrap_or_else(|| Targets::new().with_default(LevelFilter::INFO));
        let (filter, in_force) = reload::Layer::new(usual.clone());
        let writer = log_writer::start()?;
        let lines = tracing_subscriber::fmt::layer().with_writer(move || writer.clone());
        // A line that is lost is counted and told of later.
        let lines = lines.log_internal_errors(false);
        let lines = match format {
            LogFormat::Text => lines.with_ansi(io::IsTerminal::is_terminal(&io::stderr())).boxed(),
            LogFormat::Json => lines.json().flatten_event(true).boxed(),
        };
        // Fails only if a subscriber is installed already, which then does the work.
        let _ = tracing_subscriber::registry().with(filter).with(lines).try_init();
        Ok(Self { usual, in_force, changes: Arc::default() })
    }

    /// Changes the level of a target, or of all that have none of their own, for a time or until it is
    /// changed again. Returns the time.
    ///
    /// # Errors
    /// One of them makes no sense; the message says which do.
    pub(crate) fn change(
        &self,
        target: Option<&str>,
        level: &str,
        lasts: Option<&str>,
    ) -> Result<Option<Duration>, Refusal> {
        let target = target.unwrap_or_default();
        let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
        let is_there = CRATES.iter().any(|name| target.starts_with(name) || name.starts_with(target));
        if !is_there || !target.chars().all(is_of_name) {
            return Err(Refusal::Target(target.to_owned()));
        }
        let lasts = lasts.map(parse_lasts).transpose()?;
        let until = lasts.map(|lasts| Instant::now() + lasts);
        let known = LEVELS.iter().find(|(name, _)| name.eq_ignore_ascii_case(level));
        let mut changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        match known {
            Some(&(_, level)) if changes.len() < CHANGES_MAX || changes.contains_key(target) => {
                changes.insert(target.to_owned(), Change { level, until });
            }
            Some(_) => return Err(Refusal::TooMany),
            None if level == USUAL => drop(changes.remove(target)),
            None => return Err(Refusal::Level(level.to_owned())),
        }
        self.apply(&changes);
        Ok(lasts)
    }

    /// Takes those back whose time is over.
    pub(crate) fn expire(&self) {
        let now = Instant::now();
        let mut changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        let before = changes.len();
        changes.retain(|_, change| change.until.is_none_or(|until| until > now));
        if changes.len() < before {
            self.apply(&changes);
            tracing::info!(levels = %filter(&self.usual, &changes), "levels of the log are as before");
        }
    }

    /// What is in force, in the form of `RUST_LOG`.
    pub(crate) fn in_force(&self) -> String {
        filter(&self.usual, &self.changes()).to_string()
    }

    /// What was changed since the start.
    pub(crate) fn changes(&self) -> Changes {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn apply(&self, changes: &Changes) {
        // Fails only if another subscriber has been installed before.
        let _ = self.in_force.reload(filter(&self.usual, changes));
    }
}

fn filter(usual: &Targets, changes: &Changes) -> Targets {
    changes.iter().fold(usual.clone(), |filter, (target, change)| match target.as_str() {
        "" => filter.with_default(change.level),
        target => filter.with_target(target, change.level),
    })
}

fn parse_lasts(lasts: &str) -> Result<Duration, Refusal> {
    let parsed = lasts.parse::<jiff::SignedDuration>().ok().and_then(|lasts| Duration::try_from(lasts).ok());
    parsed
        .filter(|lasts| !lasts.is_zero() && *lasts <= LASTS_MAX)
        .ok_or_else(|| Refusal::Lasts(lasts.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn levels() -> LogLevels {
        let usual = "info,hyper=warn".parse::<Targets>().expect("levels");
        // The filter itself is not installed.
        let (_, in_force) = reload::Layer::new(usual.clone());
        LogLevels { usual, in_force, changes: Arc::default() }
    }

    #[test]
    fn a_level_is_changed_for_all_or_for_a_target_and_taken_back() {
        let levels = levels();
        assert_eq!(levels.change(None, "DEBUG", None), Ok(None));
        assert_eq!(
            levels.change(Some("ringkeeper_host"), "trace", Some("10m")),
            Ok(Some(Duration::from_secs(600)))
        );
        assert_eq!(levels.in_force(), "ringkeeper_host=trace,hyper=warn,debug");
        assert_eq!(levels.change(None, "usual", None), Ok(None));
        assert_eq!(levels.in_force(), "ringkeeper_host=trace,hyper=warn,info");
        assert_eq!(
            levels.change(Some("ringkeeper_host"), "debug", Some("1ns")),
            Ok(Some(Duration::from_nanos(1)))
        );
        levels.expire();
        assert_eq!((levels.in_force().as_str(), levels.changes().len()), ("hyper=warn,info", 0));
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_what_does() {
        let levels = levels();
        let refused =
            |target, level, lasts| levels.change(target, level, lasts).expect_err("refused").to_string();
        let told = refused(None, "loud", None);
        assert!(LEVELS.iter().all(|(name, _)| told.contains(name)), "{told}");
        for target in ["ringkeeper b", "no::such"] {
            assert!(refused(Some(target), "info", None).contains(&format!("{target:?} is not a target")));
        }
        for lasts in ["soon", "-1s", "0s", "31d"] {
            assert!(refused(None, "info", Some(lasts)).contains("10m"), "{lasts}");
        }
        for target in 0..CHANGES_MAX {
            levels.change(Some(&format!("ringkeeper{target}")), "info", None).expect("there is room");
        }
        assert_eq!(levels.change(Some("ringkeeper_one_more"), "info", None), Err(Refusal::TooMany));
        assert_eq!(levels.change(Some("ringkeeper0"), "debug", None), Ok(None));
    }
}
