//! Records of the audit log, in the format of Apache ZooKeeper (`AuditEvent`): who changed what, from where,
//! and whether it succeeded.
//!
//! ```text
//! session=0x1..  user=bob,127.0.0.1  ip=127.0.0.1  operation=create  znode=/a  ...  result=success
//! ```
//!
//! The fields are separated by tabs; those that a record lacks are left out. Control characters in what a
//! client has sent are escaped, and hashes of passwords are not shown.

use std::fmt::Write;
use std::net::IpAddr;
use std::sync::Arc;

use ringkeeper_wire::{
    AclList, CreateMode, CreateRequest, CreateTtlRequest, DeleteRequest, Identity, MultiOp, OpCode, Perms,
    Request, SessionId, SetAclRequest, SetDataRequest,
};

use crate::acl;
use crate::message::Published;
use crate::txn::{Outcome, Update};

/// The letters of permissions, in the order in which they are written.
const LETTERS: [(Perms, char); 5] = [
    (Perms::CREATE, 'c'),
    (Perms::DELETE, 'd'),
    (Perms::READ, 'r'),
    (Perms::WRITE, 'w'),
    (Perms::ADMIN, 'a'),
];

/// A record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Whether what it tells of was done.
    pub succeeded: bool,
    /// Its fields.
    pub fields: String,
}

/// What a shard has for the log.
#[derive(Clone, Debug)]
pub enum Entry {
    /// A record.
    Record(Record),
    /// A session has ended: each of its ephemeral znodes is a record, on every server.
    SessionEnded {
        /// The message that says so, and where in it.
        published: Arc<Published>,
        /// The group of transactions.
        group: usize,
        /// The transaction in the group.
        txn: usize,
    },
}

impl Entry {
    /// Calls `write` with each record. The server acts as `server_user` where no client does.
    pub fn for_each(&self, server_user: &str, mut write: impl FnMut(&Record)) {
        match self {
            Self::Record(record) => write(record),
            Self::SessionEnded { published, group, txn } => {
                let committed = &published.groups[*group].txns[*txn];
                for change in committed.changes() {
                    write(&of_ephemeral(committed.txn.session, server_user, change.path));
                }
            }
        }
    }
}

/// The record of a server's start or stop.
#[must_use]
pub fn of_server(server_user: &str, operation: &str, result: &str) -> Record {
    let mut fields = String::new();
    field(&mut fields, "user", server_user);
    field(&mut fields, "operation", operation);
    field(&mut fields, "result", result);
    Record { succeeded: result != "failure", fields }
}

/// Who asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Client<'a> {
    pub(crate) session: SessionId,
    pub(crate) identities: &'a [Identity],
    pub(crate) ip: IpAddr,
}

/// What was asked of one znode, or of several.
#[derive(Debug, Default)]
struct Asked {
    operation: &'static str,
    path: Option<String>,
    mode: Option<CreateMode>,
    acl: Option<String>,
}

/// The records of a request: one, or one for each change of a multi that succeeded; none for requests that
/// change nothing. `updates` are what it did, and none if it was refused before.
pub(crate) fn of_request(
    client: Client<'_>,
    op: OpCode,
    body: &[u8],
    outcome: Option<(&Outcome, &[Update])>,
) -> Vec<Record> {
    let Ok(request) = Request::decode(op, body) else { return Vec::new() };
    let asked = match &request {
        Request::Multi(multi) => match outcome {
            Some((Outcome::Multi(_), updates)) => {
                let parts = multi.iter().zip(updates).filter_map(|(part, update)| {
                    Some(Asked { path: Some(update.path().to_owned()), ..Asked::of_part(&part)? })
                });
                return parts.map(|asked| client.record(&asked, true)).collect();
            }
            _ => Some(Asked { operation: "multiOperation", ..Asked::default() }),
        },
        single => Asked::of_request(single),
    };
    let Some(mut asked) = asked else { return Vec::new() };
    let done = outcome.filter(|(outcome, _)| matches!(outcome, Outcome::Done(_)));
    // A sequential znode has its name from the server.
    if let Some((_, [update, ..])) = done {
        asked.path = Some(update.path().to_owned());
    }
    vec![client.record(&asked, done.is_some())]
}

/// The record of a login that was refused.
pub(crate) fn of_refused_login(client: Client<'_>, scheme: &str) -> Record {
    let login = Asked { operation: "login", ..Asked::default() };
    let mut record = client.record(&login, false);
    field(&mut record.fields, "scheme", scheme);
    record
}

/// The record of an ephemeral znode that ended with its session.
fn of_ephemeral(session: SessionId, server_user: &str, path: &str) -> Record {
    let mut fields = format!("session={:#x}", session.0);
    field(&mut fields, "user", server_user);
    field(&mut fields, "operation", "ephemeralZNodeDeletionOnSessionCloseOrExpire");
    field(&mut fields, "znode", path);
    field(&mut fields, "result", "success");
    Record { succeeded: true, fields }
}

impl Asked {
    fn of_request(request: &Request<'_>) -> Option<Self> {
        match request {
            Request::Create(create) | Request::Create2(create) => Some(Self::create(create, None)),
            Request::CreateContainer(create) => Some(Self::create(create, Some(CreateMode::Container))),
            Request::CreateTtl(create) => Some(Self::create_ttl(create)),
            Request::Delete(delete) => Some(Self::delete(delete)),
            Request::SetData(set) => Some(Self::set_data(set)),
            Request::SetAcl(SetAclRequest { path, acl, .. }) => Some(Self {
                operation: "setAcl",
                path: Some(path.to_string()),
                acl: Some(acl.as_ref().map(acl_text).unwrap_or_default()),
                mode: None,
            }),
            Request::Reconfig(_) => Some(Self { operation: "reconfig", ..Self::default() }),
            _ => None,
        }
    }

    fn of_part(part: &MultiOp<'_>) -> Option<Self> {
        match part {
            MultiOp::Create(create) | MultiOp::Create2(create) => Some(Self::create(create, None)),
            MultiOp::CreateContainer(create) => Some(Self::create(create, Some(CreateMode::Container))),
            MultiOp::CreateTtl(create) => Some(Self::create_ttl(create)),
            MultiOp::Delete(delete) => Some(Self::delete(delete)),
            MultiOp::SetData(set) => Some(Self::set_data(set)),
            MultiOp::Check(_) => None,
        }
    }

    fn create(create: &CreateRequest<'_>, mode: Option<CreateMode>) -> Self {
        let mode = mode.or_else(|| CreateMode::from_wire(create.flags));
        Self { operation: "create", path: Some(create.path.to_string()), mode, acl: None }
    }

    fn create_ttl(create: &CreateTtlRequest<'_>) -> Self {
        let mode = CreateMode::from_wire(create.flags);
        Self { operation: "create", path: Some(create.path.to_string()), mode, acl: None }
    }

    fn delete(delete: &DeleteRequest<'_>) -> Self {
        Self { operation: "delete", path: Some(delete.path.to_string()), ..Self::default() }
    }

    fn set_data(set: &SetDataRequest<'_>) -> Self {
        Self { operation: "setData", path: Some(set.path.to_string()), ..Self::default() }
    }
}

impl Client<'_> {
    fn record(&self, asked: &Asked, succeeded: bool) -> Record {
        let mut fields = format!("session={:#x}", self.session.0);
        let users = self.identities.iter().map(|identity| match acl::user(identity) {
            "" => &identity.scheme,
            user => user,
        });
        field(&mut fields, "user", &users.collect::<Vec<_>>().join(","));
        field(&mut fields, "ip", &self.ip.to_string());
        field(&mut fields, "operation", asked.operation);
        if let Some(path) = &asked.path {
            field(&mut fields, "znode", path);
        }
        if let Some(mode) = asked.mode {
            field(&mut fields, "znode_type", znode_type(mode));
        }
        if let Some(acl) = &asked.acl {
            field(&mut fields, "acl", acl);
        }
        field(&mut fields, "result", if succeeded { "success" } else { "failure" });
        Record { succeeded, fields }
    }
}

/// Appends a field, behind a tab unless it is the first one.
fn field(fields: &mut String, name: &str, value: &str) {
    if !fields.is_empty() {
        fields.push('\t');
    }
    fields.push_str(name);
    fields.push('=');
    for c in value.chars() {
        if c.is_control() {
            fields.extend(c.escape_default());
        } else {
            fields.push(c);
        }
    }
}

/// The entries of an ACL, one behind the other without anything in between, as ZooKeeper writes them.
fn acl_text(acl: &AclList<'_>) -> String {
    let mut text = String::new();
    for entry in acl.iter() {
        let id = entry.id.as_deref().unwrap_or_default();
        let scheme = entry.scheme.as_deref().unwrap_or_default();
        // What follows a user's name is the hash of the password.
        let shown = match id.split_once(':') {
            Some((user, _)) if scheme == "digest" => format!("{user}:x"),
            _ => id.to_owned(),
        };
        let letters = LETTERS.into_iter().filter(|(perms, _)| entry.perms.intersects(*perms));
        let letters: String = letters.map(|(_, letter)| letter).collect();
        write!(text, "{scheme}:{shown}:{letters}").expect("a string takes everything");
    }
    text
}

const fn znode_type(mode: CreateMode) -> &'static str {
    match mode {
        CreateMode::Persistent => "persistent",
        CreateMode::Ephemeral => "ephemeral",
        CreateMode::PersistentSequential => "persistent_sequential",
        CreateMode::EphemeralSequential => "ephemeral_sequential",
        CreateMode::Container => "container",
        CreateMode::PersistentWithTtl => "persistent_with_ttl",
        CreateMode::PersistentSequentialWithTtl => "persistent_sequential_with_ttl",
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use ringkeeper_wire::{AclEntry, ErrorCode};

    use super::*;
    use crate::acl::Acl;
    use crate::txn::{Create, Effect};

    fn client(identities: &[Identity]) -> Client<'_> {
        Client { session: SessionId(0x1_0000), identities, ip: Ipv4Addr::LOCALHOST.into() }
    }

    fn identity(scheme: &str, id: &str) -> Identity {
        Identity { scheme: scheme.to_owned(), id: id.to_owned() }
    }

    /// The records of a request, without who asked.
    fn records(request: &Request<'_>, outcome: Option<(&Outcome, &[Update])>) -> Vec<String> {
        let mut body = Vec::new();
        request.encode(&mut body);
        let records = of_request(client(&[]), request.op(), &body, outcome);
        let start = "session=0x10000\tuser=\tip=127.0.0.1\t";
        let rest = |record: Record| record.fields.strip_prefix(start).map(str::to_owned);
        records.into_iter().map(|record| rest(record).expect("the client comes first")).collect()
    }

    fn create(path: &str, flags: i32) -> CreateRequest<'_> {
        let nobody: &[AclEntry] = &[];
        CreateRequest { path: path.into(), data: None, acl: Some(nobody.into()), flags }
    }

    fn created(path: &str) -> (Update, Effect) {
        let update = Update::Create(Create {
            path: path.into(),
            data: None,
            acl: Acl::OPEN,
            raw_owner: 0,
            parent_cversion: 1,
            reply_with_stat: false,
        });
        let effect =
            Effect::Created { stat: ringkeeper_wire::Stat::default(), acl: Acl::OPEN, parent_acl: Acl::OPEN };
        (update, effect)
    }

    #[test]
    fn users_are_named_without_their_passwords_hashes() {
        let identities = [identity("digest", "bob:hash"), identity("super", ""), identity("ip", "10.0.0.1")];
        let record = client(&identities).record(&Asked { operation: "create", ..Asked::default() }, true);
        assert_eq!(
            record.fields,
            "session=0x10000\tuser=bob,super,10.0.0.1\tip=127.0.0.1\toperation=create\tresult=success"
        );
    }

    #[test]
    fn a_sequential_znode_is_recorded_by_the_name_that_it_has_got() {
        let (update, effect) = created("/s-0000000001");
        let done = Outcome::Done(effect);
        let request = Request::Create(create("/s-", 3));
        assert_eq!(
            records(&request, Some((&done, &[update]))),
            ["operation=create\tznode=/s-0000000001\tznode_type=ephemeral_sequential\tresult=success"]
        );
        let failed = Outcome::Failed(ErrorCode::NoNode);
        assert_eq!(
            records(&request, Some((&failed, &[]))),
            ["operation=create\tznode=/s-\tznode_type=ephemeral_sequential\tresult=failure"]
        );
    }

    #[test]
    fn acls_are_recorded_without_the_hashes_of_passwords_and_control_characters_are_escaped() {
        let entry = |perms, scheme: &str, id: &str| AclEntry { perms, scheme: scheme.into(), id: id.into() };
        let entries = [entry(Perms::ALL, "digest", "bob:hash"), entry(Perms(3), "world", "anyone")];
        let set = SetAclRequest { path: "/a\tb\n".into(), acl: Some((&entries[..]).into()), version: -1 };
        assert_eq!(
            records(&Request::SetAcl(set), None),
            ["operation=setAcl\tznode=/a\\tb\\n\tacl=digest:bob:x:cdrwaworld:anyone:rw\tresult=failure"]
        );
    }

    #[test]
    fn a_multi_is_recorded_by_its_changes_or_as_one_failure() {
        let ops = [
            MultiOp::Create(create("/a", 0)),
            MultiOp::Check(ringkeeper_wire::CheckRequest { path: "/a".into(), version: -1 }),
            MultiOp::Delete(DeleteRequest { path: "/b".into(), version: -1 }),
        ];
        let request = Request::Multi((&ops[..]).into());
        let (update, effect) = created("/a");
        let updates = [update, Update::Check("/a".into()), Update::Delete("/b".into())];
        let effects = [effect, Effect::Checked, Effect::Checked];
        let done = Outcome::Multi(effects.into());
        assert_eq!(
            records(&request, Some((&done, &updates))),
            [
                "operation=create\tznode=/a\tznode_type=persistent\tresult=success",
                "operation=delete\tznode=/b\tresult=success"
            ]
        );
        assert_eq!(records(&request, None), ["operation=multiOperation\tresult=failure"]);
    }

    #[test]
    fn reads_are_not_recorded() {
        assert!(records(&Request::Ping, None).is_empty());
    }
}
