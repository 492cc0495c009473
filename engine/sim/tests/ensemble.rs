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
    ("OldCopyVotes", 5919),
    ("UpgradeEndedSessions", 5739),
    ("UnevenClocks", 5027),
    ("TakeOverMovedSessions", 3786),
    ("WholeLease", 2853),
    ("AbandonAnyEpoch", 2411),
    ("CompareWithoutEpoch", 2129),
    ("NotifyAtOnce", 1424),
    ("IgnoreLevel", 1335),
    ("ForgetLease", 535),
    ("EvictNobody", 504),
    ("ConfirmWithoutQuorum", 484),
    ("DamagedServerVotes", 467),
    ("ResumeBehindGap", 443),
    ("DeliverUncommitted", 316),
    ("OtherMemberUnchecked", 281),
    ("PauseWithoutObservers", 275),
    ("TakeOverLate", 252),
    ("ReadInsideGroup", 217),
    ("NewKindAlone", 215),
    ("OtherVotersUnchecked", 178),
    ("AloneUnchecked", 117),
    ("RepairFromNothing", 98),
    ("HandOverEarly", 88),
    ("RefuseSmallerIds", 81),
    ("RestoreAtOnce", 65),
    ("FullDiskSucceeds", 64),
    ("KeepEphemerals", 63),
    ("PurgeEverything", 51),
    ("ScrubBlind", 18),
];

#[test]
fn every_planted_fault_is_caught() {
    // The rarest, such as a leader that confirms itself without a quorum, shows in one of some thousand
    // seeds.
    assert_all_caught(Planted::all(), &CAUGHT_AT, 12_000, run);
}
