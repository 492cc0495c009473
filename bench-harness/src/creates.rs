//! Creates of new znodes, one after the other, under one parent for each session.

use std::fmt::Write;

use ringkeeper_wire::{CreateResponse, Record};

use crate::lane::Source;
use crate::{payload, request};

/// One session's creates: `<parent>/n0000000`, `<parent>/n0000001`, and so on.
pub(crate) struct Creates {
    /// The path of the next znode; its digits are overwritten.
    path: String,
    parent_len: usize,
    next: u32,
    end: u32,
    payload: Vec<u8>,
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
        }
    }
}

impl Source for Creates {
    /// Number of the znode.
    type Expected = u32;

    fn issue(&mut self, out: &mut Vec<u8>, xid: i32) -> Option<u32> {
        if self.next == self.end {
            return None;
        }
        let number = self.next;
        self.next += 1;
        self.path.truncate(self.parent_len);
        write!(self.path, "/n{number:07}").expect("a string takes what memory holds");
        payload::stamp(&mut self.payload, u64::from(number));
        request::create(out, xid, &self.path, &self.payload);
        Some(number)
    }

    fn check(&self, expected: &u32, body: &[u8]) -> Result<(), String> {
        let reply = CreateResponse::from_bytes(body).map_err(|error| error.to_string())?;
        let name =
            reply.path.strip_prefix(&self.path[..self.parent_len]).and_then(|rest| rest.strip_prefix("/n"));
        match name.and_then(|digits| digits.parse::<u32>().ok()) {
            Some(number) if number == *expected => Ok(()),
            _ => Err(format!("created {:?} instead of number {expected}", reply.path)),
        }
    }
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
        assert_eq!(issued, [Some(0), Some(1), None, None]);
    }

    #[test]
    fn the_path_created_must_be_the_path_asked_for() {
        let creates = Creates::new("/p", 2, 100);
        assert_eq!(creates.check(&1, &reply("/p/n0000001")), Ok(()));
        assert!(creates.check(&1, &reply("/p/n0000002")).is_err());
        assert!(creates.check(&1, &reply("/q/n0000001")).is_err());
        assert!(creates.check(&1, &[]).is_err());
    }
}
