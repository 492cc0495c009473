use ringkeeper_frame::Checksum;
use ringkeeper_wire::{Epoch, ErrorCode, ReconfigRequest};

use super::*;
use crate::application::{Application, Effect};
use crate::limits::Refusal;
use crate::replica::ReplicaSettings;
use crate::state::State;
use crate::zab::Status;

const THREE: &str = "server.1=a:1:2\nserver.2=b:1:2\nserver.3=c:1:2:observer";

fn leader(ensemble: &str) -> Replica {
    let settings =
        ReplicaSettings { ensemble: ensemble.into(), ..ReplicaSettings::new(ServerId(1), [7; 32]) };
    let mut replica = Replica::new(settings, State::new(1));
    replica.settings.requests.reconfig_enabled = true;
    replica.lead(Now::default(), Epoch(1));
    commit(&mut replica);
    replica
}

fn commit(replica: &mut Replica) {
    while replica.next_batch(Zxid::ZERO, Checksum::NONE).is_some() {}
    replica.commit(Now::default(), replica.last_executed());
}

/// The level after a tick, as its znode says it.
fn ticked(replica: &mut Replica) -> Option<String> {
    replica.tick(Now::default());
    commit(replica);
    let znode = replica.committed().znode(path::FEATURE_LEVEL)?;
    assert_eq!(znode.stat().version, 0);
    Some(String::from_utf8(znode.data().expect("a text").to_vec()).expect("a text"))
}

/// What the links were told last: the level of the log, and the one that they require.
fn told(replica: &mut Replica) -> Option<(String, u8)> {
    let levels = replica.take_effects().filter_map(|effect| match effect {
        Effect::Output(Output::Level { level, required }) => Some((level.to_string(), required.0)),
        _ => None,
    });
    levels.last()
}

fn reconfigure(replica: &mut Replica, members: &'static str) -> Result<(), ErrorCode> {
    let ready = [1, 2, 3].map(ServerId).into_iter().collect();
    replica.up_to_date(ready);
    let request = ReconfigRequest {
        joining_servers: None,
        leaving_servers: None,
        new_members: Some(members.into()),
        cur_config_id: -1,
    };
    let changed = replica.reconfigure(Now::default(), &request);
    commit(replica);
    changed
}

#[test]
fn the_level_rises_as_far_as_all_members_can_once_all_are_connected() {
    let mut leader = leader(THREE);
    leader.peer_speaks(ServerId(2), 10);
    assert_eq!(ticked(&mut leader), None, "the observer is away");
    leader.peer_speaks(ServerId(3), 8);
    assert_eq!(ticked(&mut leader), None, "it can do nothing new");
    leader.peer_disconnected(ServerId(3));
    leader.peer_speaks(ServerId(3), 9);
    assert_eq!(ticked(&mut leader).as_deref(), Some("1"));
    assert_eq!(told(&mut leader), Some(("1".to_owned(), 1)));
    leader.peer_disconnected(ServerId(2));
    leader.peer_speaks(ServerId(3), 10);
    assert_eq!(ticked(&mut leader).as_deref(), Some("1"), "server 2 is away");
    // It is heard in another way from now on, on the same connection.
    leader.server_left(Now::default(), ServerId(3));
    leader.peer_speaks(ServerId(2), 11);
    assert_eq!(ticked(&mut leader).as_deref(), Some("2"));
}

#[test]
fn a_server_alone_has_no_level_and_one_that_is_its_whole_ensemble_has_the_newest() {
    assert_eq!(ticked(&mut leader("")), None);
    assert_eq!(ticked(&mut leader("server.1=a:1:2")).as_deref(), Some("2"));
}

#[test]
fn a_level_that_is_lowered_stays_until_it_may_be_raised() {
    let mut leader = leader("server.1=a:1:2");
    assert_eq!(ticked(&mut leader).as_deref(), Some("2"));
    let now = Now::default();
    assert!(leader.change_level(now, LevelChange::Lower(Level(1))).expect("possible").is_some());
    assert_eq!(ticked(&mut leader).as_deref(), Some("1 held"));
    assert_eq!(told(&mut leader), Some(("1 held".to_owned(), 1)));
    let higher = leader.change_level(now, LevelChange::Lower(Level(2)));
    assert_eq!(higher, Err(NotLowered::IsLower { now: Level(1), wanted: Level(2) }));
    assert!(leader.change_level(now, LevelChange::Raise).expect("possible").is_some());
    assert_eq!(ticked(&mut leader).as_deref(), Some("2"));
    assert_eq!(leader.change_level(now, LevelChange::Raise), Ok(None), "it may be raised already");
}

#[test]
fn members_that_the_level_does_not_allow_are_refused_and_it_is_not_lowered_below_what_they_use() {
    let mut leader = leader(THREE);
    let grouped = "server.1=a:1:2,server.2=b:1:2,server.3=c:1:2,group.1=1:2:3";
    assert_eq!(reconfigure(&mut leader, grouped), Err(ErrorCode::BadArguments));
    for peer in [2, 3] {
        leader.peer_speaks(ServerId(peer), 9);
    }
    assert_eq!(ticked(&mut leader).as_deref(), Some("1"));
    assert_eq!(reconfigure(&mut leader, grouped), Ok(()));
    let lowered = leader.change_level(Now::default(), LevelChange::Lower(Level(0)));
    assert_eq!(lowered, Err(NotLowered::InUse { needed: Level(1), wanted: Level(0) }));
    assert_eq!(reconfigure(&mut leader, "server.1=a:1:2,server.2=b:1:2"), Ok(()));
    assert!(leader.change_level(Now::default(), LevelChange::Lower(Level(0))).expect("possible").is_some());
    assert_eq!(ticked(&mut leader).as_deref(), Some("0 held"));
}

#[test]
fn members_of_a_log_from_before_there_were_levels_keep_what_they_use() {
    let mut leader = leader("server.1=a:1:2\nserver.2=b:1:2\ngroup.1=1:2");
    assert_eq!(told(&mut leader), Some(("0".to_owned(), 1)), "the links refuse who does not know groups");
    assert_eq!(reconfigure(&mut leader, "server.1=a:1:2,server.2=b:1:2,group.1=1,group.2=2"), Ok(()));
    assert_eq!(leader.required_level(), Level(1));
}

#[test]
fn a_refusal_names_the_feature_and_both_levels() {
    let level = FeatureLevel { level: Level(1), held: true };
    let refusal = Refusal::Level { needed: Level(2), level }.to_string();
    let expected = "members with several addresses need feature level 2, and the ensemble has 1 held \
                    (ringkeeper admin feature-level)";
    assert_eq!(refusal, expected);
}

#[test]
fn a_server_ends_that_cannot_do_the_level_to_which_it_was_synchronized() {
    let mut leader = leader("server.1=a:1:2");
    assert_eq!(ticked(&mut leader).as_deref(), Some("2"));
    let settings = ReplicaSettings { newest_level: Level(1), ..ReplicaSettings::new(ServerId(2), [7; 32]) };
    let mut follower = Replica::new(settings, State::clone(leader.committed()));
    follower.status(Now::default(), Status::Following { leader: ServerId(1), epoch: Epoch(1) });
    let broken = follower.take_effects().find_map(|effect| match effect {
        Effect::Broken(reason) => Some(reason),
        _ => None,
    });
    let reason = broken.expect("it cannot go on");
    assert!(reason.contains("feature level 2") && reason.contains("up to 1"), "{reason}");
}
