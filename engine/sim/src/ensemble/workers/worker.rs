//! A process with a client: its program, and the bytes between the library and the network.

use std::cell::RefCell;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use ringkeeper_client::Client;
use ringkeeper_client::core::{Link, Loss, Millis};
use ringkeeper_client::hosted::Host;
use ringkeeper_client::mutation::Mutation;

use super::super::client::Heard;
use super::super::judge::Judge;
use super::super::violation::{Oracle, Violation};
use super::alarms::Alarms;
use super::cast::Role;
use super::desk::Desk;
use super::stage::Stage;
use super::tap::Tap;
use super::task::Task;
use crate::random::Random;

/// Steps of a worker at one time; more mean that it turns in circles.
const STEPS_MAX: usize = 10_000;

/// What the world has to do for a worker.
#[derive(Debug)]
pub(crate) enum Act {
    HangUp { link: u64 },
    Dial { attempt: u64, server: usize },
    Send { link: u64, bytes: Vec<u8> },
}

/// What is the same for all workers of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setting {
    pub(super) servers: usize,
    pub(super) mutation: Mutation,
}

/// One worker.
pub(crate) struct Worker {
    number: usize,
    role: Role,
    setting: Setting,
    stage: Rc<Stage>,
    alarms: Rc<Alarms>,
    random: Rc<RefCell<Random>>,
    timeout_ms: u64,
    /// `None` before the first session, between two, and in the end.
    life: Option<Life>,
    is_done: bool,
    pub(crate) paused_until_us: u64,
    /// The earliest turn that is scheduled.
    pub(crate) turn_us: u64,
}

/// One client, from its making to the end of its session.
struct Life {
    host: Host,
    work: Work,
    tap: Tap,
    /// The connection that the library has asked for.
    wanted: Link,
    /// The one that it has.
    link: Option<u64>,
}

/// What becomes of a client.
enum Work {
    Goes(Task, Client),
    /// The program is through.
    Done,
    /// The session has ended under the program, which begins anew with another.
    Over,
}

impl Worker {
    pub(super) fn new(
        number: usize,
        role: Role,
        setting: Setting,
        stage: &Rc<Stage>,
        mut random: Random,
    ) -> Self {
        Self {
            number,
            role,
            setting,
            stage: Rc::clone(stage),
            alarms: Rc::default(),
            timeout_ms: [300, 600, 1500][random.index(3)],
            random: Rc::new(RefCell::new(random)),
            life: None,
            is_done: false,
            paused_until_us: 0,
            turn_us: u64::MAX,
        }
    }

    /// The work is done and the session closed.
    pub(crate) const fn is_done(&self) -> bool {
        self.is_done
    }

    pub(crate) fn describe(&self) -> String {
        let client = self.life.as_ref().map(|life| (life.host.state(), life.host.link(), &life.tap));
        format!("{} {}: {}, {client:?}", self.role.name, self.number, self.stage.post(self.number))
    }

    pub(crate) fn link(&self) -> Option<u64> {
        self.life.as_ref().and_then(|life| life.link)
    }

    fn client(&self) -> Option<&Client> {
        let Work::Goes(_, client) = &self.life.as_ref()?.work else { return None };
        Some(client)
    }

    pub(super) fn session(&self) -> Option<i64> {
        self.client().map(|client| client.session_id().0)
    }

    pub(super) const fn timeout_ms(&self) -> u64 {
        self.timeout_ms
    }

    /// For how much longer its library is certain that its session lives, in milliseconds.
    pub(super) fn certain_ms(&self, now_us: u64) -> u64 {
        let lease_ms = self.client().map_or(0, |client| client.lease().as_millis());
        // Its clock stands still while it does.
        let until_ms = u128::from(self.alarms.now_us() / 1000) + lease_ms;
        u64::try_from(until_ms).unwrap_or(u64::MAX).saturating_sub(now_us / 1000)
    }

    /// When it must have a turn at the latest, in microseconds.
    pub(crate) fn deadline_us(&self) -> Option<u64> {
        let life = self.life.as_ref()?;
        let library_us = life.host.deadline().map(|at| at.0.saturating_mul(1000));
        [library_us, self.alarms.next_us()].into_iter().flatten().min()
    }

    /// Lets the library and the program go on until both wait.
    pub(crate) fn turn(
        &mut self,
        now_us: u64,
        judge: &mut Judge,
        out: &mut Vec<Act>,
    ) -> Result<(), Violation> {
        let now = Millis(now_us / 1000);
        self.alarms.ring(now_us);
        for _ in 0..STEPS_MAX {
            if self.is_done {
                return Ok(());
            }
            let mut life = match self.life.take() {
                Some(life) => life,
                None => self.begin(now)?,
            };
            life.host.advance(now);
            let worked = self.work(&mut life)?;
            let moved = life.relink(out) | life.send(now_us, judge, out)?;
            if life.host.is_over() && !matches!(life.work, Work::Goes(..)) {
                self.is_done = matches!(life.work, Work::Done);
                continue;
            }
            let is_due = life.host.deadline().is_some_and(|at| at <= now);
            self.life = Some(life);
            if !worked && !moved && !is_due {
                return Ok(());
            }
        }
        Err(Oracle::Progress.broken(format!("a worker turns in circles: {}", self.describe())))
    }

    fn begin(&self, now: Millis) -> Result<Life, Violation> {
        let servers: Vec<String> = (1..=self.setting.servers).map(|server| format!("s:{server}")).collect();
        let (seed, requests_max) = {
            let mut random = self.random.borrow_mut();
            (random.next(), [2, 5, 16_384][random.index(3)])
        };
        let builder = Client::builder(&servers.join(","))
            .session_timeout(Duration::from_millis(self.timeout_ms))
            .connect_timeout(None)
            .requests_max(requests_max)
            .seed(seed)
            .mutation(self.setting.mutation);
        let (client, host) =
            builder.host(now).map_err(|error| Oracle::Recipe.broken(format!("no client: {error}")))?;
        let work = Work::Goes(self.task(&client), client);
        Ok(Life { host, work, tap: Tap::new(self.number as u64), wanted: Link::Down, link: None })
    }

    fn task(&self, client: &Client) -> Task {
        Task::new((self.role.program)(Desk {
            client: client.clone(),
            worker: self.number,
            stage: Rc::clone(&self.stage),
            alarms: Rc::clone(&self.alarms),
            random: Rc::clone(&self.random),
        }))
    }

    /// Polls the program; whether that was due.
    fn work(&self, life: &mut Life) -> Result<bool, Violation> {
        let Work::Goes(task, client) = &mut life.work else { return Ok(false) };
        let outcome = match task.poll() {
            None => return Ok(false),
            Some(Poll::Pending) => return Ok(true),
            Some(Poll::Ready(outcome)) => outcome,
        };
        // With the last handle the session is closed: this one, or one of what recipes have left to do.
        match outcome {
            Ok(()) => {
                self.stage.at(self.number, "closes its session");
                life.work = Work::Done;
            }
            Err(_) if client.end_reason().is_some() => life.work = Work::Over,
            Err(error) if error.is_connection() || error.is_session_end() => *task = self.task(client),
            Err(error) => {
                let who = self.describe();
                return Err(Oracle::Recipe.broken(format!("{who} fails: {error}")));
            }
        }
        Ok(true)
    }

    /// The program is dropped where it is, and begins anew; `false` if there is none that can stand it.
    pub(crate) fn abort(&mut self) -> bool {
        let Some(mut life) = self.life.take() else { return false };
        let mut aborted = false;
        if let Work::Goes(task, client) = &mut life.work
            && self.role.is_abortable
        {
            *task = self.task(client);
            aborted = true;
        }
        self.life = Some(life);
        aborted
    }

    // The network.

    /// A dial was answered: by a connection, or by none.
    pub(crate) fn dialed(&mut self, now_us: u64, attempt: u64, link: Option<u64>) {
        let Some(life) = &mut self.life else { return };
        let now = Millis(now_us / 1000);
        match link {
            Some(link) => {
                life.link = Some(link);
                life.host.connected(now, attempt);
            }
            None => life.host.lost(now, attempt, Loss::Dial("refused".to_owned())),
        }
    }

    /// Whether it still waits for this dial.
    pub(crate) fn awaits(&self, attempt: u64) -> bool {
        let dials = |life: &Life| life.link.is_none() && life.attempt() == Some(attempt);
        self.life.as_ref().is_some_and(dials)
    }

    /// Bytes came in on its connection. `settled`: nothing has gone wrong for a while.
    pub(crate) fn received(
        &mut self,
        now_us: u64,
        bytes: &[u8],
        judge: &mut Judge,
        settled: bool,
    ) -> Result<Heard, Violation> {
        let Some(life) = &mut self.life else { return Ok(Heard::Nothing) };
        let Some(attempt) = life.attempt() else { return Ok(Heard::Nothing) };
        let heard = life.tap.heard(now_us, bytes, judge, settled)?;
        life.host.received(Millis(now_us / 1000), attempt, bytes);
        Ok(heard)
    }

    /// Its connection is broken.
    pub(crate) fn lost(&mut self, now_us: u64) {
        let Some(life) = &mut self.life else { return };
        life.link = None;
        life.tap.lost();
        if let Some(attempt) = life.attempt() {
            life.host.lost(Millis(now_us / 1000), attempt, Loss::Broken("reset".to_owned()));
        }
    }
}

impl Life {
    /// The connection that the world knows of.
    const fn attempt(&self) -> Option<u64> {
        match self.wanted {
            Link::Open { attempt, .. } => Some(attempt),
            Link::Down => None,
        }
    }

    /// Brings the connection in line with what the library wants; whether it was not.
    fn relink(&mut self, out: &mut Vec<Act>) -> bool {
        let wanted = self.host.link();
        if wanted == self.wanted {
            return false;
        }
        self.wanted = wanted;
        if let Some(link) = self.link.take() {
            self.tap.lost();
            out.push(Act::HangUp { link });
        }
        if let Link::Open { attempt, server } = wanted {
            out.push(Act::Dial { attempt, server });
        }
        true
    }

    /// Sends what there is; whether there was anything.
    fn send(&mut self, now_us: u64, judge: &mut Judge, out: &mut Vec<Act>) -> Result<bool, Violation> {
        let Some(link) = self.link else { return Ok(false) };
        let mut bytes = Vec::new();
        self.host.take_output(Millis(now_us / 1000), &mut bytes);
        if bytes.is_empty() {
            return Ok(false);
        }
        self.tap.sent(now_us, link, &bytes, judge)?;
        out.push(Act::Send { link, bytes });
        Ok(true)
    }
}
