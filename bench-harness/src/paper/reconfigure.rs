//! Section 2.3: a new leader of some application changes its configuration behind a ready znode.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use ringkeeper_wire::{EventType, GetDataResponse, Record, Stat};

use super::bench::{Bench, PAYLOAD_LEN, Place, Turn};
use super::experiment::{Experiment, Plan, View};
use super::scale::{Axis, Scale};
use super::{layout, published};
use crate::lane::Source;
use crate::measure::{as_f64, fresh_root};
use crate::session::{self, Session};
use crate::window::Rate;
use crate::{etcd, payload, request};

/// The figure of the paper.
pub(crate) const TIME: &str = "time";
pub(crate) const ONE_BY_ONE: &str = "one after the other";
pub(crate) const PIPELINED: &str = "pipelined";

const QUICK: [usize; 1] = [5000];
const FULL: [usize; 2] = [1000, 5000];

/// Requests outstanding of those that are pipelined.
const OUTSTANDING: usize = 1000;

/// What is different where etcd is measured.
const ON_ETCD: &str = "etcd: the reader has a watch of the ready key at another member, and reads with \
    serializable ranges at that member; its watch goes on by itself, where ZooKeeper's is left anew by the \
    exists that finds ready gone.";

/// Section 2.3.
pub(crate) struct Reconfigure;

impl Experiment for Reconfigure {
    fn plan(&self) -> Plan {
        Plan {
            id: "sec2.3",
            title: "Changing a configuration behind a ready znode",
            about: "A client deletes the ready znode, sets the data of all configuration znodes (1 KiB \
                    each), one after the other or with 1,000 outstanding, and creates ready again. A second \
                    client, at another server, watches ready; when it is there again, it reads every znode \
                    and must find the new value. The paper expects about 10 s for 5,000 changes one after \
                    the other, at 2 ms each, and less than a second when they are pipelined.",
            x: Axis { label: "configuration znodes", scale: Scale::Log },
            views: vec![View::log(TIME, "", "time, s")],
            figures: vec![TIME, "server CPU"],
            published: published::section23(),
            etcd: true,
            ..Plan::default()
        }
    }

    fn run(&self, bench: &mut Bench<'_>) -> Result<()> {
        bench.note_on_etcd(ON_ETCD);
        let size = bench.first_size();
        bench.turns(&[size], |turn| {
            let counts: &[usize] = turn.pace().pick(&QUICK, &FULL);
            for count in counts {
                let root = fresh_root();
                if turn.service.is_etcd() {
                    let shape = (*count, PAYLOAD_LEN);
                    change(turn, *count, etcd::Configuration::lay_out(turn.addresses(), &root, shape)?)?;
                } else {
                    layout::create_many(turn.addresses(), &root, *count)?;
                    change(turn, *count, Znodes::begin(turn, &root, *count)?)?.end()?;
                }
            }
            Ok(())
        })
    }
}

/// Changes everything one after the other, then pipelined.
fn change<C: Configuration>(turn: &mut Turn<'_, '_>, count: usize, mut configuration: C) -> Result<C> {
    for (series, outstanding) in [(ONE_BY_ONE, 1), (PIPELINED, OUTSTANDING)] {
        turn.at(&format!("{count} znodes, {series}"));
        let mut rate = turn.rate("changes");
        let ((changed, elapsed), around) = turn.around(|_| configuration.change(outstanding, &mut rate))?;
        configuration = changed.read_back()?;
        let mut figures = vec![(TIME, "s", elapsed.as_secs_f64())];
        figures.extend(around.server_cpu_figure(count as u64));
        let objections = around.objections();
        turn.record(Place { series, x: as_f64(count as u64) }, &figures, &objections);
    }
    Ok(configuration)
}

/// A configuration, a client that changes it, and one that reads it.
trait Configuration: Sized {
    /// One change of everything; the time of the writer's part.
    fn change(self, outstanding: usize, rate: &mut Rate<'_>) -> Result<(Self, Duration)>;

    /// What the reader finds once ready is there for it: every new value, or an error.
    fn read_back(self) -> Result<Self>;
}

impl Configuration for etcd::Configuration {
    fn change(mut self, outstanding: usize, rate: &mut Rate<'_>) -> Result<(Self, Duration)> {
        let elapsed = Self::change(&mut self, outstanding, rate)?;
        Ok((self, elapsed))
    }

    fn read_back(mut self) -> Result<Self> {
        Self::read_back(&mut self, OUTSTANDING)?;
        Ok(self)
    }
}

/// A configuration in znodes.
struct Znodes {
    root: String,
    count: usize,
    /// Of the values written last.
    sequence: u64,
    writer: Session,
    reader: Session,
}

impl Znodes {
    fn begin(turn: &Turn<'_, '_>, root: &str, count: usize) -> Result<Self> {
        let addresses = turn.addresses();
        let mut writer = Session::open(*addresses.first().context("no servers")?)?;
        let mut reader = Session::open(*addresses.last().context("no servers")?)?;
        let ready = format!("{root}/ready");
        writer.call(|out, xid| request::create(out, xid, &ready, b""))?;
        await_ready(&mut reader, &ready)?;
        Ok(Self { root: root.to_owned(), count, sequence: 0, writer, reader })
    }

    fn end(self) -> Result<()> {
        session::close_all(vec![self.writer, self.reader])
    }
}

impl Configuration for Znodes {
    fn change(self, outstanding: usize, rate: &mut Rate<'_>) -> Result<(Self, Duration)> {
        let Self { root, count, sequence, mut writer, mut reader } = self;
        let (ready, sequence) = (format!("{root}/ready"), sequence + 1);
        let began = Instant::now();
        writer.call(|out, xid| request::delete(out, xid, &ready))?;
        let deleted = began.elapsed();
        expect_event(&mut reader, EventType::NodeDeleted, &ready)?;
        if reader.exists(&ready)? {
            bail!("{ready} is there although it was deleted");
        }
        let went_on = Instant::now();
        // The reader waits for as long as that takes, on a slow disk longer than its session's time-out.
        let both = [(writer, count), (reader, 0)]
            .map(|(session, count)| (session, Values::of(&root, count, sequence)));
        let (both, _) = layout::pipeline_told(both.into(), outstanding, rate)?;
        let Ok([mut writer, reader]) = <[Session; 2]>::try_from(both) else { bail!("both are given back") };
        writer.call(|out, xid| request::create(out, xid, &ready, b""))?;
        let elapsed = deleted + went_on.elapsed();
        Ok((Self { root, count, sequence, writer, reader }, elapsed))
    }

    fn read_back(self) -> Result<Self> {
        let Self { root, count, sequence, writer, mut reader } = self;
        let ready = format!("{root}/ready");
        expect_event(&mut reader, EventType::NodeCreated, &ready)?;
        let values = ReadBack(Values::of(&root, count, sequence));
        let (mut reader, _) =
            layout::pipeline(reader, values, OUTSTANDING).context("reading what was changed")?;
        await_ready(&mut reader, &ready)?;
        Ok(Self { root, count, sequence, writer, reader })
    }
}

/// Leaves a watch on the ready znode, which is there or, the writer's server being another one, about to be.
fn await_ready(reader: &mut Session, ready: &str) -> Result<()> {
    if !reader.exists(ready)? {
        expect_event(reader, EventType::NodeCreated, ready)?;
        if !reader.exists(ready)? {
            bail!("{ready} went away again");
        }
    }
    Ok(())
}

fn expect_event(session: &mut Session, wanted: EventType, path: &str) -> Result<()> {
    let event = session.receive_event()?;
    if event.event_type != wanted.to_wire() || event.path != path {
        bail!("{event:?} where {wanted:?} of {path} was due");
    }
    Ok(())
}

/// setData of every znode, to its value of one sequence.
struct Values {
    root: String,
    count: usize,
    next: usize,
    sequence: u64,
    value: Vec<u8>,
}

impl Values {
    fn of(root: &str, count: usize, sequence: u64) -> Self {
        let mut value = payload::first(0, PAYLOAD_LEN);
        payload::stamp(&mut value, sequence);
        Self { root: root.to_owned(), count, next: 0, sequence, value }
    }

    fn next_path(&mut self) -> Option<String> {
        (self.next < self.count).then(|| {
            self.next += 1;
            format!("{}/n{:07}", self.root, self.next - 1)
        })
    }
}

impl Source for Values {
    type Expected = ();

    fn issue(&mut self, out: &mut Vec<u8>, xid: i32) -> Option<()> {
        let path = self.next_path()?;
        request::set_data(out, xid, &path, &self.value);
        Some(())
    }

    fn check(&self, (): &(), body: &[u8]) -> Result<(), String> {
        let stat = Stat::from_bytes(body).map_err(|error| error.to_string())?;
        if usize::try_from(stat.data_length) == Ok(PAYLOAD_LEN) {
            Ok(())
        } else {
            Err(format!("a Stat with dataLength {}", stat.data_length))
        }
    }
}

/// Reads of every znode, each of which must have the value.
struct ReadBack(Values);

impl Source for ReadBack {
    type Expected = ();

    fn issue(&mut self, out: &mut Vec<u8>, xid: i32) -> Option<()> {
        let path = self.0.next_path()?;
        request::get_data(out, xid, &path, false);
        Some(())
    }

    fn check(&self, (): &(), body: &[u8]) -> Result<(), String> {
        let reply = GetDataResponse::from_bytes(body).map_err(|error| error.to_string())?;
        let found = reply.data.and_then(|data| payload::sequence_of(data, 0));
        if found == Some(self.0.sequence) {
            Ok(())
        } else {
            Err(format!("value {found:?} behind a ready znode that promises {}", self.0.sequence))
        }
    }
}
