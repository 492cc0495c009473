//! What the core decides, with the broadcast of one server below it.

use ringkeeper_engine::zab::{Config, Durable, ServerSet};

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

fn core() -> Core<Diary> {
    let own = ServerId(1);
    let config = Config::new(own, [own].into_iter().collect(), ServerSet::EMPTY);
    let zab = Zab::new(config, Durable::default(), 1);
    Core::new(7, zab, Diary::default(), Recovered::default())
}

/// Does what a disk does, at once, until nothing is left; collects the rest.
fn run(core: &mut Core<Diary>) -> Vec<Output> {
    let mut rest = Vec::new();
    loop {
        let outputs = core.take_outputs();
        if outputs.is_empty() && !core.deliver(usize::MAX) {
            let last = core.take_outputs();
            if last.is_empty() {
                return rest;
            }
            rest.extend(last);
            continue;
        }
        for output in outputs {
            match output {
                Output::Zab(Effect::Append(batch)) => core.input(0, Input::Durable { upto: batch.last() }),
                Output::Zab(Effect::PersistEpochs(_)) => core.input(0, Input::EpochsDurable),
                output => rest.push(output),
            }
        }
    }
}

fn answers(outputs: &[Output]) -> Vec<(u64, Answer)> {
    let answer = |output: &Output| match output {
        Output::Answer { number, answer } => Some((*number, *answer)),
        _ => None,
    };
    outputs.iter().filter_map(answer).collect()
}

#[test]
fn proposals_are_batched_delivered_and_answered_in_order() {
    let mut core = core();
    core.input(0, Input::Start);
    run(&mut core);
    for number in 1..=3 {
        core.propose(number, format!("p{number}").as_bytes());
    }
    core.sync(0, 4);
    core.seal(0);
    let outputs = core.take_outputs();
    let batches = outputs.iter().filter(|output| matches!(output, Output::Zab(Effect::Append(_)))).count();
    assert_eq!(batches, 1, "what came in together is one batch");
    core.outputs = outputs;
    let answers = answers(&run(&mut core));
    let zxid = |counter| Zxid(1 << 32 | counter);
    let expected: Vec<_> = (1..=3).map(|n| (n, Answer::Delivered(zxid(n)))).collect();
    assert!(expected.iter().all(|expected| answers.contains(expected)), "{answers:?}");
    assert_eq!(core.delivered(), zxid(3));
    assert_eq!(core.machine.0.iter().filter(|said| said.starts_with("0x")).count(), 3);
}

#[test]
fn without_a_leader_nothing_is_taken() {
    let mut core = core();
    core.propose(1, b"early");
    core.sync(0, 2);
    assert_eq!(answers(&run(&mut core)), [(1, Answer::NoLeader), (2, Answer::NoLeader)]);
}

#[test]
fn a_snapshot_names_the_zxid_at_which_the_state_was_asked_for() {
    let mut core = core();
    core.input(0, Input::Start);
    run(&mut core);
    assert_eq!(core.hold(), None, "there is nothing to be taken");
    for number in 1..=3 {
        core.propose(number, b"p");
        core.seal(0);
        let outputs = core.take_outputs();
        let held = core.hold().map(|(_, last)| last.zxid);
        assert_eq!(held, (number > 1).then_some(Zxid(1 << 32 | (number - 1))), "the last one is not durable");
        core.outputs = outputs;
        run(&mut core);
        let (state, last) = core.hold().expect("delivered, and durable");
        assert_eq!(last.zxid, core.delivered());
        assert!(String::from_utf8_lossy(&state).ends_with(&format!("{} p", last.zxid)));
    }
}

/// The machine has the old state until it is told of the new one, and the log is after the new one.
#[test]
fn no_snapshot_is_taken_while_the_machine_is_to_hear_of_one_that_was_received() {
    let mut core = core();
    core.input(0, Input::Start);
    run(&mut core);
    core.propose(1, b"p");
    core.seal(0);
    run(&mut core);
    assert!(core.hold().is_some());
    let last = core.delivered;
    core.upcalls.push_back(Upcall::Install { last, state: b"received".to_vec() });
    assert_eq!(core.hold(), None);
    run(&mut core);
    assert_eq!(core.hold(), Some((b"received".to_vec(), last)));
}

#[test]
fn what_is_no_batch_of_this_library_stops_the_server() {
    let mut core = core();
    let zxid = Zxid(1 << 32 | 1);
    core.on_append(Batch::of(zxid, zxid, frame::Checksum::NONE, b"of something else"));
    let outputs = core.take_outputs();
    assert!(
        matches!(&outputs[..], [Output::Broken(reason)] if reason.contains("not a batch of this library"))
    );
}

/// A leader that had lost its office went on sending snapshots: the effect that says so was dropped here.
#[test]
fn the_shell_hears_that_leadership_is_lost_and_of_every_piece_with_its_sender() {
    let mut core = core();
    let from = ServerId(2);
    for effect in
        [Effect::Reset, Effect::SnapshotChunk { from, bytes: vec![7; 3].into() }, Effect::AbortSnapshot]
    {
        core.on_effect(0, effect.clone());
        let outputs = core.take_outputs();
        assert!(matches!(&outputs[..], [Output::Zab(passed)] if *passed == effect), "{outputs:?}");
    }
}

/// It proposed everything that waited, however far its own log was behind: all of it waited in memory.
#[test]
fn a_leader_proposes_no_more_than_eight_full_batches_ahead_of_its_own_log() {
    let mut core = core();
    core.input(0, Input::Start);
    run(&mut core);
    (1..=20).for_each(|number| core.propose(number, &[7; BATCH_BYTES_MAX - 100]));
    let appended = |outputs: &[Output]| -> Vec<Batch> {
        let batch = |output: &Output| match output {
            Output::Zab(Effect::Append(batch)) => Some(batch.clone()),
            _ => None,
        };
        outputs.iter().filter_map(batch).collect()
    };
    core.seal(0);
    let first = appended(&core.take_outputs());
    let bytes: usize = first.iter().map(|batch| batch.bytes().len()).sum();
    assert!((UNFORCED_BYTES_MAX..UNFORCED_BYTES_MAX + BATCH_BYTES_MAX).contains(&bytes), "{bytes}");
    core.seal(0);
    assert!(appended(&core.take_outputs()).is_empty(), "the log has taken nothing yet");
    for batch in &first {
        core.input(0, Input::Durable { upto: batch.last() });
    }
    core.seal(0);
    assert_eq!(appended(&core.take_outputs()).len(), first.len(), "the log has caught up");
}
