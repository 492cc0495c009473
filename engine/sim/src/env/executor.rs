//! A single-threaded executor on virtual time: the seed decides the order in which ready tasks run.
//!
//! Everything in a run is an event of one queue: a task's turn, or a call at a given time. A woken task runs
//! after a random delay of at most `hop_us`. So the order of turns is random, every loop takes time, and a
//! crash, which is a call, can happen between any two turns.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use crate::random::Random;

type Body = Pin<Box<dyn Future<Output = ()>>>;

/// The tasks of one program between its start and its end.
pub(crate) struct Process {
    id: u64,
    /// No task of the process runs before this time.
    paused_until_us: Cell<u64>,
    /// Called after each turn of a task of it.
    after_turn: Box<dyn Fn()>,
}

impl Process {
    pub(crate) const fn id(&self) -> u64 {
        self.id
    }
}

struct Task {
    process: Rc<Process>,
    /// Factor by which its turns are delayed at most, compared with others.
    slowness: u64,
    /// `None` during its turn.
    body: Option<Body>,
    waker: Arc<TaskWaker>,
}

/// Wakes one task. Woken twice before its turn is woken once.
struct TaskWaker {
    task: u64,
    woken: AtomicBool,
    all_woken: Arc<Mutex<Vec<u64>>>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.woken.swap(true, Ordering::Relaxed) {
            self.all_woken.lock().unwrap_or_else(PoisonError::into_inner).push(self.task);
        }
    }
}

enum Event {
    Turn(u64),
    Call(Box<dyn FnOnce()>),
}

struct Scheduled {
    at_us: u64,
    /// Random order of events at the same time.
    draw: u64,
    number: u64,
    event: Event,
}

impl Scheduled {
    const fn key(&self) -> (u64, u64, u64) {
        (self.at_us, self.draw, self.number)
    }
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Scheduled {}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

struct Inner {
    now_us: Cell<u64>,
    /// The longest time from the waking of a task to its turn.
    hop_us: Cell<u64>,
    random: RefCell<Random>,
    queue: RefCell<BinaryHeap<Reverse<Scheduled>>>,
    scheduled: Cell<u64>,
    tasks: RefCell<BTreeMap<u64, Task>>,
    all_woken: Arc<Mutex<Vec<u64>>>,
    next_id: Cell<u64>,
    fingerprint: Cell<u64>,
}

/// The executor of a run. Clones are the same one.
#[derive(Clone)]
pub(crate) struct Executor(Rc<Inner>);

impl Executor {
    pub(crate) fn new(seed: u64, hop_us: u64) -> Self {
        Self(Rc::new(Inner {
            now_us: Cell::new(0),
            hop_us: Cell::new(hop_us),
            random: RefCell::new(Random::new(seed)),
            queue: RefCell::default(),
            scheduled: Cell::new(0),
            tasks: RefCell::default(),
            all_woken: Arc::default(),
            next_id: Cell::new(1),
            fingerprint: Cell::new(0),
        }))
    }

    /// Time since the beginning of the run.
    pub(crate) fn now_us(&self) -> u64 {
        self.0.now_us.get()
    }

    /// Draws from the seed.
    pub(crate) fn draw<T>(&self, draw: impl FnOnce(&mut Random) -> T) -> T {
        draw(&mut self.0.random.borrow_mut())
    }

    /// A hash of all events and their times, to compare two runs.
    pub(crate) fn fingerprint(&self) -> u64 {
        self.0.fingerprint.get()
    }

    /// Calls `call` after `delay_us`.
    pub(crate) fn call_after(&self, delay_us: u64, call: impl FnOnce() + 'static) {
        self.schedule(self.now_us() + delay_us, Event::Call(Box::new(call)));
    }

    fn schedule(&self, at_us: u64, event: Event) {
        let number = self.0.scheduled.get() + 1;
        self.0.scheduled.set(number);
        let draw = self.draw(Random::next);
        self.0.queue.borrow_mut().push(Reverse(Scheduled { at_us, draw, number, event }));
    }

    fn next_id(&self) -> u64 {
        self.0.next_id.replace(self.0.next_id.get() + 1)
    }

    // Processes.

    /// A new process; `after_turn` is called after each turn of a task of it.
    pub(crate) fn begin(&self, after_turn: impl Fn() + 'static) -> Rc<Process> {
        let (id, paused_until_us) = (self.next_id(), Cell::new(0));
        Rc::new(Process { id, paused_until_us, after_turn: Box::new(after_turn) })
    }

    /// Pauses the process until a time, unless it is paused for longer already.
    pub(crate) fn pause(&self, process: &Process, until_us: u64) {
        process.paused_until_us.set(process.paused_until_us.get().max(until_us));
    }

    /// Ends a process: each of its tasks is dropped where it waits.
    pub(crate) fn end(&self, process: &Process) {
        let ended: Vec<Task> = {
            let mut tasks = self.0.tasks.borrow_mut();
            let of_process = tasks.iter().filter(|(_, task)| task.process.id == process.id);
            let ids: Vec<u64> = of_process.map(|(id, _)| *id).collect();
            ids.iter().filter_map(|id| tasks.remove(id)).collect()
        };
        // Dropped after the borrow ends, since tasks hold other tasks and connections.
        drop(ended);
    }

    /// Drops all tasks and events of the run, which hold each other alive.
    pub(crate) fn clear(&self) {
        // The end of a task's connections is an event.
        drop(self.0.tasks.take());
        drop(self.0.queue.take());
    }

    // Tasks.

    /// Starts a task, which ends when what is returned is dropped.
    pub(crate) fn spawn(
        &self,
        process: &Rc<Process>,
        slowness: u64,
        body: impl Future<Output = ()> + 'static,
    ) -> SimTask {
        let id = self.next_id();
        let waker = Arc::new(TaskWaker {
            task: id,
            woken: AtomicBool::new(false),
            all_woken: Arc::clone(&self.0.all_woken),
        });
        let body: Option<Body> = Some(Box::pin(body));
        let task = Task { process: Rc::clone(process), slowness, body, waker: Arc::clone(&waker) };
        self.0.tasks.borrow_mut().insert(id, task);
        waker.wake();
        SimTask { executor: self.clone(), task: Some(id) }
    }

    fn drop_task(&self, id: u64) {
        let task = self.0.tasks.borrow_mut().remove(&id);
        drop(task);
    }

    /// A sleep until all tasks that are ready now have run.
    pub(crate) fn sleep_behind_ready(&self) -> Sleep {
        self.sleep_us(self.0.hop_us.get() + 2)
    }

    pub(crate) fn sleep_us(&self, us: u64) -> Sleep {
        Sleep { executor: self.clone(), until_us: self.now_us().saturating_add(us), alarm: None }
    }

    /// When something happens next.
    pub(crate) fn next_us(&self) -> Option<u64> {
        self.schedule_woken();
        self.0.queue.borrow().peek().map(|Reverse(next)| next.at_us)
    }

    /// Time passes in which nothing happens here.
    pub(crate) fn advance(&self, to_us: u64) {
        self.0.now_us.set(self.now_us().max(to_us));
    }

    /// Executes the next event; `false` if there is none.
    pub(crate) fn step(&self) -> bool {
        self.schedule_woken();
        let next = self.0.queue.borrow_mut().pop();
        let Some(Reverse(next)) = next else { return false };
        self.0.now_us.set(next.at_us);
        self.note(&next);
        match next.event {
            Event::Turn(task) => self.turn(task),
            Event::Call(call) => call(),
        }
        true
    }

    fn note(&self, next: &Scheduled) {
        let task = if let Event::Turn(task) = &next.event { *task } else { 0 };
        let mut print = self.0.fingerprint.get();
        for word in [next.at_us, next.number, task] {
            print = (print.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
        }
        self.0.fingerprint.set(print);
    }

    fn schedule_woken(&self) {
        loop {
            let woken = std::mem::take(&mut *self.0.all_woken.lock().unwrap_or_else(PoisonError::into_inner));
            if woken.is_empty() {
                return;
            }
            for id in woken {
                let slowness = self.0.tasks.borrow().get(&id).map(|task| task.slowness);
                let Some(slowness) = slowness else { continue };
                let delay_us = 1 + self.draw(|random| random.below(self.0.hop_us.get() * slowness + 1));
                self.schedule(self.now_us() + delay_us, Event::Turn(id));
            }
        }
    }

    fn turn(&self, id: u64) {
        let taken = {
            let mut tasks = self.0.tasks.borrow_mut();
            let Some(task) = tasks.get_mut(&id) else { return };
            let paused_until_us = task.process.paused_until_us.get();
            if paused_until_us > self.now_us() {
                drop(tasks);
                return self.schedule(paused_until_us, Event::Turn(id));
            }
            task.body.take().map(|body| (body, Rc::clone(&task.process), Arc::clone(&task.waker)))
        };
        let Some((mut body, process, waker)) = taken else { return };
        waker.woken.store(false, Ordering::Relaxed);
        let waker = Waker::from(waker);
        match body.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(()) => self.drop_task(id),
            Poll::Pending => {
                // It may have been ended in its own turn.
                if let Some(task) = self.0.tasks.borrow_mut().get_mut(&id) {
                    task.body = Some(body);
                }
            }
        }
        (process.after_turn)();
    }
}

/// A running task; it ends when this is dropped.
pub(crate) struct SimTask {
    executor: Executor,
    task: Option<u64>,
}

impl SimTask {
    pub(crate) fn detach(mut self) {
        self.task = None;
    }
}

impl Drop for SimTask {
    fn drop(&mut self) {
        if let Some(task) = self.task {
            self.executor.drop_task(task);
        }
    }
}

/// Ends at a time.
pub(crate) struct Sleep {
    executor: Executor,
    until_us: u64,
    /// Whom the queue wakes then, unless nobody waits any more.
    alarm: Option<Rc<RefCell<Option<Waker>>>>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let now_us = self.executor.now_us();
        if now_us >= self.until_us {
            return Poll::Ready(());
        }
        if let Some(alarm) = &self.alarm {
            alarm.replace(Some(cx.waker().clone()));
            return Poll::Pending;
        }
        let alarm = Rc::new(RefCell::new(Some(cx.waker().clone())));
        self.alarm = Some(Rc::clone(&alarm));
        self.executor.call_after(self.until_us - now_us, move || {
            if let Some(waker) = alarm.take() {
                waker.wake();
            }
        });
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(alarm) = &self.alarm {
            alarm.take();
        }
    }
}
