//! Workers in the world: their turns, their connections, and what goes wrong with them.

use super::super::client::Heard;
use super::super::links::Party;
use super::super::violation::{Oracle, Violation};
use super::super::world::{Event, TICK_US, World};
use super::{Act, Worker};

impl World {
    /// Lets a worker go on, carries out what it wants, and hears what it has to state.
    pub(in super::super) fn turn(&mut self, index: usize) -> Result<(), Violation> {
        let mut acts = Vec::new();
        let worker = &mut self.workers[index];
        if self.now_us >= worker.turn_us {
            worker.turn_us = u64::MAX;
        }
        let turned = worker.turn(self.now_us, &mut self.judge, &mut acts);
        for act in acts {
            self.carry_out_act(index, act);
        }
        for fact in self.stage.take_facts() {
            self.say(&format!("worker {index}: {fact:x?}"));
            self.examiner.hear(fact, &self.judge)?;
        }
        turned?;
        self.schedule_turn(index);
        Ok(())
    }

    fn carry_out_act(&mut self, worker: usize, act: Act) {
        match act {
            Act::HangUp { link } => self.hang_up(link, true),
            Act::Dial { attempt, server } => {
                let delay = self.client_delay();
                self.at(delay, Event::Dialed { worker, attempt, server });
            }
            Act::Send { link, bytes } => self.write_to_server(link, bytes),
        }
    }

    fn schedule_turn(&mut self, index: usize) {
        let worker = &mut self.workers[index];
        let Some(at_us) = worker.deadline_us().filter(|at_us| *at_us < worker.turn_us) else { return };
        worker.turn_us = at_us;
        let delay = at_us.saturating_sub(self.now_us);
        self.at(delay, Event::Turn { worker: index });
    }

    /// A dial has come to a server: one that stands still says nothing, one that is down refuses.
    pub(in super::super) fn dialed(
        &mut self,
        index: usize,
        attempt: u64,
        server: usize,
    ) -> Result<(), Violation> {
        let paused = self.servers[server].paused_until_us > self.now_us;
        if paused || !self.workers[index].awaits(attempt) {
            return Ok(());
        }
        let link = self.open(Party::Worker(index), server);
        self.workers[index].dialed(self.now_us, attempt, link);
        self.turn(index)
    }

    /// Bytes for a worker; none mean that the server's end is closed.
    pub(in super::super) fn deliver_to_worker(
        &mut self,
        index: usize,
        link: u64,
        bytes: &[u8],
    ) -> Result<(), Violation> {
        if self.workers[index].link() != Some(link) {
            return Ok(());
        }
        let settled = self.is_settled();
        if bytes.is_empty() {
            self.workers[index].lost(self.now_us);
        } else {
            let worker = &mut self.workers[index];
            let heard = worker.received(self.now_us, bytes, &mut self.judge, settled)?;
            self.report.sessions_expired += u64::from(heard == Heard::Expired);
        }
        self.turn(index)
    }

    /// How long something has to wait for a worker that stands still.
    pub(in super::super) fn worker_pause(&self, event: &Event) -> Option<u64> {
        let worker = match event {
            Event::Turn { worker } | Event::Dialed { worker, .. } => *worker,
            Event::ToClient { link, .. } => match self.links.get(link)?.party {
                Party::Worker(worker) => worker,
                Party::Client(_) => return None,
            },
            _ => return None,
        };
        let paused_until_us = self.workers[worker].paused_until_us;
        (paused_until_us > self.now_us).then_some(paused_until_us)
    }

    /// A connection that was silent is found to be dead.
    pub(in super::super) fn reset_worker(&mut self, link: u64) -> Result<(), Violation> {
        let Some(index) = self.workers.iter().position(|worker| worker.link() == Some(link)) else {
            return Ok(());
        };
        self.workers[index].lost(self.now_us);
        self.turn(index)
    }

    /// A session ends only when its client is no longer certain of it. Servers that stand still for long, and
    /// observers that learn from followers, may break that.
    pub(in super::super) fn examine_leases(&mut self) -> Result<(), Violation> {
        let stands_still = self.faults.pause > 0 && self.faults.pause_max_us > TICK_US;
        let promised = !stands_still && !self.faults.observer_masters;
        for session in std::mem::take(&mut self.judge.expired).into_iter().filter(|_| promised) {
            let owner = self.workers.iter().find(|worker| worker.session() == Some(session));
            // Servers whose clocks are quicker count the timeout faster.
            let certain_ms = owner.map_or(0, |owner| {
                owner.certain_ms(self.now_us).saturating_sub(owner.timeout_ms() * self.faults.drift / 1000)
            });
            Oracle::Session.check(certain_ms == 0, || {
                format!("{session:x} has expired, and its client is certain of it for {certain_ms} ms")
            })?;
        }
        Ok(())
    }

    pub(in super::super) fn trouble_a_worker(&mut self) -> Result<(), Violation> {
        if self.workers.is_empty() {
            return Ok(());
        }
        let index = self.random.index(self.workers.len());
        let link = self.workers[index].link();
        if self.random.chance(self.faults.worker_pause) {
            self.report.worker_pauses += 1;
            let pause_us = self.random.between(1000, self.faults.pause_max_us);
            self.say(&format!("worker {index} stands still"));
            let until_us = &mut self.workers[index].paused_until_us;
            *until_us = (*until_us).max(self.now_us + pause_us);
        } else if self.random.chance(self.faults.worker_abort) && self.workers[index].abort() {
            self.report.worker_aborts += 1;
            self.say(&format!("worker {index}'s program is dropped"));
            self.turn(index)?;
        } else if self.random.chance(self.faults.client_break)
            && let Some(link) = link
        {
            self.report.client_breaks += 1;
            self.say(&format!("worker {index} loses its connection"));
            self.hang_up(link, true);
            self.reset_worker(link)?;
        } else if self.random.chance(self.faults.client_silence)
            && let Some(link) = link.and_then(|link| self.links.get_mut(&link))
        {
            self.report.client_silences += 1;
            link.silent = true;
        }
        Ok(())
    }

    /// The workers that are not done.
    pub(in super::super) fn unfinished(&self) -> Vec<String> {
        self.workers.iter().filter(|worker| !worker.is_done()).map(Worker::describe).collect()
    }
}
