//! Tasks of one thread, and its turns.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use async_task::Runnable;
use crossbeam::queue::SegQueue;
use ringkeeper_engine::spares::Spares;
use ringkeeper_host::env::Class;
use rustix::event::{EventfdFlags, eventfd};

use super::tcp::{Direction, Socket};
use super::timers::Timers;
use crate::completions::{Completion, Outcome, Ring};
use crate::helper::{Helper, Priority};

pub use async_task::Task;

/// Operations that are submitted in one kernel entry at most; with more, it is entered earlier.
const ENTRIES: u32 = 1024;

/// How long tasks run before sockets are looked at again, and how long a task may run before it should let
/// others run.
const SLICE: Duration = Duration::from_micros(500);

/// Tasks that run between two looks at the clock.
const TASKS_BETWEEN_LOOKS: u32 = 16;

/// While requests keep the thread busy, the background has a slice in this time: a hundredth. It may take it in
/// parts, as its reads of files come.
const BACKGROUND_EVERY: Duration = Duration::from_millis(50);

/// Bytes of the buffers that are kept for the next sends, at most.
const SPARES_BYTES_MAX: usize = 8 << 20;

/// A larger one goes back to its socket, or is freed.
pub(super) const SPARE_BYTES_MAX: usize = 256 * 1024;

/// The longest wait for completions, which ends at every one and at every timer.
const WAIT_MAX: Duration = Duration::from_secs(3600);

thread_local! {
    /// The executor that runs on this thread.
    static CURRENT: RefCell<Option<Rc<Core>>> = const { RefCell::new(None) };
}

/// An executor, which runs on the thread that made it.
pub struct Executor(Rc<Core>);

/// What an executor consists of.
pub(super) struct Core {
    pub(super) ring: RefCell<Ring<Token>>,
    pub(super) timers: RefCell<Timers>,
    /// Whether receives borrow buffers of the ring's.
    pub(super) lends: bool,
    /// Sockets with bytes to send.
    pub(super) speaking: RefCell<Vec<Rc<Socket>>>,
    /// Buffers that were sent.
    pub(super) spares: RefCell<Spares>,
    requests: RefCell<VecDeque<Runnable>>,
    background: RefCell<VecDeque<Runnable>>,
    /// Tasks that let the others, and what has come in, go first.
    yielded: RefCell<Vec<Waker>>,
    remote: Arc<Remote>,
    /// The executor's handle of [`Remote::doorbell`].
    doorbell: Rc<OwnedFd>,
    /// How long it looks for something to do before it sleeps.
    spin: Duration,
    /// When this turn began.
    turn: Cell<Instant>,
    helper: Helper,
}

/// What other threads use to wake tasks.
struct Remote {
    woken: SegQueue<(Class, Runnable)>,
    /// The executor waits in the kernel, or is about to.
    sleeps: AtomicBool,
    doorbell: OwnedFd,
}

/// What the background has had.
struct Share {
    since: Instant,
    had: Duration,
}

/// Who waits for an operation.
pub(super) enum Token {
    /// The executor itself, for its doorbell.
    Doorbell,
    Socket(Rc<Socket>, Direction),
    Slot(Rc<Slot>),
}

/// The place for the outcome of an operation that one task waits for.
#[derive(Default)]
pub(super) struct Slot {
    outcome: Cell<Option<io::Result<Outcome>>>,
    waker: Cell<Option<Waker>>,
}

impl Slot {
    /// Ready with the outcome, once.
    pub(super) fn poll(&self, waker: &Waker) -> Poll<io::Result<Outcome>> {
        if let Some(outcome) = self.outcome.take() {
            return Poll::Ready(outcome);
        }
        self.waker.set(Some(waker.clone()));
        Poll::Pending
    }

    /// The outcome.
    pub(super) async fn outcome(&self) -> io::Result<Outcome> {
        poll_fn(|cx| self.poll(cx.waker())).await
    }

    fn complete(&self, outcome: io::Result<Outcome>) {
        self.outcome.set(Some(outcome));
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

/// Wakes what an executor was started for.
struct MainWaker {
    woken: AtomicBool,
    remote: Arc<Remote>,
}

impl Wake for MainWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, Ordering::SeqCst);
        self.remote.ring();
    }
}

impl Remote {
    /// Wakes the executor, if it sleeps.
    fn ring(&self) {
        if self.sleeps.swap(false, Ordering::SeqCst) {
            // It fails only if it has been rung 2^64 times.
            let _ = rustix::io::write(&self.doorbell, &1_u64.to_ne_bytes());
        }
    }
}

impl Core {
    /// The executor of this thread.
    ///
    /// # Panics
    /// If there is none.
    pub(super) fn current() -> Rc<Self> {
        Self::try_current().expect("what is awaited here needs an executor of this crate on this thread")
    }

    pub(super) fn try_current() -> Option<Rc<Self>> {
        CURRENT.try_with(|current| current.borrow().clone()).ok().flatten()
    }

    /// Begins an operation that one task waits for.
    pub(super) fn begin<O>(&self, operation: impl FnOnce(&mut Ring<Token>, Token) -> O) -> (Rc<Slot>, O) {
        let slot = Rc::<Slot>::default();
        let operation = operation(&mut self.ring.borrow_mut(), Token::Slot(Rc::clone(&slot)));
        (slot, operation)
    }

    fn schedule(remote: &Arc<Remote>, class: Class, runnable: Runnable) {
        let here = CURRENT.try_with(|current| {
            let current = current.borrow();
            current.as_ref().filter(|core| Arc::ptr_eq(&core.remote, remote)).cloned()
        });
        match here {
            Ok(Some(core)) => core.queue(class).borrow_mut().push_back(runnable),
            _ => {
                remote.woken.push((class, runnable));
                remote.ring();
            }
        }
    }

    const fn queue(&self, class: Class) -> &RefCell<VecDeque<Runnable>> {
        match class {
            Class::Requests => &self.requests,
            Class::Background => &self.background,
        }
    }

    fn spawn<T: 'static>(&self, class: Class, task: impl Future<Output = T> + 'static) -> Task<T> {
        let remote = Arc::clone(&self.remote);
        let schedule = move |runnable| Self::schedule(&remote, class, runnable);
        let (runnable, task) = async_task::spawn_local(task, schedule);
        runnable.schedule();
        task
    }

    /// Runs tasks until none is ready, or for about a slice.
    fn run_requests(&self) {
        for number in 1.. {
            let Some(runnable) = self.requests.borrow_mut().pop_front() else { return };
            runnable.run();
            if number % TASKS_BETWEEN_LOOKS == 0 && self.turn.get().elapsed() >= SLICE {
                return;
            }
        }
    }

    /// Runs tasks of the background for so long, or only until there are requests if it gives way to them.
    fn run_background(&self, time: Duration, gives_way: bool) {
        self.turn.set(Instant::now());
        loop {
            let Some(runnable) = self.background.borrow_mut().pop_front() else { return };
            runnable.run();
            if self.turn.get().elapsed() >= time || gives_way && !self.requests.borrow().is_empty() {
                return;
            }
        }
    }

    fn take_remote(&self) {
        while let Some((class, runnable)) = self.remote.woken.pop() {
            self.queue(class).borrow_mut().push_back(runnable);
        }
    }

    fn is_ready(&self, main: &MainWaker) -> bool {
        main.woken.load(Ordering::SeqCst)
            || !self.requests.borrow().is_empty()
            || !self.background.borrow().is_empty()
            || !self.yielded.borrow().is_empty()
    }

    /// One turn, except for what the executor was started for. `done` is empty, as it is afterwards.
    fn turn(&self, main: &MainWaker, share: &mut Share, done: &mut Vec<Completion<Token>>) -> io::Result<()> {
        let now = Instant::now();
        self.turn.set(now);
        loop {
            let due = self.timers.borrow_mut().take_due(now);
            let Some(waker) = due else { break };
            waker.wake();
        }
        self.take_remote();
        self.run_requests();
        Socket::send_all(self);
        self.enter(main, done)?;
        for (token, outcome) in done.drain(..) {
            match token {
                Token::Doorbell => self.listen_to_doorbell(),
                Token::Socket(socket, direction) => socket.complete(self, direction, outcome),
                Token::Slot(slot) => slot.complete(outcome),
            }
        }
        let yielded = std::mem::take(&mut *self.yielded.borrow_mut());
        yielded.into_iter().for_each(Waker::wake);
        // What the requests began is with the kernel by now.
        if !self.background.borrow().is_empty() {
            let began = Instant::now();
            if began.duration_since(share.since) >= BACKGROUND_EVERY {
                *share = Share { since: began, had: Duration::ZERO };
            }
            let left = SLICE.saturating_sub(share.had);
            if !left.is_zero() {
                self.run_background(left, false);
            } else if self.requests.borrow().is_empty() {
                self.run_background(SLICE, true);
            }
            share.had += began.elapsed();
        }
        Ok(())
    }

    /// Enters the kernel, and waits there if nothing is ready.
    fn enter(&self, main: &MainWaker, done: &mut Vec<Completion<Token>>) -> io::Result<()> {
        if self.is_ready(main) {
            return self.ring.borrow_mut().poll(done);
        }
        if self.spin > Duration::ZERO && self.spins(main, done)? {
            return Ok(());
        }
        self.remote.sleeps.store(true, Ordering::SeqCst);
        let entered = if self.remote.woken.is_empty() && !main.woken.load(Ordering::SeqCst) {
            let next = self.timers.borrow().next();
            let limit = next.map_or(WAIT_MAX, |due| due.saturating_duration_since(Instant::now()));
            self.ring.borrow_mut().wait(limit.min(WAIT_MAX), done)
        } else {
            self.ring.borrow_mut().poll(done)
        };
        self.remote.sleeps.store(false, Ordering::SeqCst);
        entered
    }

    /// Looks for something to do, without sleeping. Whether there is.
    fn spins(&self, main: &MainWaker, done: &mut Vec<Completion<Token>>) -> io::Result<bool> {
        let until = Instant::now() + self.spin;
        let due = self.timers.borrow().next();
        loop {
            self.ring.borrow_mut().poll(done)?;
            let now = Instant::now();
            if !done.is_empty()
                || !self.remote.woken.is_empty()
                || main.woken.load(Ordering::SeqCst)
                || due.is_some_and(|due| due <= now)
            {
                return Ok(true);
            }
            if now >= until {
                return Ok(false);
            }
            std::hint::spin_loop();
        }
    }

    fn listen_to_doorbell(&self) {
        let count = Vec::with_capacity(size_of::<u64>());
        self.ring.borrow_mut().listen(Token::Doorbell, &self.doorbell, count);
    }
}

impl Executor {
    /// An executor for this thread. A thread of its own, with this name, makes the system calls that block.
    ///
    /// # Errors
    /// io_uring cannot be set up, or the system refuses a thread or a file descriptor.
    pub fn new(name: &str) -> io::Result<Self> {
        Self::spinning(name, Duration::ZERO)
    }

    /// An executor that looks for something to do for as long before it sleeps. It needs a core of its own.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn spinning(name: &str, spin: Duration) -> io::Result<Self> {
        let mut ring = Ring::new(ENTRIES)?;
        let lends = ring.lend_buffers();
        if spin > Duration::ZERO {
            ring.poll_devices(spin);
        }
        Self::on(ring, lends, spin, name)
    }

    /// An executor that uses nothing that the oldest kernel lacks.
    ///
    /// # Errors
    /// As [`Self::new`].
    #[cfg(test)]
    pub(super) fn plain(name: &str) -> io::Result<Self> {
        Self::on(Ring::plain(ENTRIES)?, false, Duration::ZERO, name)
    }

    fn on(ring: Ring<Token>, lends: bool, spin: Duration, name: &str) -> io::Result<Self> {
        let doorbell = eventfd(0, EventfdFlags::CLOEXEC)?;
        let core = Core {
            lends,
            spin,
            ring: RefCell::new(ring),
            timers: RefCell::default(),
            speaking: RefCell::default(),
            spares: RefCell::new(Spares::new(SPARES_BYTES_MAX, SPARE_BYTES_MAX)),
            requests: RefCell::default(),
            background: RefCell::default(),
            yielded: RefCell::default(),
            doorbell: Rc::new(doorbell.try_clone()?),
            remote: Arc::new(Remote { woken: SegQueue::new(), sleeps: AtomicBool::new(false), doorbell }),
            turn: Cell::new(Instant::now()),
            helper: Helper::with_priority(&format!("{name}-files"), 1, Priority::Normal)?,
        };
        core.listen_to_doorbell();
        Ok(Self(Rc::new(core)))
    }

    /// Runs `main` to its end, and the tasks that it spawns meanwhile. Returns when the kernel is done with
    /// all files, too. Tasks that have not ended by then are never dropped.
    ///
    /// # Panics
    /// If a task panics, if the thread has an executor already, or if io_uring fails.
    pub fn run<T>(&self, main: impl Future<Output = T>) -> T {
        let _running = Running::begin(&self.0);
        let waker = Arc::new(MainWaker { woken: AtomicBool::new(true), remote: Arc::clone(&self.0.remote) });
        let main_waker = Waker::from(Arc::clone(&waker));
        let mut cx = Context::from_waker(&main_waker);
        let (mut main, mut result) = (pin!(main), None);
        let (mut share, mut done) = (Share { since: Instant::now(), had: Duration::ZERO }, Vec::new());
        loop {
            if result.is_none()
                && waker.woken.swap(false, Ordering::SeqCst)
                && let Poll::Ready(value) = main.as_mut().poll(&mut cx)
            {
                result = Some(value);
            }
            if self.0.ring.borrow().on_files() == 0
                && let Some(result) = result.take()
            {
                return result;
            }
            self.0.turn(&waker, &mut share, &mut done).expect("io_uring works");
        }
    }
}

/// Starts a thread with an executor of its own, as [`Executor::spinning`], which runs what `main` returns.
///
/// # Errors
/// As [`Executor::new`], or the system refuses the thread.
pub fn start_thread<F: Future<Output = ()>>(
    name: &str,
    spin: Duration,
    main: impl FnOnce() -> F + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let (sender, made) = mpsc::sync_channel(1);
    let named = name.to_owned();
    let thread = thread::Builder::new().name(name.to_owned()).spawn(move || {
        let executor = Executor::spinning(&named, spin);
        // Whoever starts the thread waits for this.
        let _ = sender.send(
            executor.as_ref().map(drop).map_err(|error| io::Error::new(error.kind(), error.to_string())),
        );
        if let Ok(executor) = executor {
            executor.run(main());
        }
    })?;
    made.recv().map_err(io::Error::other)??;
    Ok(thread)
}

/// The thread has this executor until this is dropped.
struct Running;

impl Running {
    fn begin(core: &Rc<Core>) -> Self {
        let before = CURRENT.replace(Some(Rc::clone(core)));
        assert!(before.is_none(), "a thread has one executor at a time");
        Self
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(CURRENT.take());
    }
}

/// Starts a task on this thread's executor, with the priority of requests.
pub fn spawn_local<T: 'static>(task: impl Future<Output = T> + 'static) -> Task<T> {
    spawn(Class::Requests, task)
}

/// Starts a task on this thread's executor. It ends when the handle is dropped, unless that is detached.
pub fn spawn<T: 'static>(class: Class, task: impl Future<Output = T> + 'static) -> Task<T> {
    Core::current().spawn(class, task)
}

/// Lets all other tasks run that are ready, and those for which something has come in.
pub async fn yield_now() {
    let mut yielded = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        Core::current().yielded.borrow_mut().push(cx.waker().clone());
        Poll::Pending
    })
    .await;
}

/// As [`yield_now`], if tasks have run for long since sockets were looked at.
pub async fn yield_if_needed() {
    if Core::current().turn.get().elapsed() >= SLICE {
        yield_now().await;
    }
}

/// Runs what blocks on the executor's thread for that, one call after the other.
///
/// # Panics
/// If the call does.
pub async fn unblock<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> T {
    let helper = Core::current().helper.clone();
    helper.run(call).await.expect("the call does not panic")
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;

    use super::super::sleep;
    use super::*;

    fn run<T>(test: impl Future<Output = T>) -> T {
        let newest = Executor::new("test").expect("io_uring is available");
        newest.run(test)
    }

    #[test]
    fn what_another_thread_sends_wakes_a_task() {
        for _ in 0..100 {
            let (sender, numbers) = async_channel::unbounded();
            let sending = thread::spawn(move || {
                for number in 0..100 {
                    sender.send_blocking(number).expect("it is received");
                }
            });
            let sum = run(async {
                let task = spawn_local(async move {
                    let mut sum = 0;
                    while let Ok(number) = numbers.recv().await {
                        sum += number;
                    }
                    sum
                });
                task.await
            });
            assert_eq!(sum, 4950);
            sending.join().expect("no panic");
        }
    }

    #[test]
    fn an_executor_that_spins_hears_of_timers_threads_and_files() {
        let executor = Executor::spinning("spins", Duration::from_millis(2)).expect("io_uring is available");
        executor.run(async {
            for ms in [1, 10] {
                sleep(Duration::from_millis(ms)).await;
                let there = unblock(move || thread::sleep(Duration::from_millis(ms)));
                there.await;
            }
            let file = Rc::new(OwnedFd::from(tempfile::tempfile().expect("a file")));
            let (slot, _) = Core::current().begin(|ring, token| ring.write(token, &file, vec![1], 0..1, 0));
            assert!(matches!(slot.outcome().await, Ok(Outcome::Written { bytes: 1, .. })));
        });
    }

    #[test]
    fn sleeps_end_in_the_order_of_their_times_and_one_that_is_dropped_is_forgotten() {
        let order = run(async {
            let order = Rc::new(RefCell::new(Vec::new()));
            let tasks = [30, 10, 20].map(|ms| {
                let order = Rc::clone(&order);
                spawn_local(async move {
                    sleep(Duration::from_millis(ms)).await;
                    order.borrow_mut().push(ms);
                })
            });
            drop(spawn_local(sleep(Duration::MAX)));
            for task in tasks {
                task.await;
            }
            assert!(Core::current().timers.borrow().next().is_none(), "no timer is left");
            order.take()
        });
        assert_eq!(order, [10, 20, 30]);
    }

    #[test]
    fn a_task_that_yields_lets_the_others_and_timers_go_first() {
        run(async {
            let stop = Rc::new(Cell::new(false));
            let (stopping, mut turns) = (Rc::clone(&stop), 0_u64);
            let timer = spawn_local(async move {
                sleep(Duration::from_millis(5)).await;
                stopping.set(true);
            });
            while !stop.get() {
                turns += 1;
                yield_now().await;
            }
            timer.await;
            assert!(turns > 1, "it has run all the time");
        });
    }

    #[test]
    fn the_background_goes_on_beside_requests_that_never_rest() {
        run(async {
            let done = Rc::new(Cell::new(false));
            let finishing = Rc::clone(&done);
            let background = spawn(Class::Background, async move {
                for _ in 0..30 {
                    yield_now().await;
                }
                finishing.set(true);
            });
            while !done.get() {
                yield_now().await;
            }
            background.await;
        });
    }

    #[test]
    fn a_task_ends_when_its_handle_is_dropped_and_not_when_it_is_detached() {
        run(async {
            let alive = Rc::new(());
            let held = Rc::clone(&alive);
            let task = spawn_local(async move {
                let _held = held;
                std::future::pending::<()>().await;
            });
            yield_now().await;
            assert_eq!(Rc::strong_count(&alive), 2);
            task.cancel().await;
            assert_eq!(Rc::strong_count(&alive), 1);
            let (sender, received) = async_channel::bounded(1);
            spawn_local(async move { sender.send(1).await }).detach();
            assert_eq!(received.recv().await, Ok(1));
        });
    }

    #[test]
    fn what_blocks_is_done_on_another_thread() {
        let here = thread::current().id();
        assert_ne!(run(unblock(|| thread::current().id())), here);
    }

    #[test]
    fn an_executor_waits_for_reads_that_were_given_up() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("data");
        File::create(&path).and_then(|mut file| file.write_all(&[7; 4096])).expect("a file");
        let executor = Executor::new("test").expect("io_uring is available");
        executor.run(async {
            let file = Rc::new(OwnedFd::from(File::open(&path).expect("the file")));
            let core = Core::current();
            for _ in 0..100 {
                drop(core.begin(|ring, token| ring.read(token, &file, Vec::with_capacity(4096), 4096, 0)));
            }
            assert_eq!(core.ring.borrow().on_files(), 100);
        });
        assert_eq!(executor.0.ring.borrow().on_files(), 0);
    }

    #[test]
    fn a_thread_has_its_own_executor() {
        let (sender, received) = mpsc::channel();
        let thread = start_thread("other", Duration::ZERO, move || async move {
            sleep(Duration::from_millis(1)).await;
            let name = thread::current().name().map(str::to_owned);
            sender.send(name).expect("it is received");
        });
        assert_eq!(received.recv().expect("it is sent").as_deref(), Some("other"));
        thread.expect("a thread").join().expect("no panic");
    }
}
