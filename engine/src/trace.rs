//! Traces: which requests are sampled, and by which ids they are told of. Both follow from what every server
//! knows of a request, so the servers agree without a word about it
//! (docs/decisions/0044-traces-without-context.md).

use ringkeeper_wire::{ServerId, SessionId, Xid, Zxid};
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

use crate::batches::BatchTimes;
use crate::slow::{StageTime, stages_of_proposal};

/// The id of a request's trace: XXH3 of 20 bytes, session, xid and zxid as on the wire; a request without a
/// transaction has zxid 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceId(u128);

/// The id of a part of a trace, which is none other's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanId(u64);

impl TraceId {
    /// The trace of a request.
    #[must_use]
    pub fn of(session: SessionId, xid: Xid, zxid: Option<Zxid>) -> Self {
        let mut bytes = [0; 20];
        bytes[..8].copy_from_slice(&session.0.to_be_bytes());
        bytes[8..12].copy_from_slice(&xid.0.to_be_bytes());
        bytes[12..].copy_from_slice(&zxid.unwrap_or(Zxid::ZERO).0.to_be_bytes());
        // 0 is no id.
        Self(xxh3_128(&bytes).max(1))
    }

    /// Whether its request is one of those of which every `one_in`-th is traced; 0: none is.
    #[must_use]
    pub const fn is_sampled(self, one_in: u32) -> bool {
        match (u64::MAX).checked_div(one_in as u64) {
            Some(share) => self.upper() <= share,
            None => false,
        }
    }

    /// The span of the whole request, whose parts are below it.
    #[must_use]
    pub fn request(self) -> SpanId {
        self.span(ServerId(0), 0)
    }

    /// The span number `place` of a server's part, from 1 on.
    #[must_use]
    pub fn span(self, server: ServerId, place: u64) -> SpanId {
        let words = [self.upper(), server.0, place].map(u64::to_be_bytes);
        SpanId(xxh3_64(words.as_flattened()).max(1))
    }

    /// As in the W3C's Trace Context.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }

    const fn upper(self) -> u64 {
        (self.0 >> 64) as u64
    }
}

impl SpanId {
    /// As in the W3C's Trace Context.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 8] {
        self.0.to_be_bytes()
    }
}

/// A sampled write of another server's client, which this server as the leader has proposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// Who asked.
    pub session: SessionId,
    /// The client's number of it.
    pub xid: Xid,
    /// Of its transaction.
    pub zxid: Zxid,
    /// When it was published, microseconds on the server's clock.
    pub published_us: u64,
}

/// The leader's part of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProposalTimes {
    /// The write.
    pub proposal: Proposal,
    /// The stages that took time, in order.
    pub stages: Vec<StageTime>,
    /// When its batch was proposed, and when each peer's acknowledgement came; microseconds.
    pub proposed_us: u64,
    /// Peers, in the order of their acknowledgements.
    pub acks: Vec<(ServerId, u64)>,
}

impl ProposalTimes {
    /// By the times of its batch, and by acknowledgements.
    #[must_use]
    pub fn new(proposal: Proposal, batch: &BatchTimes, acks: Vec<(ServerId, u64)>) -> Self {
        let stages = stages_of_proposal(batch, proposal.published_us);
        Self { proposal, stages, proposed_us: batch.appended_us, acks }
    }

    /// The id of its trace.
    #[must_use]
    pub fn trace(&self) -> TraceId {
        TraceId::of(self.proposal.session, self.proposal.xid, Some(self.proposal.zxid))
    }
}

#[cfg(test)]
mod tests {
    use ringkeeper_wire::Epoch;

    use super::*;

    #[test]
    fn ids_follow_from_the_request_alone() {
        let of = |session, xid, zxid| TraceId::of(SessionId(session), Xid(xid), zxid);
        let zxid = Some(Zxid::new(Epoch(1), 7));
        let id = of(0x1000_0000_0000_0001, 3, zxid);
        assert_eq!(id, of(0x1000_0000_0000_0001, 3, zxid));
        for other in [of(2, 3, zxid), of(0x1000_0000_0000_0001, 4, zxid), of(0x1000_0000_0000_0001, 3, None)]
        {
            assert_ne!(id, other);
        }
        let spans = [id.request(), id.span(ServerId(1), 1), id.span(ServerId(1), 2), id.span(ServerId(2), 1)];
        assert!((1..4).all(|end| !spans[..end].contains(&spans[end])), "{spans:?}");
        // Whoever computes it elsewhere gets the same.
        assert_eq!(
            format!("{:032x}", u128::from_be_bytes(id.to_bytes())),
            "3ed906682cf81ff998a62ddc42ae5741"
        );
    }

    #[test]
    fn one_in_so_many_is_sampled() {
        let sampled = |one_in| {
            let of = |xid| TraceId::of(SessionId(7), Xid(xid), None).is_sampled(one_in);
            (0..10_000).filter(|xid| of(*xid)).count()
        };
        assert_eq!((sampled(0), sampled(1)), (0, 10_000));
        assert!((900..1100).contains(&sampled(10)), "{}", sampled(10));
        assert!((70..130).contains(&sampled(100)), "{}", sampled(100));
        // What one server samples, another one that samples more does, too.
        let both = |xid| {
            let id = TraceId::of(SessionId(7), Xid(xid), None);
            !id.is_sampled(100) || id.is_sampled(10)
        };
        assert!((0..10_000).all(both));
    }
}
