//! Watches that the user has left: shown as they fire, wherever the user is at that moment.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use ringkeeper_client::{EventKind, PersistentWatch, Wait, Watch, WatchEvent};
use serde_json::json;

/// Shows a line beside whatever the user is typing.
pub(crate) type Printer = Box<dyn FnMut(String) + Send>;

/// Where fired watches are shown.
#[derive(Clone)]
pub(crate) struct Watches {
    shown: Arc<AtomicBool>,
    printer: Arc<Mutex<Printer>>,
    /// Threads that await watches.
    awaiting: Arc<Mutex<Vec<JoinHandle<()>>>>,
    json: bool,
}

impl Watches {
    /// Watches that are shown on stderr, as text for people or as JSON lines.
    pub(crate) fn new(json: bool) -> Self {
        let to_stderr: Printer = Box::new(|line| eprintln!("{line}"));
        let printer = Arc::new(Mutex::new(to_stderr));
        Self { shown: Arc::new(AtomicBool::new(true)), printer, awaiting: Arc::default(), json }
    }

    /// Shows them by other means.
    pub(crate) fn show_through(&self, printer: Printer) {
        *self.printer.lock().unwrap_or_else(PoisonError::into_inner) = printer;
    }

    /// Whether they are shown.
    pub(crate) fn shown(&self) -> bool {
        self.shown.load(Ordering::Relaxed)
    }

    /// Shows them or not.
    pub(crate) fn show(&self, shown: bool) {
        self.shown.store(shown, Ordering::Relaxed);
    }

    /// Awaits a one-shot watch.
    pub(crate) fn follow(&self, watch: Watch) {
        let watches = self.clone();
        self.spawn(move || {
            if let Ok(event) = watch.wait() {
                watches.print(&event);
            }
        });
    }

    /// Awaits a persistent watch for as long as it lasts.
    pub(crate) fn follow_all(&self, mut watch: PersistentWatch) {
        let watches = self.clone();
        self.spawn(move || {
            while let Some(Ok(event)) = watch.next().wait() {
                watches.print(&event);
            }
        });
    }

    /// What is awaited ends with its watch, at the latest with the session.
    fn spawn(&self, awaits: impl FnOnce() + Send + 'static) {
        let mut awaiting = self.awaiting.lock().unwrap_or_else(PoisonError::into_inner);
        awaiting.retain(|thread| !thread.is_finished());
        awaiting.push(std::thread::spawn(awaits));
    }

    /// Waits until all that fired before the session ended is shown.
    pub(crate) fn finish(&self) {
        let mut awaiting = self.awaiting.lock().unwrap_or_else(PoisonError::into_inner);
        awaiting.drain(..).for_each(|thread| drop(thread.join()));
    }

    fn print(&self, event: &WatchEvent) {
        if self.shown() {
            let mut printer = self.printer.lock().unwrap_or_else(PoisonError::into_inner);
            printer(if self.json { describe_as_json(event) } else { describe(event) });
        }
    }
}

fn describe(event: &WatchEvent) -> String {
    let what = name(event.kind).unwrap_or("restored after a lost connection: events may be missing");
    let zxid = event.zxid.map_or_else(String::new, |zxid| format!(" zxid: {zxid}"));
    format!("WATCHER:: {what} path: {}{zxid}", event.path)
}

fn describe_as_json(event: &WatchEvent) -> String {
    let zxid = event.zxid.map(|zxid| zxid.to_string());
    json!({ "event": name(event.kind).unwrap_or("Restored"), "path": event.path, "zxid": zxid }).to_string()
}

/// ZooKeeper's name of an event; `None` for the one that it does not have, after which events may be missing.
const fn name(kind: EventKind) -> Option<&'static str> {
    match kind {
        EventKind::Created => Some("NodeCreated"),
        EventKind::Deleted => Some("NodeDeleted"),
        EventKind::DataChanged => Some("NodeDataChanged"),
        EventKind::ChildrenChanged => Some("NodeChildrenChanged"),
        _ => None,
    }
}
