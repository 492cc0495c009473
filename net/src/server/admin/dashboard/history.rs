//! The history of a znode: what the log still has of the transactions that changed it, newest first.

use std::time::Duration;

use ringkeeper_engine::txn::{self, Txn, TxnOp, Update};
use ringkeeper_engine::zab::Batch;
use ringkeeper_wire::Zxid;
use serde_json::{Map, Value, json};

use crate::transaction::{Data, update_object};

/// Changes on a page, after which it ends with the transaction.
const CHANGES: usize = 20;

/// Bytes of data on a page, after which it ends with the transaction.
const BYTES: usize = 1 << 20;

/// Slices of the log that are looked through for a page.
pub(super) const SLICES: usize = 64;

/// How long the log is looked through for a page.
pub(super) const LOOKED_MAX: Duration = Duration::from_secs(5);

/// A page of a znode's history.
pub(super) struct Page {
    path: String,
    /// Where the znode began.
    created: Zxid,
    /// Whether the data of this znode is shown.
    shows_data: bool,
    /// The changes found, newest first.
    changes: Vec<Value>,
    /// Bytes of data found.
    bytes: usize,
    /// All transactions from this one on have been looked at.
    before: Zxid,
    /// Time of the oldest one of them, milliseconds since the Unix epoch.
    time_ms: Option<i64>,
}

impl Page {
    /// An empty page of the changes before a zxid. `shows_data` is false for who may not have been a reader
    /// when the data was set.
    pub(super) fn new(path: String, created: Zxid, shows_data: bool, before: Zxid) -> Self {
        Self { path, created, shows_data, changes: Vec::new(), bytes: 0, before, time_ms: None }
    }

    /// Where to look on.
    pub(super) fn before(&self) -> Zxid {
        self.before
    }

    /// Adds what is in a slice of the log, which begins behind `after`. Whether to look on.
    ///
    /// # Errors
    /// A batch is not one of transactions.
    pub(super) fn add(&mut self, after: Zxid, batches: &[Batch]) -> Result<bool, String> {
        for batch in batches.iter().rev() {
            let payload = batch.payload().map_err(|error| error.to_string())?;
            let txns = txn::decode_batch(payload).map_err(|error| error.to_string())?;
            for txn in txns.iter().rev() {
                if txn.zxid < self.before && !self.add_txn(txn) {
                    return Ok(false);
                }
            }
        }
        self.before = Zxid(after.0.saturating_add(1));
        Ok(true)
    }

    /// Whether there is room for more.
    fn add_txn(&mut self, txn: &Txn) -> bool {
        self.before = txn.zxid;
        self.time_ms = Some(txn.time_ms);
        if let TxnOp::CloseSessionListed(paths) = &txn.op
            && paths.iter().any(|path| **path == *self.path)
        {
            self.push(txn, Map::from_iter([("op".to_owned(), json!("delete"))]));
        }
        let updates = txn.op.updates();
        let begins = updates.iter().rposition(|it| matches!(it, Update::Create(_)) && it.path() == self.path);
        for (number, update) in updates.iter().enumerate().rev() {
            if update.path() != self.path || matches!(update, Update::Check(_)) {
                continue;
            }
            // A znode that had this path before may have been for other readers.
            let former = txn.zxid < self.created
                || (txn.zxid == self.created && begins.is_some_and(|begins| number < begins));
            let data = if former || !self.shows_data { Data::Omitted } else { Data::Shown };
            let mut change = Map::new();
            update_object(update, data, &mut change);
            change.insert("former".to_owned(), json!(former));
            // Only what has data can withhold it.
            if !former && !self.shows_data && change.contains_key("bytes") {
                change.insert("withheld".to_owned(), json!(true));
            }
            let len = change.get("bytes").and_then(Value::as_u64).unwrap_or(0);
            self.bytes = self.bytes.saturating_add(usize::try_from(len).unwrap_or(usize::MAX));
            self.push(txn, change);
        }
        self.changes.len() < CHANGES && self.bytes < BYTES
    }

    fn push(&mut self, txn: &Txn, mut change: Map<String, Value>) {
        change.remove("path");
        change.insert("zxid_hex".to_owned(), json!(txn.zxid.to_string()));
        change.insert("time_ms".to_owned(), json!(txn.time_ms));
        change.insert("session_hex".to_owned(), json!(txn.session.to_string()));
        change.insert("multi".to_owned(), json!(matches!(txn.op, TxnOp::Multi(_))));
        self.changes.push(Value::Object(change));
    }

    /// The page. `log_begins_after` is where the log begins, if it has been looked through to there.
    pub(super) fn shown(self, log_begins_after: Option<Zxid>) -> Value {
        json!({
            "changes": self.changes,
            "created_hex": self.created.to_string(),
            "before_hex": log_begins_after.is_none().then(|| self.before.to_string()),
            "looked_back_to_ms": self.time_ms,
            "log_begins_after_hex": log_begins_after.map(|after| after.to_string()),
            // The znodes of an empty tree are older than every transaction.
            "log_has_creation": log_begins_after.map(|after| after < self.created || after == Zxid::ZERO),
        })
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use ringkeeper_engine::acl::Acl;
    use ringkeeper_engine::txn::{Create, SetAcl, SetData};
    use ringkeeper_wire::{SessionId, Xid};

    use super::*;

    fn txn(zxid: u64, op: TxnOp) -> Txn {
        Txn { zxid: Zxid(zxid), session: SessionId(7), xid: Xid(1), time_ms: 1000, op }
    }

    fn data(text: &str) -> Option<Bytes> {
        Some(Bytes::copy_from_slice(text.as_bytes()))
    }

    fn create(path: &str, text: &str) -> Update {
        let acl = Acl::default();
        Update::Create(Create {
            path: path.into(),
            data: data(text),
            acl,
            raw_owner: 0,
            parent_cversion: 1,
            reply_with_stat: false,
        })
    }

    fn set(path: &str, text: &str, version: i32) -> Update {
        Update::SetData(SetData { path: path.into(), data: data(text), version })
    }

    fn found(page: &Page) -> Vec<String> {
        let shown = |change: &Value| {
            let data = change.get("data").map_or("-", |data| data.as_str().unwrap_or_default());
            format!("{} {} {data}", change["zxid_hex"].as_str().unwrap(), change["op"].as_str().unwrap())
        };
        page.changes.iter().map(shown).collect()
    }

    #[test]
    fn a_znode_has_its_changes_and_those_of_a_former_one_without_their_data() {
        let mut page = Page::new("/a".to_owned(), Zxid(3), true, Zxid(10));
        let again = vec![set("/a", "secret", 1), Update::Delete("/a".into()), create("/a", "first")];
        for txn in [
            txn(6, TxnOp::Update(set("/ab", "other", 1))),
            txn(5, TxnOp::Multi(vec![set("/a", "second", 1), Update::Check("/a".into())])),
            txn(4, TxnOp::Error(ringkeeper_wire::ErrorCode::BadVersion)),
            txn(3, TxnOp::Multi(again)),
            txn(2, TxnOp::Update(create("/a", "secret"))),
        ] {
            assert!(page.add_txn(&txn));
        }
        assert_eq!(
            found(&page),
            ["0x5 setData second", "0x3 create first", "0x3 delete -", "0x3 setData -", "0x2 create -"]
        );
        assert_eq!((&page.changes[0]["multi"], &page.changes[4]["former"]), (&json!(true), &json!(true)));
        assert_eq!(page.shown(Some(Zxid(1)))["log_has_creation"], true);
    }

    #[test]
    fn data_that_is_withheld_leaves_its_length_and_what_has_no_data_withholds_none() {
        let mut page = Page::new("/a".to_owned(), Zxid(2), false, Zxid(10));
        let readers = Update::SetAcl(SetAcl { path: "/a".into(), acl: Acl::default(), aversion: 1 });
        for txn in [
            txn(4, TxnOp::Update(readers)),
            txn(3, TxnOp::Update(set("/a", "secret", 1))),
            txn(2, TxnOp::Update(create("/a", "secret"))),
            txn(1, TxnOp::Update(create("/a", "former"))),
        ] {
            assert!(page.add_txn(&txn));
        }
        let told =
            |change: &Value| json!([change["withheld"], change["bytes"], change["data"], change["former"]]);
        assert_eq!(
            page.changes.iter().map(told).collect::<Vec<_>>(),
            [
                json!([null, null, null, false]),
                json!([true, 6, null, false]),
                json!([true, 6, null, false]),
                json!([null, 6, null, true]),
            ]
        );
    }

    #[test]
    fn a_page_ends_with_a_transaction_when_it_has_enough() {
        let mut page = Page::new("/a".to_owned(), Zxid(1), true, Zxid(100));
        let many: Vec<_> = (0..30).map(|version| set("/a", "x", version)).collect();
        assert!(page.add_txn(&txn(9, TxnOp::Update(set("/a", "x", 31)))));
        assert!(!page.add_txn(&txn(8, TxnOp::Multi(many))));
        assert_eq!((page.changes.len(), page.before()), (31, Zxid(8)));
        let mut page = Page::new("/a".to_owned(), Zxid(1), true, Zxid(100));
        assert!(!page.add_txn(&txn(9, TxnOp::Update(set("/a", &"x".repeat(BYTES), 1)))));
        assert_eq!(page.shown(None)["before_hex"], "0x9");
    }
}
