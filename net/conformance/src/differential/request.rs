//! One random request: opcode and body, and what the player must know about it.

use rand::Rng;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;
use ringkeeper_testkit::multi_body;
use ringkeeper_wire::{OpCode, Request, jute};

use super::pool;

/// A zxid that stands for another number on each server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SymbolicZxid {
    /// The same number on both.
    Literal(i64),
    /// The n-th transaction that both servers are known to have.
    Known(usize),
}

/// A request, ready for both servers.
#[derive(Clone, Debug)]
pub(super) struct Outgoing {
    /// The opcode on the wire.
    pub(super) op: i32,
    /// The body as it goes to the reference.
    pub(super) body: Vec<u8>,
    /// What to write over the first eight bytes of the body, on each server its own.
    pub(super) relative_zxid: Option<SymbolicZxid>,
    /// The path, if it has one, to find what concerns it.
    pub(super) path: Option<String>,
    /// Whether it may change what another session sees.
    pub(super) is_write: bool,
    /// Whether it must not share the server with other requests, since the reference executes it out of
    /// order, or ends the connection after it.
    pub(super) is_alone: bool,
}

impl Outgoing {
    /// The path on which this leaves a watch, if it is answered well.
    pub(super) fn watched_path(&self) -> Option<&String> {
        let path = self.path.as_ref()?;
        let reads_with_watch = matches!(
            OpCode::from_wire(self.op)?,
            OpCode::Exists | OpCode::GetData | OpCode::GetChildren | OpCode::GetChildren2
        ) && self.body.last().is_some_and(|watch| *watch != 0);
        (reads_with_watch || self.op == OpCode::AddWatch.to_wire()).then_some(path)
    }

    /// The body decoded, or its bytes.
    pub(super) fn describe(&self) -> String {
        let decoded = OpCode::from_wire(self.op).and_then(|op| Request::decode(op, &self.body).ok());
        let zxid = self.relative_zxid.map(|zxid| format!(" with {zxid:?}")).unwrap_or_default();
        match decoded {
            Some(request) => format!("{request:?}{zxid}"),
            None => format!("opcode {} body {}", self.op, self.body.escape_ascii()),
        }
    }
}

/// Cuts what would fill the screen.
pub(super) fn abbreviate(text: &str) -> String {
    const LONGEST: usize = 2000;
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}... ({} bytes)", &text[..end], text.len()),
        None => text.to_owned(),
    }
}

/// Makes requests that suit what is known of the servers' state.
pub(super) struct RequestMaker<'a> {
    /// The one source of randomness.
    pub(super) rng: &'a mut ChaCha8Rng,
    /// Paths of znodes that exist, or did.
    pub(super) paths: &'a [String],
    /// Paths on which the session has lately left watches.
    pub(super) watched: &'a [String],
    /// Number of transactions known on both servers.
    pub(super) known_zxids: usize,
    /// Whether hard quotas are enforced: then writes race with the reference's own accounting.
    pub(super) enforce_quota: bool,
    /// Whether setWatches is among them.
    pub(super) restores_watches: bool,
}

type Bytes = Vec<u8>;

impl RequestMaker<'_> {
    /// A request of any kind.
    pub(super) fn request(&mut self) -> Outgoing {
        let mut request = match self.rng.random_range(0..1000) {
            0..220 => self.create(),
            220..310 => self.delete(),
            310..400 => self.set_data(),
            400..430 => self.set_acl(),
            430..500 => self.multi(),
            500..520 => self.quota(),
            520..535 => self.auth(),
            535..545 if self.rng.random_ratio(1, 2) => self.closing(),
            545..547 => self.out_of_place(),
            547..560 => self.reconfig_or_sasl(),
            _ => self.read(),
        };
        let is_quota = request.path.as_ref().is_some_and(|path| path.starts_with("/zookeeper/quota"));
        if self.rng.random_ratio(1, 40) && !request.is_alone && !is_quota {
            self.corrupt(&mut request);
        }
        if self.enforce_quota && request.is_write {
            request.is_alone = true;
        }
        request
    }

    fn read(&mut self) -> Outgoing {
        match self.rng.random_range(0..100) {
            0..14 => self.path_watch(OpCode::Exists),
            14..30 => self.path_watch(OpCode::GetData),
            30..38 => self.path_watch(OpCode::GetChildren),
            38..48 => self.path_watch(OpCode::GetChildren2),
            48..56 => self.path_only(OpCode::GetAcl),
            56..59 => self.path_only(OpCode::Sync),
            59..62 => self.path_only(OpCode::GetAllChildrenNumber),
            62..69 => self.multi_read(),
            69..78 => self.add_watch(),
            78..85 => self.watches(OpCode::RemoveWatches),
            85..89 => self.watches(OpCode::CheckWatches),
            89..91 => self.get_ephemerals(),
            91..93 => Self::of(OpCode::WhoAmI, Vec::new()),
            93..95 => Self::of(OpCode::Ping, Vec::new()),
            _ if self.restores_watches => self.set_watches(),
            _ => self.path_watch(OpCode::Exists),
        }
    }

    fn of(op: OpCode, body: Bytes) -> Outgoing {
        let is_write = matches!(
            op,
            OpCode::Create | OpCode::Create2 | OpCode::CreateContainer | OpCode::CreateTtl | OpCode::Delete
        ) || matches!(
            op,
            OpCode::SetData | OpCode::SetAcl | OpCode::Multi | OpCode::CloseSession
        ) || matches!(op, OpCode::Reconfig);
        Outgoing { op: op.to_wire(), body, relative_zxid: None, path: None, is_write, is_alone: false }
    }

    fn at(op: OpCode, path: &[u8], body: Bytes) -> Outgoing {
        Outgoing { path: Some(String::from_utf8_lossy(path).into_owned()), ..Self::of(op, body) }
    }

    /// A path to act on: mostly one that exists.
    fn path(&mut self) -> Bytes {
        match self.rng.random_range(0..100) {
            0..60 if !self.paths.is_empty() => self.known_path().into_bytes(),
            60..68 => pool::odd_path(self.rng),
            68..74 => pool::reserved_path(self.rng).into_bytes(),
            _ => pool::good_path(self.rng).into_bytes(),
        }
    }

    fn known_path(&mut self) -> String {
        self.paths.choose(self.rng).cloned().unwrap_or_default()
    }

    /// A path to create: mostly below one that exists.
    fn new_path(&mut self) -> Bytes {
        match self.rng.random_range(0..100) {
            0..55 => {
                let parent = self.known_path();
                // Ever deeper trees would keep the sequence from meeting itself.
                let parent = if parent.matches('/').count() < 5 { parent } else { String::new() };
                format!("{parent}/{}", pool::name(self.rng)).into_bytes()
            }
            55..60 => pool::odd_path(self.rng),
            60..62 => pool::reserved_path(self.rng).into_bytes(),
            _ => pool::good_path(self.rng).into_bytes(),
        }
    }

    /// A version to expect: any, a likely one, or nonsense.
    fn version(&mut self) -> i32 {
        match self.rng.random_range(0..20) {
            0..11 => -1,
            11..18 => self.rng.random_range(0..4),
            18 => *[i32::MIN, i32::MAX, -2].choose(self.rng).expect("not empty"),
            _ => self.rng.random_range(4..100),
        }
    }

    fn create_body(&mut self, path: &[u8], flags: i32, ttl_ms: Option<i64>) -> Bytes {
        let mut body = Vec::new();
        jute::put_buffer(&mut body, Some(path));
        jute::put_buffer(&mut body, pool::data(self.rng).as_deref());
        pool::put_acl(self.rng, true, &mut body);
        jute::put_i32(&mut body, flags);
        if let Some(ttl_ms) = ttl_ms {
            jute::put_i64(&mut body, ttl_ms);
        }
        body
    }

    fn create_parts(&mut self) -> (OpCode, Bytes, Bytes) {
        let mut path = self.new_path();
        let op =
            *[OpCode::Create, OpCode::Create, OpCode::Create2, OpCode::CreateContainer, OpCode::CreateTtl]
                .choose(self.rng)
                .expect("not empty");
        let odd = self.rng.random_ratio(1, 12);
        let flags = match op {
            _ if odd => *[-1, 4, 5, 6, 7, 8, 100, i32::MAX, i32::MIN].choose(self.rng).expect("not empty"),
            OpCode::CreateContainer => *[4, 4, 4, 0, 1, 2, 3].choose(self.rng).expect("not empty"),
            OpCode::CreateTtl => *[5, 6].choose(self.rng).expect("not empty"),
            _ => *[0, 0, 0, 0, 1, 1, 2, 3].choose(self.rng).expect("not empty"),
        };
        // A sequential znode's path may end in a slash.
        if matches!(flags, 2 | 3 | 6) && self.rng.random_ratio(1, 10) {
            path.push(b'/');
        }
        let ttl_ms = (op == OpCode::CreateTtl).then(|| {
            // A negative one with a flag that has no time to live ends the reference: it looks at the time
            // only when it applies the txn.
            const ODD: &[i64] = &[0, 1 << 40, (1 << 40) - 1, i64::MAX, -1, i64::MIN];
            let odd = if matches!(flags, 5 | 6) { ODD } else { &ODD[..4] };
            if self.rng.random_ratio(1, 6) { *odd.choose(self.rng).expect("not empty") } else { 3_600_000 }
        });
        let body = self.create_body(&path, flags, ttl_ms);
        (op, path, body)
    }

    fn create(&mut self) -> Outgoing {
        let (op, path, body) = self.create_parts();
        Self::at(op, &path, body)
    }

    fn path_version_body(&mut self, path: &[u8]) -> Bytes {
        let mut body = Vec::new();
        jute::put_buffer(&mut body, Some(path));
        jute::put_i32(&mut body, self.version());
        body
    }

    fn delete(&mut self) -> Outgoing {
        let path = self.path();
        let body = self.path_version_body(&path);
        Self::at(OpCode::Delete, &path, body)
    }

    fn set_data_body(&mut self, path: &[u8]) -> Bytes {
        let mut body = Vec::new();
        jute::put_buffer(&mut body, Some(path));
        jute::put_buffer(&mut body, pool::data(self.rng).as_deref());
        jute::put_i32(&mut body, self.version());
        body
    }

    fn set_data(&mut self) -> Outgoing {
        let path = self.path();
        let body = self.set_data_body(&path);
        Self::at(OpCode::SetData, &path, body)
    }

    fn set_acl(&mut self) -> Outgoing {
        let path = self.path();
        // A closed root would make the rest of the run a list of refusals.
        let lockable = path != b"/" || self.rng.random_ratio(1, 20);
        let mut body = Vec::new();
        jute::put_buffer(&mut body, Some(&path));
        pool::put_acl(self.rng, lockable, &mut body);
        jute::put_i32(&mut body, self.version());
        // The reference checks the requests behind a setACL against the old list until it has applied it.
        Outgoing { is_alone: true, ..Self::at(OpCode::SetAcl, &path, body) }
    }

    fn path_watch(&mut self, op: OpCode) -> Outgoing {
        let path = self.path();
        let body = self.path_watch_body(&path);
        Self::at(op, &path, body)
    }

    fn path_watch_body(&mut self, path: &[u8]) -> Bytes {
        let mut body = Vec::new();
        jute::put_buffer(&mut body, Some(path));
        body.push(*[0, 1, 1, 255].choose(self.rng).expect("not empty"));
        body
    }

    fn path_only(&mut self, op: OpCode) -> Outgoing {
        let path = self.path();
        let mut body = Vec::new();
        jute::put_buffer(&mut body, Some(&path));
        Self::at(op, &path, body)
    }

    fn add_watch(&mut self) -> Outgoing {
        const MODES: &[i32] = &[0, 0, 0, 0, 1, 1, 1, 1, 2, -1, i32::MAX];
        let path = self.path();
        self.path_and_number(OpCode::AddWatch, path, MODES)
    }

    fn watches(&mut self, op: OpCode) -> Outgoing {
        const TYPES: &[i32] = &[1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4, 5, 5, 5, 0, 6, -1, i32::MIN];
        let watched = self.watched.choose(self.rng).filter(|_| self.rng.random_ratio(4, 5));
        let path = watched.map_or_else(|| self.path(), |path| path.clone().into_bytes());
        self.path_and_number(op, path, TYPES)
    }

    fn path_and_number(&mut self, op: OpCode, path: Bytes, numbers: &[i32]) -> Outgoing {
        let mut body = Vec::new();
        jute::put_buffer(&mut body, Some(&path));
        jute::put_i32(&mut body, *numbers.choose(self.rng).expect("not empty"));
        Self::at(op, &path, body)
    }

    fn get_ephemerals(&mut self) -> Outgoing {
        let mut body = Vec::new();
        match self.rng.random_range(0..4) {
            0 => jute::put_i32(&mut body, -1),
            1 => jute::put_buffer(
                &mut body,
                Some(["/", "", " ", "/a", "/b"].choose(self.rng).expect("not empty").as_bytes()),
            ),
            _ => jute::put_buffer(&mut body, Some(&self.path())),
        }
        Self::of(OpCode::GetEphemerals, body)
    }

    fn set_watches(&mut self) -> Outgoing {
        let op = *[OpCode::SetWatches, OpCode::SetWatches2].choose(self.rng).expect("not empty");
        let relative_zxid = match self.rng.random_range(0..6) {
            0 => SymbolicZxid::Literal(*[0, -1, i64::MAX, i64::MIN].choose(self.rng).expect("not empty")),
            _ if self.known_zxids == 0 => SymbolicZxid::Literal(0),
            1..4 => SymbolicZxid::Known(
                self.rng.random_range(self.known_zxids.saturating_sub(50)..self.known_zxids),
            ),
            _ => SymbolicZxid::Known(self.rng.random_range(0..self.known_zxids)),
        };
        let mut body = vec![0; 8];
        let lists = if op == OpCode::SetWatches { 3 } else { 5 };
        for _ in 0..lists {
            let len = *[0, 0, 1, 2, 3].choose(self.rng).expect("not empty");
            jute::put_i32(&mut body, len);
            for _ in 0..len {
                // The reference takes "" for the root, which has its own place among the accepted
                // differences, where it costs a single answer and not a number of events.
                let path = Some(self.path()).filter(|path| !path.is_empty()).unwrap_or_else(|| b"/".to_vec());
                jute::put_buffer(&mut body, Some(&path));
            }
        }
        Outgoing { relative_zxid: Some(relative_zxid), ..Self::of(op, body) }
    }

    fn multi(&mut self) -> Outgoing {
        let mut path = None;
        let mut operations = Vec::new();
        for _ in 0..*[0, 1, 1, 2, 2, 3, 3, 4, 6].choose(self.rng).expect("not empty") {
            let (op, op_path, body) = self.multi_op();
            operations.push((op, body));
            path.get_or_insert(op_path);
        }
        Outgoing { path: path.map(lossy), ..Self::of(OpCode::Multi, multi_body(operations)) }
    }

    fn multi_op(&mut self) -> (OpCode, Bytes, Bytes) {
        let path = self.path();
        match self.rng.random_range(0..100) {
            0..40 => self.create_parts(),
            40..58 => {
                let body = self.path_version_body(&path);
                (OpCode::Delete, path, body)
            }
            58..80 => {
                let body = self.set_data_body(&path);
                (OpCode::SetData, path, body)
            }
            80..98 => {
                let body = self.path_version_body(&path);
                (OpCode::Check, path, body)
            }
            // Not allowed here.
            98 => {
                let body = self.path_watch_body(&path);
                (OpCode::GetData, path, body)
            }
            _ => (OpCode::Sync, path, Vec::new()),
        }
    }

    fn multi_read(&mut self) -> Outgoing {
        let mut operations = Vec::new();
        let mut first_path = None;
        for _ in 0..*[0, 1, 1, 2, 3, 5].choose(self.rng).expect("not empty") {
            let path = self.path();
            let mut op = *[OpCode::GetData, OpCode::GetChildren].choose(self.rng).expect("not empty");
            if self.rng.random_ratio(1, 40) {
                op = *[OpCode::Exists, OpCode::Delete, OpCode::GetChildren2]
                    .choose(self.rng)
                    .expect("not empty");
            }
            operations.push((op, self.path_watch_body(&path)));
            first_path.get_or_insert(path);
        }
        let body = multi_body(operations);
        Outgoing { path: first_path.map(lossy), ..Self::of(OpCode::MultiRead, body) }
    }

    /// What zkCli's setquota does, one step at a time and in any order.
    fn quota(&mut self) -> Outgoing {
        // A quota of the root itself ends the reference.
        let target = match self.known_path() {
            path if path.len() > 1 && self.rng.random_ratio(2, 3) => path,
            _ => pool::good_path(self.rng),
        };
        let (path, data) = match self.rng.random_range(0..6) {
            0..2 => (format!("/zookeeper/quota{target}"), Some(Vec::new())),
            2 => (format!("/zookeeper/quota{target}/zookeeper_stats"), Some(b"count=0,bytes=0".to_vec())),
            _ => {
                let limits = pool::quota_limits(self.rng).into_bytes();
                (format!("/zookeeper/quota{target}/zookeeper_limits"), Some(limits))
            }
        };
        let mut body = Vec::new();
        jute::put_ustring(&mut body, &path);
        let op = match self.rng.random_range(0..10) {
            0..6 => {
                jute::put_buffer(&mut body, data.as_deref());
                pool::put_acl(self.rng, false, &mut body);
                jute::put_i32(&mut body, 0);
                OpCode::Create
            }
            6 if path.ends_with("zookeeper_limits") => {
                jute::put_buffer(&mut body, data.as_deref());
                jute::put_i32(&mut body, -1);
                OpCode::SetData
            }
            6 | 7 => {
                jute::put_i32(&mut body, -1);
                OpCode::Delete
            }
            _ => {
                body.push(0);
                OpCode::GetData
            }
        };
        Self::at(op, path.as_bytes(), body)
    }

    fn auth(&mut self) -> Outgoing {
        let (scheme, auth) = pool::credentials(self.rng);
        Self::auth_with(scheme, auth)
    }

    /// As whom ACLs do not bind.
    pub(super) fn auth_as_super() -> Outgoing {
        Self::auth_with(Some("digest"), Some(b"super:test"))
    }

    fn auth_with(scheme: Option<&str>, auth: Option<&[u8]>) -> Outgoing {
        let mut body = Vec::new();
        jute::put_i32(&mut body, 0);
        jute::put_buffer(&mut body, scheme.map(str::as_bytes));
        jute::put_buffer(&mut body, auth);
        // Answered in the reference's network thread, out of order.
        Outgoing { is_alone: true, ..Self::of(OpCode::Auth, body) }
    }

    /// Requests after which the server closes the connection.
    fn closing(&mut self) -> Outgoing {
        if self.rng.random_ratio(1, 2) {
            return Outgoing { is_alone: true, ..Self::of(OpCode::CloseSession, Vec::new()) };
        }
        const UNKNOWN: &[i32] = &[0, 10, 13, 23, 99, 108, -2, -9, -12, i32::MAX, i32::MIN];
        let op = *UNKNOWN.choose(self.rng).expect("not empty");
        let path = self.path();
        let body = self.path_version_body(&path);
        Outgoing { op, is_alone: true, ..Self::at(OpCode::Ping, &path, body) }
    }

    /// The servers' own requests, which no client should send; on a znode that cannot exist, since the
    /// reference would execute deleteContainer.
    fn out_of_place(&mut self) -> Outgoing {
        let mut body = Vec::new();
        jute::put_ustring(&mut body, "/no-such-container");
        Outgoing { is_alone: true, ..Self::of(OpCode::DeleteContainer, body) }
    }

    fn reconfig_or_sasl(&mut self) -> Outgoing {
        let mut body = Vec::new();
        if self.rng.random_ratio(1, 4) {
            jute::put_buffer(&mut body, pool::data(self.rng).as_deref());
            return Outgoing { is_alone: true, ..Self::of(OpCode::Sasl, body) };
        }
        jute::put_ustring(&mut body, "server.2=127.0.0.1:1:2;3");
        jute::put_i32(&mut body, -1);
        jute::put_i32(&mut body, -1);
        jute::put_i64(&mut body, -1);
        Self::of(OpCode::Reconfig, body)
    }

    /// Spoils the body in one of the ways that a broken client or network might.
    fn corrupt(&mut self, request: &mut Outgoing) {
        let body = &mut request.body;
        request.is_write = true;
        match self.rng.random_range(0..6) {
            0 => body.clear(),
            1 | 2 if !body.is_empty() => body.truncate(self.rng.random_range(0..body.len())),
            3 if body.len() >= 4 => {
                const LENGTHS: &[i32] = &[-1, -2, i32::MIN, i32::MAX, 0, 0x10_0000, 1_000_000_000];
                let length = LENGTHS.choose(self.rng).expect("not empty");
                body[..4].copy_from_slice(&length.to_be_bytes());
            }
            4 if !body.is_empty() => {
                let at = self.rng.random_range(0..body.len());
                body[at] = self.rng.random();
            }
            _ => body.extend_from_slice(&[0xde, 0xad, 0xbe, 0xef]),
        }
        if request.relative_zxid.is_some() && body.len() < 8 {
            request.relative_zxid = None;
        }
        request.path = None;
    }
}

fn lossy(path: Bytes) -> String {
    String::from_utf8_lossy(&path).into_owned()
}
