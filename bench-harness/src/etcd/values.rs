//! The mix of reads and writes of whole values, in a given proportion: puts and ranges, each connection with
//! a key of its own.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use prost::bytes::Bytes;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::calls::At;
use super::client::Client;
use super::load::{self, Asker, User, ask_again_and_again, ask_when_due};
use super::message::KeyValue;
use crate::measure::{Load, Measurement, fresh_root};
use crate::payload;
use crate::window::Surroundings;

/// Runs `load` against `members` once: `reads_percent` ranges, the rest puts.
pub(crate) fn measure(members: &[SocketAddr], around: Surroundings<'_>, load: &Load) -> Result<Measurement> {
    let root = fresh_root();
    let users = (0..).take(load.sessions).map(|number| Values::new(&root, number, load)).collect();
    let threads = load.threads.min(load.sessions);
    let hands = load::connect(members, users, threads)?;
    let arrivals = load.arrivals(threads);
    let lengths = (load.warmup, load.window);
    let measured =
        load::run(hands, lengths, arrivals, around, |shared, tasks, links| match shared.arrivals() {
            None => ask_again_and_again(shared, tasks, links, load.outstanding),
            Some(arrivals) => {
                tasks.spawn_local(ask_when_due(shared.clone(), links, arrivals));
            }
        })?;
    load::sweep(members, &root)?;
    Ok(measured)
}

/// One key and what is known of it.
struct Values {
    key: Bytes,
    number: u32,
    /// How many values were sent.
    sent: Cell<u64>,
    /// The greatest revision at which a value was put, as far as it has been answered.
    put: Cell<i64>,
    /// The next value, but for its sequence.
    value: RefCell<Vec<u8>>,
    rng: RefCell<StdRng>,
    reads_percent: u8,
}

impl Values {
    fn new(root: &str, number: u32, load: &Load) -> Self {
        Self {
            key: format!("{root}/{number:05}").into(),
            number,
            sent: Cell::new(0),
            put: Cell::new(0),
            value: RefCell::new(payload::first(number, load.payload_len)),
            rng: RefCell::new(StdRng::seed_from_u64(load.seed ^ u64::from(number).rotate_left(32))),
            reads_percent: load.reads_percent,
        }
    }

    fn next_is_read(&self) -> bool {
        match self.reads_percent {
            0 => false,
            100 => true,
            percent => self.rng.borrow_mut().random_range(0..100) < percent,
        }
    }

    fn next_value(&self) -> Bytes {
        self.sent.set(self.sent.get() + 1);
        let mut value = self.value.borrow_mut();
        payload::stamp(&mut value, self.sent.get());
        Bytes::copy_from_slice(&value)
    }

    /// `put`: [`Values::put`] when the value was asked for.
    fn check(&self, put: i64, found: &At<Option<KeyValue>>) -> Result<()> {
        let Some(found) = &found.answer else { anyhow::bail!("no value of a key that was put") };
        let (len, expected) = (found.value.len(), self.value.borrow().len());
        ensure!(len == expected, "a value of {len} bytes instead of {expected}");
        let sequence =
            payload::sequence_of(&found.value, self.number).context("no whole value of its key")?;
        ensure!(sequence <= self.sent.get(), "value {sequence} of {} that were sent", self.sent.get());
        let revision = found.mod_revision;
        ensure!(revision >= put, "value {sequence} of revision {revision}, after revision {put} was put");
        Ok(())
    }
}

impl User for Values {
    fn layout(&self) -> Vec<(Bytes, Bytes)> {
        vec![(self.key.clone(), Bytes::copy_from_slice(&self.value.borrow()))]
    }

    fn laid_out(&mut self, revisions: &[i64]) {
        self.put.set(revisions.iter().copied().max().unwrap_or_default());
    }
}

impl Asker for Values {
    async fn ask(&self, client: &Client) -> Result<()> {
        if self.next_is_read() {
            let put = self.put.get();
            return self.check(put, &client.get(&self.key).await?);
        }
        let revision = client.put(self.key.clone(), self.next_value()).await?;
        self.put.set(self.put.get().max(revision));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: usize = 64;

    fn values() -> Values {
        let second = std::time::Duration::from_secs(1);
        let load = Load {
            sessions: 1,
            outstanding: 1,
            threads: 1,
            payload_len: LEN,
            znodes: 1,
            reads_percent: 50,
            per_second: None,
            burst: 1,
            warmup: second,
            window: second,
            seed: 1,
        };
        Values::new("/r", 5, &load)
    }

    fn found(number: u32, sequence: u64, mod_revision: i64) -> At<Option<KeyValue>> {
        let mut value = payload::first(number, LEN);
        payload::stamp(&mut value, sequence);
        At {
            revision: 9,
            answer: Some(KeyValue { key: "/r/00005".into(), mod_revision, value: value.into() }),
        }
    }

    #[test]
    fn a_value_read_must_be_of_its_key_and_have_been_sent() {
        let values = values();
        values.next_value();
        assert!(values.check(0, &found(5, 1, 1)).is_ok());
        for wrong in [found(6, 1, 1), found(5, 2, 1), At { revision: 9, answer: None }] {
            assert!(values.check(0, &wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_value_read_must_not_be_older_than_one_that_was_put_before() {
        let values = values();
        assert!(values.check(7, &found(5, 0, 7)).is_ok());
        let error = values.check(7, &found(5, 0, 6)).unwrap_err().to_string();
        assert_eq!(error, "value 0 of revision 6, after revision 7 was put");
    }
}
