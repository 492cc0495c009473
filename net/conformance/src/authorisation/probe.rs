//! The requests of the table.

use anyhow::Result;
use ringkeeper_testkit::{
    acl, create_body, delete_body, multi_body, path_body, path_watch_body, set_data_body, watch_mode_body,
    watched_body,
};
use ringkeeper_wire::{CreateMode, OpCode, Response, jute};

use super::case::{ALL, Znodes};

/// A request that concerns a znode or its parent.
pub(super) struct Probe {
    pub(super) name: &'static str,
    pub(super) op: OpCode,
    pub(super) body: fn(&Znodes) -> Vec<u8>,
    /// Whether it may leave watches, whose events are part of the answer.
    pub(super) watches: bool,
}

const fn probe(name: &'static str, op: OpCode, body: fn(&Znodes) -> Vec<u8>) -> Probe {
    Probe { name, op, body, watches: false }
}

const fn watch(name: &'static str, op: OpCode, body: fn(&Znodes) -> Vec<u8>) -> Probe {
    Probe { name, op, body, watches: true }
}

/// All of them.
pub(super) const PROBES: &[Probe] = &[
    probe("create", OpCode::Create, |z| create(z, CreateMode::Persistent)),
    probe("create, sequential", OpCode::Create, |z| create(z, CreateMode::PersistentSequential)),
    probe("create, ephemeral", OpCode::Create, |z| create(z, CreateMode::Ephemeral)),
    probe("create2", OpCode::Create2, |z| create(z, CreateMode::Persistent)),
    probe("createContainer", OpCode::CreateContainer, |z| create(z, CreateMode::Container)),
    probe("createTTL", OpCode::CreateTtl, |z| {
        let mut body = create(z, CreateMode::PersistentWithTtl);
        jute::put_i64(&mut body, 1 << 30);
        body
    }),
    probe("delete", OpCode::Delete, |z| delete_body(&z.node)),
    probe("setData", OpCode::SetData, |z| set_data_body(&z.node, b"new")),
    probe("setACL", OpCode::SetAcl, |z| {
        let mut body = path_body(&z.node);
        body.extend(acl(&[(ALL, "world", "anyone".to_owned())]));
        jute::put_i32(&mut body, -1);
        body
    }),
    probe("multi: check", OpCode::Multi, |z| multi_body([(OpCode::Check, delete_body(&z.node))])),
    probe("multi: create", OpCode::Multi, |z| {
        multi_body([(OpCode::Create, create(z, CreateMode::Persistent))])
    }),
    probe("multi: delete", OpCode::Multi, |z| multi_body([(OpCode::Delete, delete_body(&z.node))])),
    probe("multi: setData", OpCode::Multi, |z| {
        multi_body([(OpCode::SetData, set_data_body(&z.node, b"new"))])
    }),
    probe("deleteContainer", OpCode::DeleteContainer, |z| path_body(&z.node)),
    probe("getACL", OpCode::GetAcl, |z| path_body(&z.node)),
    probe("sync", OpCode::Sync, |z| path_body(&z.node)),
    probe("getEphemerals", OpCode::GetEphemerals, |z| path_body(&z.parent)),
    probe("getAllChildrenNumber", OpCode::GetAllChildrenNumber, |z| path_body(&z.parent)),
    probe("multiRead: getData", OpCode::MultiRead, |z| {
        multi_body([(OpCode::GetData, path_watch_body(&z.node))])
    }),
    probe("multiRead: getChildren", OpCode::MultiRead, |z| {
        multi_body([(OpCode::GetChildren, path_watch_body(&z.parent))])
    }),
    watch("exists", OpCode::Exists, |z| watched_body(&z.node)),
    watch("exists, of a missing child", OpCode::Exists, |z| watched_body(&format!("{}/below", z.node))),
    watch("getData", OpCode::GetData, |z| watched_body(&z.node)),
    watch("getChildren", OpCode::GetChildren, |z| watched_body(&z.parent)),
    watch("getChildren2", OpCode::GetChildren2, |z| watched_body(&z.parent)),
    watch("addWatch, persistent", OpCode::AddWatch, |z| watch_mode_body(&z.node, 0)),
    watch("addWatch, recursive", OpCode::AddWatch, |z| watch_mode_body(&z.parent, 1)),
    watch("setWatches", OpCode::SetWatches, |z| set_watches(i64::MAX, &[&[&z.node], &[], &[&z.parent]])),
    watch("setWatches, of a missing child", OpCode::SetWatches, |z| {
        set_watches(i64::MAX, &[&[], &[&format!("{}/below", z.node)], &[]])
    }),
    watch("setWatches, long ago", OpCode::SetWatches, |z| set_watches(0, &[&[&z.node], &[], &[&z.parent]])),
    watch("setWatches2, persistent", OpCode::SetWatches2, |z| {
        set_watches(i64::MAX, &[&[], &[], &[], &[&z.node], &[]])
    }),
    watch("setWatches2, recursive", OpCode::SetWatches2, |z| {
        set_watches(i64::MAX, &[&[], &[], &[], &[], &[&z.parent]])
    }),
];

/// A new child beside the node, which everybody may use.
fn create(znodes: &Znodes, mode: CreateMode) -> Vec<u8> {
    create_body(&format!("{}/new", znodes.parent), b"", mode.to_wire())
}

/// The body of a setWatches or setWatches2: what the client has seen, and its lists of watched paths.
fn set_watches(seen: i64, lists: &[&[&String]]) -> Vec<u8> {
    let mut body = Vec::new();
    jute::put_i64(&mut body, seen);
    for list in lists {
        jute::put_ustrings(&mut body, list.iter().map(|path| path.as_str()));
    }
    body
}

impl Probe {
    /// The parts of a reply that tell something about znodes, without numbers that each server counts for
    /// itself.
    pub(super) fn seen(&self, body: &[u8]) -> Result<Vec<String>> {
        if self.op == OpCode::DeleteContainer {
            return Ok(Vec::new());
        }
        let names = |names: &ringkeeper_wire::StringList<'_>| {
            let mut names: Vec<String> = names.iter().map(|name| format!("name {name}")).collect();
            names.sort();
            names
        };
        Ok(match Response::decode(self.op, body)? {
            Response::GetData(reply) => vec![format!("{:?}", reply.data)],
            Response::GetAcl(reply) => {
                let entries = reply.acl.iter().flat_map(|list| list.iter());
                entries.map(|entry| format!("{entry:?}")).collect()
            }
            Response::GetChildren(reply) => names(&reply.children),
            Response::GetChildren2(reply) => names(&reply.children),
            Response::GetEphemerals(reply) => names(&reply.ephemerals),
            Response::GetAllChildrenNumber(reply) => vec![reply.total_number.to_string()],
            Response::Multi(reply) => reply.iter().map(|result| kind(&result)).collect(),
            _ => Vec::new(),
        })
    }
}

fn kind(result: &ringkeeper_wire::MultiResult<'_>) -> String {
    use ringkeeper_wire::MultiResult;
    match result {
        MultiResult::Error(error) => format!("error {error}"),
        MultiResult::Data(data, _) => format!("{data:?}"),
        MultiResult::Children(names) => format!("{names:?}"),
        _ => "done".to_owned(),
    }
}
