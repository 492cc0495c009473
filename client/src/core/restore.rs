//! Restoring watches on a new connection: setWatches (docs/protocol.md, 6.4).
//!
//! The server compares each path with the client's last zxid and reports what changed in between. That
//! zxid must be one up to which the client *has* every event: replies qualify, since a server sends the
//! events of a transaction before any reply that shows it; events do not, since one transaction may fire
//! several watches of which only the first has arrived.

use ringkeeper_wire::frame::put_frame;
use ringkeeper_wire::{OpCode, Record, Request, RequestHeader, SetWatchesRequest, Zxid, xid};

use super::watches::Watches;

/// Paths in one request, in bytes: a server refuses frames over 1 MiB (ZOOKEEPER-706).
const BATCH_BYTES_MAX: usize = 128 * 1024;

/// Paths by kind of watch, as setWatches2 lists them.
type Lists = [Vec<String>; 5];

impl<W> Watches<W> {
    /// Appends the requests that restore every watch; how many there are.
    pub(super) fn encode_restore(&self, last_zxid: Zxid, out: &mut Vec<u8>) -> usize {
        let tables = [&self.data, &self.exist, &self.child, &self.persistent, &self.recursive];
        let paths = tables.iter().enumerate().flat_map(|(kind, table)| table.keys().map(move |p| (kind, p)));
        let (mut batch, mut batch_bytes, mut requests) = (Lists::default(), 0, 0);
        for (kind, path) in paths {
            if batch_bytes > 0 && batch_bytes + path.len() > BATCH_BYTES_MAX {
                encode_batch(&std::mem::take(&mut batch), last_zxid, out);
                (batch_bytes, requests) = (0, requests + 1);
            }
            batch_bytes += path.len();
            batch[kind].push(path.clone());
        }
        if batch_bytes > 0 {
            encode_batch(&batch, last_zxid, out);
            requests += 1;
        }
        requests
    }
}

fn encode_batch([data, exist, child, persistent, recursive]: &Lists, last_zxid: Zxid, out: &mut Vec<u8>) {
    let record = SetWatchesRequest {
        relative_zxid: last_zxid.to_wire(),
        data_watches: data.as_slice().into(),
        exist_watches: exist.as_slice().into(),
        child_watches: child.as_slice().into(),
        persistent_watches: persistent.as_slice().into(),
        persistent_recursive_watches: recursive.as_slice().into(),
    };
    // Servers before 3.6 know the older request alone.
    let request = if persistent.is_empty() && recursive.is_empty() {
        Request::SetWatches(record)
    } else {
        Request::SetWatches2(record)
    };
    let op = request.op();
    debug_assert!(matches!(op, OpCode::SetWatches | OpCode::SetWatches2));
    put_frame(out, |out| {
        RequestHeader { xid: xid::SET_WATCHES, op: op.to_wire() }.encode(out);
        request.encode(out);
    });
}
