//! What a lock or a leadership protects: a znode in which every holder counts.
//!
//! Each step reads the count and writes the next one in a transaction that fails unless the holder's own
//! znode is still there, and says nothing about the version of the znode that it writes: only exclusion
//! keeps the count right. So in every state that anybody sees, the count is the znode's version, or two
//! held at once. And the fencing tokens in the order of the versions never go down.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use ringkeeper_client::recipes::Holding;
use ringkeeper_client::{Client, CreateMode, Error, OpResult, Result, Stat, Wait, Zxid};

use crate::worker::Worker;

/// One protected znode, and every write that was seen of it.
#[derive(Debug)]
pub(crate) struct Fence {
    path: String,
    written: Mutex<BTreeMap<i32, Mark>>,
}

/// A write, as the znode tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mark {
    zxid: Zxid,
    token: i64,
    holder: String,
}

/// What became of a holder's step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The holder goes on.
    Done,
    /// The holder's znode is gone: it must be told, see [`Holding::lost`].
    Lost,
}

impl Fence {
    /// A new protected znode.
    pub(crate) fn new(client: &Client, name: &str) -> Result<Self> {
        let path = format!("/fences/{name}");
        client.ensure_path("/fences").wait()?;
        client.create(&path, b"0 0 nobody", CreateMode::Persistent).wait()?;
        Ok(Self { path, written: Mutex::default() })
    }

    /// Counts once.
    pub(crate) fn step(&self, worker: &Worker, holding: &Holding) -> Result<Step> {
        let own = holding.fencing_token().to_wire();
        let (count, stat) = match self.read(worker)? {
            (count, token, stat) if token <= own => (count, stat),
            (_, token, _) => return self.overtaken(worker, holding, token),
        };
        let next = format!("{} {own} {}", count + 1, worker.name);
        let transaction = worker.client.transaction().check(holding.path(), None);
        match transaction.set_data(&self.path, next.as_bytes(), None).commit().wait() {
            Ok(results) => {
                let Some(OpResult::DataSet(now)) = results.last() else {
                    worker.violation(format!("a transaction without its last result: {results:?}"));
                    return Ok(Step::Done);
                };
                worker.count("writes under a lock or a leadership");
                self.note(worker, now, own, &worker.name);
                if now.version != stat.version + 1 {
                    worker.violation(format!(
                        "{}: somebody wrote between versions {} and {}, during the holding of {own:#x}",
                        self.path, stat.version, now.version
                    ));
                }
                Ok(Step::Done)
            }
            Err(Error::Transaction { index: 0, error }) if matches!(*error, Error::NoNode(_)) => {
                Ok(Step::Lost)
            }
            // Executed or not: the next read tells.
            Err(error) if error.is_connection() => {
                worker.count("writes under a lock or a leadership, outcome unknown");
                worker.client.connected().wait()?;
                Ok(Step::Done)
            }
            Err(error) => Err(error),
        }
    }

    /// The count, the last holder's token and the metadata, now.
    pub(crate) fn read(&self, worker: &Worker) -> Result<(i64, i64, Stat)> {
        let (data, stat) = worker.retried(|client| {
            let (synced, data) = (client.sync(&self.path), client.get_data(&self.path));
            synced.wait()?;
            data.wait()
        })?;
        let text = String::from_utf8_lossy(&data);
        let mut words = text.split(' ');
        let mut number = || words.next().and_then(|word| word.parse().ok());
        let (Some(count), Some(token), Some(holder)) = (number(), number(), text.split(' ').nth(2)) else {
            worker.violation(format!("{} holds {text:?}", self.path));
            return Ok((0, 0, stat));
        };
        self.note(worker, &stat, token, holder);
        if count != i64::from(stat.version) {
            worker.violation(format!(
                "{}: version {} counts {count}: {holder} overwrote another's step",
                self.path, stat.version
            ));
        }
        Ok((count, token, stat))
    }

    /// Somebody with a greater token has been here: fine, if our own znode was gone by then. It has been
    /// there since before the read, so if it still is, two held at once.
    fn overtaken(&self, worker: &Worker, holding: &Holding, token: i64) -> Result<Step> {
        let own = worker.retried(|client| client.exists(holding.path()).wait())?;
        if own.is_some_and(|stat| stat.czxid == holding.fencing_token()) {
            worker.violation(format!(
                "{}: two holders, fenced by {} and {token:#x}",
                self.path,
                holding.fencing_token()
            ));
        }
        Ok(Step::Lost)
    }

    /// Checks a write against those before and after it.
    fn note(&self, worker: &Worker, stat: &Stat, token: i64, holder: &str) {
        let mark = Mark { zxid: stat.mzxid, token, holder: holder.to_owned() };
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let before = written.range(..stat.version).next_back();
        let after = written.range(stat.version + 1..).next();
        let in_order = |one: &Mark, two: &Mark| one.zxid < two.zxid && one.token <= two.token;
        let fits = before.is_none_or(|(_, before)| in_order(before, &mark))
            && after.is_none_or(|(_, after)| in_order(&mark, after))
            && written.get(&stat.version).is_none_or(|known| *known == mark);
        if !fits {
            worker.violation(format!(
                "{}: version {} is {mark:?}, known is {:?}, before it {before:?}, after it {after:?}",
                self.path,
                stat.version,
                written.get(&stat.version),
            ));
        }
        written.insert(stat.version, mark);
    }

    /// The last look: every step that was acknowledged is counted.
    pub(crate) fn check_in_the_end(&self, worker: &Worker) -> Result<()> {
        let (count, ..) = self.read(worker)?;
        let written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let last = written.keys().next_back().copied().unwrap_or_default();
        if i64::from(last) > count {
            worker.violation(format!("{} counts {count}, and version {last} was seen", self.path));
        }
        Ok(())
    }
}
