//! What can be done about a damaged log, and what that loses.

use std::fmt;

use ringkeeper_log::examine::{Examination, Role};
use ringkeeper_log::frame::Checksum;
use ringkeeper_log::frame::LogPosition;
use ringkeeper_log::repair::Extent;
use ringkeeper_log::snapshot::file_name;
use ringkeeper_log::wal::is_segment_size;
use ringkeeper_wire::Zxid;

/// A snapshot as it was found.
pub(super) struct Found {
    pub(super) zxid: Zxid,
    /// Checksum of the log's frame where it ends, or what is wrong with it.
    pub(super) state: Result<Checksum, String>,
}

/// Everything that a folder holds.
pub(super) struct Survey {
    pub(super) log: Examination,
    /// Newest first.
    pub(super) snapshots: Vec<Found>,
    /// There is no file of the log, though there must have been: the last zxid that the server can have
    /// acknowledged.
    pub(super) gone_until: Option<Zxid>,
}

/// What a server starts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Basis {
    /// The log from its very beginning.
    Beginning,
    /// A snapshot.
    Snapshot(Zxid),
}

impl fmt::Display for Basis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Beginning => f.write_str("the beginning of the log"),
            Self::Snapshot(zxid) => f.write_str(&file_name(*zxid)),
        }
    }
}

/// A log to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    /// What it continues.
    pub(super) after: LogPosition,
    /// Its end.
    pub(super) until_zxid: Zxid,
    pub(super) basis: Basis,
}

/// Transactions that are not there any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lost {
    pub(super) after_zxid: Zxid,
    pub(super) until_zxid: Zxid,
    /// Whether `until_zxid` is known to have been reached, or only a bound.
    pub(super) is_known: bool,
}

impl Lost {
    pub(super) fn is_none(self) -> bool {
        self.until_zxid <= self.after_zxid
    }

    /// How many, if all are of one epoch.
    pub(super) fn count(self) -> Option<u64> {
        let same = self.after_zxid.epoch() == self.until_zxid.epoch();
        if same && self.is_known { Some(self.until_zxid.0.saturating_sub(self.after_zxid.0)) } else { None }
    }
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { after_zxid, until_zxid, is_known } = self;
        if self.is_none() {
            return f.write_str("no transaction is lost");
        }
        if !is_known {
            return write!(
                f,
                "LOST: every transaction after zxid {after_zxid}; how many is not known, since no file of the log is there"
            );
        }
        write!(f, "LOST: every transaction after zxid {after_zxid} up to {until_zxid}")?;
        match self.count() {
            Some(count) => write!(f, " ({count} of them)"),
            None => f.write_str(" (of more than one epoch)"),
        }
    }
}

impl Survey {
    /// Whether a server starts from this without losing anything.
    pub(super) fn is_sound(&self) -> bool {
        let end = self.log.fragments.last().map_or(Zxid::ZERO, |fragment| fragment.last.zxid);
        let reaches = |zxid| zxid <= end;
        self.gone_until.is_none()
            && self.log.verdict.is_ok()
            && self.sound().all(|(zxid, _)| reaches(zxid))
            && self.basis(self.log.base().zxid, end).is_some()
    }

    /// Sound snapshots, newest first.
    fn sound(&self) -> impl Iterator<Item = (Zxid, Checksum)> {
        self.snapshots.iter().filter_map(|found| Some((found.zxid, *found.state.as_ref().ok()?)))
    }

    /// Damaged snapshots, newest first.
    pub(super) fn spoiled(&self) -> impl Iterator<Item = (Zxid, &str)> {
        self.snapshots.iter().filter_map(|found| Some((found.zxid, found.state.as_ref().err()?.as_str())))
    }

    /// What a server would start from, if the log reached from `base` to `end`.
    fn basis(&self, base: Zxid, end: Zxid) -> Option<Basis> {
        let snapshot = self.sound().find(|(zxid, _)| (base..=end).contains(zxid));
        let snapshot = snapshot.map(|(zxid, _)| Basis::Snapshot(zxid));
        snapshot.or_else(|| (base == Zxid::ZERO).then_some(Basis::Beginning))
    }

    /// The last zxid of which anything is known.
    fn last_known(&self) -> Zxid {
        let known =
            self.snapshots.first().map_or(Zxid::ZERO, |newest| newest.zxid).max(self.log.last_known_zxid);
        known.max(self.gone_until.unwrap_or_default())
    }

    /// What a plan loses.
    pub(super) fn lost(&self, plan: &Plan) -> Lost {
        let is_known = self.gone_until.is_none();
        Lost { after_zxid: plan.until_zxid, until_zxid: self.last_known(), is_known }
    }

    /// The log that a plan makes.
    pub(super) fn extent(&self, plan: &Plan) -> Extent {
        Extent { after: plan.after, until_zxid: plan.until_zxid, known_zxid: self.last_known() }
    }

    /// Snapshots that a plan sets aside.
    pub(super) fn set_aside(&self, plan: &Plan) -> impl Iterator<Item = Zxid> {
        let until_zxid = plan.until_zxid;
        self.snapshots.iter().map(|found| found.zxid).filter(move |zxid| *zxid > until_zxid)
    }

    /// How long the files of a new log are to be: as those of the old one, or `default`.
    pub(super) fn segment_size_bytes(&self, default: u64) -> u64 {
        let live = self.log.segments.iter().rev().filter(|segment| segment.role == Role::Live);
        live.map(|segment| segment.size_bytes).find(|size| is_segment_size(*size)).unwrap_or(default)
    }

    /// Everything up to the first transaction that is lost.
    pub(super) fn cut(&self) -> Option<Plan> {
        let first = self.log.fragments.first()?;
        let (after, until_zxid) = (first.after, first.last.zxid);
        let basis = self.basis(after.zxid, until_zxid)?;
        Some(Plan { after, until_zxid, basis })
    }

    /// The newest sound snapshot, and what continues it. Only if that is more than [`Self::cut`] keeps.
    pub(super) fn snapshot_and_after(&self) -> Option<Plan> {
        let (zxid, checksum) = self.sound().next()?;
        let position = LogPosition { zxid, checksum };
        let inside = self.log.fragments.iter().find(|fragment| {
            (fragment.after.zxid..=fragment.last.zxid).contains(&zxid)
                && (fragment.after.zxid != zxid || fragment.after == position)
                && (fragment.last.zxid != zxid || fragment.last == position)
        });
        let until_zxid = inside.map_or(zxid, |fragment| fragment.last.zxid);
        let cut = self.cut();
        (cut.is_none_or(|cut| cut.until_zxid < until_zxid)).then_some(Plan {
            after: position,
            until_zxid,
            basis: Basis::Snapshot(zxid),
        })
    }
}

#[cfg(test)]
mod tests {
    use ringkeeper_log::error::{Corruption, OpenError};
    use ringkeeper_log::examine::Fragment;

    use super::*;

    fn position(zxid: u64) -> LogPosition {
        LogPosition { zxid: Zxid(zxid), checksum: Checksum(u32::try_from(zxid).expect("small")) }
    }

    fn survey(fragments: &[(u64, u64)], snapshots: &[(u64, bool)], last_known_zxid: u64) -> Survey {
        let fragments = fragments.iter();
        let fragments =
            fragments.map(|(after, last)| Fragment { after: position(*after), last: position(*last) });
        let snapshots = snapshots.iter().map(|(zxid, sound)| Found {
            zxid: Zxid(*zxid),
            state: if *sound { Ok(position(*zxid).checksum) } else { Err("damaged".to_owned()) },
        });
        let corruption = Corruption {
            file: "log".to_owned(),
            offset: 0,
            after_zxid: Zxid::ZERO,
            until_zxid: Zxid(last_known_zxid),
        };
        let log = Examination {
            segments: Vec::new(),
            damages: Vec::new(),
            fragments: fragments.collect(),
            last_known_zxid: Zxid(last_known_zxid),
            verdict: Err(OpenError::Corrupt(corruption)),
        };
        Survey { log, snapshots: snapshots.collect(), gone_until: None }
    }

    #[test]
    fn without_a_snapshot_the_log_can_be_cut_and_what_that_loses_is_known() {
        let survey = survey(&[(0, 10), (12, 30)], &[], 30);
        let plan = survey.cut().expect("the log begins at zero");
        assert_eq!((plan.until_zxid, plan.basis), (Zxid(10), Basis::Beginning));
        assert_eq!(survey.lost(&plan), Lost { after_zxid: Zxid(10), until_zxid: Zxid(30), is_known: true });
        assert_eq!(survey.lost(&plan).count(), Some(20));
        assert_eq!(survey.snapshot_and_after(), None);
    }

    #[test]
    fn a_snapshot_behind_the_damage_loses_nothing() {
        let survey = survey(&[(0, 10), (12, 30)], &[(20, true)], 30);
        let plan = survey.snapshot_and_after().expect("better than a cut");
        assert_eq!((plan.after, plan.until_zxid), (position(20), Zxid(30)));
        assert!(survey.lost(&plan).is_none());
        let cut = survey.cut().expect("possible too");
        assert_eq!(survey.set_aside(&cut).collect::<Vec<_>>(), [Zxid(20)]);
    }

    #[test]
    fn a_snapshot_of_what_cannot_be_read_is_all_that_is_kept() {
        let survey = survey(&[(0, 10), (25, 30)], &[(20, true)], 30);
        let plan = survey.snapshot_and_after().expect("better than a cut");
        assert_eq!((plan.after, plan.until_zxid), (position(20), Zxid(20)));
        assert_eq!(survey.lost(&plan), Lost { after_zxid: Zxid(20), until_zxid: Zxid(30), is_known: true });
    }

    #[test]
    fn a_log_that_is_gone_loses_nobody_knows_how_much() {
        let mut survey = survey(&[], &[(20, true)], 0);
        survey.gone_until = Some(Zxid(0x1_ffff_ffff));
        assert!(!survey.is_sound());
        let plan = survey.snapshot_and_after().expect("the snapshot");
        assert_eq!(survey.extent(&plan).known_zxid, Zxid(0x1_ffff_ffff), "what a member claims");
        let lost = survey.lost(&plan);
        assert!(!lost.is_none() && lost.to_string().contains("LOST"), "{lost}");
        assert_eq!(lost.count(), None);
    }

    #[test]
    fn a_log_that_no_snapshot_reaches_cannot_be_cut() {
        let purged = survey(&[(5, 10), (12, 30)], &[(8, false), (3, true)], 30);
        assert_eq!(purged.cut(), None);
        let reached = survey(&[(5, 10), (12, 30)], &[(25, false), (8, true)], 30);
        assert_eq!(reached.cut().expect("reached").basis, Basis::Snapshot(Zxid(8)));
        assert_eq!(reached.snapshot_and_after(), None, "it keeps no more than the cut");
    }
}
