//! What the replica decides, with the broadcast of one server below it.

use ringkeeper_engine::node::{self, Node};
use ringkeeper_engine::zab::{self, Config, Durable, Input, ServerSet};
use ringkeeper_host::snapshots::Image;
use ringkeeper_log::frame::AlignedBuf;

use super::*;
use crate::machine::StateError;

/// Remembers what it was told, as text.
#[derive(Default)]
struct Diary(Vec<String>);

impl StateMachine for Diary {
    fn deliver(&mut self, zxid: Zxid, proposal: &[u8]) {
        self.0.push(format!("{zxid} {}", String::from_utf8_lossy(proposal)));
    }

    fn deliver_sync(&mut self, zxid: Zxid) {
        self.0.push(format!("sync at {zxid}"));
    }

    fn status(&mut self, status: Status) {
        self.0.push(if status == Status::Looking { "looking" } else { "serving" }.to_owned());
    }

    fn get_state(&mut self) -> Vec<u8> {
        self.0.join("\n").into_bytes()
    }

    fn set_state(&mut self, _: Zxid, state: &[u8]) -> Result<(), StateError> {
        self.0 = vec![String::from_utf8(state.to_vec())?];
        Ok(())
    }
}

type Effects = Vec<node::Effect<Output>>;

const NOW: Now = Now { monotonic_ms: 0, wall_ms: 0 };

fn replica() -> Replica<Diary> {
    Replica::new(7, Diary::default(), MachineState::default()).expect("there is no snapshot")
}

/// A server alone.
fn node() -> Node<Replica<Diary>> {
    let own = ServerId(1);
    let config = Config::new(own, [own].into_iter().collect(), ServerSet::EMPTY);
    Node::new(replica(), config, Durable::default(), 1)
}

fn propose(node: &mut Node<Replica<Diary>>, number: u64, proposal: &[u8]) {
    node.request(NOW, |replica| replica.propose(number, proposal));
}

/// Does what a disk does, and delivers, until nothing is left; collects the outputs.
fn run(node: &mut Node<Replica<Diary>>) -> Vec<Output> {
    let effects = node.take_effects();
    run_on(node, effects)
}

fn run_on(node: &mut Node<Replica<Diary>>, mut effects: Effects) -> Vec<Output> {
    let mut outputs = Vec::new();
    loop {
        let delivered_all = !node.request(NOW, |replica| replica.deliver(usize::MAX));
        effects.extend(node.take_effects());
        if effects.is_empty() && delivered_all {
            return outputs;
        }
        for effect in std::mem::take(&mut effects) {
            match effect {
                node::Effect::Zab(zab::Effect::Append(batch)) => {
                    node.input(NOW, Input::Durable { upto: batch.last() });
                }
                node::Effect::Zab(zab::Effect::PersistEpochs(_)) => node.input(NOW, Input::EpochsDurable),
                node::Effect::Output(output) => outputs.push(output),
                _ => {}
            }
        }
    }
}

fn answers(outputs: &[Output]) -> Vec<(u64, Answer)> {
    let answer = |output: &Output| match output {
        Output::Answer { number, answer } => Some((*number, *answer)),
        Output::Status(_) => None,
    };
    outputs.iter().filter_map(answer).collect()
}

fn appended(effects: &Effects) -> Vec<Batch> {
    let batch = |effect: &node::Effect<Output>| match effect {
        node::Effect::Zab(zab::Effect::Append(batch)) => Some(batch.clone()),
        _ => None,
    };
    effects.iter().filter_map(batch).collect()
}

fn held(node: &mut Node<Replica<Diary>>) -> Option<(Vec<u8>, LogPosition)> {
    let (mut image, position) = node.hold().filter(|(_, at)| node.zab().is_settled(at.zxid))?;
    let (mut block, mut state) = (AlignedBuf::new(), Vec::new());
    while image.next(&mut block) {
        state.extend_from_slice(&block);
    }
    Some((state, position))
}

#[test]
fn proposals_are_batched_delivered_and_answered_in_order() {
    let mut node = node();
    node.input(NOW, Input::Start);
    run(&mut node);
    for number in 1..=3 {
        propose(&mut node, number, format!("p{number}").as_bytes());
    }
    node.request(NOW, |replica| replica.sync(4));
    node.propose(NOW);
    let effects = node.take_effects();
    assert_eq!(appended(&effects).len(), 1, "what came in together is one batch");
    let answers = answers(&run_on(&mut node, effects));
    let zxid = |counter| Zxid(1 << 32 | counter);
    let expected: Vec<_> = (1..=3).map(|n| (n, Answer::Delivered(zxid(n)))).collect();
    assert!(expected.iter().all(|expected| answers.contains(expected)), "{answers:?}");
    let replica = node.application();
    assert_eq!(replica.delivered(), zxid(3));
    assert_eq!(replica.machine.0.iter().filter(|said| said.starts_with("0x")).count(), 3);
}

#[test]
fn without_a_leader_nothing_is_taken() {
    let mut node = node();
    propose(&mut node, 1, b"early");
    node.request(NOW, |replica| replica.sync(2));
    assert_eq!(answers(&run(&mut node)), [(1, Answer::NoLeader), (2, Answer::NoLeader)]);
}

#[test]
fn a_snapshot_names_the_zxid_at_which_the_state_was_asked_for() {
    let mut node = node();
    node.input(NOW, Input::Start);
    run(&mut node);
    assert_eq!(held(&mut node), None, "there is nothing to be taken");
    for number in 1..=3 {
        propose(&mut node, number, b"p");
        node.propose(NOW);
        let effects = node.take_effects();
        let before = held(&mut node).map(|(_, last)| last.zxid);
        assert_eq!(
            before,
            (number > 1).then_some(Zxid(1 << 32 | (number - 1))),
            "the last one is not durable"
        );
        run_on(&mut node, effects);
        let (state, last) = held(&mut node).expect("delivered, and durable");
        assert_eq!(last.zxid, node.application().delivered());
        assert!(String::from_utf8_lossy(&state).ends_with(&format!("{} p", last.zxid)));
    }
}

/// The machine has the old state until it is told of the new one, and the log is after the new one.
#[test]
fn no_snapshot_is_taken_while_the_machine_is_to_hear_of_one_that_was_received() {
    let mut node = node();
    node.input(NOW, Input::Start);
    run(&mut node);
    propose(&mut node, 1, b"p");
    node.propose(NOW);
    run(&mut node);
    let (_, snapshot) = held(&mut node).expect("delivered, and durable");
    let received = MachineState { snapshot, bytes: Some(b"received".to_vec()), batches: Vec::new() };
    node.request(NOW, |replica| replica.restored(received));
    assert_eq!(held(&mut node), None);
    run(&mut node);
    assert_eq!(held(&mut node), Some((b"received".to_vec(), snapshot)));
}

#[test]
fn what_is_no_batch_of_this_library_stops_the_server() {
    let zxid = Zxid(1 << 32 | 1);
    let foreign = Batch::of(zxid, zxid, Checksum::NONE, b"of something else");
    let refused = replica().append(&foreign);
    assert!(refused.is_err_and(|reason| reason.contains("not a batch of this library")));
}

/// It proposed everything that waited, however far its own log was behind: all of it waited in memory.
#[test]
fn a_leader_proposes_no_more_than_eight_full_batches_ahead_of_its_own_log() {
    let mut node = node();
    node.input(NOW, Input::Start);
    run(&mut node);
    (1..=20).for_each(|number| propose(&mut node, number, &[7; BATCH_BYTES_MAX - 100]));
    let first = appended(&node.take_effects());
    let bytes: usize = first.iter().map(|batch| batch.bytes().len()).sum();
    let max = node.undurable_bytes_max();
    assert!((max..max + BATCH_BYTES_MAX).contains(&bytes), "{bytes}");
    let last = first.last().expect("full batches are proposed while the log is busy").last();
    node.input(NOW, Input::Durable { upto: last });
    assert_eq!(appended(&node.take_effects()).len(), first.len(), "the log has caught up");
}
