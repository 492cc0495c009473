//! `ringkeeper tail`: the committed transactions of a running server.

use std::io::{self, BufWriter, Write};
use std::time::Duration;

use clap::Args;
use ringkeeper_backup::{Part, Source, SourceError};
use ringkeeper_engine::path::ROOT;
use ringkeeper_engine::txn::{self, Txn, TxnOp};
use ringkeeper_wire::Zxid;
use serde_json::Value;
use tokio::time::sleep;

use crate::admin::listener::{ListenerError, SourceArgs, runtime};
use crate::transaction::{self, Data};

/// Pause before a server that is not reached is asked again.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

#[derive(Args)]
pub(crate) struct TailArgs {
    #[command(flatten)]
    source: SourceArgs,
    /// The first transaction to show [default: the next one]
    #[arg(long, value_name = "ZXID")]
    from: Option<Zxid>,
    /// Shows what changes this znode and those below it, with all parts of a multi, and the ends of sessions
    #[arg(long, value_name = "PATH", value_parser = absolute)]
    path: Option<String>,
    /// Ends when everything that is committed has been shown
    #[arg(long, requires = "from")]
    once: bool,
    /// Answers as JSON, one object a line, with the data of znodes
    #[arg(long)]
    json: bool,
}

/// Why it ended: one sentence for the user.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TailError {
    #[error(transparent)]
    Source(#[from] ListenerError),
    #[error(transparent)]
    Server(#[from] SourceError),
    #[error(
        "the server's log begins after {after}: begin there (--from {}), or restore a backup as of an earlier moment",
        Zxid(after.0 + 1)
    )]
    Purged { after: Zxid },
    #[error("the transactions from {first} to {last} cannot be read: {source}")]
    Contents { first: Zxid, last: Zxid, source: txn::BatchError },
    #[error(
        "ensemble {ensemble:#x} answers where ensemble {before:#x} did: its transactions are another history's"
    )]
    Other { before: u64, ensemble: u64 },
    #[error(transparent)]
    Output(#[from] io::Error),
}

fn absolute(path: &str) -> Result<String, String> {
    match path.starts_with(ROOT) {
        true => Ok(path.to_owned()),
        false => Err("a path begins with /".to_owned()),
    }
}

/// Shows transactions until it is stopped.
///
/// # Errors
/// One sentence for the user.
pub(crate) fn run(args: TailArgs) -> Result<(), TailError> {
    let source = args.source.source()?;
    match runtime()?.block_on(args.follow(&source)) {
        // Whoever reads the output has seen enough, as `head` does.
        Err(TailError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        ended => ended,
    }
}

impl TailArgs {
    async fn follow(&self, source: &Source) -> Result<(), TailError> {
        let mut after = self.from.map(|from| Zxid(from.0.saturating_sub(1)));
        let mut ensemble = None;
        let mut waits = false;
        loop {
            let part = match source.feed(after, waits).await {
                Ok(part) => part,
                Err(SourceError::Purged { after }) => return Err(TailError::Purged { after }),
                // Once it has answered, a restart of the server is waited for.
                Err(error) if error.may_pass() && ensemble.is_some() && !self.once => {
                    sleep(AGAIN_AFTER).await;
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            let before = *ensemble.get_or_insert(part.ensemble);
            if before != part.ensemble {
                return Err(TailError::Other { before, ensemble: part.ensemble });
            }
            self.show(&part)?;
            let end = part.batches.last().map_or(part.after, |last| last.last());
            if self.once && (end >= part.committed || part.batches.is_empty()) {
                return Ok(());
            }
            after = Some(end);
            waits = !self.once;
        }
    }

    fn show(&self, part: &Part) -> Result<(), TailError> {
        let mut out = BufWriter::new(io::stdout().lock());
        for batch in &part.batches {
            let unreadable =
                |source| TailError::Contents { first: batch.first(), last: batch.last(), source };
            let payload = batch.payload().expect("verified when it came");
            let txns = txn::decode_batch(payload).map_err(unreadable)?;
            for txn in txns.iter().filter(|txn| txn.zxid > part.after && self.is_about(txn)) {
                match self.json {
                    true => writeln!(out, "{}", Value::Object(transaction::object(txn, Data::Shown)))?,
                    false => writeln!(out, "{}", transaction::text(txn))?,
                }
            }
        }
        Ok(out.flush()?)
    }

    /// Whether it is to be shown. The end of a session is, since a transaction does not say which ephemerals
    /// that deletes.
    fn is_about(&self, txn: &Txn) -> bool {
        let Some(top) = &self.path else { return true };
        match &txn.op {
            TxnOp::CloseSession => true,
            TxnOp::CloseSessionListed(paths) => paths.iter().any(|path| is_below(path, top)),
            op => op.updates().iter().any(|update| is_below(update.path(), top)),
        }
    }
}

/// Whether `path` is `top` or below it.
fn is_below(path: &str, top: &str) -> bool {
    let top = top.trim_end_matches('/');
    path.strip_prefix(top).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subtree_is_a_znode_and_those_below_it() {
        for (path, top, is) in
            [("/a", "/a", true), ("/a/b", "/a", true), ("/ab", "/a", false), ("/b", "/", true)]
        {
            assert_eq!(is_below(path, top), is, "{path} {top}");
        }
    }
}
