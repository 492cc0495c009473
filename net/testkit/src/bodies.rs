//! Bodies of requests, as the servers under test take them: valid unless the arguments are not.

use ringkeeper_wire::{
    AuthRequest, CreateRequest, DeleteRequest, MultiHeader, OpCode, PathWatchRequest, Record, Request,
    SaslRequest, SetDataRequest, end_multi, jute,
};

use crate::connection::OPEN_ACL;

fn body(request: &Request<'_>) -> Vec<u8> {
    let mut body = Vec::new();
    request.encode(&mut body);
    body
}

pub(crate) fn create_request<'r>(path: &'r str, data: &'r [u8], flags: i32) -> Request<'r> {
    let acl = Some(OPEN_ACL.as_slice().into());
    Request::Create(CreateRequest { path: path.into(), data: Some(data), acl, flags })
}

pub(crate) fn delete_request(path: &str) -> Request<'_> {
    Request::Delete(DeleteRequest { path: path.into(), version: -1 })
}

/// The body of a create with the list of permissions that lets everybody do everything.
#[must_use]
pub fn create_body(path: &str, data: &[u8], flags: i32) -> Vec<u8> {
    body(&create_request(path, data, flags))
}

/// The body of a setData of any version.
#[must_use]
pub fn set_data_body(path: &str, data: &[u8]) -> Vec<u8> {
    body(&Request::SetData(SetDataRequest { path: path.into(), data: Some(data), version: -1 }))
}

/// The body of a delete, or of a check, of any version.
#[must_use]
pub fn delete_body(path: &str) -> Vec<u8> {
    body(&delete_request(path))
}

/// The body of a read without a watch.
#[must_use]
pub fn path_watch_body(path: &str) -> Vec<u8> {
    body(&Request::GetData(PathWatchRequest { path: path.into(), watch: false }))
}

/// The body of a read that leaves a watch.
#[must_use]
pub fn watched_body(path: &str) -> Vec<u8> {
    body(&Request::GetData(PathWatchRequest { path: path.into(), watch: true }))
}

/// The body of a request that names a path and nothing else: sync, getACL, getEphemerals.
#[must_use]
pub fn path_body(path: &str) -> Vec<u8> {
    let mut body = Vec::new();
    jute::put_ustring(&mut body, path);
    body
}

/// The body of an addWatch, a checkWatches or a removeWatches; `mode` is ZooKeeper's number of the mode or of
/// the watcher's type.
#[must_use]
pub fn watch_mode_body(path: &str, mode: i32) -> Vec<u8> {
    let mut body = path_body(path);
    jute::put_i32(&mut body, mode);
    body
}

/// The body of a setWatches with watches on znodes that do not exist.
#[must_use]
pub fn exist_watches_body(paths: &[String]) -> Vec<u8> {
    let mut body = Vec::new();
    jute::put_i64(&mut body, 0);
    jute::put_len(&mut body, 0);
    jute::put_ustrings(&mut body, paths.iter().map(String::as_str));
    jute::put_len(&mut body, 0);
    body
}

/// The body of an auth.
pub(crate) fn auth_body(scheme: &str, credentials: &[u8]) -> Vec<u8> {
    body(&Request::Auth(AuthRequest { auth_type: 0, scheme: Some(scheme.into()), auth: Some(credentials) }))
}

/// The body of a sasl.
pub(crate) fn sasl_body(token: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    SaslRequest { token: Some(token) }.encode(&mut body);
    body
}

/// A list of permissions: for each entry the permissions, the scheme and the id.
#[must_use]
pub fn acl(entries: &[(i32, &str, String)]) -> Vec<u8> {
    let mut list = Vec::new();
    jute::put_len(&mut list, entries.len());
    for (permissions, scheme, id) in entries {
        jute::put_i32(&mut list, *permissions);
        jute::put_ustring(&mut list, scheme);
        jute::put_ustring(&mut list, id);
    }
    list
}

/// The body of a multi or multiRead of these operations, each with its own body.
#[must_use]
pub fn multi_body(operations: impl IntoIterator<Item = (OpCode, Vec<u8>)>) -> Vec<u8> {
    let mut body = Vec::new();
    for (op, operation) in operations {
        MultiHeader { op: op.to_wire(), done: false, err: -1 }.encode(&mut body);
        body.extend(operation);
    }
    end_multi(&mut body);
    body
}
