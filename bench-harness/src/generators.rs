//! Several generators of load, on a machine each, that measure the same windows of the same service. The
//! service itself brings them together: a double barrier (section 2.4 of the ZooKeeper paper) around every
//! window, and a znode for what each has counted.
//!
//! ```text
//! /bench-generators/first              ephemeral: what is to be measured, and the root of this run
//! /bench-generators/<run>/here/<name>  ephemeral: who takes part
//! /bench-generators/<run>/00007-enter/<name>, .../ready
//! /bench-generators/<run>/00007-leave/<name>  what was counted, .../ready
//! ```
//!
//! The first has the command line; the others read from its znode what it says. Each of them adds up what all
//! have counted, so that decisions that follow from figures are the same everywhere; the first keeps the
//! results. When one ends, its ephemeral znode goes, and the others end too: half of a load is another load.

mod report;

use std::cell::{Cell, RefCell};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::net::SocketAddr;
use std::slice;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use ringkeeper_testkit::interrupt;
use ringkeeper_wire::{ErrorCode, GetChildrenResponse, GetDataResponse, Record};
use serde::{Deserialize, Serialize};

use crate::fault::Fault;
use crate::measure::{Measurement, run_id};
use crate::paper::layout;
use crate::request;
use crate::session::{self, IDLE_MAX, Session};

const ROOT: &str = "/bench-generators";
const FIRST: &str = "/bench-generators/first";

/// The name of the one that keeps the results.
pub(crate) const FIRST_NAME: &str = "first";

/// Says that all are there, in a barrier.
const READY: &str = "ready";

/// How often it is looked for an interrupt and for others that are gone, while they are waited for. Also what
/// keeps the session alive meanwhile.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// How long a report may be missing whose generator has passed the barrier behind it.
const REPORT_MAX: Duration = Duration::from_secs(10);

/// What all of them do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Invitation {
    /// Where the znodes of this run are.
    pub(crate) root: String,
    /// Generators in all.
    pub(crate) count: usize,
    pub(crate) only: Vec<String>,
    pub(crate) quick: bool,
    pub(crate) runs: usize,
    /// Of all generators together, as the following two.
    pub(crate) sessions: usize,
    pub(crate) outstanding: usize,
    pub(crate) outstanding_total: Option<usize>,
}

impl Invitation {
    /// The znodes of a run that has not begun.
    pub(crate) fn fresh_root() -> String {
        format!("{ROOT}/{:x}", run_id())
    }
}

/// This generator and its way to the others. Dropping it tells them that it is gone.
pub(crate) struct Generators {
    name: String,
    root: String,
    count: usize,
    /// The names of all others, once they are here.
    others: Vec<String>,
    /// Barriers so far.
    passed: Cell<u32>,
    calls: RefCell<Session>,
    /// Has nothing outstanding but watches, whose notifications would come between the replies of the other
    /// one.
    watches: RefCell<Session>,
    /// When both were kept alive last.
    pinged: Cell<Instant>,
}

impl Generators {
    /// As the first one: says what is to be measured, and waits until all others have joined. `waiting` is
    /// told for how many.
    pub(crate) fn invite(
        servers: &[SocketAddr],
        invitation: &Invitation,
        waiting: impl Fn(usize),
    ) -> Result<Self> {
        let mut generators = Self::connect(servers, FIRST_NAME, invitation)?;
        let text = serde_json::to_vec(invitation)?;
        generators.create(ROOT, b"")?;
        generators.create(&invitation.root, b"")?;
        generators.create(&format!("{}/here", invitation.root), b"")?;
        generators.arrive()?;
        let created = generators.call(|out, xid| request::create_ephemeral(out, xid, FIRST, &text))?;
        ensure!(
            created.is_ok(),
            "{FIRST} is there: another run is going on, or was killed less than a session's time-out ago"
        );
        generators.sweep()?;
        generators.others = generators.wait_for_all(waiting)?;
        Ok(generators)
    }

    /// As another one: waits until a first one invites, and learns what is to be measured.
    pub(crate) fn join(servers: &[SocketAddr], name: &str, waiting: impl Fn()) -> Result<(Self, Invitation)> {
        ensure!(
            name != FIRST_NAME && !name.is_empty() && !name.contains('/'),
            "{name:?} is no name to join by"
        );
        let mut session = Session::open(*servers.first().context("no servers")?)?;
        let mut said = false;
        let invitation = loop {
            match session.call(|out, xid| request::get_data(out, xid, FIRST, false)) {
                Ok(body) => {
                    let reply = GetDataResponse::from_bytes(body)?;
                    let text = reply.data.unwrap_or_default();
                    break serde_json::from_slice::<Invitation>(text)
                        .context("an invitation of another version")?;
                }
                Err(fault) if code(&fault) == Some(ErrorCode::NoNode) => {}
                Err(fault) => return Err(fault.into()),
            }
            if !said {
                waiting();
                said = true;
            }
            interrupt::sleep_until(Instant::now() + LOOK_EVERY, || false)?;
        };
        session::close_all(vec![session])?;
        let mut generators = Self::connect(servers, name, &invitation)?;
        generators.arrive()?;
        generators.others = generators.wait_for_all(|_| {})?;
        Ok((generators, invitation))
    }

    fn connect(servers: &[SocketAddr], name: &str, invitation: &Invitation) -> Result<Self> {
        let [calls, watches] =
            [0, 0].map(|index: usize| Session::open(*servers.get(index).context("no servers")?));
        Ok(Self {
            name: name.to_owned(),
            root: invitation.root.clone(),
            count: invitation.count,
            others: Vec::new(),
            passed: Cell::new(0),
            calls: RefCell::new(calls?),
            watches: RefCell::new(watches?),
            pinged: Cell::new(Instant::now()),
        })
    }

    /// A number of this one's own, the same in every run of this name: not all of them are to send at the
    /// same moments.
    pub(crate) fn seed(&self) -> u64 {
        if self.is_first() { 0 } else { BuildHasherDefault::<DefaultHasher>::default().hash_one(&self.name) }
    }

    /// How many there are.
    pub(crate) const fn count(&self) -> usize {
        self.count
    }

    /// Whether this is the one that keeps the results.
    pub(crate) fn is_first(&self) -> bool {
        self.name == FIRST_NAME
    }

    fn arrive(&self) -> Result<()> {
        let path = format!("{}/here/{}", self.root, self.name);
        let arrived = self.call(|out, xid| request::create_ephemeral(out, xid, &path, b""))?;
        ensure!(arrived.is_ok(), "a generator named {:?} takes part already", self.name);
        Ok(())
    }

    /// Waits until as many are here as there are to be; the names of the others.
    fn wait_for_all(&self, waiting: impl Fn(usize)) -> Result<Vec<String>> {
        let mut missing = 0;
        loop {
            let mut names = self.children(&format!("{}/here", self.root))?;
            ensure!(
                names.iter().any(|name| name == FIRST_NAME),
                "the first generator is gone: start both again"
            );
            let here = names.len();
            ensure!(here <= self.count, "{here} generators instead of {}", self.count);
            if here == self.count {
                names.retain(|name| *name != self.name);
                return Ok(names);
            }
            if missing != self.count - here {
                missing = self.count - here;
                waiting(missing);
            }
            interrupt::sleep_until(Instant::now() + LOOK_EVERY, || false)?;
        }
    }

    /// To be called now and then while a window lasts, in which nothing is said to the others.
    pub(crate) fn keep_alive(&self) -> Result<()> {
        if self.pinged.get().elapsed() < IDLE_MAX {
            return Ok(());
        }
        self.pinged.set(Instant::now());
        let ping = |session: &RefCell<Session>| session::ping_all(slice::from_mut(&mut session.borrow_mut()));
        [&self.calls, &self.watches].into_iter().try_for_each(ping)
    }

    /// The first half of the double barrier: returns when all are here, on all of them within a
    /// notification's time. `meanwhile` is called now and then while others are waited for.
    pub(crate) fn begin_together(&self, meanwhile: impl FnMut() -> Result<()>) -> Result<()> {
        self.passed.set(self.passed.get() + 1);
        self.meet("enter", b"", meanwhile).map(drop)
    }

    /// The second half: what all have measured.
    pub(crate) fn end_together(&self, own: Measurement) -> Result<Measurement> {
        let place = self.meet("leave", &report::encode(&own)?, || Ok(()))?;
        let mut all = own;
        for (name, report) in self.reports(&place)? {
            report::add(&mut all, &name, &report)
                .with_context(|| format!("the report of generator {name}"))?;
        }
        Ok(all)
    }

    /// The reports of all others, each with its name.
    fn reports(&self, place: &str) -> Result<Vec<(String, Vec<u8>)>> {
        let deadline = Instant::now() + REPORT_MAX;
        loop {
            // The notification came on another session: what is read on this one may be older.
            self.calls.borrow_mut().call(|out, xid| request::sync(out, xid, place))?;
            let missing = absent(&self.others, &self.children(place)?);
            if missing.is_empty() {
                break;
            }
            ensure!(
                Instant::now() < deadline,
                "generator(s) {} left {place} without a report of the window: all must be of this version",
                missing.join(", ")
            );
            interrupt::sleep_until(Instant::now() + LOOK_EVERY, || false)?;
        }
        let read = |name: &String| {
            let mut calls = self.calls.borrow_mut();
            let body =
                calls.call(|out, xid| request::get_data(out, xid, &format!("{place}/{name}"), false))?;
            let data = GetDataResponse::from_bytes(body)?.data.unwrap_or_default();
            Ok((name.clone(), data.to_vec()))
        };
        self.others.iter().map(read).collect()
    }

    /// After everything: waits for the others once more. The first one removes the znodes when they are gone.
    pub(crate) fn part(self) -> Result<()> {
        self.meet("end", b"", || Ok(()))?;
        if self.is_first() {
            while self.here()? > 1 {
                interrupt::sleep_until(Instant::now() + LOOK_EVERY, || false)?;
            }
            self.remove(&self.root)?;
        }
        Ok(())
    }

    /// Removes what runs have left that were killed.
    fn sweep(&self) -> Result<()> {
        let runs = self.children(ROOT)?.into_iter().map(|name| format!("{ROOT}/{name}"));
        runs.filter(|run| run != FIRST && *run != self.root).try_for_each(|run| self.remove(&run))
    }

    fn remove(&self, path: &str) -> Result<()> {
        let session = Session::open(self.calls.borrow().server())?;
        session::close_all(vec![layout::remove(session, path.to_owned())?])
    }

    /// How many take part just now.
    fn here(&self) -> Result<usize> {
        Ok(self.children(&format!("{}/here", self.root))?.len())
    }

    /// Waits at a barrier until all are there, with `data` for the others; where it is.
    fn meet(&self, half: &str, data: &[u8], mut meanwhile: impl FnMut() -> Result<()>) -> Result<String> {
        let place = format!("{}/{:05}-{half}", self.root, self.passed.get());
        self.create(&place, b"")?;
        let ready = format!("{place}/{READY}");
        let mut watches = self.watches.borrow_mut();
        ensure!(!watches.exists(&ready)?, "{ready} is there before generator {} is", self.name);
        let own = format!("{place}/{}", self.name);
        ensure!(self.create(&own, data)?, "{own} is there already");
        if self.children(&place)?.iter().filter(|name| *name != READY).count() == self.count {
            self.create(&ready, b"")?;
        }
        while !watches.is_notified_within(LOOK_EVERY)? {
            interrupt::check()?;
            meanwhile()?;
            let here = self.children(&format!("{}/here", self.root))?;
            let gone = absent(&self.others, &here);
            if gone.is_empty() {
                continue;
            }
            // One that has passed the last barrier may be gone before this one hears of it.
            if watches.is_notified_within(LOOK_EVERY)? {
                break;
            }
            let (left, count, gone) = (here.len(), self.count, gone.join(", "));
            bail!("only {left} of {count} generators are left, without {gone}: this one ends too");
        }
        Ok(place)
    }

    /// Creates a znode; false if it is there already.
    fn create(&self, path: &str, data: &[u8]) -> Result<bool> {
        Ok(self.call(|out, xid| request::create(out, xid, path, data))?.is_ok())
    }

    /// Sends a request that may find the znode there already.
    fn call(&self, encode: impl FnOnce(&mut Vec<u8>, i32)) -> Result<Result<(), ErrorCode>> {
        match self.calls.borrow_mut().call(encode).map(drop) {
            Ok(()) => Ok(Ok(())),
            Err(fault) if code(&fault) == Some(ErrorCode::NodeExists) => Ok(Err(ErrorCode::NodeExists)),
            Err(fault) => Err(fault.into()),
        }
    }

    fn children(&self, path: &str) -> Result<Vec<String>> {
        let mut calls = self.calls.borrow_mut();
        let body = calls.call(|out, xid| request::get_children(out, xid, path))?;
        let children = GetChildrenResponse::from_bytes(body)?.children;
        Ok(children.iter().map(|name| name.into_owned()).collect())
    }
}

impl Drop for Generators {
    fn drop(&mut self) {
        // Closed, its ephemeral znodes go at once; if that fails, when the session expires.
        for session in [&self.calls, &self.watches] {
            let _ = session.borrow_mut().send(request::close_session);
        }
    }
}

/// Those of `names` that are not among `found`.
fn absent<'n>(names: &'n [String], found: &[String]) -> Vec<&'n str> {
    names.iter().filter(|name| !found.contains(name)).map(String::as_str).collect()
}

fn code(fault: &Fault) -> Option<ErrorCode> {
    match fault {
        Fault::Refused { err, .. } => ErrorCode::from_wire(*err),
        _ => None,
    }
}
