//! The loop of one load-generating thread.
//!
//! Written to take little of the machine it measures: one epoll wait for all connections, one read and one
//! write per connection that is ready, one look at the clock per read and per batch of requests, and no
//! allocation once the buffers have grown. Time spent here is reported beside every result.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use hdrhistogram::Histogram;
use mio::{Events, Poll, Token};
use ringkeeper_testkit::interrupt;
use rustix::time::{ClockId, clock_gettime};

use crate::connection;
use crate::fault::Fault;
use crate::lane::{Lane, Source};
use crate::open_loop::{ALARM, Agenda, Arrivals, LATE};
use crate::session::Session;
use crate::timeline::Timeline;

/// Silence after which outstanding replies count as missing.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(30);

/// How often it is looked for sessions that have been idle for long.
const LOOK_FOR_IDLE_EVERY: Duration = Duration::from_secs(1);

/// How long an idle thread waits before it looks at the clock and for an interrupt.
const WAIT_MAX: Duration = Duration::from_millis(50);

/// What a thread puts under load, and when it counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schedule {
    /// Requests outstanding on each session.
    pub(crate) outstanding: usize,
    /// Replies count from here on; what comes before is warm-up.
    pub(crate) from: Instant,
    /// Replies count, and requests are issued, until here.
    pub(crate) to: Instant,
    /// Issue requests when they are due and not when replies come: open loop. `outstanding` means nothing
    /// then.
    pub(crate) arrivals: Option<Arrivals>,
}

/// What one thread, or several together, have counted.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    /// Replies that came inside the window.
    pub(crate) operations: u64,
    /// Their latencies in nanoseconds, from issuing the request to reading the reply.
    pub(crate) latencies_ns: Histogram<u64>,
    /// Time on the CPU inside the window, the threads' added up.
    pub(crate) generator_cpu: Duration,
    /// That of the thread that has used most.
    pub(crate) busiest_thread: Duration,
    /// When the last counted reply came.
    pub(crate) last_reply: Option<Instant>,
    /// Requests of an open loop that left more than a millisecond after they were due.
    pub(crate) late: u64,
    /// Replies in each slot of time, where that is wanted.
    pub(crate) timeline: Option<Timeline>,
}

impl Tally {
    pub(crate) fn new() -> Self {
        Self {
            operations: 0,
            latencies_ns: latency_histogram(),
            generator_cpu: Duration::ZERO,
            busiest_thread: Duration::ZERO,
            last_reply: None,
            late: 0,
            timeline: None,
        }
    }

    /// A tally that counts replies by slots of time too.
    pub(crate) fn with_timeline(timeline: Timeline) -> Self {
        Self { timeline: Some(timeline), ..Self::new() }
    }

    /// Adds a reply that counts.
    pub(crate) fn record(&mut self, at: Instant, latency: Duration) {
        self.operations += 1;
        record_latency(&mut self.latencies_ns, latency);
        self.last_reply = Some(at);
        if let Some(timeline) = &mut self.timeline {
            timeline.record(at);
        }
    }

    /// Adds this thread's time on the CPU.
    pub(crate) fn add_cpu(&mut self, cpu: Duration) {
        self.generator_cpu += cpu;
        self.busiest_thread = self.generator_cpu;
    }

    /// Adds what another thread has counted in the same window.
    pub(crate) fn add(&mut self, other: &Self) {
        self.operations += other.operations;
        self.latencies_ns.add(&other.latencies_ns).expect("both have the range of `latency_histogram`");
        self.generator_cpu += other.generator_cpu;
        self.busiest_thread = self.busiest_thread.max(other.busiest_thread);
        self.last_reply = self.last_reply.max(other.last_reply);
        self.late += other.late;
        if let (Some(own), Some(others)) = (&mut self.timeline, &other.timeline) {
            own.add(others);
        }
    }
}

/// A histogram of nanoseconds, up to ten minutes, exact to three digits.
pub(crate) fn latency_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 600_000_000_000, 3).expect("the bounds are valid")
}

/// Records a latency in nanoseconds; what exceeds the range counts as its end.
pub(crate) fn record_latency(histogram: &mut Histogram<u64>, latency: Duration) {
    histogram.saturating_record(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
}

/// Puts `sessions` under load, each from its own source, and gives them back with nothing outstanding.
/// `replies` tells others how many have come so far, inside the window or not.
///
/// # Errors
/// A reply is wrong, out of order or missing, a connection fails, or the user interrupts.
pub(crate) fn drive<S: Source>(
    sessions: Vec<(Session, S)>,
    schedule: Schedule,
    replies: &AtomicU64,
) -> Result<(Vec<Session>, Tally)> {
    let mut tally = Tally::new();
    let sessions = drive_into(sessions, schedule, &mut tally, replies)?;
    Ok((sessions, tally))
}

/// As [`drive`], adding to `tally` what it counts, which is there also when it fails.
pub(crate) fn drive_into<S: Source>(
    sessions: Vec<(Session, S)>,
    schedule: Schedule,
    tally: &mut Tally,
    replies: &AtomicU64,
) -> Result<Vec<Session>> {
    let mut driver = Driver::new(sessions, schedule, tally, replies)?;
    driver.run()?;
    let registry = driver.poll.registry();
    driver.lanes.into_iter().map(|lane| lane.into_session(registry)).collect()
}

struct Driver<'t, S: Source> {
    poll: Poll,
    /// Indexed by token.
    lanes: Vec<Lane<S>>,
    scratch: Box<[u8]>,
    schedule: Schedule,
    tally: &'t mut Tally,
    replies: &'t AtomicU64,
    last_progress: Instant,
    /// When it was looked for idle sessions last.
    looked_for_idle: Instant,
    agenda: Option<Agenda>,
}

impl<'t, S: Source> Driver<'t, S> {
    fn new(
        sessions: Vec<(Session, S)>,
        schedule: Schedule,
        tally: &'t mut Tally,
        replies: &'t AtomicU64,
    ) -> Result<Self> {
        let poll = Poll::new()?;
        let mut lanes = Vec::with_capacity(sessions.len());
        for (index, (session, source)) in sessions.into_iter().enumerate() {
            lanes.push(Lane::new(session, source, poll.registry(), Token(index))?);
        }
        let last_progress = Instant::now();
        let agenda = schedule.arrivals.map(|arrivals| Agenda::new(arrivals, poll.registry())).transpose()?;
        Ok(Self {
            poll,
            lanes,
            scratch: connection::scratch(),
            schedule,
            tally,
            replies,
            last_progress,
            looked_for_idle: last_progress,
            agenda,
        })
    }

    fn run(&mut self) -> Result<()> {
        let mut events = Events::with_capacity(self.lanes.len().max(1));
        let mut cpu = CpuWindow::new(self.schedule);
        for index in 0..self.lanes.len() {
            self.push(index, true).with_context(|| format!("session {index}"))?;
        }
        loop {
            let now = Instant::now();
            cpu.observe(now);
            let issuing = now < self.schedule.to;
            if self.is_drained(issuing) {
                break;
            }
            self.check_patience(now)?;
            if issuing {
                self.issue_due()?;
                self.keep_alive(now)?;
            }
            self.wait(&mut events)?;
            for event in events.iter().filter(|event| event.token() != ALARM) {
                let Token(index) = event.token();
                self.turn(index, event.is_read_closed(), issuing)
                    .with_context(|| format!("session {index}"))?;
            }
        }
        self.tally.add_cpu(cpu.finish());
        Ok(())
    }

    /// One ready connection: everything it has, then everything there is to send.
    fn turn(&mut self, index: usize, to_end: bool, issuing: bool) -> Result<(), Fault> {
        let Self { lanes, scratch, schedule, tally, replies, last_progress, .. } = self;
        let mut came = 0;
        lanes[index].receive(scratch, to_end, |at, latency| {
            *last_progress = at;
            came += 1;
            // An open loop counts what was due in the window, however late the reply: else the slowest would
            // be missing.
            let counted_at = if schedule.arrivals.is_some() { at - latency } else { at };
            if counted_at >= schedule.from && counted_at < schedule.to {
                tally.record(at, latency);
            }
        })?;
        // This thread is the only one that adds.
        replies.store(replies.load(Ordering::Relaxed) + came, Ordering::Relaxed);
        self.push(index, issuing)
    }

    fn push(&mut self, index: usize, issuing: bool) -> Result<(), Fault> {
        let lane = &mut self.lanes[index];
        if issuing && self.agenda.is_none() {
            lane.fill(self.schedule.outstanding);
        }
        lane.flush()
    }

    /// In an open loop: issues what is due by now, on the sessions in turn, and sets the alarm for what is
    /// due next. The first request is due at once.
    fn issue_due(&mut self) -> Result<()> {
        let Self { agenda: Some(agenda), lanes, schedule, tally, last_progress, .. } = self else {
            return Ok(());
        };
        let now = Instant::now();
        let (first, mut issued) = (agenda.next_lane, 0);
        while let Some(due) = agenda.take_due(now) {
            let lane = &mut lanes[agenda.next_lane];
            if due >= schedule.from && now.duration_since(due) > LATE {
                tally.late += 1;
            }
            if lane.outstanding() == 0 {
                *last_progress = now;
            }
            lane.issue(due);
            issued += 1;
            agenda.next_lane = (agenda.next_lane + 1) % lanes.len();
        }
        // One write for each session, however many of its requests were due.
        let count = lanes.len();
        for index in (first..first + issued.min(count)).map(|index| index % count) {
            lanes[index].flush().with_context(|| format!("session {index}"))?;
        }
        // Where nothing was due, the alarm for what is due next is set already.
        if issued > 0 { agenda.set_alarm() } else { Ok(()) }
    }

    /// Pings the sessions that have nothing to do: in a slow open loop each has its turn rarely, and sources
    /// come to an end at different times.
    fn keep_alive(&mut self, now: Instant) -> Result<()> {
        if now.saturating_duration_since(self.looked_for_idle) < LOOK_FOR_IDLE_EVERY {
            return Ok(());
        }
        self.looked_for_idle = now;
        for (index, lane) in self.lanes.iter_mut().enumerate() {
            if lane.keep_alive(now).with_context(|| format!("session {index}"))? {
                self.last_progress = now;
            }
        }
        Ok(())
    }

    fn is_drained(&self, issuing: bool) -> bool {
        if issuing { self.lanes.iter().all(Lane::is_done) } else { self.outstanding() == 0 }
    }

    fn outstanding(&self) -> usize {
        self.lanes.iter().map(Lane::outstanding).sum()
    }

    fn check_patience(&self, now: Instant) -> Result<()> {
        interrupt::check()?;
        let silence = now.saturating_duration_since(self.last_progress);
        if silence > SILENCE_MAX && self.outstanding() > 0 {
            return Err(Fault::Missing { outstanding: self.outstanding(), silence }.into());
        }
        Ok(())
    }

    fn wait(&mut self, events: &mut Events) -> Result<()> {
        match self.poll.poll(events, Some(WAIT_MAX)) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {
                events.clear();
                Ok(())
            }
            polled => Ok(polled?),
        }
    }
}

/// This thread's time on the CPU between the two ends of the window.
pub(crate) struct CpuWindow {
    schedule: Schedule,
    at_from: Option<Duration>,
    at_to: Option<Duration>,
}

impl CpuWindow {
    pub(crate) const fn new(schedule: Schedule) -> Self {
        Self { schedule, at_from: None, at_to: None }
    }

    /// To be called often.
    pub(crate) fn observe(&mut self, now: Instant) {
        if self.at_from.is_none() && now >= self.schedule.from {
            self.at_from = Some(thread_cpu());
        }
        if self.at_to.is_none() && now >= self.schedule.to {
            self.at_to = Some(thread_cpu());
        }
    }

    pub(crate) fn finish(self) -> Duration {
        let Some(from) = self.at_from else { return Duration::ZERO };
        self.at_to.unwrap_or_else(thread_cpu).saturating_sub(from)
    }
}

/// This thread's time on the CPU so far.
pub(crate) fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).expect("CPU time is not negative");
    let nanos = u32::try_from(time.tv_nsec).expect("nanoseconds are below a second");
    Duration::new(seconds, nanos)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::thread;

    use ringkeeper_wire::frame::put_frame;
    use ringkeeper_wire::{
        ConnectResponse, PASSWORD_LEN, Record, ReplyHeader, RequestHeader, SessionId, Xid,
    };

    use super::*;
    use crate::request;
    use crate::session::IDLE_MAX;

    const HOUR: Duration = Duration::from_secs(3600);

    /// A number of requests, each to be answered with `ok`.
    struct Requests {
        left: usize,
    }

    impl Source for Requests {
        type Expected = ();

        fn issue(&mut self, out: &mut Vec<u8>, xid: i32) -> Option<()> {
            self.left = self.left.checked_sub(1)?;
            request::get_data(out, xid, "/a", false);
            Some(())
        }

        fn check(&self, (): &(), body: &[u8]) -> Result<(), String> {
            if body == b"ok" { Ok(()) } else { Err(format!("{body:?}")) }
        }
    }

    fn read_frame(stream: &mut TcpStream) -> Option<Vec<u8>> {
        let mut len = [0; 4];
        stream.read_exact(&mut len).ok()?;
        let mut payload = vec![0; usize::try_from(i32::from_be_bytes(len)).unwrap()];
        stream.read_exact(&mut payload).ok()?;
        Some(payload)
    }

    fn put_reply(out: &mut Vec<u8>, xid: i32, zxid: i64, err: i32, body: &[u8]) {
        put_frame(out, |out| {
            ReplyHeader { xid: Xid(xid), zxid, err }.encode(out);
            out.extend_from_slice(body);
        });
    }

    /// A server of one session whose answer to each request is what `answer` appends; the connection ends
    /// when that is nothing.
    fn server(mut answer: impl FnMut(i32, &mut Vec<u8>) + Send + 'static) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            read_frame(&mut stream).unwrap();
            let mut out = Vec::new();
            let granted = ConnectResponse {
                protocol_version: 0,
                timeout_ms: 1000,
                session_id: SessionId(1),
                password: Some(&[0; PASSWORD_LEN]),
                read_only: Some(false),
            };
            put_frame(&mut out, |out| granted.encode(out));
            while !out.is_empty() && stream.write_all(&out).is_ok() {
                out.clear();
                let Some(request) = read_frame(&mut stream) else { return };
                answer(RequestHeader::from_bytes(&request).unwrap().xid.0, &mut out);
            }
        });
        address
    }

    /// Ten requests, four at a time, to be counted from `from` on.
    fn drive_from(server: SocketAddr, from: Instant) -> Result<(Vec<Session>, Tally)> {
        let schedule = Schedule { outstanding: 4, from, to: from + HOUR, arrivals: None };
        drive(vec![(Session::open(server)?, Requests { left: 10 })], schedule, &AtomicU64::new(0))
    }

    fn fault_of(answer: impl FnMut(i32, &mut Vec<u8>) + Send + 'static) -> Fault {
        let driven = drive_from(server(answer), Instant::now());
        driven.err().expect("the server misbehaves").downcast().expect("the cause is a fault")
    }

    #[test]
    fn every_good_reply_counts_and_the_session_goes_on() {
        let server = server(|xid, out| put_reply(out, xid, 1, 0, b"ok"));
        let (mut sessions, tally) = drive_from(server, Instant::now()).unwrap();
        assert_eq!((tally.operations, tally.latencies_ns.len()), (10, 10));
        let body = sessions[0].call(|out, xid| request::get_data(out, xid, "/a", false)).unwrap();
        assert_eq!(body, b"ok");
    }

    #[test]
    fn replies_before_the_window_are_awaited_but_do_not_count() {
        let server = server(|xid, out| put_reply(out, xid, 1, 0, b"ok"));
        let (_, tally) = drive_from(server, Instant::now() + HOUR).unwrap();
        assert_eq!((tally.operations, tally.last_reply), (0, None));
    }

    #[test]
    fn a_reply_that_overtakes_another_is_an_error() {
        let fault = fault_of(|xid, out| put_reply(out, if xid == 3 { 4 } else { xid }, 1, 0, b"ok"));
        assert!(matches!(fault, Fault::OutOfOrder { expected: 3, found: 4 }), "{fault}");
    }

    #[test]
    fn an_error_code_is_an_error() {
        let fault = fault_of(|xid, out| put_reply(out, xid, 1, if xid == 3 { -101 } else { 0 }, b"ok"));
        assert!(matches!(fault, Fault::Refused { xid: 3, err: -101 }), "{fault}");
    }

    #[test]
    fn a_wrong_body_is_an_error() {
        let fault = fault_of(|xid, out| put_reply(out, xid, 1, 0, if xid == 3 { b"no" } else { b"ok" }));
        assert!(matches!(fault, Fault::Wrong { xid: 3, .. }), "{fault}");
    }

    #[test]
    fn a_zxid_that_goes_back_is_an_error() {
        let fault = fault_of(|xid, out| put_reply(out, xid, if xid == 3 { 8 } else { 9 }, 0, b"ok"));
        assert!(matches!(fault, Fault::WentBack { xid: 3, seen: 9, found: 8 }), "{fault}");
    }

    #[test]
    fn a_connection_that_ends_early_is_an_error() {
        let fault = fault_of(|xid, out| {
            if xid < 3 {
                put_reply(out, xid, 1, 0, b"ok");
            }
        });
        // Which one depends on whether the server had read all requests before it closed.
        let reset = matches!(&fault, Fault::Io(error) if error.kind() == std::io::ErrorKind::ConnectionReset);
        assert!(reset || matches!(fault, Fault::Closed), "{fault}");
    }

    #[test]
    fn an_idle_session_is_pinged_and_its_replies_stay_in_order() {
        let (told, pings) = std::sync::mpsc::channel();
        let server = server(move |xid, out| {
            if xid == ringkeeper_wire::xid::PING.0 {
                told.send(()).unwrap();
            }
            put_reply(out, xid, 1, 0, if xid == ringkeeper_wire::xid::PING.0 { b"" } else { b"ok" });
        });
        let now = Instant::now();
        let schedule = Schedule { outstanding: 4, from: now, to: now + HOUR, arrivals: None };
        let (mut tally, replies) = (Tally::new(), AtomicU64::new(0));
        let loaded = vec![(Session::open(server).unwrap(), Requests { left: 10 })];
        let mut driver = Driver::new(loaded, schedule, &mut tally, &replies).unwrap();
        driver.keep_alive(now).unwrap();
        assert!(pings.try_recv().is_err(), "it has not been idle for long");
        for _ in 0..2 {
            // The second time, the first ping is still on its way.
            driver.looked_for_idle = now;
            driver.keep_alive(Instant::now() + IDLE_MAX).unwrap();
        }
        driver.run().unwrap();
        assert_eq!((driver.outstanding(), tally.operations), (0, 10));
        assert_eq!(pings.try_iter().count(), 1);
    }
}
