//! Session churn: sessions that open, close, and open again: the handshake and closeSession, nothing between
//! them.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use hdrhistogram::Histogram;
use mio::net::TcpStream;
use mio::{Events, Poll, Registry, Token};
use ringkeeper_client::core::Login;
use ringkeeper_testkit::interrupt;
use ringkeeper_wire::{ConnectResponse, Record};

use super::bench::{Bench, GENERATOR_CPU, Pace, Place, SERVER_CPU};
use super::experiment::{Experiment, Plan, View};
use super::scale::{Axis, Scale};
use crate::connection::{self, Connection};
use crate::driver::{latency_histogram, record_latency, thread_cpu};
use crate::fault::Fault;
use crate::measure::as_f64;
use crate::server_cpu::ServerProcesses;
use crate::session::SESSION_TIMEOUT_MS;
use crate::{login, reply, request, tls};

/// How often an idle loop looks at the clock.
const WAIT_MAX: Duration = Duration::from_millis(50);

/// Silence after which a server counts as hanging.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// Sessions that are opened and closed at a time.
const CONCURRENT: [usize; 3] = [1, 16, 64];

const RATE: &str = "opened and closed";
const P50: &str = "handshake p50";
const P99: &str = "handshake p99";

/// Session churn.
pub(crate) struct SessionChurn;

impl Experiment for SessionChurn {
    fn plan(&self) -> Plan {
        Plan {
            id: "churn",
            title: "Session churn: sessions opened and closed, n at a time",
            about: "n connections, each of which opens a session, closes it, and is made anew. Both are \
                    transactions, durable on a quorum. The handshake is from the start of connecting to the \
                    session's answer or, with a login, to the end of that.",
            x: Axis { label: "sessions at a time", scale: Scale::Log },
            views: vec![View::log(RATE, "", "sessions/s")],
            figures: vec![RATE, P50, P99, SERVER_CPU, GENERATOR_CPU],
            floor: true,
            ..Plan::default()
        }
    }

    fn run(&self, bench: &mut Bench<'_>) -> Result<()> {
        let size = bench.first_size();
        bench.turns(&[size], |turn| {
            let Pace { warmup, window, .. } = turn.pace();
            for concurrent in CONCURRENT {
                turn.at(&format!("{concurrent} at a time"));
                let processes = turn.processes();
                let (churned, around) =
                    turn.around(|servers| churn(servers, processes, concurrent, warmup, window))?;
                let (sessions, seconds) = (as_f64(churned.sessions), window.as_secs_f64());
                let us = |percent| as_f64(churned.handshakes_ns.value_at_percentile(percent)) / 1e3;
                let mut figures = vec![
                    (RATE, "sessions/s", sessions / seconds),
                    (P50, "us", us(50.0)),
                    (P99, "us", us(99.0)),
                    (GENERATOR_CPU, "% of a core", churned.generator_cpu.as_secs_f64() * 1e2 / seconds),
                ];
                if let Some(cpu) = churned.server_cpu {
                    let for_a_million = cpu.as_secs_f64() * 1e6 / sessions.max(1.0);
                    figures.push((SERVER_CPU, "s per million sessions", for_a_million));
                }
                let place = Place { series: "", x: as_f64(concurrent as u64) };
                turn.record(place, &figures, &around.objections());
            }
            Ok(())
        })
    }
}

/// What a window has shown.
struct Churned {
    /// Sessions opened and closed.
    sessions: u64,
    /// From the start of connecting to the answer of the handshake, in nanoseconds.
    handshakes_ns: Histogram<u64>,
    /// CPU time of the servers, where it can be seen.
    server_cpu: Option<Duration>,
    /// CPU time of the generator, which is one thread.
    generator_cpu: Duration,
}

/// Opens and closes sessions on `servers`, `concurrent` at a time, for a warm-up and a window.
fn churn(
    servers: &[SocketAddr],
    processes: Option<&ServerProcesses>,
    concurrent: usize,
    warmup: Duration,
    window: Duration,
) -> Result<Churned> {
    let poll = Poll::new()?;
    let open = |(place, server): (_, &SocketAddr)| Slot::open(*server, poll.registry(), Token(place));
    let slots = servers.iter().cycle().take(concurrent).enumerate().map(open).collect::<Result<_, _>>()?;
    let now = Instant::now();
    let mut churn = Churn {
        slots,
        scratch: connection::scratch(),
        from: now + warmup,
        last_progress: now,
        sessions: 0,
        handshakes_ns: latency_histogram(),
        poll,
    };
    churn.run_until(now + warmup)?;
    let cpu_time = || processes.map(ServerProcesses::cpu_time).transpose();
    let (cpu_before, own_before) = (cpu_time()?, thread_cpu());
    churn.run_until(now + warmup + window)?;
    let server_cpu = cpu_time()?.zip(cpu_before).map(|(after, before)| after.saturating_sub(before));
    let generator_cpu = thread_cpu().saturating_sub(own_before);
    // Dropping the rest closes their connections half-way; the server, at its end too, ends the sessions.
    Ok(Churned { sessions: churn.sessions, handshakes_ns: churn.handshakes_ns, server_cpu, generator_cpu })
}

struct Churn {
    poll: Poll,
    /// Indexed by token.
    slots: Vec<Slot>,
    scratch: Box<[u8]>,
    /// What ends after this counts.
    from: Instant,
    last_progress: Instant,
    sessions: u64,
    handshakes_ns: Histogram<u64>,
}

impl Churn {
    fn run_until(&mut self, deadline: Instant) -> Result<()> {
        let mut events = Events::with_capacity(self.slots.len());
        while Instant::now() < deadline {
            interrupt::check()?;
            let silence = self.last_progress.elapsed();
            if silence > SILENCE_MAX {
                return Err(Fault::Missing { outstanding: self.slots.len(), silence }.into());
            }
            match self.poll.poll(&mut events, Some(WAIT_MAX)) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                polled => polled?,
            }
            for event in &events {
                let Token(place) = event.token();
                self.turn(place).with_context(|| format!("connection {place}"))?;
            }
        }
        Ok(())
    }

    fn turn(&mut self, place: usize) -> Result<(), Fault> {
        let counts = Instant::now() >= self.from;
        let slot = &mut self.slots[place];
        slot.connection.flush()?;
        let Some(ended) = slot.advance(&mut self.scratch)? else { return Ok(()) };
        self.last_progress = Instant::now();
        if counts {
            self.sessions += 1;
            record_latency(&mut self.handshakes_ns, ended.handshake);
        }
        self.slots[place] = Slot::open(slot.server, self.poll.registry(), Token(place))?;
        Ok(())
    }
}

/// A session that was opened and closed.
struct Ended {
    handshake: Duration,
}

#[derive(Clone, Copy)]
enum Phase {
    Opening,
    LoggingIn,
    Open { handshake: Duration },
    Closing { handshake: Duration },
    Closed { handshake: Duration },
}

struct Slot {
    server: SocketAddr,
    connection: Connection,
    since: Instant,
    phase: Phase,
    /// Of its user, if it has one.
    login: Option<Login>,
}

const CLOSE_XID: i32 = 1;

impl Slot {
    fn open(server: SocketAddr, registry: &Registry, token: Token) -> io::Result<Self> {
        let since = Instant::now();
        let stream = TcpStream::connect(server)?;
        stream.set_nodelay(true)?;
        let mut connection = Connection::new(tls::on(stream.into(), server)?, registry, token)?;
        request::connect(connection.out(), SESSION_TIMEOUT_MS);
        Ok(Self { server, connection, since, phase: Phase::Opening, login: login::next() })
    }

    /// Takes what has come and sends what follows from it.
    fn advance(&mut self, scratch: &mut [u8]) -> Result<Option<Ended>, Fault> {
        let Self { connection, since, phase, login, .. } = self;
        // Of the login: it follows from what is received, on the same connection.
        let mut tokens = Vec::new();
        // To the end: the server's last word and the end of its stream often come together.
        let received = connection.receive(scratch, true, |payload, at| {
            let open = || Phase::Open { handshake: at.saturating_duration_since(*since) };
            *phase = match *phase {
                Phase::Opening => {
                    if ConnectResponse::from_bytes(payload)?.timeout_ms <= 0 {
                        return Err(Fault::SessionRefused);
                    }
                    match login {
                        None => open(),
                        Some(login) => {
                            login.begin(&mut tokens)?;
                            Phase::LoggingIn
                        }
                    }
                }
                Phase::LoggingIn => {
                    let is_done = match login {
                        None => true,
                        Some(login) => login.handle_reply(payload, &mut tokens)?,
                    };
                    if is_done { open() } else { Phase::LoggingIn }
                }
                Phase::Closing { handshake } => {
                    reply::body_of(payload, CLOSE_XID)?;
                    Phase::Closed { handshake }
                }
                Phase::Open { .. } | Phase::Closed { .. } => {
                    return Err(Fault::Unasked(reply::split(payload)?.0.xid.0));
                }
            };
            Ok(())
        });
        if !tokens.is_empty() {
            connection.out().append(&mut tokens);
            connection.flush()?;
        }
        match (received, *phase) {
            (Err(Fault::Closed), Phase::Closed { handshake }) => Ok(Some(Ended { handshake })),
            (Err(fault), _) => Err(fault),
            (Ok(()), _) => self.send_close().map(|()| None),
        }
    }

    /// Sends closeSession, once, when the session is open.
    fn send_close(&mut self) -> Result<(), Fault> {
        if let Phase::Open { handshake } = self.phase {
            request::close_session(self.connection.out(), CLOSE_XID);
            self.phase = Phase::Closing { handshake };
            self.connection.flush()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::floor;

    fn churn_for(window: Duration, server: SocketAddr) -> Result<Churned> {
        let own = ServerProcesses::of_pids(&[i32::try_from(std::process::id()).unwrap()]).unwrap();
        churn(&[server], Some(&own), 4, Duration::ZERO, window)
    }

    #[test]
    fn sessions_open_and_close_without_a_fault() {
        let churned = churn_for(Duration::from_millis(50), floor::for_tests());
        assert!(churned.is_ok(), "{:#}", churned.err().unwrap());
        let churned = churned.unwrap();
        assert_eq!(churned.sessions, churned.handshakes_ns.len());
    }

    #[test]
    fn a_server_that_hangs_up_is_an_error() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let server = listener.local_addr().unwrap();
        std::thread::spawn(move || listener.incoming().for_each(drop));
        assert!(churn_for(Duration::from_secs(3600), server).is_err());
    }
}
