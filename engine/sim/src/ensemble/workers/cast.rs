//! Who does what in a run.

use std::rc::Rc;

use ringkeeper_client::mutation::Mutation;

use super::desk::Desk;
use super::stage::Stage;
use super::task::Program;
use super::worker::{Setting, Worker};
use super::{barriers, counters, lines, queues, watchers, writers};
use crate::random::Random;

/// What one worker does. Its program begins anew with every session.
pub(super) struct Role {
    pub(super) name: &'static str,
    /// The program may be dropped at any time.
    pub(super) is_abortable: bool,
    pub(super) program: Rc<dyn Fn(Desk) -> Program>,
}

impl Role {
    pub(super) fn new<F>(name: &'static str, program: impl Fn(Desk) -> F + 'static) -> Self
    where
        F: Future<Output = ringkeeper_client::Result<()>> + 'static,
    {
        Self { name, is_abortable: true, program: Rc::new(move |desk| Box::pin(program(desk))) }
    }

    pub(super) fn not_abortable(self) -> Self {
        Self { is_abortable: false, ..self }
    }
}

/// Two or three troupes of workers.
pub(crate) fn cast(
    random: &mut Random,
    servers: usize,
    mutation: Mutation,
    stage: &Rc<Stage>,
) -> Vec<Worker> {
    let troupes: [fn(&mut Random) -> Vec<Role>; 8] = [
        lines::locks,
        lines::elections,
        lines::rw_locks,
        queues::queues,
        counters::counters,
        barriers::barriers,
        watchers::watchers,
        writers::writers,
    ];
    let mut left: Vec<_> = troupes.into();
    let mut roles = Vec::new();
    for _ in 0..random.between(2, 3) {
        let troupe = left.remove(random.index(left.len()));
        roles.extend(troupe(random));
    }
    let setting = Setting { servers, mutation };
    let worker = |(number, role)| Worker::new(number, role, setting, stage, Random::new(random.next()));
    roles.into_iter().enumerate().map(worker).collect()
}
