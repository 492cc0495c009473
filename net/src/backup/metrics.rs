//! What a backup tells of itself, in a file for the textfile collector of Prometheus' node_exporter.

use std::fmt::Write as _;
use std::fs::Permissions;
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use ringkeeper_wire::Zxid;

use super::BackupError;

const PREFIX: &str = "ringkeeper_backup_";
const COMPLETE: &str = "complete_timestamp_seconds";
const TRANSACTION: &str = "transaction_timestamp_seconds";

/// What is known of a store, and of the command since it was started. Times are milliseconds since the Unix epoch.
#[derive(Default)]
pub(super) struct Metrics {
    /// When the store last had everything that was committed.
    pub(super) complete_ms: Option<i64>,
    /// The last transaction that was shipped.
    pub(super) transaction_ms: Option<i64>,
    /// When the newest state was taken.
    pub(super) state_ms: Option<i64>,
    /// When all of the store was last read and found sound.
    pub(super) verified_ms: Option<i64>,
    /// Where the store ends.
    pub(super) end: Option<Zxid>,
    pub(super) transactions: u64,
    pub(super) failures: u64,
    pub(super) gaps: u64,
}

impl Metrics {
    /// The metrics of a command that verifies alone.
    pub(super) fn of_verification(now_ms: i64, end: Zxid, gaps: usize) -> Self {
        Self { verified_ms: Some(now_ms), end: Some(end), gaps: gaps as u64, ..Self::default() }
    }

    /// What an earlier run has left in the file: a backup that fails from now on has the age of that one.
    pub(super) fn of_earlier_run(file: &Path) -> Self {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let milliseconds = |name: &str| {
            let value = text
                .lines()
                .find_map(|line| line.strip_prefix(PREFIX)?.strip_prefix(name)?.strip_prefix(' '))?;
            let (seconds, rest) = value.split_once('.')?;
            Some(seconds.parse::<i64>().ok()?.checked_mul(1000)?.saturating_add(rest.parse().ok()?))
        };
        Self {
            complete_ms: milliseconds(COMPLETE),
            transaction_ms: milliseconds(TRANSACTION),
            ..Self::default()
        }
    }

    /// Replaces the file as a whole, so that nobody reads half of it.
    pub(super) fn write(&self, file: &Path) -> Result<(), BackupError> {
        let failed = |source| BackupError::MetricsFile { file: file.to_owned(), source };
        self.replace(file).map_err(failed)
    }

    fn replace(&self, file: &Path) -> io::Result<()> {
        let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.map_or_else(|| PathBuf::from("."), Path::to_owned);
        let mut whole = tempfile::Builder::new()
            .prefix(".ringkeeper-backup-")
            .permissions(Permissions::from_mode(0o644))
            .tempfile_in(folder)?;
        whole.write_all(self.text().as_bytes())?;
        whole.persist(file)?;
        Ok(())
    }

    fn text(&self) -> String {
        let mut text = String::new();
        let mut metric = |name: &str, kind: &str, help: &str, value: Option<String>| {
            if let Some(value) = value {
                let name = format!("{PREFIX}{name}");
                let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}");
            }
        };
        let seconds = |ms: Option<i64>| ms.map(|ms| format!("{}.{:03}", ms / 1000, ms.rem_euclid(1000)));
        let gauges = [
            (COMPLETE, "When the store last had all that was committed.", self.complete_ms),
            (TRANSACTION, "Time of the last transaction shipped.", self.transaction_ms),
            ("state_timestamp_seconds", "When the newest state was taken.", self.state_ms),
            ("verified_timestamp_seconds", "When the store was last found sound.", self.verified_ms),
        ];
        gauges.into_iter().for_each(|(name, help, ms)| metric(name, "gauge", help, seconds(ms)));
        metric("zxid", "gauge", "Where the store ends.", self.end.map(|end| end.0.to_string()));
        if self.verified_ms.is_none() {
            let counters = [
                ("transactions_total", "Transactions shipped.", self.transactions),
                ("failures_total", "Rounds that failed.", self.failures),
                ("gaps_total", "Gaps of the log that the store has from now on.", self.gaps),
            ];
            counters
                .into_iter()
                .for_each(|(name, help, count)| metric(name, "counter", help, Some(count.to_string())));
        } else {
            metric("gaps", "gauge", "Gaps of the log in the store.", Some(self.gaps.to_string()));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_has_no_line() {
        let text = Metrics { complete_ms: Some(1_700_000_000_042), failures: 3, ..Metrics::default() }.text();
        let samples: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let expected = [
            "ringkeeper_backup_complete_timestamp_seconds 1700000000.042",
            "ringkeeper_backup_transactions_total 0",
            "ringkeeper_backup_failures_total 3",
            "ringkeeper_backup_gaps_total 0",
        ];
        assert_eq!(samples, expected);
    }

    #[test]
    fn alert_rules_name_metrics_that_are_written() {
        let rules = include_str!("../../../docs/alerts-backup.yml");
        let known = Metrics {
            complete_ms: Some(0),
            transaction_ms: Some(0),
            state_ms: Some(0),
            end: Some(Zxid(0)),
            ..Metrics::default()
        };
        let written = known.text() + &Metrics::of_verification(0, Zxid(0), 0).text();
        let words = rules.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let named: Vec<_> = words.filter(|word| word.starts_with(PREFIX)).collect();
        assert_eq!(named.len(), 2, "{named:?}");
        assert!(named.iter().all(|name| written.contains(&format!("\n{name} "))), "{named:?} in {written}");
    }

    #[test]
    fn the_file_is_replaced_and_others_may_read_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("backup.prom");
        let earlier = Metrics { complete_ms: Some(1_700_000_000_042), failures: 3, ..Metrics::default() };
        earlier.write(&file).expect("written");
        let later = Metrics::of_earlier_run(&file);
        assert_eq!(
            (later.complete_ms, later.transaction_ms, later.failures),
            (Some(1_700_000_000_042), None, 0)
        );
        Metrics::of_verification(5000, Zxid(7), 1).write(&file).expect("written again");
        let text = std::fs::read_to_string(&file).expect("read");
        assert!(text.ends_with("ringkeeper_backup_gaps 1\n"), "{text}");
        assert!(text.contains("ringkeeper_backup_verified_timestamp_seconds 5.000\n"), "{text}");
        assert_eq!(file.metadata().expect("there").permissions().mode() & 0o777, 0o644);
        assert_eq!(folder.path().read_dir().expect("read").count(), 1, "nothing else is left");
        let error = Metrics::default().write(Path::new("/nowhere/backup.prom")).expect_err("no such folder");
        assert!(error.to_string().starts_with("/nowhere/backup.prom: "), "{error}");
    }
}
