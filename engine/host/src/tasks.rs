//! The tasks of a running server: pump, log, snapshots, transfers, scrub, and the clock's ticks.

use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::time::Duration;

use crate::env::{Class, Env, Task};
use crate::log_task::{LogFailure, LogTask};
use crate::pump::{Frontend, Pump, StateOf};
use crate::restore::StateFormat;
use crate::scrub::{Integrity, Pace, Scrubber};
use crate::snapshots::take_snapshots;
use crate::transfer::{self, receive_snapshots, send_snapshots};
use crate::wake::WakeFlag;

/// Why a server ended by itself.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The log failed.
    #[error(transparent)]
    Log(#[from] LogFailure),
    /// What is in the log, or came from the leader, is not what was written; or the snapshots' disk failed.
    #[error("{0}")]
    Broken(String),
    /// A task panicked.
    #[error("a task of the server panicked")]
    Panicked,
}

/// What the tasks are run with.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How often the node is told the time.
    pub tick: Duration,
    /// How fast snapshots are sent to peers.
    pub transfer: transfer::Limits,
    /// Interval and rate of the scrub, if there is one.
    pub scrub: Option<Pace>,
}

/// The tasks of a server, which end when this is dropped.
pub struct Tasks<E: Env> {
    tasks: Vec<E::Task>,
    end: Rc<End>,
}

/// How the server ended, once it has.
#[derive(Default)]
struct End {
    outcome: RefCell<Option<Result<(), Failure>>>,
    flag: WakeFlag,
}

impl End {
    /// The first outcome counts.
    fn set(&self, outcome: Result<(), Failure>) {
        self.outcome.borrow_mut().get_or_insert(outcome);
        self.flag.raise();
    }
}

/// Ends the server when the task that holds it panics. Otherwise nobody would learn of it, since the
/// executor does not hand a panic to those who wait for other tasks.
struct Watch(Rc<End>);

impl Drop for Watch {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.set(Err(Failure::Panicked));
        }
    }
}

impl<E: Env> Tasks<E> {
    /// Starts all tasks of a server.
    pub fn start<F, S>(
        pump: &Rc<Pump<E, F>>,
        log: LogTask<E, S>,
        integrity: Rc<Integrity>,
        settings: Settings,
    ) -> Self
    where
        F: Frontend,
        S: StateFormat<E::Storage, State = StateOf<F>>,
    {
        let (env, end) = (pump.env(), Rc::<End>::default());
        let (snapshots, upkeep) = (log.snapshots.clone(), log.wal.upkeep());
        let (queue, ended) = (Rc::clone(pump.log()), Rc::clone(&end));
        let logging = async move { ended.set(log.run(queue).await.map_err(Failure::from)) };
        let ended = Rc::clone(&end);
        let keeping_up = async move {
            if let Err(error) = upkeep.run().await {
                ended.set(Err(Failure::Log(error.into())));
            }
        };
        let (running, ended) = (Rc::clone(pump), Rc::clone(&end));
        let pumping = async move { ended.set(Err(Failure::Broken(running.run().await))) };
        let sending = send_snapshots(Rc::clone(pump), snapshots.clone(), settings.transfer);
        let taking = take_snapshots(Rc::clone(pump), snapshots.clone());
        let receiving = receive_snapshots(Rc::clone(pump), snapshots.clone());
        let ticking = tick(Rc::clone(pump), settings.tick);
        let mut tasks = vec![
            spawn(env, &end, Class::Requests, logging),
            spawn(env, &end, Class::Requests, keeping_up),
            spawn(env, &end, Class::Requests, pumping),
            spawn(env, &end, Class::Requests, sending),
            spawn(env, &end, Class::Requests, taking),
            spawn(env, &end, Class::Requests, receiving),
            spawn(env, &end, Class::Requests, ticking),
        ];
        if let Some(pace) = settings.scrub {
            let scrubber = Scrubber { pump: Rc::clone(pump), pace, snapshots, integrity };
            tasks.push(spawn(env, &end, Class::Background, scrubber.run()));
        }
        Self { tasks, end }
    }

    /// Waits until the log was stopped and everything in it is durable.
    ///
    /// # Errors
    /// The server ended by itself.
    pub async fn ended(&self) -> Result<(), Failure> {
        loop {
            let outcome = self.end.outcome.borrow_mut().take();
            match outcome {
                Some(outcome) => return outcome,
                None => poll_fn(|cx| self.end.flag.poll_lower(cx)).await,
            }
        }
    }

    /// Ends all tasks, and waits until everything they hold is dropped.
    pub async fn cancel(self) {
        for task in self.tasks {
            task.cancel().await;
        }
    }
}

fn spawn<E: Env>(env: &E, end: &Rc<End>, class: Class, task: impl Future<Output = ()> + 'static) -> E::Task {
    let watch = Watch(Rc::clone(end));
    env.spawn(class, async move {
        task.await;
        drop(watch);
    })
}

async fn tick<E: Env, F: Frontend>(pump: Rc<Pump<E, F>>, every: Duration) {
    loop {
        pump.env().sleep(every).await;
        pump.tick();
    }
}
