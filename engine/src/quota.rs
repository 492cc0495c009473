//! Quotas: limits that clients write as znodes, and the use that the server counts beside them
//! (docs/protocol.md, 9).
//!
//! The quota of `/p` is `/zookeeper/quota/p/zookeeper_limits`, its use `/zookeeper/quota/p/zookeeper_stats`.
//! Both hold text such as `count=4,bytes=100`, with hard limits `count=4,bytes=100=;byteHardLimit=200`: the
//! extra `=` keeps parsers of the time before hard limits from reading on.

use std::fmt;

use crate::state::State;

/// Above all quotas.
pub const ROOT: &str = "/zookeeper/quota";
const LIMITS: &str = "/zookeeper_limits";
const STATS: &str = "/zookeeper_stats";
/// What a figure that is not set stands for.
const UNSET: i64 = -1;

/// The path that the znode `path` sets limits for, if it does. The root cannot have any.
#[must_use]
pub fn limited_by(path: &str) -> Option<&str> {
    subject(path, LIMITS)
}

/// The path whose use the znode `path` shows, if it does.
#[must_use]
pub fn counted_by(path: &str) -> Option<&str> {
    subject(path, STATS)
}

fn subject<'a>(path: &'a str, leaf: &str) -> Option<&'a str> {
    let subject = path.strip_prefix(ROOT)?.strip_suffix(leaf)?;
    subject.starts_with('/').then_some(subject)
}

/// Where the limits of `path` are.
#[must_use]
pub fn limits_path(path: &str) -> String {
    [ROOT, path, LIMITS].concat()
}

/// Where the use of `path` is.
#[must_use]
pub fn stats_path(path: &str) -> String {
    [ROOT, path, STATS].concat()
}

/// Limits, or use. `None` is "not set", like -1: what limits nothing. Use may be below zero, since what was
/// there before the quota is counted only when it goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Number of znodes, the subject itself included.
    pub count: Option<i64>,
    /// Bytes of their data.
    pub bytes: Option<i64>,
    /// Number of znodes that enforcement allows.
    pub count_hard_limit: Option<i64>,
    /// Bytes of data that enforcement allows.
    pub byte_hard_limit: Option<i64>,
}

impl Figures {
    /// Reads the text. Pairs it does not know are skipped; `None` if it is not of this form at all.
    #[must_use]
    pub fn parse(data: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(data).ok()?;
        let mut figures = Self::default();
        for pair in text.split([',', ';']).filter(|pair| !pair.is_empty()) {
            let mut parts = pair.split('=');
            let (key, value) = (parts.next()?, parts.next()?);
            let value = if value.is_empty() { None } else { Some(value.parse::<i64>().ok()?) };
            match key {
                "count" => figures.count = value,
                "bytes" => figures.bytes = value,
                "countHardLimit" => figures.count_hard_limit = value,
                "byteHardLimit" => figures.byte_hard_limit = value,
                _ => {}
            }
        }
        Some(figures)
    }

    /// This use with `count` znodes and `bytes` more.
    #[must_use]
    pub fn plus(self, count: i64, bytes: i64) -> Self {
        let sum = |figure: Option<i64>, more: i64| Some(figure.unwrap_or(UNSET).saturating_add(more));
        Self { count: sum(self.count, count), bytes: sum(self.bytes, bytes), ..self }
    }

    /// Whether these limits forbid `count` znodes and `bytes` more on top of `used`. A hard limit takes the
    /// place of a soft one, which forbids nothing.
    #[must_use]
    pub fn forbid(self, used: Self, count: i64, bytes: i64) -> bool {
        let exceeds = |limit: Option<i64>, used: Option<i64>, more: i64| {
            more != 0 && is_set(limit) && used.unwrap_or(UNSET).saturating_add(more) > limit.unwrap_or(UNSET)
        };
        exceeds(self.count_hard_limit, used.count, count) || exceeds(self.byte_hard_limit, used.bytes, bytes)
    }
}

/// The quotas of the paths that begin with one element, added up, as ZooKeeper's metrics show them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Namespace {
    /// That element.
    pub name: String,
    /// Number of znodes allowed, by the hard limits where there are some.
    pub count_limit: i64,
    /// Bytes of data allowed, likewise.
    pub bytes_limit: i64,
    /// Number of znodes.
    pub count: i64,
    /// Bytes of their data.
    pub bytes: i64,
}

/// Quotas that are added up, at most: clients set them, and the sums are made for each reader of the metrics.
const SUMMED_MAX: usize = 1_000;

/// The sums of the first thousand quotas.
#[must_use]
pub fn by_namespace(state: &State) -> Vec<Namespace> {
    let figures = |path: &str| Figures::parse(state.znode(path)?.data().unwrap_or_default());
    let mut namespaces: Vec<Namespace> = Vec::new();
    for subject in state.quotas.subjects().take(SUMMED_MAX) {
        let name = subject.split('/').nth(1).unwrap_or_default();
        if namespaces.last().is_none_or(|last| last.name != name) {
            namespaces.push(Namespace { name: name.to_owned(), ..Namespace::default() });
        }
        let sums = namespaces.last_mut().expect("one was added if there was none");
        let limits = figures(&limits_path(subject)).unwrap_or_default();
        let used = figures(&stats_path(subject)).unwrap_or_default();
        let preferred = |hard, soft| if is_set(hard) { hard } else { soft };
        for (sum, figure) in [
            (&mut sums.count_limit, preferred(limits.count_hard_limit, limits.count)),
            (&mut sums.bytes_limit, preferred(limits.byte_hard_limit, limits.bytes)),
            (&mut sums.count, used.count),
            (&mut sums.bytes, used.bytes),
        ] {
            *sum = sum.saturating_add(figure.unwrap_or(0).max(0));
        }
    }
    namespaces
}

fn is_set(limit: Option<i64>) -> bool {
    limit.is_some_and(|limit| limit > UNSET)
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "count={},bytes={}", self.count.unwrap_or(UNSET), self.bytes.unwrap_or(UNSET))?;
        if is_set(self.byte_hard_limit) || is_set(self.count_hard_limit) {
            f.write_str("=")?;
        }
        for (key, limit) in
            [("byteHardLimit", self.byte_hard_limit), ("countHardLimit", self.count_hard_limit)]
        {
            if let Some(limit) = limit.filter(|&limit| is_set(Some(limit))) {
                write!(f, ";{key}={limit}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use ringkeeper_wire::{SessionId, Xid, Zxid};

    use super::*;
    use crate::acl::Acl;
    use crate::txn::{Create, Txn, TxnOp, Update};

    #[test]
    fn the_text_is_zookeepers() {
        for text in [
            "count=4,bytes=5",
            "count=-1,bytes=-1",
            "count=4,bytes=5=;byteHardLimit=7;countHardLimit=8",
            "count=4,bytes=-1=;countHardLimit=8",
            "count=4,bytes=-864",
        ] {
            let figures = Figures::parse(text.as_bytes()).expect(text);
            assert_eq!(figures.to_string(), text);
        }
    }

    #[test]
    fn incomplete_texts_are_read_as_unset() {
        assert_eq!(Figures::parse(b""), Some(Figures::default()));
        assert_eq!(Figures::parse(b"count="), Some(Figures::default()));
        assert_eq!(Figures::parse(b"other=3;bytes=2").expect("well formed").bytes, Some(2));
    }

    #[test]
    fn quotas_with_one_first_element_are_added_up_by_the_hard_limit_where_there_is_one() {
        let mut state = State::new(1);
        for (path, data) in [
            ("/app", "12345"),
            ("/zookeeper/quota/app", ""),
            ("/zookeeper/quota/app/zookeeper_limits", "count=9,bytes=100=;countHardLimit=5"),
            // What it says is replaced by what is there.
            ("/zookeeper/quota/app/zookeeper_stats", ""),
            ("/zookeeper/quota/app/part", ""),
            ("/zookeeper/quota/app/part/zookeeper_limits", "count=3,bytes=-1"),
            ("/zookeeper/quota/app-2", ""),
            ("/zookeeper/quota/app-2/zookeeper_limits", "nonsense"),
        ] {
            let create = Create {
                path: path.into(),
                data: Some(data.as_bytes().into()),
                acl: Acl::OPEN,
                raw_owner: 0,
                parent_cversion: -1,
                reply_with_stat: false,
            };
            let zxid = Zxid(state.last_zxid().0 + 1);
            let op = TxnOp::Update(Update::Create(create));
            let _ = state.apply(&Txn { zxid, session: SessionId(0), xid: Xid(0), time_ms: 0, op });
        }
        let app = Namespace { name: "app".to_owned(), count_limit: 8, bytes_limit: 100, count: 1, bytes: 5 };
        let second = Namespace { name: "app-2".to_owned(), ..Namespace::default() };
        assert_eq!(by_namespace(&state), [app, second]);
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [&b"count"[..], b"count=x", b"\xff"] {
            assert_eq!(Figures::parse(text), None);
        }
    }

    #[test]
    fn limits_and_stats_znodes_name_their_subject() {
        assert_eq!(limited_by("/zookeeper/quota/a/b/zookeeper_limits"), Some("/a/b"));
        assert_eq!(counted_by("/zookeeper/quota/a/zookeeper_stats"), Some("/a"));
        for path in [
            "/zookeeper/quota/zookeeper_limits",
            "/zookeeper/quotas/zookeeper_limits",
            "/a/zookeeper_limits",
            "/zookeeper/quota/a/zookeeper_stats",
        ] {
            assert_eq!(limited_by(path), None, "{path}");
        }
    }

    #[test]
    fn only_hard_limits_forbid() {
        let used = Figures { count: Some(2), bytes: Some(10), ..Figures::default() };
        let soft = Figures { count: Some(2), bytes: Some(10), ..Figures::default() };
        assert!(!soft.forbid(used, 1, 1));
        let hard = Figures { count_hard_limit: Some(3), byte_hard_limit: Some(12), ..soft };
        assert!(!hard.forbid(used, 1, 2));
        assert!(hard.forbid(used, 2, 0));
        assert!(hard.forbid(used, 0, 3));
        assert!(!hard.forbid(Figures { bytes: Some(99), ..used }, 1, 0));
        assert!(!hard.forbid(Figures { bytes: Some(-100), ..used }, 0, 99));
    }
}
