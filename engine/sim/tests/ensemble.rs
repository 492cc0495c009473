//! Thousands of whole ensembles with clients, each with its own misfortunes.
//!
//! `SIM_ENSEMBLE_SEEDS=<count>` sets how many there are, from `SIM_ENSEMBLE_FROM` on. One is replayed by
//! `cargo run -p ringkeeper-sim -- seed <seed> --trace`.

mod support;

use ringkeeper_sim::ensemble::{Planted, run};
use support::{assert_all_caught, assert_none_caught};

#[test]
fn ensembles_keep_their_promises_whatever_fails() {
    assert_none_caught("SIM_ENSEMBLE", 1600, "--trace", |seed| run(seed, Planted::Nothing));
}

#[test]
fn a_seed_decides_the_whole_run() {
    for seed in [2, 7, 31] {
        assert_eq!(run(seed, Planted::Nothing), run(seed, Planted::Nothing), "seed {seed}");
    }
}

/// Rare faults, and seeds that show them.
const CAUGHT_AT: [(&str, u64); 30] = [
    ("ResumeBehindGap", 12767),
    ("UpgradeEndedSessions", 4791),
    ("UnevenClocks", 2988),
    ("RefuseSmallerIds", 2833),
    ("TakeOverMovedSessions", 2266),
    ("AbandonAnyEpoch", 2201),
    ("CompareWithoutEpoch", 2129),
    ("NotifyAtOnce", 1424),
    ("WholeLease", 1295),
    ("LeaseOutlastsPause", 1084),
    ("OldCopyVotes", 1001),
    ("DamagedServerVotes", 496),
    ("IgnoreLevel", 465),
    ("OtherVotersUnchecked", 319),
    ("OtherMemberUnchecked", 281),
    ("PauseWithoutObservers", 275),
    ("TakeOverLate", 252),
    ("ElectDuringLease", 134),
    ("ReadInsideGroup", 121),
    ("EvictNobody", 108),
    ("HandOverEarly", 104),
    ("RepairFromNothing", 98),
    ("TakeDamageForTear", 66),
    ("RestoreAtOnce", 65),
    ("PurgeEverything", 65),
    ("FullDiskSucceeds", 64),
    ("NotifyPastLongReads", 60),
    ("NewKindAlone", 56),
    ("SyncAlone", 53),
    ("ConfirmWithoutQuorum", 53),
];

#[test]
fn every_planted_fault_is_caught() {
    // The rarest, such as a leader that confirms itself without a quorum, shows in one of some thousand
    // seeds.
    assert_all_caught(Planted::all(), &CAUGHT_AT, 12_000, run);
}
