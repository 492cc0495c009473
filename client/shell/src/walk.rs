//! Subtrees, a znode after the other, each before those below it. Many requests are on their way at once, so
//! that a large subtree does not take a round trip for each znode.

use ringkeeper_client::{Client, Error, Reply, Stat, path};

use crate::error::ShellError;
use crate::interrupt;

/// How far the requests run ahead.
const AHEAD: usize = 256;

/// A znode on the way.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) path: String,
    /// 0 for the top.
    pub(crate) depth: usize,
    pub(crate) stat: Stat,
    /// It has no later sibling.
    pub(crate) last: bool,
}

type Listing = Reply<(Vec<String>, Stat)>;

struct Pending {
    path: String,
    depth: usize,
    last: bool,
    listing: Option<Listing>,
}

/// A walk through a subtree, in the order of names. Znodes that go meanwhile are left out.
pub(crate) struct Walk<'c> {
    client: &'c Client,
    /// The next one is the last.
    stack: Vec<Pending>,
    levels: usize,
}

impl<'c> Walk<'c> {
    /// `levels` below the top are walked.
    pub(crate) fn new(client: &'c Client, top: &str, levels: usize) -> Self {
        let top = Pending { path: top.to_owned(), depth: 0, last: true, listing: None };
        Self { client, stack: vec![top], levels }
    }

    /// The next znode.
    pub(crate) fn next(&mut self) -> Result<Option<Found>, ShellError> {
        loop {
            interrupt::check()?;
            self.run_ahead();
            let Some(Pending { path, depth, last, listing }) = self.stack.pop() else { return Ok(None) };
            let listing = listing.unwrap_or_else(|| self.client.get_children(&path));
            match interrupt::wait(listing)? {
                Ok((mut names, stat)) => {
                    if depth < self.levels {
                        self.descend(&path, depth + 1, &mut names);
                    }
                    return Ok(Some(Found { path, depth, stat, last }));
                }
                Err(Error::NoNode(_)) if depth > 0 => {}
                Err(source) => return Err(ShellError::Client { what: format!("list {path}"), source }),
            }
        }
    }

    fn descend(&mut self, parent: &str, depth: usize, names: &mut [String]) {
        names.sort_unstable_by(|one, other| other.cmp(one));
        let first = self.stack.len();
        let pending =
            |name: &String| Pending { path: path::join(parent, name), depth, last: false, listing: None };
        self.stack.extend(names.iter().map(pending));
        if let Some(last) = self.stack.get_mut(first) {
            last.last = true;
        }
    }

    fn run_ahead(&mut self) {
        let from = self.stack.len().saturating_sub(AHEAD);
        for pending in self.stack[from..].iter_mut().rev().filter(|pending| pending.listing.is_none()) {
            pending.listing = Some(self.client.get_children(&pending.path));
        }
    }
}
