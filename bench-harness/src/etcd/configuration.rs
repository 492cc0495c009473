//! Changing a configuration behind a ready key (section 2.3 of the ZooKeeper paper): a writer at the first
//! member, and at the last one a reader that watches ready.

use std::collections::VecDeque;
use std::future::Future;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use prost::bytes::Bytes;
use ringkeeper_testkit::interrupt;
use tokio::runtime::Runtime;

use super::calls::revision;
use super::client::{Client, Method, Stream};
use super::message::{Event, EventKind, WatchCreateRequest, WatchRequest, WatchResponse};
use super::pipeline::{pipeline, untold};
use super::runtime;
use crate::driver::SILENCE_MAX;
use crate::fault::Fault;
use crate::payload;
use crate::window::Rate;

/// Requests outstanding while keys are laid out.
const LAYOUT_OUTSTANDING: usize = 500;

/// How often it is looked for an interrupt while an event is awaited.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The configuration's keys, and those who change and read it.
pub(crate) struct Configuration {
    runtime: Runtime,
    keys: Vec<Bytes>,
    ready: Bytes,
    payload_len: usize,
    /// Of the values put last.
    sequence: u64,
    writer: Client,
    reader: Client,
    watch: Watch,
}

impl Configuration {
    /// Lays out `count` keys of `payload_len` bytes each below `root`, and ready.
    pub(crate) fn lay_out(
        members: &[SocketAddr],
        root: &str,
        (count, payload_len): (usize, usize),
    ) -> Result<Self> {
        let runtime = runtime()?;
        let keys: Vec<Bytes> = (0..count).map(|number| format!("{root}/n{number:07}").into()).collect();
        let ready: Bytes = format!("{root}/ready").into();
        let laid_out = async {
            let writer = Client::connect(*members.first().context("no members")?).await?;
            let reader = Client::connect(*members.last().context("no members")?).await?;
            let puts = puts(&writer, &keys, value(payload_len, 0));
            pipeline(puts, LAYOUT_OUTSTANDING, &mut untold()).await.context("laying out keys")?;
            let since = writer.put(ready.clone(), Bytes::new()).await?;
            let watch = Watch::leave(&reader, ready.clone(), since).await.context("leaving a watch")?;
            Ok::<_, anyhow::Error>((writer, reader, watch))
        };
        let (writer, reader, watch) = runtime.block_on(laid_out)?;
        Ok(Self { runtime, keys, ready, payload_len, sequence: 0, writer, reader, watch })
    }

    /// Deletes ready, puts every key with so many puts outstanding, and puts ready again; the time of the
    /// writer's part. `rate` is told of the puts.
    pub(crate) fn change(&mut self, outstanding: usize, rate: &mut Rate<'_>) -> Result<Duration> {
        self.sequence += 1;
        let Self { runtime, keys, ready, payload_len, sequence, writer, reader, watch } = self;
        runtime.block_on(async {
            let began = Instant::now();
            let gone = writer.delete(ready.clone()).await?;
            let deleted = began.elapsed();
            watch.expect(EventKind::Delete, gone).await?;
            ensure!(reader.get(ready).await?.answer.is_none(), "ready is there although it was deleted");
            let went_on = Instant::now();
            let revisions =
                pipeline(puts(writer, keys, value(*payload_len, *sequence)), outstanding, rate).await?;
            let there = writer.put(ready.clone(), Bytes::new()).await?;
            let elapsed = deleted + went_on.elapsed();
            let in_order = outstanding > 1 || revisions.is_sorted_by(|one, next| one < next);
            ensure!(in_order, "puts one after the other with revisions out of order");
            let between = revisions.iter().all(|revision| (gone + 1..there).contains(revision));
            ensure!(between, "a put that is not between revisions {gone} and {there}, where ready was gone");
            Ok(elapsed)
        })
    }

    /// Waits until ready is there for the reader, and reads every key, which must have its new value.
    pub(crate) fn read_back(&mut self, outstanding: usize) -> Result<()> {
        let Self { runtime, keys, payload_len, sequence, reader, watch, .. } = self;
        runtime.block_on(async {
            watch.expect_put().await?;
            let expected = value(*payload_len, *sequence);
            let reads = keys.iter().map(|key| {
                let (reader, key, expected) = (reader.clone(), key.clone(), expected.clone());
                async move {
                    let found = reader.get(&key).await?.answer.map(|found| found.value);
                    ensure!(
                        found.as_ref() == Some(&expected),
                        "value {:?} of {key:?} behind a ready key that promises another",
                        found.and_then(|value| payload::sequence_of(&value, 0))
                    );
                    Ok(())
                }
            });
            pipeline(reads, outstanding, &mut untold()).await.context("reading what was changed").map(drop)
        })
    }
}

fn value(payload_len: usize, sequence: u64) -> Bytes {
    let mut value = payload::first(0, payload_len);
    payload::stamp(&mut value, sequence);
    value.into()
}

/// A put of every key to the same value.
fn puts(
    writer: &Client,
    keys: &[Bytes],
    value: Bytes,
) -> impl Iterator<Item = impl Future<Output = Result<i64>> + Send + use<>> {
    let (writer, keys) = (writer.clone(), keys.to_vec());
    keys.into_iter().map(move |key| {
        let (writer, value) = (writer.clone(), value.clone());
        async move { writer.put(key, value).await }
    })
}

/// The changes of one key, as its watcher hears of them.
struct Watch {
    key: Bytes,
    stream: Stream,
    /// Heard of, but not expected yet.
    events: VecDeque<Event>,
    /// Of the change heard of last.
    seen: i64,
}

impl Watch {
    /// Of what happens after revision `since`, whether or not the member has come so far.
    async fn leave(client: &Client, key: Bytes, since: i64) -> Result<Self> {
        let create = WatchCreateRequest { key: key.clone(), start_revision: since + 1 };
        let mut stream = client.stream(Method::Watch, &WatchRequest { create: Some(create) }).await?;
        let answer: WatchResponse = stream.next().await?;
        ensure!(answer.created && !answer.canceled, "no watch: {:?}", answer.cancel_reason);
        Ok(Self { key, stream, events: VecDeque::new(), seen: since })
    }

    async fn expect(&mut self, kind: EventKind, at: i64) -> Result<()> {
        let (found, revision) = self.next().await?;
        ensure!((found, revision) == (kind, at), "{found:?} at {revision} where {kind:?} at {at} was due");
        Ok(())
    }

    async fn expect_put(&mut self) -> Result<()> {
        let (found, revision) = self.next().await?;
        ensure!(found == EventKind::Put, "{found:?} at {revision} where a put was due");
        Ok(())
    }

    /// The next change, and its revision.
    async fn next(&mut self) -> Result<(EventKind, i64)> {
        let asked = Instant::now();
        while self.events.is_empty() {
            interrupt::check()?;
            let Ok(answer) = tokio::time::timeout(LOOK_EVERY, self.stream.next::<WatchResponse>()).await
            else {
                let silence = asked.elapsed();
                if silence > SILENCE_MAX {
                    return Err(Fault::Missing { outstanding: 1, silence }.into());
                }
                continue;
            };
            let answer = answer?;
            if answer.canceled {
                bail!("the watch has ended: {:?}", answer.cancel_reason);
            }
            revision(answer.header.as_ref())?;
            self.events.extend(answer.events);
        }
        let event = self.events.pop_front().context("there is one")?;
        let (kind, kv) = (event.kind(), event.kv.context("an event without a key")?);
        ensure!(kv.key == self.key, "an event of {:?} instead of {:?}", kv.key, self.key);
        ensure!(kv.mod_revision > self.seen, "revision {} after {}", kv.mod_revision, self.seen);
        self.seen = kv.mod_revision;
        Ok((kind, kv.mod_revision))
    }
}
