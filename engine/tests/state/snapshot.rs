//! A state that was written as blocks and read back is the same state, and stays so.

use std::sync::Arc;

use ringkeeper_engine::snapshot::{DecodeError, Decoder, Encoder};
use ringkeeper_engine::state::State;
use ringkeeper_engine::txn::Txn;
use rkyv::util::AlignedVec;

use crate::fixture::*;
use crate::replay::busy_server;

/// Blocks of which most hold one thing, a few things, everything.
const BLOCK_BYTES: [usize; 3] = [1, 500, 256 * 1024];

fn blocks(state: &State, block_bytes: usize) -> Vec<AlignedVec> {
    let mut encoder = Encoder::with_block_bytes(Arc::new(state.clone()), block_bytes);
    let contents = encoder.contents();
    assert_eq!((contents.znodes, contents.digest), (state.tree().len() as u64, state.digest()));
    let mut blocks = Vec::new();
    let mut block = AlignedVec::new();
    while encoder.next(&mut block) {
        blocks.push(std::mem::take(&mut block));
    }
    blocks
}

fn decoded<'a>(blocks: impl IntoIterator<Item = &'a AlignedVec>) -> Result<State, DecodeError> {
    let mut decoder = Decoder::new();
    blocks.into_iter().try_for_each(|block| decoder.block(block))?;
    decoder.finish()
}

/// Writes and reads the state back at several places of its log, and applies the rest to both.
pub(crate) fn assert_survives_snapshots(log: &[Txn], end: &State) {
    for (part, block_bytes) in (0..).zip(BLOCK_BYTES) {
        let (before, after) = log.split_at(log.len() * part / (BLOCK_BYTES.len() - 1));
        let mut original = State::new(part as u64);
        for txn in before {
            original.apply(txn);
        }
        let mut copy = decoded(&blocks(&original, block_bytes)).expect("just written");
        assert_same(&copy, &original);
        for txn in after {
            assert_eq!(copy.apply(txn), original.apply(txn));
        }
        assert_same(&copy, end);
    }
}

#[test]
fn a_state_of_everything_comes_back_from_blocks_of_any_size() {
    let server = busy_server();
    assert_survives_snapshots(&server.log, &server.state);
    assert!(blocks(&server.state, 1).len() > server.state.tree().len());
    // The beginning, the lists, the sessions, the znodes.
    assert_eq!(blocks(&server.state, 256 * 1024).len(), 4);
}

#[test]
fn a_state_is_let_go_before_its_znodes_are_written() {
    let state = Arc::new(busy_server().state);
    let mut encoder = Encoder::with_block_bytes(Arc::clone(&state), 256 * 1024);
    let mut block = AlignedVec::new();
    // The beginning, the lists, the sessions.
    for _ in 0..3 {
        assert_eq!(Arc::strong_count(&state), 2);
        assert!(encoder.next(&mut block));
    }
    assert_eq!(Arc::strong_count(&state), 1);
    assert!(encoder.next(&mut block), "the znodes");
    assert!(!encoder.next(&mut block));
}

#[test]
fn a_znode_longer_than_a_block_makes_one_alone() {
    let mut server = busy_server();
    server.ask(&set_data("/a/b", &vec![7; 600_000], -1));
    let state = &server.state;
    assert_same(&decoded(&blocks(state, 256 * 1024)).expect("just written"), state);
}

#[test]
fn blocks_that_are_missing_or_come_twice_are_noticed() {
    let blocks = blocks(&busy_server().state, 200);
    for missing in 0..blocks.len() {
        let rest = blocks.iter().enumerate().filter(|(at, _)| *at != missing).map(|(_, block)| block);
        assert!(decoded(rest).is_err(), "without block {missing}");
        let twice = blocks.iter().take(missing + 1).chain(&blocks[missing..]);
        assert!(decoded(twice).is_err(), "block {missing} twice");
    }
    assert!(decoded(&blocks).is_ok());
}

#[test]
fn bytes_that_are_no_block_are_refused() {
    let mut garbage = AlignedVec::<16>::new();
    garbage.resize(64, 0xee);
    assert!(matches!(Decoder::new().block(&garbage), Err(DecodeError::Malformed(_))));
    assert!(matches!(Decoder::new().block(&[]), Err(DecodeError::Malformed(_))));
}

#[test]
fn no_flipped_bit_of_a_block_makes_the_decoder_panic() {
    // The checksum that finds it is the file's.
    let sound = blocks(&busy_server().state, 256 * 1024);
    for (number, block) in sound.iter().enumerate() {
        for bit in 0..block.len() * 8 {
            let mut blocks = sound.clone();
            blocks[number][bit / 8] ^= 1 << (bit % 8);
            let _ = decoded(&blocks);
        }
    }
}
