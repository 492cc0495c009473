//! The audit log: a thread writes the records of all shards to files, one a day, or to standard error. No
//! request waits for it. Records for which there is no room are left out, counted, and their number is
//! written when there is room again.

use std::fmt;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use async_channel::{Receiver, Sender};
use jiff::Timestamp;
use ringkeeper_engine::audit::{self, Entry, Record};
use tracing_appender::rolling::{RollingFileAppender, Rotation};

use super::start::thread_refused;
use crate::config::AuditTarget;

/// How long the end of the server waits for the last records. Whoever reads standard error may stand still.
const WRITTEN_WITHIN: Duration = Duration::from_secs(5);

/// Messages of shards that may wait to be written. Each has the entries of one pass over a shard's sockets.
const WAITING_MAX: usize = 4096;

/// What Apache ZooKeeper's lines have there, by its log's configuration.
const LOGGER: &str = "o.a.z.a.Slf4jAuditLogger";

/// Where the records go.
#[derive(Clone, Debug)]
pub(crate) struct AuditLog {
    sender: Sender<Vec<Entry>>,
    lost: Arc<AtomicU64>,
    /// The user that the server runs as.
    user: Arc<str>,
    /// Whether the server's start is recorded.
    started: Arc<AtomicBool>,
}

/// The thread that writes.
pub(crate) struct AuditThread(JoinHandle<()>);

impl AuditThread {
    fn wait_until_written(&self, within: Duration) {
        let until = Instant::now() + within;
        while !self.0.is_finished() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Why there is no audit log.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    #[error(
        "the audit log cannot be written to {}: {source}; name another folder (ringkeeper.audit.to)",
        folder.display()
    )]
    Folder { folder: PathBuf, source: io::Error },
    #[error("the thread for the audit log cannot start: {}", thread_refused(.0))]
    Thread(io::Error),
}

impl AuditLog {
    /// Begins the log.
    pub(crate) fn start(target: &AuditTarget) -> Result<(Self, AuditThread), StartError> {
        let output: Box<dyn Write + Send> = match target {
            // The thread below waits for it alone.
            AuditTarget::Journal => Box::new(io::stderr()),
            AuditTarget::Folder { folder, days } => {
                let failed = |source| StartError::Folder { folder: folder.clone(), source };
                Box::new(open(folder, *days).map_err(failed)?)
            }
        };
        let (sender, receiver) = async_channel::bounded(WAITING_MAX);
        let log = Self { sender, lost: Arc::default(), user: user_name().into(), started: Arc::default() };
        let (user, lost) = (Arc::clone(&log.user), Arc::clone(&log.lost));
        let writer = Writer { output, user, lost, reported: 0, failing: false };
        let thread = std::thread::Builder::new().name("audit".to_owned());
        let thread = thread.spawn(move || writer.run(&receiver)).map_err(StartError::Thread)?;
        Ok((log, AuditThread(thread)))
    }

    /// The server has started.
    pub(crate) fn started(&self) {
        self.started.store(true, Ordering::Relaxed);
        self.record_of_server("serverStart", "success");
    }

    fn record_of_server(&self, operation: &str, result: &str) {
        self.record(vec![Entry::Record(audit::of_server(&self.user, operation, result))]);
    }

    /// Passes entries on; if too many wait, they are left out.
    pub(crate) fn record(&self, entries: Vec<Entry>) {
        let count = entries.len() as u64;
        if self.sender.try_send(entries).is_err() {
            self.lost.fetch_add(count, Ordering::Relaxed);
        }
    }

    /// Records that were left out since the start.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Records the end of the server, and ends the log behind that. If the server has not started, its start
    /// has failed.
    pub(crate) fn finish(self, thread: AuditThread) {
        if self.started.load(Ordering::Relaxed) {
            self.record_of_server("serverStop", "invoked");
        } else {
            self.record_of_server("serverStart", "failure");
        }
        self.sender.close();
        thread.wait_until_written(WRITTEN_WITHIN);
    }
}

/// The files of a folder, of which the newest `days` are kept.
fn open(folder: &Path, days: usize) -> io::Result<RollingFileAppender> {
    std::fs::create_dir_all(folder)?;
    let files = RollingFileAppender::builder().rotation(Rotation::DAILY);
    let files = files.filename_prefix("audit").filename_suffix("log").max_log_files(days);
    files.build(folder).map_err(io::Error::other)
}

/// The name of the user that the server runs as, or its number where it has none.
pub(super) fn user_name() -> String {
    let uid = rustix::process::getuid().as_raw().to_string();
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let mut fields = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let name = fields.find(|fields| fields.get(2) == Some(&uid.as_str())).map(|fields| fields[0].to_owned());
    name.unwrap_or(uid)
}

struct Writer {
    output: Box<dyn Write + Send>,
    user: Arc<str>,
    lost: Arc<AtomicU64>,
    /// How many lost records the log tells of.
    reported: u64,
    /// Whether the last line could not be written.
    failing: bool,
}

impl Writer {
    fn run(mut self, entries: &Receiver<Vec<Entry>>) {
        while let Ok(entries) = entries.recv_blocking() {
            self.report_lost();
            for entry in entries {
                let user = Arc::clone(&self.user);
                entry.for_each(&user, |record| self.write(record));
            }
        }
        self.report_lost();
    }

    fn write(&mut self, record: &Record) {
        let level = if record.succeeded { "INFO" } else { "ERROR" };
        if !self.line(level, &record.fields) {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn report_lost(&mut self) {
        let lost = self.lost.load(Ordering::Relaxed);
        if lost > self.reported && self.line("ERROR", format!("records left out: {}", lost - self.reported)) {
            self.reported = lost;
        }
    }

    /// Whether the line is written.
    fn line(&mut self, level: &str, text: impl fmt::Display) -> bool {
        let now = Timestamp::now().strftime("%Y-%m-%d %H:%M:%S,%3f");
        // One write, so that no line is cut by what others write to standard error.
        let line = format!("{now} {level} {LOGGER}: {text}\n");
        let written = self.output.write_all(line.as_bytes());
        if let Err(error) = &written
            && !self.failing
        {
            tracing::error!(code = "RK0210", %error, "the audit log cannot be written, records are left out");
        }
        self.failing = written.is_err();
        !self.failing
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// What is written, after so many writes that fail.
    #[derive(Clone, Default)]
    struct Disk {
        failures: Arc<AtomicU64>,
        text: Arc<Mutex<String>>,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.failures.load(Ordering::Relaxed) > 0 {
                self.failures.fetch_sub(1, Ordering::Relaxed);
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.text.lock().expect("no panic").push_str(std::str::from_utf8(bytes).expect("text"));
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn entries(numbers: std::ops::Range<u32>) -> Vec<Entry> {
        let record = |number| Record { succeeded: true, fields: format!("number={number}") };
        numbers.map(|number| Entry::Record(record(number))).collect()
    }

    fn log(waiting_max: usize) -> (AuditLog, Receiver<Vec<Entry>>) {
        let (sender, receiver) = async_channel::bounded(waiting_max);
        let log = AuditLog { sender, lost: Arc::default(), user: "me".into(), started: Arc::default() };
        (log, receiver)
    }

    #[test]
    fn a_journal_whose_reader_stands_still_does_not_keep_the_server_from_ending() {
        let (reader, standing) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || standing.recv().unwrap_or_default());
        AuditThread(thread).wait_until_written(Duration::from_millis(20));
        drop(reader);
    }

    #[test]
    fn records_that_cannot_be_written_are_counted_in_the_log_and_for_mntr() {
        let disk = Disk::default();
        disk.failures.store(3, Ordering::Relaxed);
        let (log, receiver) = log(WAITING_MAX);
        let (output, user, lost) = (Box::new(disk.clone()), Arc::clone(&log.user), Arc::clone(&log.lost));
        let writer = Writer { output, user, lost, reported: 0, failing: false };
        // The record of the start is the first that is lost, and the report of it cannot be written either.
        log.started();
        log.record(entries(0..1));
        log.record(entries(1..3));
        let thread = std::thread::spawn(move || writer.run(&receiver));
        log.clone().finish(AuditThread(thread));
        let text = disk.text.lock().expect("no panic");
        let fields: Vec<_> = text.lines().filter_map(|line| Some(line.split_once(": ")?.1)).collect();
        assert_eq!(
            (fields, log.lost()),
            (
                vec![
                    "records left out: 2",
                    "number=1",
                    "number=2",
                    "user=me\toperation=serverStop\tresult=invoked"
                ],
                2
            )
        );
    }

    #[test]
    fn records_for_which_there_is_no_room_are_counted() {
        let (log, _receiver) = log(1);
        log.record(entries(0..2));
        log.record(entries(2..5));
        assert_eq!(log.lost(), 3);
    }
}
