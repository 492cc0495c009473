//! The audit log: a thread writes the records of all shards to files, one a day, or to standard error. No
//! request waits for it. Records for which there is no room are left out, counted, and their number is
//! written when there is room again.

use std::fmt;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use async_channel::{Receiver, Sender};
use jiff::Timestamp;
use ringkeeper_engine::audit::{self, Entry, Record};
use tracing_appender::rolling::{RollingFileAppender, Rotation};

use crate::config::AuditTarget;

/// Messages of shards that may wait to be written. Each has the entries of one pass over a shard's sockets.
const WAITING_MAX: usize = 4096;

/// What Apache ZooKeeper's lines have there, by its log's configuration.
const LOGGER: &str = "o.a.z.a.Slf4jAuditLogger";

/// Where the records go.
#[derive(Clone, Debug)]
pub(crate) struct AuditLog {
    sender: Sender<Vec<Entry>>,
    lost: Arc<AtomicU64>,
}

/// The thread that writes.
pub(crate) struct AuditThread(JoinHandle<()>);

/// The audit log cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("the audit log cannot be written to {}: {source}; name another folder (ringkeeper.audit.to)", folder.display())]
pub(crate) struct StartError {
    folder: PathBuf,
    source: io::Error,
}

impl AuditLog {
    /// Begins the log; the first record is that of the server's start.
    pub(crate) fn start(target: &AuditTarget) -> Result<(Self, AuditThread), StartError> {
        let output: Box<dyn Write + Send> = match target {
            AuditTarget::Journal => Box::new(io::stderr()),
            AuditTarget::Folder { folder, days } => {
                let failed = |source| StartError { folder: folder.clone(), source };
                Box::new(open(folder, *days).map_err(failed)?)
            }
        };
        let (sender, receiver) = async_channel::bounded(WAITING_MAX);
        let lost = Arc::<AtomicU64>::default();
        let writer =
            Writer { output, user: user_name(), lost: Arc::clone(&lost), reported: 0, failing: false };
        let thread = std::thread::Builder::new().name("audit".to_owned());
        let thread = thread.spawn(move || writer.run(&receiver));
        let thread = thread.map_err(|source| StartError { folder: PathBuf::from("a thread"), source })?;
        Ok((Self { sender, lost }, AuditThread(thread)))
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

    /// Ends the log behind what has been recorded. To be called when no shard records any more.
    pub(crate) fn finish(self, thread: AuditThread) {
        self.sender.close();
        let _ = thread.0.join();
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
fn user_name() -> String {
    let uid = rustix::process::getuid().as_raw().to_string();
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let mut fields = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let name = fields.find(|fields| fields.get(2) == Some(&uid.as_str())).map(|fields| fields[0].to_owned());
    name.unwrap_or(uid)
}

struct Writer {
    output: Box<dyn Write + Send>,
    user: String,
    lost: Arc<AtomicU64>,
    /// How many lost records the log tells of.
    reported: u64,
    /// Whether the last line could not be written.
    failing: bool,
}

impl Writer {
    fn run(mut self, entries: &Receiver<Vec<Entry>>) {
        self.write(&audit::of_server(&self.user, "serverStart", "success"));
        while let Ok(entries) = entries.recv_blocking() {
            self.report_lost();
            for entry in entries {
                let user = self.user.clone();
                entry.for_each(&user, |record| self.write(record));
            }
        }
        self.report_lost();
        self.write(&audit::of_server(&self.user, "serverStop", "invoked"));
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
            tracing::error!(%error, "the audit log cannot be written, records are left out");
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

    #[test]
    fn records_that_cannot_be_written_are_counted_in_the_log_and_for_mntr() {
        let disk = Disk::default();
        disk.failures.store(3, Ordering::Relaxed);
        let lost = Arc::<AtomicU64>::default();
        let (sender, receiver) = async_channel::bounded(WAITING_MAX);
        let output = Box::new(disk.clone());
        let writer =
            Writer { output, user: "me".to_owned(), lost: Arc::clone(&lost), reported: 0, failing: false };
        // The record of the start is the first that is lost, and the report of it cannot be written either.
        for numbers in [0..1, 1..3] {
            sender.try_send(entries(numbers)).expect("room");
        }
        sender.close();
        writer.run(&receiver);
        let text = disk.text.lock().expect("no panic");
        let fields: Vec<_> = text.lines().filter_map(|line| Some(line.split_once(": ")?.1)).collect();
        assert_eq!(
            (fields, lost.load(Ordering::Relaxed)),
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
        let (sender, _receiver) = async_channel::bounded(1);
        let log = AuditLog { sender, lost: Arc::default() };
        log.record(entries(0..2));
        log.record(entries(2..5));
        assert_eq!(log.lost(), 3);
    }
}
