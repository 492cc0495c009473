//! Changes of the dashboard's users. Each is sent as a client would, by a session of its own: so ACLs, rules,
//! quotas, bounds and the audit log hold.

use std::borrow::Cow;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ringkeeper_wire::frame::{begin_frame, end_frame};
use ringkeeper_wire::jute::Reader;
use ringkeeper_wire::{
    AclEntry, AuthRequest, ConnectRequest, ConnectResponse, CreateMode, CreateRequest, DeleteRequest,
    ErrorCode, Perms, Record, ReplyHeader, Request, RequestHeader, SessionId, SetAclRequest, SetDataRequest,
    Xid, xid,
};
use serde_json::Value;

/// How long the server may take for one answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// Timeout of the session, milliseconds. It is closed behind the change.
const SESSION_TIMEOUT_MS: i32 = 10_000;

/// A reply is at most as long as a created path.
const REPLY_BYTES_MAX: usize = 1 << 20;

/// What is to be changed.
pub(super) enum Change {
    Create { path: String, data: Vec<u8>, acl: Vec<AclEntry> },
    SetData { path: String, data: Vec<u8>, version: i32 },
    SetAcl { path: String, acl: Vec<AclEntry>, version: i32 },
    Delete { path: String, version: i32 },
}

/// Why nothing is changed, as far as the server says.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failed {
    #[error("{0:?}")]
    Refused(ErrorCode),
    #[error("the change may or may not have been made: {0}")]
    Connection(#[from] io::Error),
}

impl Change {
    /// Reads `{"change": "setData", "path": ...}` with `data_base64`, `version` and `acl` where they belong.
    ///
    /// # Errors
    /// What is missing or wrong.
    pub(super) fn parse(value: &Value) -> Result<Self, String> {
        let text =
            |key: &str| value[key].as_str().map(str::to_owned).ok_or_else(|| format!("{key} is missing"));
        let path = text("path")?;
        let data = || STANDARD.decode(text("data_base64")?).map_err(|error| format!("data_base64: {error}"));
        // Without the version that its author has seen a change would undo what others have done meanwhile.
        let version = || {
            let version = value["version"].as_i64().and_then(|version| i32::try_from(version).ok());
            version.ok_or_else(|| "version is missing".to_owned())
        };
        let acl = || {
            let entries = value["acl"].as_array().ok_or("acl is missing")?;
            entries.iter().map(entry).collect::<Result<Vec<_>, _>>()
        };
        match text("change")?.as_str() {
            "create" => Ok(Self::Create { path, data: data()?, acl: acl()? }),
            "setData" => Ok(Self::SetData { path, data: data()?, version: version()? }),
            "setAcl" => Ok(Self::SetAcl { path, acl: acl()?, version: version()? }),
            "delete" => Ok(Self::Delete { path, version: version()? }),
            other => Err(format!("change is {other:?}, not create, setData, setAcl or delete")),
        }
    }

    fn request(&self) -> Request<'_> {
        match self {
            Self::Create { path, data, acl } => Request::Create(CreateRequest {
                path: Cow::Borrowed(path),
                data: Some(data),
                acl: Some(acl.as_slice().into()),
                flags: CreateMode::Persistent.to_wire(),
            }),
            Self::SetData { path, data, version } => Request::SetData(SetDataRequest {
                path: Cow::Borrowed(path),
                data: Some(data),
                version: *version,
            }),
            Self::SetAcl { path, acl, version } => Request::SetAcl(SetAclRequest {
                path: Cow::Borrowed(path),
                acl: Some(acl.as_slice().into()),
                version: *version,
            }),
            Self::Delete { path, version } => {
                Request::Delete(DeleteRequest { path: Cow::Borrowed(path), version: *version })
            }
        }
    }

    /// Makes the change over a connection, for who has these credentials of the scheme `digest`. Blocks.
    ///
    /// # Errors
    /// The server refuses, or the connection ends.
    pub(super) fn make(&self, stream: UnixStream, credentials: &[u8]) -> Result<(), Failed> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut session = Session(stream);
        session.open()?;
        let scheme = Some(Cow::Borrowed("digest"));
        session
            .ask(xid::AUTH, &Request::Auth(AuthRequest { auth_type: 0, scheme, auth: Some(credentials) }))?;
        let made = session.ask(Xid(1), &self.request());
        // The change is made or refused by now; a session that is not closed expires.
        let _ = session.ask(Xid(2), &Request::CloseSession);
        made
    }
}

fn entry(value: &Value) -> Result<AclEntry, String> {
    let text = |key: &str| {
        value[key].as_str().map(str::to_owned).ok_or_else(|| format!("an entry of acl has no {key}"))
    };
    let perms = value["perms"].as_i64().and_then(|perms| i32::try_from(perms).ok());
    let perms = Perms(perms.ok_or("an entry of acl has no perms")?);
    Ok(AclEntry { perms, scheme: text("scheme")?, id: text("id")? })
}

/// A connection to a shard.
struct Session(UnixStream);

impl Session {
    fn open(&mut self) -> Result<(), Failed> {
        let request = ConnectRequest {
            protocol_version: 0,
            last_zxid_seen: 0,
            timeout_ms: SESSION_TIMEOUT_MS,
            session_id: SessionId(0),
            password: None,
            read_only: Some(false),
        };
        self.send(|out| request.encode(out))?;
        let answer = self.receive()?;
        let granted = ConnectResponse::decode(&mut Reader::new(&answer)).map_err(malformed)?.timeout_ms;
        if granted > 0 { Ok(()) } else { Err(Failed::Refused(ErrorCode::SessionExpired)) }
    }

    fn ask(&mut self, xid: Xid, request: &Request<'_>) -> Result<(), Failed> {
        self.send(|out| {
            RequestHeader { xid, op: request.op().to_wire() }.encode(out);
            request.encode(out);
        })?;
        let reply = self.receive()?;
        let header = ReplyHeader::decode(&mut Reader::new(&reply)).map_err(malformed)?;
        match ErrorCode::from_wire(header.err) {
            Some(ErrorCode::Ok) => Ok(()),
            Some(code) => Err(Failed::Refused(code)),
            None => Err(malformed(header.err).into()),
        }
    }

    fn send(&mut self, encode: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        let mut out = Vec::new();
        let start = begin_frame(&mut out);
        encode(&mut out);
        end_frame(&mut out, start).map_err(malformed)?;
        self.0.write_all(&out)
    }

    fn receive(&mut self) -> io::Result<Vec<u8>> {
        let mut len = [0; 4];
        self.0.read_exact(&mut len)?;
        let len = usize::try_from(u32::from_be_bytes(len)).map_err(malformed)?;
        if len > REPLY_BYTES_MAX {
            return Err(malformed(len));
        }
        let mut reply = vec![0; len];
        self.0.read_exact(&mut reply)?;
        Ok(reply)
    }
}

fn malformed(what: impl ToString) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_string())
}
