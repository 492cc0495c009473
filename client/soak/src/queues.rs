//! Queues: three producers and three consumers on each, and a ledger of what they put and took.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ringkeeper_client::recipes::Queue;
use ringkeeper_client::{Error, Result, Wait};

use crate::soak::{Soak, Team};
use crate::worker::Worker;

/// Where the queues are.
pub(crate) const PATHS: [&str; 2] = ["/queues/a", "/queues/b"];

const PRODUCERS: usize = 3;
const CONSUMERS: usize = 3;

/// Producers wait when there are more entries than this.
const BACKLOG_MAX: usize = 60;

/// What went into one queue and came out.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    entries: Mutex<Entries>,
    producing: AtomicUsize,
}

#[derive(Debug, Default)]
struct Entries {
    put: HashSet<String>,
    /// Put, or not: the session ended before that was known.
    perhaps_put: HashSet<String>,
    taken: HashMap<String, String>,
    /// Takes of which nobody knows whether they took something, since the session ended.
    perhaps_taken: usize,
}

/// Twelve workers on two queues.
pub(crate) fn start(soak: &Arc<Soak>, team: &mut Team) -> Vec<Arc<Ledger>> {
    let start_one = |path: &'static str| {
        let ledger = Arc::new(Ledger { producing: AtomicUsize::new(PRODUCERS), ..Ledger::default() });
        for number in 0..PRODUCERS {
            let ledger = Arc::clone(&ledger);
            team.spawn(soak, format!("{path}#producer-{number}"), move |worker| {
                produce(worker, path, &ledger);
            });
        }
        for number in 0..CONSUMERS {
            let ledger = Arc::clone(&ledger);
            team.spawn(soak, format!("{path}#consumer-{number}"), move |worker| {
                consume(worker, path, &ledger);
            });
        }
        ledger
    };
    PATHS.into_iter().map(start_one).collect()
}

fn produce(mut worker: Worker, path: &str, ledger: &Ledger) {
    let mut queue = Queue::new(&worker.client, path);
    for number in 0.. {
        if !worker.goes_on() {
            break;
        }
        worker.at(format_args!("waits for room in {path}"));
        if ledger.backlog() > BACKLOG_MAX {
            worker.sleep(20);
            continue;
        }
        worker.at(format_args!("puts entry {number} into {path}"));
        let entry = format!("{} {number}", worker.name);
        match queue.put(entry.as_bytes()).wait() {
            Ok(()) => {
                worker.count("entries put");
                ledger.lock().put.insert(entry);
            }
            Err(error) => {
                if matches!(error, Error::ConnectionLoss(_)) {
                    worker.count("entries perhaps put, since a session ended");
                    ledger.lock().perhaps_put.insert(entry);
                }
                worker.recover(error);
                queue = Queue::new(&worker.client, path);
            }
        }
        let pause = worker.random(0..60);
        worker.sleep(pause);
    }
    ledger.producing.fetch_sub(1, Ordering::SeqCst);
    drop(queue);
    worker.finish();
}

fn consume(mut worker: Worker, path: &str, ledger: &Ledger) {
    let mut queue = Queue::new(&worker.client, path);
    // The last number taken of each producer.
    let mut seen = HashMap::new();
    loop {
        worker.at(format_args!("takes an entry from {path}"));
        let is_last = ledger.producing.load(Ordering::SeqCst) == 0;
        let taken = if is_last {
            match queue.try_take().wait() {
                Ok(None) => break,
                Ok(Some(entry)) => Some(Ok(entry)),
                Err(error) => Some(Err(error)),
            }
        } else {
            // Often too short to be answered: the queue must not lose what such a take has taken.
            let patience = Duration::from_millis(worker.random(1..400));
            queue.take().wait_timeout(patience)
        };
        match taken {
            None => worker.count("takes given up"),
            Some(Ok(entry)) => {
                ledger.took(&worker, &String::from_utf8_lossy(&entry), &mut seen);
                let pause = worker.random(0..50);
                worker.sleep(pause);
            }
            Some(Err(error)) => {
                if matches!(error, Error::ConnectionLoss(_)) {
                    worker.count("entries perhaps taken, since a session ended");
                    ledger.lock().perhaps_taken += 1;
                }
                worker.recover(error);
                queue = Queue::new(&worker.client, path);
            }
        }
    }
    drop(queue);
    worker.finish();
}

impl Ledger {
    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn backlog(&self) -> usize {
        let entries = self.lock();
        entries.put.len().saturating_sub(entries.taken.len())
    }

    fn took(&self, worker: &Worker, entry: &str, seen: &mut HashMap<String, u64>) {
        worker.count("entries taken");
        let before = self.lock().taken.insert(entry.to_owned(), worker.name.clone());
        if let Some(other) = before {
            worker.violation(format_args!("entry {entry:?} was taken by {other} already"));
        }
        let Some((producer, Ok(number))) = entry.split_once(' ').map(|(who, text)| (who, text.parse()))
        else {
            return worker.violation(format_args!("entry {entry:?} was put by nobody"));
        };
        let last = seen.insert(producer.to_owned(), number);
        if last.is_some_and(|last| last >= number) {
            worker.violation(format_args!("entry {entry:?} came after number {last:?} of its producer"));
        }
    }

    /// The last look, when everyone has finished: what was put was taken.
    pub(crate) fn check_in_the_end(&self, path: &str, worker: &Worker) -> Result<()> {
        let left = worker.retried(|client| {
            let (synced, names) = (client.sync(path), client.get_children(path));
            synced.wait()?;
            Ok(names.wait()?.0)
        })?;
        if !left.is_empty() {
            worker.violation(format_args!("{path}: entries left behind: {left:?}"));
        }
        let entries = self.lock();
        let missing: Vec<_> =
            entries.put.iter().filter(|entry| !entries.taken.contains_key(*entry)).collect();
        if missing.len() > entries.perhaps_taken {
            worker.violation(format_args!(
                "{path}: {} entries were lost, {} takes are uncertain: {missing:?}",
                missing.len(),
                entries.perhaps_taken
            ));
        }
        for entry in entries.taken.keys() {
            if !entries.put.contains(entry) && !entries.perhaps_put.contains(entry) {
                worker.violation(format_args!("{path}: entry {entry:?} was taken, and put by nobody"));
            }
        }
        Ok(())
    }
}
