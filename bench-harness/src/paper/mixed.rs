//! The mixed workload that RaftKeeper's authors published: many reads and lists, few writes.

use std::time::Instant;

use anyhow::Result;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use ringkeeper_wire::{CreateResponse, GetChildrenResponse, GetDataResponse, Record, Stat};

use super::bench::{Bench, GENERATOR_CPU, LATENCY_P50, LATENCY_P99, Place, SERVER_CPU, THROUGHPUT, Turn};
use super::experiment::{Experiment, Plan, View};
use super::scale::{Axis, Scale};
use crate::creates::Creates;
use crate::driver::Schedule;
use crate::lane::Source;
use crate::measure::{Measurement, as_f64, fresh_root, under_load};
use crate::raftkeeper_mix::{CHILDREN, Kind, VALUE_LEN};
use crate::session::{self, Session};
use crate::window::Surroundings;
use crate::{etcd, payload, request};

/// Few, so that the layout is short; with what each has outstanding, servers have more than they take all the
/// same.
const SESSIONS_MAX: usize = 40;

/// What is different where etcd is measured.
const ON_ETCD: &str = "etcd: a list is a serializable range over the parent's prefix, keys only, in the \
    order of names. A request's answer may overtake another's, so the list that is right follows from the \
    revision that an answer tells: it must have exactly the keys that were put and not deleted up to then. \
    The oldest key that is not just being set is the one to be deleted.";

/// The mixed workload.
pub(crate) struct Mixed;

impl Experiment for Mixed {
    fn plan(&self) -> Plan {
        Plan {
            id: "mixed",
            title: "Mixed: create 1, set 8, get 45, list 45, delete 1",
            about: "The workload of RaftKeeper's published benchmark: of a hundred requests, 1 creates, 8 \
                    set, 45 get, 45 list and 1 deletes, on 100 children of 50 B. Each session has a parent \
                    of its own, knows what is below it, and checks every value and every list. Closed loop, \
                    saturated.",
            x: Axis { label: "servers", scale: Scale::Whole },
            views: vec![View::log(THROUGHPUT, "", "throughput, operations/s")],
            figures: vec![THROUGHPUT, SERVER_CPU, LATENCY_P50, LATENCY_P99, GENERATOR_CPU],
            over_servers: true,
            etcd: true,
            many_generators: true,
            ..Plan::default()
        }
    }

    fn run(&self, bench: &mut Bench<'_>) -> Result<()> {
        bench.note_on_etcd(ON_ETCD);
        let sizes = bench.sizes();
        bench.turns(&sizes, |turn| {
            turn.at("saturated");
            let measured = turn.undisturbed(|| measure(turn))?;
            let servers = as_f64(turn.addresses().len() as u64);
            turn.record_measurement(Place { series: "", x: servers }, &measured);
            Ok(())
        })
    }
}

fn measure(turn: &Turn<'_, '_>) -> Result<Measurement> {
    let saturation = turn.saturation();
    let count = saturation.sessions.min(SESSIONS_MAX);
    let outstanding = saturation.outstanding_on(count);
    if turn.service.is_etcd() {
        let shape = (count, etcd::bearable(outstanding, count), saturation.threads);
        let lengths = (turn.pace().warmup, turn.pace().window);
        return etcd::mixed(turn.addresses(), turn.surroundings(), shape, lengths);
    }
    let mut sessions = Session::open_all(turn.addresses(), count)?;
    let root = fresh_root();
    sessions[0].call(|out, xid| request::create(out, xid, &root, b""))?;
    let parents: Vec<String> = (0..count).map(|index| format!("{root}/{index:04}")).collect();
    session::call_each(&mut sessions, |index, out, xid| request::create(out, xid, &parents[index], b""))?;
    let creates = parents.iter().map(|parent| Creates::new(parent, CHILDREN, VALUE_LEN)).collect();
    let now = Instant::now();
    let layout = Schedule { outstanding: 20, from: now, to: now + super::HOUR, arrivals: None };
    let mut sessions = under_load(sessions, creates, 1, layout, Surroundings::default())?.sessions;
    let around = turn.surroundings();
    let seeds = (0..).map(|seed: u64| seed ^ around.seed());
    let sources = seeds.zip(&parents).map(|(seed, parent)| Children::new(parent, seed)).collect();
    around.begin_with(&mut sessions)?;
    let from = Instant::now() + turn.pace().warmup;
    let schedule = Schedule { outstanding, from, to: from + turn.pace().window, arrivals: None };
    under_load(sessions, sources, saturation.threads, schedule, around)?.finish(schedule, around)
}

/// One session's requests to the children of its parent, which nobody else touches. The oldest child is the
/// one to be deleted, so those that there are have consecutive numbers.
struct Children {
    parent: String,
    /// Those from here on are there.
    oldest: u32,
    /// The next one to be created.
    next: u32,
    value: Vec<u8>,
    rng: StdRng,
}

/// What a reply must say.
#[derive(Debug)]
enum Asked {
    Create(u32),
    Set,
    Get,
    /// The children from the one up to the other, the last one excluded.
    List(u32, u32),
    Delete,
}

impl Children {
    fn new(parent: &str, seed: u64) -> Self {
        let value = payload::first(0, VALUE_LEN);
        Self { parent: parent.to_owned(), oldest: 0, next: CHILDREN, value, rng: StdRng::seed_from_u64(seed) }
    }

    fn path(&self, number: u32) -> String {
        format!("{}/n{number:07}", self.parent)
    }

    fn any(&mut self) -> String {
        let number = self.rng.random_range(self.oldest..self.next);
        self.path(number)
    }
}

impl Source for Children {
    type Expected = Asked;

    fn issue(&mut self, out: &mut Vec<u8>, xid: i32) -> Option<Asked> {
        let mut kind = Kind::any(&mut self.rng);
        // One is always left to be read.
        if kind == Kind::Delete && self.next - self.oldest == 1 {
            kind = Kind::Set;
        }
        let asked = match kind {
            Kind::Create => {
                self.next += 1;
                request::create(out, xid, &self.path(self.next - 1), &self.value);
                Asked::Create(self.next - 1)
            }
            Kind::Delete => {
                self.oldest += 1;
                request::delete(out, xid, &self.path(self.oldest - 1));
                Asked::Delete
            }
            Kind::Set => {
                request::set_data(out, xid, &self.any(), &self.value);
                Asked::Set
            }
            Kind::Get => {
                request::get_data(out, xid, &self.any(), false);
                Asked::Get
            }
            Kind::List => {
                request::get_children(out, xid, &self.parent);
                Asked::List(self.oldest, self.next)
            }
        };
        Some(asked)
    }

    fn check(&self, asked: &Asked, body: &[u8]) -> Result<(), String> {
        let malformed = |error: ringkeeper_wire::jute::DecodeError| error.to_string();
        match asked {
            Asked::Create(number) => {
                let path = CreateResponse::from_bytes(body).map_err(malformed)?.path;
                right(path == self.path(*number), || format!("created {path:?} instead of number {number}"))
            }
            Asked::Set => {
                let stat = Stat::from_bytes(body).map_err(malformed)?;
                right(usize::try_from(stat.data_length) == Ok(VALUE_LEN), || format!("{stat:?}"))
            }
            Asked::Get => {
                let data = GetDataResponse::from_bytes(body).map_err(malformed)?.data.unwrap_or_default();
                // Every child begins with the same marks; creates of the layout carry its number.
                right(data.len() == VALUE_LEN && payload::sequence_of(data, 0).is_some(), || {
                    format!("{data:?}")
                })
            }
            Asked::List(oldest, next) => check_list(body, *oldest, *next),
            Asked::Delete => right(body.is_empty(), || format!("{} bytes after a delete", body.len())),
        }
    }
}

fn right(is_right: bool, why: impl FnOnce() -> String) -> Result<(), String> {
    if is_right { Ok(()) } else { Err(why()) }
}

/// Whether the names are those from `oldest` up to `next`, each once: names are distinct, so their number and
/// range decide.
fn check_list(body: &[u8], oldest: u32, next: u32) -> Result<(), String> {
    let children = GetChildrenResponse::from_bytes(body).map_err(|error| error.to_string())?.children;
    let expected = usize::try_from(next - oldest).expect("a count of znodes");
    if children.len() != expected {
        return Err(format!("{} children instead of {expected}", children.len()));
    }
    let mut sum = 0;
    for name in children.iter() {
        let number = name.strip_prefix('n').and_then(|digits| digits.parse::<u32>().ok());
        match number {
            Some(number) if (oldest..next).contains(&number) => sum += u64::from(number),
            _ => return Err(format!("a child {name:?} that should not be there")),
        }
    }
    right(sum == (oldest..next).map(u64::from).sum::<u64>(), || "a child is there twice".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(names: &[&str]) -> Vec<u8> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut body = Vec::new();
        GetChildrenResponse { children: names.as_slice().into() }.encode(&mut body);
        body
    }

    #[test]
    fn a_list_must_have_every_child_once() {
        assert_eq!(check_list(&list(&["n0000002", "n0000001"]), 1, 3), Ok(()));
        for wrong in [&["n0000001"][..], &["n0000001", "n0000003"], &["n0000001", "n0000001"]] {
            assert!(check_list(&list(wrong), 1, 3).is_err(), "{wrong:?}");
        }
    }
}
