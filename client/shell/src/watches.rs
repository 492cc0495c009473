//! Watches that the user has left: shown as they fire, wherever the user is at that moment.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ringkeeper_client::{EventKind, PersistentWatch, Wait, Watch, WatchEvent};

/// Shows a line beside whatever the user is typing.
pub(crate) type Printer = Box<dyn FnMut(String) + Send>;

/// Where fired watches are shown.
#[derive(Clone)]
pub(crate) struct Watches {
    shown: Arc<AtomicBool>,
    printer: Arc<Mutex<Printer>>,
}

impl Default for Watches {
    fn default() -> Self {
        let to_stderr: Printer = Box::new(|line| eprintln!("{line}"));
        Self { shown: Arc::new(AtomicBool::new(true)), printer: Arc::new(Mutex::new(to_stderr)) }
    }
}

impl Watches {
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
        // Ends with the watch, at the latest with the session.
        std::thread::spawn(move || {
            if let Ok(event) = watch.wait() {
                watches.print(&event);
            }
        });
    }

    /// Awaits a persistent watch for as long as it lasts.
    pub(crate) fn follow_all(&self, mut watch: PersistentWatch) {
        let watches = self.clone();
        std::thread::spawn(move || {
            while let Some(Ok(event)) = watch.next().wait() {
                watches.print(&event);
            }
        });
    }

    fn print(&self, event: &WatchEvent) {
        if self.shown() {
            let mut printer = self.printer.lock().unwrap_or_else(PoisonError::into_inner);
            printer(describe(event));
        }
    }
}

fn describe(event: &WatchEvent) -> String {
    let kind = match event.kind {
        EventKind::Created => "NodeCreated",
        EventKind::Deleted => "NodeDeleted",
        EventKind::DataChanged => "NodeDataChanged",
        EventKind::ChildrenChanged => "NodeChildrenChanged",
        EventKind::Restored => "restored after a lost connection: events may be missing",
        _ => "event",
    };
    let zxid = event.zxid.map_or_else(String::new, |zxid| format!(" zxid: {zxid}"));
    format!("WATCHER:: {kind} path: {}{zxid}", event.path)
}
