//! ZooKeeper's AdminServer: its commands, by their names.

use ringkeeper_engine::fourletter::Word;
use serde_json::Value;

use super::json::{self, Shown};

/// Methods that show, and those that change.
pub(super) const GET: &str = "GET, HEAD";
const POST: &str = "POST";
const GET_AND_POST: &str = "GET, HEAD, POST";

/// A command.
pub(super) struct Command {
    /// Its name, then those that it can be asked by, too.
    names: &'static [&'static str],
    pub(super) kind: Kind,
}

/// How a command is carried out.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    /// It shows what is collected for a four-letter word.
    Shows { word: Word, show: fn(&Shown<'_>) -> Value },
    /// The same, also while the server does not serve.
    ShowsAlways { word: Word, show: fn(&Shown<'_>) -> Value },
    /// Committed transactions.
    Feed,
    /// A snapshot in ZooKeeper's format, or in ours.
    Snapshot,
    /// Replaces the tree.
    Restore,
    /// Shows and changes the levels of the log.
    LogLevel,
    /// The leader hands leadership over.
    HandOver,
    /// Shows the feature level; the leader lowers it, or lets it be raised again.
    FeatureLevel,
}

const fn shows(names: &'static [&'static str], word: Word, show: fn(&Shown<'_>) -> Value) -> Command {
    Command { names, kind: Kind::Shows { word, show } }
}

const fn shows_always(names: &'static [&'static str], word: Word, show: fn(&Shown<'_>) -> Value) -> Command {
    Command { names, kind: Kind::ShowsAlways { word, show } }
}

/// All of them.
pub(super) const COMMANDS: &[Command] = &[
    shows(&["configuration", "conf", "config"], Word::Isro, json::configuration),
    shows(&["connection_stat_reset", "crst"], Word::Crst, json::nothing),
    shows(&["connections", "cons"], Word::Cons, json::connections),
    shows(&["dirs"], Word::Dirs, json::directories),
    shows(&["dump"], Word::Dump, json::dump),
    shows_always(&["ensemble"], Word::Isro, json::ensemble),
    shows_always(&["environment", "env", "envi"], Word::Envi, json::environment),
    shows_always(&["get_trace_mask", "gtmk"], Word::Gtmk, json::trace_mask),
    Command { names: &["feature_level"], kind: Kind::FeatureLevel },
    Command { names: &["feed"], kind: Kind::Feed },
    Command { names: &["hand_over"], kind: Kind::HandOver },
    shows(&["hash"], Word::Hash, json::hash),
    shows(&["initial_configuration", "icfg"], Word::Isro, json::initial_configuration),
    shows(&["is_read_only", "isro"], Word::Isro, json::is_read_only),
    shows(&["last_snapshot", "lsnp"], Word::Isro, json::last_snapshot),
    shows(&["leader", "lead"], Word::Isro, json::leader),
    Command { names: &["log_level"], kind: Kind::LogLevel },
    shows_always(&["monitor", "mntr"], Word::Mntr, json::monitor),
    shows(&["observer_connection_stat_reset", "orst"], Word::Isro, json::nothing),
    shows(&["observers", "obsr"], Word::Isro, json::observers),
    Command { names: &["restore", "rest"], kind: Kind::Restore },
    shows(&["ruok"], Word::Isro, json::nothing),
    shows(&["server_stats", "srvr"], Word::Srvr, json::server_stats),
    shows_always(&["set_trace_mask", "stmk"], Word::Stmk, json::trace_mask),
    shows(&["slow_requests"], Word::Isro, json::slow_requests),
    Command { names: &["snapshot", "snap"], kind: Kind::Snapshot },
    shows(&["stat_reset", "srst"], Word::Srst, json::nothing),
    shows(&["stats", "stat"], Word::Stat, json::stats),
    shows_always(&["system_properties", "sysp"], Word::Envi, json::system_properties),
    shows(&["voting_view"], Word::Isro, json::voting_view),
    shows(&["watch_summary", "wchs"], Word::Wchs, json::watch_summary),
    shows(&["watches", "wchc"], Word::Wchc, json::watches),
    shows(&["watches_by_path", "wchp"], Word::Wchp, json::watches_by_path),
    shows_always(&["zabstate"], Word::Isro, json::zab_state),
];

impl Command {
    /// The one that is asked by this name.
    pub(super) fn named(name: &str) -> Option<&'static Self> {
        COMMANDS.iter().find(|command| command.names.contains(&name))
    }

    /// The methods that it can be asked by.
    pub(super) const fn methods(&self) -> &'static str {
        match self.kind {
            Kind::Restore | Kind::HandOver => POST,
            Kind::LogLevel | Kind::FeatureLevel => GET_AND_POST,
            _ => GET,
        }
    }

    /// The first of its names.
    pub(super) fn name(&self) -> &'static str {
        self.names.first().copied().unwrap_or_default()
    }
}
