//! The requests that the harness sends, as complete frames. Paths and ACLs are simple on purpose: open
//! ACL, any version, no watch unless one is wanted.

use ringkeeper_testkit::{self as testkit, OPEN_ACL, append_request, connect_frame};
use ringkeeper_wire::frame::FRAME_HEADER_LEN;
use ringkeeper_wire::{
    CreateMode, CreateRequest, DeleteRequest, PathWatchRequest, Request, SetDataRequest, SyncRequest, Xid,
    xid,
};

/// Any version will do, for setData and delete.
const ANY_VERSION: i32 = -1;

/// Where the xid stands in a request's frame.
const XID_AT: usize = FRAME_HEADER_LEN;

fn append(out: &mut Vec<u8>, xid: i32, request: &Request<'_>) {
    append_request(out, Xid(xid), request);
}

/// Opens a new session.
pub(crate) fn connect(out: &mut Vec<u8>, timeout_ms: i32) {
    out.extend(connect_frame(&testkit::Session::default().connect_request(timeout_ms, 0)));
}

/// Ends the session.
pub(crate) fn close_session(out: &mut Vec<u8>, xid: i32) {
    append(out, xid, &Request::CloseSession);
}

/// Keeps the session alive.
pub(crate) fn ping(out: &mut Vec<u8>) {
    append(out, xid::PING.0, &Request::Ping);
}

/// Creates a persistent znode.
pub(crate) fn create(out: &mut Vec<u8>, xid: i32, path: &str, data: &[u8]) {
    create_as(CreateMode::Persistent, out, xid, path, data);
}

/// Creates a znode that goes when the session ends.
pub(crate) fn create_ephemeral(out: &mut Vec<u8>, xid: i32, path: &str, data: &[u8]) {
    create_as(CreateMode::Ephemeral, out, xid, path, data);
}

fn create_as(mode: CreateMode, out: &mut Vec<u8>, xid: i32, path: &str, data: &[u8]) {
    let create = CreateRequest {
        path: path.into(),
        data: Some(data),
        acl: Some(OPEN_ACL.as_slice().into()),
        flags: mode.to_wire(),
    };
    append(out, xid, &Request::Create(create));
}

/// Deletes a znode, whatever its version.
pub(crate) fn delete(out: &mut Vec<u8>, xid: i32, path: &str) {
    append(out, xid, &Request::Delete(DeleteRequest { path: path.into(), version: ANY_VERSION }));
}

/// Reads a znode, with a one-shot data watch if wanted.
pub(crate) fn get_data(out: &mut Vec<u8>, xid: i32, path: &str, watch: bool) {
    append(out, xid, &Request::GetData(PathWatchRequest { path: path.into(), watch }));
}

/// Asks whether a znode exists, leaving a one-shot watch for its creation, change or end.
pub(crate) fn watch_existence(out: &mut Vec<u8>, xid: i32, path: &str) {
    append(out, xid, &Request::Exists(PathWatchRequest { path: path.into(), watch: true }));
}

/// Lists the names of a znode's children.
pub(crate) fn get_children(out: &mut Vec<u8>, xid: i32, path: &str) {
    append(out, xid, &Request::GetChildren(PathWatchRequest { path: path.into(), watch: false }));
}

/// Has the server catch up with everything that was committed before.
pub(crate) fn sync(out: &mut Vec<u8>, xid: i32, path: &str) {
    append(out, xid, &Request::Sync(SyncRequest { path: Some(path.into()) }));
}

/// Replaces a znode's data, whatever its version.
pub(crate) fn set_data(out: &mut Vec<u8>, xid: i32, path: &str, data: &[u8]) {
    let set_data = SetDataRequest { path: path.into(), data: Some(data), version: ANY_VERSION };
    append(out, xid, &Request::SetData(set_data));
}

/// A request that is sent many times: encoded once, copied and given its xid each time.
pub(crate) struct Template(Vec<u8>);

impl Template {
    /// The request that `encode` appends.
    pub(crate) fn new(encode: impl FnOnce(&mut Vec<u8>)) -> Self {
        let mut frame = Vec::new();
        encode(&mut frame);
        Self(frame)
    }

    /// Appends the request under `xid`.
    pub(crate) fn append(&self, out: &mut Vec<u8>, xid: i32) {
        let xid_at = out.len() + XID_AT;
        out.extend_from_slice(&self.0);
        out[xid_at..xid_at + size_of::<i32>()].copy_from_slice(&xid.to_be_bytes());
    }

    /// The part of a [`set_data`] request that is the payload, `len` bytes long.
    pub(crate) fn payload_mut(&mut self, len: usize) -> &mut [u8] {
        let end = self.0.len() - size_of_val(&ANY_VERSION);
        &mut self.0[end - len..end]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_under_an_xid_is_the_request_with_that_xid() {
        let (mut direct, mut copied) = (b"before".to_vec(), b"before".to_vec());
        get_data(&mut direct, 77, "/a", false);
        Template::new(|out| get_data(out, 0, "/a", false)).append(&mut copied, 77);
        assert_eq!(direct, copied);
    }

    #[test]
    fn the_payload_of_a_template_can_be_replaced() {
        let (mut direct, mut copied) = (Vec::new(), Vec::new());
        set_data(&mut direct, 5, "/a", b"new");
        let mut template = Template::new(|out| set_data(out, 0, "/a", b"old"));
        template.payload_mut(3).copy_from_slice(b"new");
        template.append(&mut copied, 5);
        assert_eq!(direct, copied);
    }
}
