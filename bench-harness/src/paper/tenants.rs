//! A noisy tenant: what its neighbours notice of it, with limits and without.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use ringkeeper_wire::ErrorCode;

use super::bench::{Bench, GENERATOR_CPU, LATENCY_P50, LATENCY_P99, Place, SERVER_CPU, Turn};
use super::experiment::{Experiment, Plan, View};
use super::scale::{Axis, Scale};
use crate::fault::Fault;
use crate::measure::{Load, Measurement, as_f64};
use crate::payload;
use crate::request;
use crate::session::{self, Session};

const NOISY: &str = "/noisy";
const QUOTA: &str = "/zookeeper/quota/noisy";
const LIMITS: &str = "/zookeeper/quota/noisy/ringkeeper_limits";

/// A tenth of what the noisy tenant asks for.
const LIMITS_TEXT: &str = "ops=1000 bytes=1048576 watches=1000 sessions=10";

/// Of the noisy tenant and of one within the limits. Each sends a request each so often.
const NOISY_SESSIONS: usize = 100;
const MODEST_SESSIONS: usize = 10;
const THREADS: usize = 2;
const ROUND: Duration = Duration::from_millis(10);
/// Paths that each of them watches.
const WATCHES: usize = 100;
const NOISY_PAYLOAD_LEN: usize = 1024;

const NEIGHBOURS: usize = 20;
const NEIGHBOURS_PER_SECOND: f64 = 1_000.0;
const READS_PERCENT: u8 = 80;

/// The answer to who watches what is not there.
const NO_NODE: i32 = ErrorCode::NoNode.to_wire();

/// What the tenant gets done.
const NOISE: &str = "noise";

/// What is beside the neighbours.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Beside {
    Nobody,
    Modest,
    Limited,
    Unlimited,
}

impl Beside {
    const ALL: [Self; 4] = [Self::Nobody, Self::Modest, Self::Limited, Self::Unlimited];

    const fn series(self) -> &'static str {
        match self {
            Self::Nobody => "alone",
            Self::Modest => "beside a modest tenant",
            Self::Limited => "beside a noisy one",
            Self::Unlimited => "beside the same without limits",
        }
    }

    const fn sessions(self) -> usize {
        match self {
            Self::Nobody => 0,
            Self::Modest => MODEST_SESSIONS,
            Self::Limited | Self::Unlimited => NOISY_SESSIONS,
        }
    }
}

/// A noisy tenant.
pub(crate) struct NoisyTenant;

impl Experiment for NoisyTenant {
    fn plan(&self) -> Plan {
        Plan {
            id: "tenants",
            title: "A noisy tenant: its neighbours' latency",
            about: "20 sessions send 1,000 requests a second to znodes of their own, open loop, 80 % reads: \
                    alone; beside a tenant that asks for what its limits allow; beside one that asks for ten \
                    times as many operations, bytes, watches and sessions at once; and beside the same \
                    without limits, in turns on the same servers. The tenant's clients are on the \
                    generator's machine.",
            x: Axis { label: "servers", scale: Scale::Whole },
            views: vec![View::log(LATENCY_P99, "", "p99 latency, us")],
            figures: vec![LATENCY_P50, LATENCY_P99, "latency p99.9", NOISE, SERVER_CPU, GENERATOR_CPU],
            over_servers: true,
            ..Plan::default()
        }
    }

    fn run(&self, bench: &mut Bench<'_>) -> Result<()> {
        let size = bench.first_size();
        bench.turns(&[size], |turn| {
            let mut control = Session::open(turn.addresses()[0])?;
            for path in [NOISY, QUOTA] {
                create(&mut control, path, b"")?;
            }
            for beside in Beside::ALL {
                let has_limits = turn.system() == "ringkeeper";
                if beside == Beside::Limited && !has_limits {
                    continue;
                }
                let is_limited = has_limits && matches!(beside, Beside::Modest | Beside::Limited);
                if is_limited {
                    create(&mut control, LIMITS, LIMITS_TEXT.as_bytes())?;
                }
                turn.at(beside.series());
                let (measured, noise) = measure(turn, beside)?;
                if is_limited {
                    control.call(|out, xid| request::delete(out, xid, LIMITS))?;
                }
                let place = Place { series: beside.series(), x: as_f64(turn.addresses().len() as u64) };
                turn.record_measurement(place, &measured);
                turn.record(place, &[(NOISE, "operations/s", noise)], &measured.objections);
            }
            session::close_all(vec![control])
        })
    }
}

fn create(session: &mut Session, path: &str, data: &[u8]) -> Result<()> {
    match session.call(|out, xid| request::create(out, xid, path, data)) {
        Ok(_) => Ok(()),
        Err(Fault::Refused { err, .. }) if err == ErrorCode::NodeExists.to_wire() => Ok(()),
        Err(fault) => Err(fault).with_context(|| path.to_owned()),
    }
}

/// What the neighbours measure, and the operations of the tenant in a second meanwhile.
fn measure(turn: &Turn<'_, '_>, beside: Beside) -> Result<(Measurement, f64)> {
    let Load { warmup, window, .. } = turn.saturation().load(0, turn.pace().warmup, turn.pace().window);
    let load = Load {
        sessions: NEIGHBOURS,
        znodes: NEIGHBOURS,
        per_second: Some(NEIGHBOURS_PER_SECOND),
        window: (window * 2).max(Duration::from_secs(5)),
        ..turn.saturation().load(READS_PERCENT, warmup, window)
    };
    if beside == Beside::Nobody {
        return Ok((turn.measure(turn.addresses(), &load)?, 0.0));
    }
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let servers = turn.addresses();
    thread::scope(|scope| {
        let noise = |number: usize| {
            let (stop, done) = (&stop, &done);
            scope.spawn(move || make_noise(servers, beside.sessions() / THREADS, number, (stop, done)))
        };
        let threads: Vec<_> = (0..THREADS).map(noise).collect();
        sleep(warmup);
        let (began, before) = (Instant::now(), done.load(Ordering::Relaxed));
        let measured = turn.measure(servers, &load);
        let noise = as_f64(done.load(Ordering::Relaxed) - before) / began.elapsed().as_secs_f64();
        stop.store(true, Ordering::Relaxed);
        for thread in threads {
            thread.join().map_err(|_| anyhow!("a noisy client has failed"))??;
        }
        Ok((measured?, noise))
    })
}

/// The sessions of one thread: in each round every one of them writes, reads or watches. They wait for their
/// answers, refused or not, before they ask again.
fn make_noise(
    servers: &[SocketAddr],
    sessions: usize,
    thread: usize,
    (stop, done): (&AtomicBool, &AtomicU64),
) -> Result<()> {
    let mut sessions = Session::open_all(servers, sessions)?;
    let data = payload::first(0, NOISY_PAYLOAD_LEN);
    let mut next = Instant::now();
    for round in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        for (number, session) in sessions.iter_mut().enumerate() {
            session.send(|out, xid| match (round + number) % 3 {
                0 => request::set_data(out, xid, NOISY, &data),
                1 => request::get_data(out, xid, NOISY, false),
                _ => {
                    let path = format!("{NOISY}/{thread}-{number}-{}", round % WATCHES);
                    request::watch_existence(out, xid, &path);
                }
            })?;
        }
        for session in &mut sessions {
            match session.receive() {
                Err(Fault::Refused { err, .. }) if err != NO_NODE => {}
                Ok(_) | Err(Fault::Refused { .. }) => _ = done.fetch_add(1, Ordering::Relaxed),
                Err(fault) => return Err(fault.into()),
            }
        }
        next = (next + ROUND).max(Instant::now());
        sleep(next.saturating_duration_since(Instant::now()));
    }
    session::close_all(sessions)
}
