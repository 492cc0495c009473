//! The check that every reply goes through, whatever it answers.

use ringkeeper_wire::{ErrorCode, Record, ReplyHeader, Xid};

use crate::fault::Fault;

/// The header of a reply and its body, which may be empty.
pub(crate) fn split(payload: &[u8]) -> Result<(ReplyHeader, &[u8]), Fault> {
    let header = ReplyHeader::from_bytes(payload)?;
    Ok((header, &payload[ReplyHeader::LEN..]))
}

/// The body of the successful reply to `xid`.
pub(crate) fn body_of(payload: &[u8], xid: i32) -> Result<&[u8], Fault> {
    let (header, body) = split(payload)?;
    check(&header, xid)?;
    Ok(body)
}

/// Whether the header is that of the successful reply to `xid`.
pub(crate) fn check(header: &ReplyHeader, xid: i32) -> Result<(), Fault> {
    if header.xid != Xid(xid) {
        return Err(Fault::OutOfOrder { expected: xid, found: header.xid.0 });
    }
    if header.err != ErrorCode::Ok.to_wire() {
        return Err(Fault::Refused { xid, err: header.err });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(xid: i32, err: i32) -> Vec<u8> {
        let mut payload = Vec::new();
        ReplyHeader { xid: Xid(xid), zxid: 9, err }.encode(&mut payload);
        payload.extend_from_slice(b"body");
        payload
    }

    #[test]
    fn the_body_follows_the_header() {
        assert_eq!(body_of(&reply(3, 0), 3).unwrap(), b"body");
    }

    #[test]
    fn another_xid_is_out_of_order() {
        assert!(matches!(body_of(&reply(4, 0), 3), Err(Fault::OutOfOrder { expected: 3, found: 4 })));
    }

    #[test]
    fn an_error_code_is_a_fault_that_names_it() {
        let fault = body_of(&reply(3, -101), 3).unwrap_err();
        assert_eq!(fault.to_string(), "xid 3 was refused: NoNode (-101)");
    }

    #[test]
    fn a_header_cut_short_is_a_fault() {
        assert!(matches!(body_of(&reply(3, 0)[..15], 3), Err(Fault::Record(_))));
    }
}
