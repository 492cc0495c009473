//! Committed batches for those outside of the ensemble: change feeds and backups.

use std::cell::RefCell;
use std::rc::Rc;
use std::task::{Context, Poll};

use ringkeeper_engine::zab::Batch;
use ringkeeper_log::error::ReadError;
use ringkeeper_wire::Zxid;

use crate::wake::WakeFlag;

/// Which batches are read.
#[derive(Clone, Copy, Debug)]
pub enum Place {
    /// The first ones that end behind this zxid.
    After(Zxid),
    /// The last ones that begin before this zxid.
    Before(Zxid),
}

/// One read of the log, beside appends.
#[derive(Debug)]
pub struct Feed {
    pub(crate) place: Place,
    pub(crate) upto: Zxid,
    pub(crate) bytes_max: usize,
    outcome: RefCell<Option<Result<Slice, ReadError>>>,
    done: WakeFlag,
}

/// What was read.
#[derive(Debug)]
pub struct Slice {
    /// The zxid behind which it begins.
    pub after: Zxid,
    /// The batches, oldest first.
    pub batches: Vec<Batch>,
}

impl Feed {
    /// A read of the batches at `place` that end at `upto` at the latest, which has to be committed: about
    /// `bytes_max` bytes of them. After a zxid it is at least one; before a zxid there may be none in a slice of
    /// the log although there are older ones.
    #[must_use]
    pub fn new(place: Place, upto: Zxid, bytes_max: usize) -> Rc<Self> {
        Rc::new(Self { place, upto, bytes_max, outcome: RefCell::default(), done: WakeFlag::default() })
    }

    /// Ready with what was read, once. An error says that the log does not go back so far, or is damaged.
    pub fn poll_done(&self, cx: &mut Context<'_>) -> Poll<Result<Slice, ReadError>> {
        self.done.poll_lower(cx).map(|()| self.outcome.borrow_mut().take().expect("raised with an outcome"))
    }

    pub(crate) fn finish(&self, outcome: Result<Slice, ReadError>) {
        self.outcome.replace(Some(outcome));
        self.done.raise();
    }
}
