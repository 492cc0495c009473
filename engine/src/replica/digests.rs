//! The state digests that the word `hash` shows. Servers of an ensemble have the same digest at the same
//! zxid; learners send theirs to the leader, which compares.

use std::collections::VecDeque;

use ringkeeper_wire::Zxid;

/// A digest is kept for each zxid that is a multiple of this, as in ZooKeeper, so that servers keep the same
/// zxids.
const INTERVAL: u64 = 128;

/// Digests kept, as in ZooKeeper.
const KEPT_MAX: usize = 1024;

/// The digests after the newest transactions whose zxid is a multiple of [`INTERVAL`], in zxid order.
#[derive(Clone, Debug, Default)]
pub(super) struct DigestHistory(VecDeque<(Zxid, u64)>);

impl DigestHistory {
    /// The state after `zxid` has this digest.
    pub(super) fn note(&mut self, zxid: Zxid, digest: u64) {
        if !zxid.0.is_multiple_of(INTERVAL) {
            return;
        }
        if self.0.len() == KEPT_MAX {
            self.0.pop_front();
        }
        self.0.push_back((zxid, digest));
    }

    /// Drops the digests after `zxid`: their states are gone.
    pub(super) fn forget_after(&mut self, zxid: Zxid) {
        while self.0.pop_back_if(|(noted, _)| *noted > zxid).is_some() {}
    }

    /// The newest digest up to `zxid`.
    pub(super) fn newest_up_to(&self, zxid: Zxid) -> Option<(Zxid, u64)> {
        self.0.iter().rev().copied().find(|(noted, _)| *noted <= zxid)
    }

    /// The digests up to `zxid`, oldest first.
    pub(super) fn up_to(&self, zxid: Zxid) -> impl Iterator<Item = (Zxid, u64)> {
        self.0.iter().copied().take_while(move |(noted, _)| *noted <= zxid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noted(history: &DigestHistory, upto: u64) -> Vec<u64> {
        history.up_to(Zxid(upto)).map(|(zxid, _)| zxid.0).collect()
    }

    #[test]
    fn every_128th_zxid_is_kept_and_no_more_than_1024_of_them() {
        let mut history = DigestHistory::default();
        (1..=1100 * INTERVAL).for_each(|zxid| history.note(Zxid(zxid), zxid));
        let kept = noted(&history, u64::MAX);
        assert_eq!(kept.len(), KEPT_MAX);
        assert_eq!((kept[0], kept[KEPT_MAX - 1]), (77 * INTERVAL, 1100 * INTERVAL));
    }

    #[test]
    fn what_was_cut_off_or_is_not_committed_is_not_shown() {
        let mut history = DigestHistory::default();
        (1..=4).for_each(|times| history.note(Zxid(times * INTERVAL), times));
        history.forget_after(Zxid(3 * INTERVAL));
        assert_eq!(noted(&history, u64::MAX), [128, 256, 384]);
        assert_eq!(noted(&history, 383), [128, 256]);
        assert_eq!(history.newest_up_to(Zxid(383)), Some((Zxid(256), 2)));
    }
}
