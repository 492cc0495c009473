//! Writes the log to standard error from a thread of its own. A write to a pipe that nobody reads blocks when
//! the pipe is full, so nothing of the server may write there itself.
//!
//! Lines wait in a bounded queue. Those for which there is no room are left out and counted, and their number
//! is logged when all others are written. A process that ends waits for its last lines, but not for long.

use std::fmt;
use std::io::{self, Write};
use std::panic::PanicHookInfo;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Lines that may wait to be written.
const WAITING_MAX: usize = 8192;

/// How long the end of the process waits for the last lines.
const FLUSHED_WITHIN: Duration = Duration::from_secs(1);

/// How often a flush looks for room in a full queue.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// The one of this process: a command that is no server has none.
static STANDARD_ERROR: OnceLock<LogWriter> = OnceLock::new();

/// Takes lines for the thread that writes them. A write fails at once if there is no room.
#[derive(Clone)]
pub(crate) struct LogWriter {
    queue: SyncSender<Message>,
    lost: Arc<AtomicU64>,
}

enum Message {
    Line(Vec<u8>),
    /// Is answered when all before it is written.
    Flush(SyncSender<()>),
}

/// Standard error for whoever must not wait for it: the log's thread once there is one.
///
/// # Errors
/// The thread cannot start.
pub(crate) fn start() -> io::Result<LogWriter> {
    if let Some(writer) = STANDARD_ERROR.get() {
        return Ok(writer.clone());
    }
    let writer = LogWriter::start(io::stderr(), WAITING_MAX)?;
    let writer = STANDARD_ERROR.get_or_init(|| writer);
    std::panic::set_hook(Box::new(|panic| tell_panic(writer_or_stderr().as_mut(), panic)));
    Ok(writer.clone())
}

/// Says something to the user behind what was logged.
pub(crate) fn say(words: fmt::Arguments<'_>) {
    // Also when standard error is closed.
    let _ = writer_or_stderr().write_all(words.to_string().as_bytes());
}

/// Waits until what was logged is written, but not for long. The process may end after it.
pub(crate) fn flush() {
    if let Some(writer) = STANDARD_ERROR.get() {
        writer.wait_until_written(FLUSHED_WITHIN);
    }
}

fn writer_or_stderr() -> Box<dyn Write> {
    STANDARD_ERROR.get().map_or_else(|| Box::new(io::stderr()) as Box<dyn Write>, |log| Box::new(log.clone()))
}

/// Says what the standard library's hook says. The process may be aborted after it.
fn tell_panic(output: &mut dyn Write, panic: &PanicHookInfo<'_>) {
    let thread = std::thread::current();
    let backtrace = std::backtrace::Backtrace::capture();
    let traced = backtrace.status() == std::backtrace::BacktraceStatus::Captured;
    let backtrace = if traced { format!("\n{backtrace}") } else { String::new() };
    let text = format!("thread '{}' {panic}{backtrace}\n", thread.name().unwrap_or("<unnamed>"));
    let _ = output.write_all(text.as_bytes());
    flush();
}

impl LogWriter {
    fn start(output: impl Write + Send + 'static, waiting_max: usize) -> io::Result<Self> {
        let (queue, messages) = sync_channel(waiting_max);
        let lost = Arc::new(AtomicU64::new(0));
        let thread = WriterThread { output, lost: Arc::clone(&lost), reported: 0, failing: false };
        std::thread::Builder::new().name("log".to_owned()).spawn(move || thread.run(&messages))?;
        Ok(Self { queue, lost })
    }

    fn wait_until_written(&self, within: Duration) {
        let deadline = Instant::now() + within;
        let (written, is_written) = sync_channel(1);
        let mut message = Message::Flush(written);
        while let Err(error) = self.queue.try_send(message) {
            match error {
                TrySendError::Full(again) if Instant::now() < deadline => message = again,
                _ => return,
            }
            std::thread::sleep(LOOK_EVERY);
        }
        let _ = is_written.recv_timeout(deadline.saturating_duration_since(Instant::now()));
    }
}

impl Write for LogWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.queue.try_send(Message::Line(line.to_vec())).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct WriterThread<W> {
    output: W,
    lost: Arc<AtomicU64>,
    /// How many lost lines the log tells of.
    reported: u64,
    /// Whether the last line could not be written.
    failing: bool,
}

impl<W: Write> WriterThread<W> {
    fn run(mut self, messages: &Receiver<Message>) {
        while let Ok(message) = messages.recv() {
            let mut flushed = Vec::new();
            let mut next = Some(message);
            while let Some(message) = next {
                match message {
                    Message::Line(line) => self.write(&line),
                    Message::Flush(written) => flushed.push(written),
                }
                next = messages.try_recv().ok().or_else(|| {
                    self.report_lost();
                    messages.try_recv().ok()
                });
            }
            for written in flushed {
                // Who asked may have gone.
                let _ = written.try_send(());
            }
        }
    }

    fn write(&mut self, line: &[u8]) {
        self.failing = self.output.write_all(line).is_err();
        if self.failing {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// As a line of the log, which comes back through the queue.
    fn report_lost(&mut self) {
        let lost = self.lost.load(Ordering::Relaxed);
        if lost > self.reported && !self.failing {
            let lines = lost - self.reported;
            self.reported = lost;
            tracing::warn!(
                code = "RK0215",
                lines,
                "lines of the log were left out: whoever reads standard error did not keep up"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// A pipe that takes writes only while nobody holds it.
    #[derive(Clone, Default)]
    struct Pipe(Arc<Mutex<Vec<u8>>>);

    impl Write for Pipe {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("no panic").write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_stands_still_stops_neither_who_logs_nor_the_end_and_what_is_lost_is_told() {
        let pipe = Pipe::default();
        let mut log = LogWriter::start(pipe.clone(), 2).expect("a thread");
        let in_log = log.clone();
        let lines = tracing_subscriber::fmt().with_ansi(false).with_writer(move || in_log.clone()).finish();
        let taken = {
            let _standing = pipe.0.lock().expect("no panic");
            let taken = (0..10).filter(|n| log.write_all(format!("{n}\n").as_bytes()).is_ok()).count();
            let began = Instant::now();
            log.wait_until_written(Duration::from_millis(30));
            assert!(began.elapsed() < FLUSHED_WITHIN);
            taken
        };
        assert!((2..=3).contains(&taken), "{taken}");
        assert_eq!(log.lost.load(Ordering::Relaxed), 10 - taken as u64);
        log.wait_until_written(Duration::from_secs(10));
        let read = |pipe: &Pipe| String::from_utf8(pipe.0.lock().expect("no panic").clone()).expect("text");
        assert_eq!(read(&pipe).lines().count(), taken);
        // The report itself.
        let lost = Arc::clone(&log.lost);
        let mut thread = WriterThread { output: io::sink(), lost, reported: 0, failing: false };
        tracing::subscriber::with_default(lines, || {
            thread.report_lost();
            thread.report_lost();
        });
        log.wait_until_written(Duration::from_secs(10));
        let told = read(&pipe);
        assert_eq!(told.matches("RK0215").count(), 1, "{told}");
        assert!(told.contains(&format!("lines={}", 10 - taken)), "{told}");
    }
}
