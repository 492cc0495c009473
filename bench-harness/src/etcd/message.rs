//! The messages of etcd's API that the harness sends and reads (etcd's `rpc.proto` and `kv.proto`, package
//! `etcdserverpb` and `mvccpb`); fields that it has no use for are left out, as protocol buffers allow.

use prost::Message;

/// Stands in front of every answer.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Header {
    #[prost(uint64, tag = "2")]
    pub(super) member_id: u64,
    #[prost(int64, tag = "3")]
    pub(super) revision: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PutRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) key: prost::bytes::Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub(super) value: prost::bytes::Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PutResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<Header>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RangeRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) key: prost::bytes::Bytes,
    /// The member that is asked answers from what it has, as servers of ZooKeeper do.
    #[prost(bool, tag = "7")]
    pub(super) serializable: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct KeyValue {
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) key: prost::bytes::Bytes,
    #[prost(bytes = "bytes", tag = "5")]
    pub(super) value: prost::bytes::Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RangeResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<Header>,
    #[prost(message, repeated, tag = "2")]
    pub(super) kvs: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct DeleteRangeRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) key: prost::bytes::Bytes,
    /// The first key that stays; empty: `key` alone goes.
    #[prost(bytes = "bytes", tag = "2")]
    pub(super) range_end: prost::bytes::Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct DeleteRangeResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<Header>,
    #[prost(int64, tag = "2")]
    pub(super) deleted: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct StatusRequest {}

#[derive(Clone, PartialEq, Message)]
pub(super) struct StatusResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<Header>,
    /// Member id; 0 while there is none.
    #[prost(uint64, tag = "4")]
    pub(super) leader: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_put_has_the_bytes_that_the_protocol_says() {
        let put = PutRequest { key: "k".into(), value: "vv".into() };
        assert_eq!(put.encode_to_vec(), b"\x0a\x01k\x12\x02vv");
        let range = RangeRequest { key: "k".into(), serializable: true };
        assert_eq!(range.encode_to_vec(), b"\x0a\x01k\x38\x01");
    }
}
