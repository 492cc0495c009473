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
const CAUGHT_AT: [(&str, u64); 33] = [
    ("UnevenClocks", 6723),
    ("AbandonAnyEpoch", 3691),
    ("WholeLease", 2853),
    ("ResumeBehindGap", 2482),
    ("CompareWithoutEpoch", 2129),
    ("ForgetLease", 1615),
    ("NotifyAtOnce", 1424),
    ("OldCopyVotes", 1210),
    ("RefuseSmallerIds", 859),
    ("ConfirmWithoutQuorum", 587),
    ("LeaseOutlastsPause", 456),
    ("EvictNobody", 321),
    ("IgnoreLevel", 315),
    ("DamagedServerVotes", 295),
    ("TakeOverMovedSessions", 282),
    ("TakeOverLate", 252),
    ("OtherMemberUnchecked", 248),
    ("DeliverUncommitted", 243),
    ("ReadInsideGroup", 233),
    ("UpgradeEndedSessions", 197),
    ("PurgeEverything", 165),
    ("IgnoreOwner", 148),
    ("TakeDamageForTear", 148),
    ("AloneUnchecked", 117),
    ("OtherVotersUnchecked", 117),
    ("RepairFromNothing", 98),
    ("HandOverEarly", 86),
    ("PauseWithoutObservers", 86),
    ("SyncAlone", 65),
    ("RestoreAtOnce", 65),
    ("KeepEphemerals", 49),
    ("NewKindAlone", 43),
    ("ElectDuringLease", 40),
];

#[test]
fn every_planted_fault_is_caught() {
    // The rarest, such as a leader that confirms itself without a quorum, shows in one of some thousand
    // seeds.
    assert_all_caught(Planted::shown_by_plain_clients(), &CAUGHT_AT, 12_000, run);
}
