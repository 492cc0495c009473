//! Committed batches for those outside of the ensemble: change feeds and backups.

use std::cell::RefCell;
use std::rc::Rc;
use std::task::{Context, Poll};

use ringkeeper_engine::zab::Batch;
use ringkeeper_log::error::ReadError;
use ringkeeper_wire::Zxid;

use crate::wake::WakeFlag;

/// One read of the log, beside appends.
#[derive(Debug)]
pub struct Feed {
    pub(crate) after: Zxid,
    pub(crate) upto: Zxid,
    pub(crate) bytes_max: usize,
    outcome: RefCell<Option<Result<Vec<Batch>, ReadError>>>,
    done: WakeFlag,
}

impl Feed {
    /// A read of the batches behind `after` that end at `upto` at the latest, which has to be committed:
    /// about `bytes_max` bytes of them, at least one.
    #[must_use]
    pub fn new(after: Zxid, upto: Zxid, bytes_max: usize) -> Rc<Self> {
        Rc::new(Self { after, upto, bytes_max, outcome: RefCell::default(), done: WakeFlag::default() })
    }

    /// Ready with what was read, once. An error says that the log does not go back so far, or is damaged.
    pub fn poll_done(&self, cx: &mut Context<'_>) -> Poll<Result<Vec<Batch>, ReadError>> {
        self.done.poll_lower(cx).map(|()| self.outcome.borrow_mut().take().unwrap_or_else(|| Ok(Vec::new())))
    }

    pub(crate) fn finish(&self, outcome: Result<Vec<Batch>, ReadError>) {
        self.outcome.replace(Some(outcome));
        self.done.raise();
    }
}
