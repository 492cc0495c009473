//! RaftKeeper's mixed workload: each connection has keys of its own below a prefix; a list is a range over
//! the prefix, keys only.
//!
//! etcd answers requests of one connection in any order, so what an answer must say is known only from
//! revisions: every answer tells of which revision of the store it is, and every put and delete at which it
//! took place. A list of revision r must have exactly the keys that were put up to r and not deleted up to r;
//! where a put or a delete is not answered yet, both are right.
//!
//! A set must not bring back a key that is being deleted, so the oldest key without a set under way is
//! deleted, and no set begins on it any more.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use prost::bytes::Bytes;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::calls::At;
use super::client::Client;
use super::load::{self, Asker, User, ask_again_and_again};
use super::message::KeyValue;
use crate::measure::{Measurement, fresh_root};
use crate::payload;
use crate::raftkeeper_mix::{CHILDREN, Kind, VALUE_LEN};
use crate::window::Surroundings;

/// `connections` of them with `outstanding` requests each, from `threads` threads.
pub(crate) fn mixed(
    members: &[SocketAddr],
    around: Surroundings<'_>,
    (connections, outstanding, threads): (usize, usize, usize),
    lengths: (Duration, Duration),
) -> Result<Measurement> {
    let root = fresh_root();
    let users =
        (0..connections as u64).map(|seed| Children::new(format!("{root}/{seed:04}"), seed)).collect();
    let hands = load::connect(members, users, threads.min(connections))?;
    let measured = load::run(hands, lengths, None, around, |shared, tasks, links| {
        ask_again_and_again(shared, tasks, links, outstanding);
    })?;
    load::sweep(members, &root)?;
    Ok(measured)
}

/// A connection's requests to the children of its parent, which nobody else touches.
struct Children {
    parent: String,
    value: Bytes,
    rng: RefCell<StdRng>,
    ledger: RefCell<Ledger>,
    /// The number of the next one to be created.
    next: Cell<u32>,
}

impl Children {
    fn new(parent: String, seed: u64) -> Self {
        Self {
            parent,
            value: payload::first(0, VALUE_LEN).into(),
            rng: RefCell::new(StdRng::seed_from_u64(seed)),
            ledger: RefCell::default(),
            next: Cell::new(CHILDREN),
        }
    }

    fn key(&self, number: u32) -> Bytes {
        format!("{}/n{number:07}", self.parent).into()
    }

    fn number(&self, key: &[u8]) -> Option<u32> {
        let digits = key.strip_prefix(self.parent.as_bytes())?.strip_prefix(b"/n")?;
        std::str::from_utf8(digits).ok()?.parse().ok()
    }

    fn any(&self) -> Result<u32> {
        self.ledger.borrow().any(&mut *self.rng.borrow_mut()).context("no child is left")
    }

    async fn create(&self, client: &Client) -> Result<()> {
        let number = self.next.replace(self.next.get() + 1);
        self.ledger.borrow_mut().create(number);
        let revision = client.put(self.key(number), self.value.clone()).await?;
        self.ledger.borrow_mut().created(number, revision);
        Ok(())
    }

    async fn set(&self, client: &Client) -> Result<()> {
        let number = self.any()?;
        self.ledger.borrow_mut().set(number);
        let revision = client.put(self.key(number), self.value.clone()).await?;
        self.ledger.borrow_mut().was_set(number, revision);
        Ok(())
    }

    async fn get(&self, client: &Client) -> Result<()> {
        let number = self.any()?;
        let asked = self.ledger.borrow_mut().ask();
        let found = client.get(&self.key(number)).await?;
        let mut ledger = self.ledger.borrow_mut();
        ledger.answered(asked, found.revision)?;
        ledger.check_get(number, &found)
    }

    async fn list(&self, client: &Client) -> Result<()> {
        let asked = self.ledger.borrow_mut().ask();
        let At { revision, answer } = client.list(&self.parent).await?;
        let mut ledger = self.ledger.borrow_mut();
        ledger.answered(asked, revision)?;
        let number = |key: &Bytes| {
            self.number(key).with_context(|| format!("a key {key:?} that is not below {}", self.parent))
        };
        ledger.check_list(revision, &answer.iter().map(number).collect::<Result<Vec<_>>>()?)
    }

    async fn delete(&self, client: &Client, number: u32) -> Result<()> {
        let revision = client.delete(self.key(number)).await?;
        self.ledger.borrow_mut().deleted(number, revision);
        Ok(())
    }
}

impl User for Children {
    fn layout(&self) -> Vec<(Bytes, Bytes)> {
        (0..CHILDREN).map(|number| (self.key(number), self.value.clone())).collect()
    }

    fn laid_out(&mut self, revisions: &[i64]) {
        let ledger = self.ledger.get_mut();
        for (number, revision) in (0..).zip(revisions) {
            ledger.create(number);
            ledger.created(number, *revision);
        }
    }
}

impl Asker for Children {
    async fn ask(&self, client: &Client) -> Result<()> {
        let kind = Kind::any(&mut *self.rng.borrow_mut());
        match kind {
            Kind::Create => self.create(client).await,
            Kind::Set => self.set(client).await,
            Kind::Get => self.get(client).await,
            Kind::List => self.list(client).await,
            Kind::Delete => {
                let oldest = self.ledger.borrow_mut().delete();
                match oldest {
                    Some(oldest) => self.delete(client, oldest).await,
                    // All that could be deleted are being set.
                    None => self.set(client).await,
                }
            }
        }
    }
}

/// What is known of the children.
#[derive(Default)]
struct Ledger {
    children: BTreeMap<u32, Child>,
    /// The greatest revision that an answer was of.
    seen: i64,
    /// What had been seen when each of the reads was asked that are not answered yet.
    asked: Vec<i64>,
}

#[derive(Default)]
struct Child {
    /// Since when it is there, if that is known.
    created: Option<i64>,
    /// The greatest revision at which it was put, as far as known.
    put: i64,
    sets_under_way: u32,
    gone: Gone,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Gone {
    #[default]
    No,
    /// Its deletion is asked for.
    Perhaps,
    Since(i64),
}

/// [`Ledger::seen`] when a read was asked.
#[derive(Clone, Copy, Debug)]
struct Asked(i64);

impl Ledger {
    /// One that is there and stays.
    fn any(&self, rng: &mut impl Rng) -> Option<u32> {
        let (first, last) = (*self.children.keys().next()?, *self.children.keys().next_back()?);
        let stays = |child: &Child| child.created.is_some() && child.gone == Gone::No;
        // Nearly all of them do, and they are numbered one after the other.
        for _ in 0..100 {
            let number = rng.random_range(first..=last);
            if self.children.get(&number).is_some_and(stays) {
                return Some(number);
            }
        }
        self.children.iter().find(|(_, child)| stays(child)).map(|(number, _)| *number)
    }

    fn create(&mut self, number: u32) {
        self.children.insert(number, Child::default());
    }

    fn created(&mut self, number: u32, revision: i64) {
        let child = self.children.entry(number).or_default();
        (child.created, child.put) = (Some(revision), revision);
        self.seen = self.seen.max(revision);
    }

    fn set(&mut self, number: u32) {
        self.children.entry(number).or_default().sets_under_way += 1;
    }

    fn was_set(&mut self, number: u32, revision: i64) {
        let child = self.children.entry(number).or_default();
        child.sets_under_way -= 1;
        child.put = child.put.max(revision);
        self.seen = self.seen.max(revision);
    }

    /// The oldest that can be deleted and is not the last one.
    fn delete(&mut self) -> Option<u32> {
        let mut stay = self.children.iter_mut().filter(|(_, child)| {
            child.created.is_some() && child.gone == Gone::No && child.sets_under_way == 0
        });
        let ((number, oldest), _) = (stay.next()?, stay.next()?);
        oldest.gone = Gone::Perhaps;
        Some(*number)
    }

    fn deleted(&mut self, number: u32, revision: i64) {
        self.children.entry(number).or_default().gone = Gone::Since(revision);
        self.seen = self.seen.max(revision);
        // A read that was asked earlier may still tell of it.
        let earliest = self.asked.iter().copied().min().unwrap_or(self.seen);
        self.children.retain(|_, child| !matches!(child.gone, Gone::Since(since) if since <= earliest));
    }

    fn ask(&mut self) -> Asked {
        self.asked.push(self.seen);
        Asked(self.seen)
    }

    /// A member never answers of an earlier revision than it has answered of before.
    fn answered(&mut self, Asked(seen): Asked, revision: i64) -> Result<()> {
        if let Some(place) = self.asked.iter().position(|asked| *asked == seen) {
            self.asked.swap_remove(place);
        }
        ensure!(revision >= seen, "an answer of revision {revision}, after one of {seen}");
        self.seen = self.seen.max(revision);
        Ok(())
    }

    fn check_get(&self, number: u32, found: &At<Option<KeyValue>>) -> Result<()> {
        let child = self.children.get(&number);
        let is_due = child.is_some_and(|child| match child.gone {
            Gone::No => true,
            Gone::Perhaps => false,
            Gone::Since(since) => found.revision < since,
        });
        let Some(value) = &found.answer else {
            ensure!(!is_due, "child {number} is missing at revision {}", found.revision);
            return Ok(());
        };
        let child = child.with_context(|| format!("child {number} is there although it was deleted"))?;
        if let Gone::Since(since) = child.gone {
            ensure!(
                found.revision < since,
                "child {number} is there at {} and gone since {since}",
                found.revision
            );
        }
        let is_whole = value.value.len() == VALUE_LEN && payload::sequence_of(&value.value, 0).is_some();
        ensure!(is_whole, "{:?} is no whole value", value.value);
        let (read, put) = (value.mod_revision, child.put);
        ensure!(
            read >= put || found.revision < put,
            "a value of revision {read} at {}, after {put} was put",
            found.revision
        );
        Ok(())
    }

    fn check_list(&self, revision: i64, found: &[u32]) -> Result<()> {
        ensure!(found.is_sorted_by(|one, next| one < next), "a list out of order: {found:?}");
        for (number, child) in &self.children {
            let is_there = found.binary_search(number).is_ok();
            let may_be_there = child.created.is_none_or(|created| created <= revision)
                && !matches!(child.gone, Gone::Since(since) if since <= revision);
            let must_be_there = child.created.is_some_and(|created| created <= revision)
                && match child.gone {
                    Gone::No => true,
                    Gone::Perhaps => false,
                    Gone::Since(since) => revision < since,
                };
            ensure!(may_be_there || !is_there, "a list of revision {revision} has child {number}");
            ensure!(is_there || !must_be_there, "a list of revision {revision} is without child {number}");
        }
        let stranger = found.iter().find(|number| !self.children.contains_key(number));
        ensure!(
            stranger.is_none(),
            "a list of revision {revision} has {stranger:?}, which was deleted before"
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Children 0, 1 and 2, put at revisions 10, 11 and 12.
    fn ledger() -> Ledger {
        let mut ledger = Ledger::default();
        for number in 0..3 {
            ledger.create(number);
            ledger.created(number, 10 + i64::from(number));
        }
        ledger
    }

    fn value(mod_revision: i64, revision: i64) -> At<Option<KeyValue>> {
        let value = payload::first(0, VALUE_LEN).into();
        At { revision, answer: Some(KeyValue { key: Bytes::new(), mod_revision, value }) }
    }

    #[test]
    fn a_list_has_the_children_of_its_revision() {
        let mut ledger = ledger();
        assert!(ledger.check_list(12, &[0, 1, 2]).is_ok());
        assert!(ledger.check_list(11, &[0, 1]).is_ok());
        for (revision, wrong) in [(12, &[0, 1][..]), (11, &[0, 1, 2]), (12, &[0, 1, 2, 3]), (12, &[1, 0, 2])]
        {
            assert!(ledger.check_list(revision, wrong).is_err(), "{wrong:?} at {revision}");
        }
        let asked = ledger.ask();
        assert_eq!(ledger.delete(), Some(0));
        // On its way: both are right.
        assert!(ledger.check_list(12, &[0, 1, 2]).is_ok() && ledger.check_list(13, &[1, 2]).is_ok());
        ledger.deleted(0, 13);
        assert!(ledger.check_list(12, &[0, 1, 2]).is_ok() && ledger.check_list(13, &[1, 2]).is_ok());
        assert!(ledger.check_list(12, &[1, 2]).is_err() && ledger.check_list(13, &[0, 1, 2]).is_err());
        ledger.answered(asked, 13).unwrap();
        assert_eq!(ledger.delete(), Some(1));
        ledger.deleted(1, 14);
        assert_eq!(ledger.children.keys().copied().collect::<Vec<_>>(), [2], "nobody can see them any more");
        assert!(ledger.check_list(14, &[0, 2]).is_err());
    }

    #[test]
    fn a_child_under_creation_may_be_listed() {
        let mut ledger = ledger();
        ledger.create(3);
        assert!(ledger.check_list(12, &[0, 1, 2]).is_ok() && ledger.check_list(13, &[0, 1, 2, 3]).is_ok());
        ledger.created(3, 13);
        assert!(ledger.check_list(13, &[0, 1, 2]).is_err() && ledger.check_list(12, &[0, 1, 2, 3]).is_err());
    }

    #[test]
    fn a_value_is_not_older_than_what_was_put_before() {
        let mut ledger = ledger();
        assert!(ledger.check_get(0, &value(10, 12)).is_ok());
        ledger.set(0);
        ledger.was_set(0, 13);
        assert!(ledger.check_get(0, &value(10, 12)).is_ok(), "it was asked before");
        assert!(ledger.check_get(0, &value(10, 13)).is_err());
        assert!(ledger.check_get(0, &At { revision: 13, answer: None }).is_err());
        assert_eq!(ledger.delete(), Some(0));
        ledger.deleted(0, 14);
        assert!(ledger.check_get(0, &value(13, 14)).is_err());
    }

    #[test]
    fn a_child_that_is_being_set_is_not_deleted_nor_is_the_last_one() {
        let mut ledger = ledger();
        ledger.set(0);
        assert_eq!(ledger.delete(), Some(1));
        assert_eq!(ledger.delete(), None, "it would be the last one that stays");
        ledger.was_set(0, 13);
        assert_eq!(ledger.delete(), Some(0));
        assert_eq!(ledger.delete(), None);
    }

    #[test]
    fn an_answer_of_an_earlier_revision_is_found_out() {
        let mut ledger = ledger();
        let asked = ledger.ask();
        assert!(ledger.answered(asked, 11).is_err());
    }
}
