//! Bytes that no client, peer or snapshot of ours would send, tried on random ones and on damaged requests.
//! The fuzz targets in `fuzz/` run the same checks for longer.

use proptest::collection::vec;
use proptest::prelude::*;
use ringkeeper_wire::frame::put_frame;
use ringkeeper_wire::{OpCode, Record, RequestHeader, Xid};

#[path = "../fuzz/checks.rs"]
mod checks;

/// Frames of known requests with bodies of any bytes.
fn requests() -> impl Strategy<Value = Vec<u8>> {
    let request = (0..OpCode::ALL.len(), vec(any::<u8>(), 0..64));
    vec(request, 0..8).prop_map(|requests| {
        let mut frames = Vec::new();
        for (number, (op, body)) in (1..).zip(requests) {
            put_frame(&mut frames, |out| {
                RequestHeader { xid: Xid(number), op: OpCode::ALL[op].to_wire() }.encode(out);
                out.extend(body);
            });
        }
        frames
    })
}

proptest! {
    #[test]
    fn random_bytes_are_refused_and_stop_nobody(bytes in vec(any::<u8>(), 0..512)) {
        checks::peers(&bytes);
        checks::batches(&bytes);
        checks::damaged_batches(&bytes);
        checks::replicas(&bytes);
        checks::snapshots(&bytes);
        checks::clients(&bytes);
        checks::logins(&bytes);
    }

    #[test]
    fn nobody_logs_in_without_a_proof(
        mut login in prop::sample::select(checks::unproved_logins()),
        places: Vec<prop::sample::Index>,
        byte: u8,
    ) {
        checks::logins(&login);
        for place in places.iter().take(3) {
            let place = place.index(login.len());
            login[place] = byte;
        }
        checks::logins(&login);
    }

    #[test]
    fn a_batch_in_which_few_bytes_are_others_is_refused_or_can_be_taken(damage in vec(any::<u8>(), 3..12)) {
        checks::damaged_batches(&damage);
    }

    #[test]
    fn requests_with_bodies_of_any_bytes_are_answered_or_end_their_connection(frames in requests()) {
        checks::clients(&frames);
    }

    #[test]
    fn frames_of_peers_of_any_kind_are_refused_or_survive_a_round_trip(
        kind in 0..20_u8,
        body in vec(any::<u8>(), 0..128),
    ) {
        checks::peers(&[&[kind][..], &body].concat());
    }
}
