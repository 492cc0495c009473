//! Creates of new znodes, one after the other, under one parent for each session; each deleted again behind
//! the session's back if that is wanted, as in the paper's section 5.2.

use std::fmt::Write;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::Result;
use ringkeeper_wire::{CreateResponse, Record};

use crate::driver::Schedule;
use crate::lane::Source;
use crate::measure::{Measurement, fresh_root, under_load};
use crate::session::{self, Session};
use crate::window::Surroundings;
use crate::{payload, request};

/// One session's creates: `<parent>/n0000000`, `<parent>/n0000001`, and so on.
pub(crate) struct Creates {
    /// The path of the next znode; its digits are overwritten.
    path: String,
    parent_len: usize,
    next: u32,
    end: u32,
    payload: Vec<u8>,
    /// Znodes are deleted once they are there, and the last one is there and not deleted.
    delete: Option<bool>,
}

/// What was asked for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// The znode of this number.
    Create(u32),
    /// That the znode of this number be gone.
    Delete(u32),
}

impl Creates {
    /// `count` creates of `payload_len` bytes each under `parent`.
    pub(crate) fn new(parent: &str, count: u32, payload_len: usize) -> Self {
        Self {
            path: parent.to_owned(),
            parent_len: parent.len(),
            next: 0,
            end: count,
            payload: payload::first(0, payload_len),
            delete: None,
        }
    }

    /// Has each znode deleted while the next one is created. Only the creates count.
    pub(crate) fn deleting(self) -> Self {
        Self { delete: Some(false), ..self }
    }

    fn write_path(&mut self, number: u32) {
        self.path.truncate(self.parent_len);
        write!(self.path, "/n{number:07}").expect("a string takes what memory holds");
    }
}

impl Source for Creates {
    type Expected = Asked;

    fn issue(&mut self, out: &mut Vec<u8>, xid: i32) -> Option<Asked> {
        if self.delete == Some(true) {
            self.delete = Some(false);
            request::delete(out, xid, &self.path);
            return Some(Asked::Delete(self.next - 1));
        }
        if self.next == self.end {
            return None;
        }
        let number = self.next;
        self.next += 1;
        self.delete = self.delete.map(|_| true);
        self.write_path(number);
        payload::stamp(&mut self.payload, u64::from(number));
        request::create(out, xid, &self.path, &self.payload);
        Some(Asked::Create(number))
    }

    fn counts(&self, asked: &Asked) -> bool {
        matches!(asked, Asked::Create(_))
    }

    fn check(&self, asked: &Asked, body: &[u8]) -> Result<(), String> {
        let Asked::Create(expected) = asked else { return Ok(()) };
        let reply = CreateResponse::from_bytes(body).map_err(|error| error.to_string())?;
        let name =
            reply.path.strip_prefix(&self.path[..self.parent_len]).and_then(|rest| rest.strip_prefix("/n"));
        match name.and_then(|digits| digits.parse::<u32>().ok()) {
            Some(number) if number == *expected => Ok(()),
            _ => Err(format!("created {:?} instead of number {expected}", reply.path)),
        }
    }
}

/// Where clients create, and for how long.
#[derive(Clone, Copy)]
pub(crate) struct CreateLoad<'s> {
    pub(crate) servers: &'s [SocketAddr],
    pub(crate) around: Surroundings<'s>,
    pub(crate) warmup: Duration,
    pub(crate) window: Duration,
}

/// `clients` sessions, each creating under a parent of its own with one create outstanding; `source` makes
/// the creates under a given parent.
pub(crate) fn create_synchronously(
    load: &CreateLoad<'_>,
    clients: usize,
    source: impl Fn(&str) -> Creates,
) -> Result<Measurement> {
    let mut sessions = Session::open_all(load.servers, clients)?;
    let root = fresh_root();
    sessions[0].call(|out, xid| request::create(out, xid, &root, b""))?;
    let parents: Vec<String> = (0..clients).map(|index| format!("{root}/{index:04}")).collect();
    session::call_each(&mut sessions, |index, out, xid| request::create(out, xid, &parents[index], b""))?;
    let sources = parents.iter().map(|parent| source(parent)).collect();
    load.around.begin_with(&mut sessions)?;
    let from = Instant::now() + load.warmup;
    let schedule = Schedule { outstanding: 1, from, to: from + load.window, arrivals: None };
    under_load(sessions, sources, 1, schedule, load.around)?.finish(schedule, load.around)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(path: &str) -> Vec<u8> {
        let mut body = Vec::new();
        CreateResponse { path: path.into() }.encode(&mut body);
        body
    }

    #[test]
    fn as_many_creates_as_asked_for() {
        let mut creates = Creates::new("/p", 2, 100);
        let mut out = Vec::new();
        let issued: Vec<_> = (1..=4).map(|xid| creates.issue(&mut out, xid)).collect();
        assert_eq!(issued, [Some(Asked::Create(0)), Some(Asked::Create(1)), None, None]);
    }

    #[test]
    fn a_znode_is_deleted_before_the_next_is_created() {
        let mut creates = Creates::new("/p", 2, 100).deleting();
        let mut out = Vec::new();
        let issued: Vec<_> = (1..=5).map_while(|xid| creates.issue(&mut out, xid)).collect();
        assert_eq!(issued, [Asked::Create(0), Asked::Delete(0), Asked::Create(1), Asked::Delete(1)]);
        assert_eq!(issued.iter().filter(|asked| creates.counts(asked)).count(), 2);
    }

    #[test]
    fn the_path_created_must_be_the_path_asked_for() {
        let creates = Creates::new("/p", 2, 100);
        assert_eq!(creates.check(&Asked::Create(1), &reply("/p/n0000001")), Ok(()));
        assert!(creates.check(&Asked::Create(1), &reply("/p/n0000002")).is_err());
        assert!(creates.check(&Asked::Create(1), &reply("/q/n0000001")).is_err());
        assert!(creates.check(&Asked::Create(1), &[]).is_err());
    }
}
