//! The queue: what was put is taken once.

use std::cell::Cell;
use std::rc::Rc;

use ringkeeper_client::recipes::Queue;
use ringkeeper_client::{Error, Result};

use super::cast::Role;
use super::desk::{Desk, Perhaps};
use super::examiner::Fact;
use crate::random::Random;

pub(super) const QUEUE: &str = "/queue";

/// What is remembered over the ends of sessions.
#[derive(Default)]
struct Memory {
    entries: Cell<u64>,
    /// It will put nothing more.
    has_put_last: Cell<bool>,
}

pub(super) fn queues(random: &mut Random) -> Vec<Role> {
    let users = random.between(2, 4);
    let producing = Rc::new(Cell::new(users));
    let user = |_| {
        let (memory, producing) = (Rc::new(Memory::default()), Rc::clone(&producing));
        Role::new("queue", move |desk| use_queue(desk, Rc::clone(&memory), Rc::clone(&producing)))
    };
    (0..users).map(user).collect()
}

async fn use_queue(desk: Desk, memory: Rc<Memory>, producing: Rc<Cell<u64>>) -> Result<()> {
    let desk = &desk;
    let mut user = User {
        desk,
        memory: &memory,
        queue: Queue::new(&desk.client, QUEUE),
        gave_up: false,
        unsettled: false,
    };
    while !desk.stage.is_healed() {
        match desk.below(3) {
            0 => user.put().await?,
            1 => drop(user.try_take().await?),
            _ => user.take().await?,
        }
        desk.done();
        desk.pause().await;
    }
    if !memory.has_put_last.get() {
        user.put().await?;
        memory.has_put_last.set(true);
        producing.set(producing.get() - 1);
    }
    // Entries may come to light late: those of a take that was given up.
    loop {
        let is_last = producing.get() == 0;
        if !user.try_take().await? {
            if is_last {
                return Ok(());
            }
            desk.pause().await;
        }
    }
}

struct User<'a> {
    desk: &'a Desk,
    memory: &'a Memory,
    queue: Queue,
    /// A take was given up, and none was completed since.
    gave_up: bool,
    /// An entry may have been taken that no program got.
    unsettled: bool,
}

impl User<'_> {
    async fn put(&mut self) -> Result<()> {
        let number = self.memory.entries.get();
        self.memory.entries.set(number + 1);
        let entry = format!("{}.{number}", self.desk.worker);
        self.desk.at(format_args!("puts {entry}"));
        let mut said = Perhaps::new(self.desk, Fact::PerhapsPut { entry: entry.clone() });
        let put = self.queue.put(entry.as_bytes()).await;
        match &put {
            Ok(()) => said.settle(Fact::Put { entry }),
            Err(Error::ConnectionLoss(_)) => {}
            Err(_) => said.settle(Fact::NotPut { entry }),
        }
        put
    }

    async fn try_take(&mut self) -> Result<bool> {
        self.desk.at("looks for an entry");
        self.unsettled = true;
        let taken = self.queue.try_take().await;
        self.taken(taken)
    }

    /// With little patience, since the others may wait for entries as well.
    async fn take(&mut self) -> Result<()> {
        self.desk.at("waits for an entry");
        let us = self.desk.below(100_000);
        self.unsettled = true;
        match self.desk.within(us, self.queue.take()).await {
            Some(taken) => self.taken(taken.map(Some)).map(drop),
            None => {
                self.gave_up = true;
                Ok(())
            }
        }
    }

    fn taken(&mut self, taken: Result<Option<Vec<u8>>>) -> Result<bool> {
        // A definite error of this take says nothing about an earlier one that was given up.
        self.unsettled = self.gave_up || matches!(taken, Err(Error::ConnectionLoss(_)));
        let taken = taken?;
        (self.unsettled, self.gave_up) = (false, false);
        let session = self.desk.session();
        let Some(entry) = taken else { return Ok(false) };
        let entry = String::from_utf8_lossy(&entry).into_owned();
        self.desk.state(Fact::Took { session, entry });
        Ok(true)
    }
}

impl Drop for User<'_> {
    fn drop(&mut self) {
        if self.unsettled {
            self.desk.state(Fact::PerhapsTook { session: self.desk.session() });
        }
    }
}
