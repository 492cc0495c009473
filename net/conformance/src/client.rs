//! A plain client for the tests' own needs: one request at a time, an error for everything unexpected.

use std::net::SocketAddr;

use anyhow::{Context, Result, bail, ensure};
use ringkeeper_wire::jute::{self, Reader};
use ringkeeper_wire::{ErrorCode, OpCode, Record, ReplyHeader, Response, Stat};

use crate::connection::{Connection, Received, Session, request_frame};

/// A session and its connection.
pub(crate) struct Client {
    pub(crate) connection: Connection,
    /// The session.
    pub(crate) session: Session,
    next_xid: i32,
}

/// Data and Stat of a znode.
pub(crate) type Node = (Vec<u8>, Stat);

/// A reply: its zxid, its error code and the body.
pub(crate) struct Reply {
    pub(crate) zxid: i64,
    pub(crate) err: i32,
    pub(crate) body: Vec<u8>,
}

impl Client {
    /// Opens a new session.
    pub(crate) fn connect(server: SocketAddr, timeout_ms: i32) -> Result<Self> {
        Self::resume(server, timeout_ms, &Session::default(), 0)
    }

    /// Resumes a session.
    pub(crate) fn resume(
        server: SocketAddr,
        timeout_ms: i32,
        session: &Session,
        last_zxid_seen: i64,
    ) -> Result<Self> {
        let granted = Connection::resume_session(server, timeout_ms, session, last_zxid_seen)?;
        let (connection, session) =
            granted.with_context(|| format!("{server} refuses session {}", session.id))?;
        Ok(Self { connection, session, next_xid: 1 })
    }

    /// Sends a request and returns its reply; events that come before it are dropped.
    pub(crate) fn request(&mut self, op: OpCode, body: &[u8]) -> Result<Reply> {
        let xid = self.next_xid;
        self.next_xid += 1;
        self.connection.send(&request_frame(xid, op.to_wire(), body))?;
        self.reply(xid, op)
    }

    fn reply(&mut self, xid: i32, op: OpCode) -> Result<Reply> {
        loop {
            let reply =
                parse_reply(&self.connection.receive()?).with_context(|| format!("request {xid}, {op:?}"))?;
            if let Some((reply_xid, reply)) = reply {
                ensure!(reply_xid == xid, "reply {reply_xid} to request {xid}");
                return Ok(reply);
            }
        }
    }

    /// Creates a znode that everybody may use. Returns its path.
    pub(crate) fn create(&mut self, path: &str, data: &[u8], flags: i32) -> Result<String> {
        let reply = self.request(OpCode::Create, &create_body(path, data, flags))?;
        expect_ok(&reply, path)?;
        match Response::decode(OpCode::Create, &reply.body)? {
            Response::Create(response) => Ok(response.path.into_owned()),
            other => bail!("create answered {other:?}"),
        }
    }

    /// Data and Stat of a znode, `None` if it does not exist.
    pub(crate) fn get(&mut self, path: &str) -> Result<Option<Node>> {
        let nodes = self.get_all(std::slice::from_ref(&path.to_owned()))?;
        Ok(nodes.into_iter().next().flatten())
    }

    /// The same for many znodes.
    pub(crate) fn get_all(&mut self, paths: &[String]) -> Result<Vec<Option<Node>>> {
        let replies = self.request_all(OpCode::GetData, paths, path_watch_body)?;
        replies.iter().zip(paths).map(|(reply, path)| decode_node(reply, path)).collect()
    }

    /// A request about each of many paths, a few hundred at a time; the replies in their order.
    fn request_all(
        &mut self,
        op: OpCode,
        paths: &[String],
        body: impl Fn(&str) -> Vec<u8>,
    ) -> Result<Vec<Reply>> {
        const AT_ONCE: usize = 256;
        let mut replies = Vec::with_capacity(paths.len());
        for paths in paths.chunks(AT_ONCE) {
            let first_xid = self.next_xid;
            self.next_xid += i32::try_from(paths.len())?;
            let requests = (first_xid..).zip(paths);
            let bytes: Vec<u8> =
                requests.flat_map(|(xid, path)| request_frame(xid, op.to_wire(), &body(path))).collect();
            self.connection.send(&bytes)?;
            for xid in first_xid..self.next_xid {
                replies.push(self.reply(xid, op)?);
            }
        }
        Ok(replies)
    }

    /// Names of the children.
    pub(crate) fn children(&mut self, path: &str) -> Result<Vec<String>> {
        let reply = self.request(OpCode::GetChildren, &path_watch_body(path))?;
        expect_ok(&reply, path)?;
        match Response::decode(OpCode::GetChildren, &reply.body)? {
            Response::GetChildren(response) => {
                Ok(response.children.iter().map(|name| name.into_owned()).collect())
            }
            other => bail!("getChildren answered {other:?}"),
        }
    }

    /// Deletes a znode of any version.
    pub(crate) fn delete(&mut self, path: &str) -> Result<()> {
        expect_ok(&self.request(OpCode::Delete, &delete_body(path))?, path)
    }

    /// The same for many znodes.
    pub(crate) fn delete_all(&mut self, paths: &[String]) -> Result<()> {
        let replies = self.request_all(OpCode::Delete, paths, delete_body)?;
        replies.iter().zip(paths).try_for_each(|(reply, path)| expect_ok(reply, path))
    }

    /// Ends the session.
    pub(crate) fn close(mut self) -> Result<()> {
        expect_ok(&self.request(OpCode::CloseSession, &[])?, "closeSession")
    }
}

fn decode_node(reply: &Reply, path: &str) -> Result<Option<Node>> {
    if reply.err == ErrorCode::NoNode.to_wire() {
        return Ok(None);
    }
    expect_ok(reply, path)?;
    match Response::decode(OpCode::GetData, &reply.body)? {
        Response::GetData(response) => Ok(Some((response.data.unwrap_or_default().to_vec(), response.stat))),
        other => bail!("getData answered {other:?}"),
    }
}

/// A reply's xid and the reply; `None` for an event.
pub(crate) fn parse_reply(received: &Received) -> Result<Option<(i32, Reply)>> {
    let Received::Frame(frame) = received else { bail!("the connection is {received:?}") };
    let mut reader = Reader::new(frame);
    let header = ReplyHeader::decode(&mut reader)?;
    if header.xid == ringkeeper_wire::xid::NOTIFICATION {
        return Ok(None);
    }
    let reply = Reply { zxid: header.zxid, err: header.err, body: reader.rest().to_vec() };
    Ok(Some((header.xid.0, reply)))
}

/// The body of a create with the list of permissions that lets everybody do everything.
pub(crate) fn create_body(path: &str, data: &[u8], flags: i32) -> Vec<u8> {
    let mut body = Vec::with_capacity(path.len() + data.len() + 48);
    jute::put_ustring(&mut body, path);
    jute::put_buffer(&mut body, Some(data));
    jute::put_len(&mut body, 1);
    jute::put_i32(&mut body, 31);
    jute::put_ustring(&mut body, "world");
    jute::put_ustring(&mut body, "anyone");
    jute::put_i32(&mut body, flags);
    body
}

/// The body of a setData of any version.
pub(crate) fn set_data_body(path: &str, data: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    jute::put_ustring(&mut body, path);
    jute::put_buffer(&mut body, Some(data));
    jute::put_i32(&mut body, -1);
    body
}

/// The body of a delete of any version.
pub(crate) fn delete_body(path: &str) -> Vec<u8> {
    let mut body = Vec::new();
    jute::put_ustring(&mut body, path);
    jute::put_i32(&mut body, -1);
    body
}

/// The body of a read without a watch.
pub(crate) fn path_watch_body(path: &str) -> Vec<u8> {
    let mut body = Vec::new();
    jute::put_ustring(&mut body, path);
    body.push(0);
    body
}

fn expect_ok(reply: &Reply, about: &str) -> Result<()> {
    ensure!(reply.err == 0, "error {} about {}", reply.err, about.chars().take(200).collect::<String>());
    Ok(())
}
