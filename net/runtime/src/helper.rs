//! Threads for what an executor may not do itself, since it is long or blocks: reads of very many znodes, the
//! listings of four-letter words, TLS handshakes; system calls on folders. A thread does one job at a time, so
//! that its share of the CPU is bounded whatever clients ask for.

use std::io;
use std::thread;

use async_channel::Sender;
use rustix::process::setpriority_process;
use rustix::thread::gettid;

/// The nice value of a thread that uses idle CPU time.
const NICE: i32 = 10;

type Work = Box<dyn FnOnce() + Send>;

/// A thread's claim to the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// That of requests: they wait for it.
    Normal,
    /// Idle CPU time.
    Low,
}

/// A handle of one or more threads, which end when the last handle is dropped.
#[derive(Clone)]
pub struct Helper(Sender<Work>);

/// Lets this thread use idle CPU time. If that fails, it has normal priority.
pub fn yield_to_others() {
    let _ = setpriority_process(Some(gettid()), NICE);
}

impl Helper {
    /// Starts `threads` threads of low priority. To be called before executors are pinned, since they inherit
    /// the starting thread's cores.
    ///
    /// # Errors
    /// The system refuses another thread.
    pub fn start(name: &str, threads: usize) -> io::Result<Self> {
        Self::with_priority(name, threads, Priority::Low)
    }

    /// As [`Self::start`], with this priority.
    ///
    /// # Errors
    /// The system refuses another thread.
    pub fn with_priority(name: &str, threads: usize, priority: Priority) -> io::Result<Self> {
        let (sender, works) = async_channel::unbounded::<Work>();
        for _ in 0..threads {
            let works = works.clone();
            thread::Builder::new().name(name.to_owned()).spawn(move || {
                if priority == Priority::Low {
                    yield_to_others();
                }
                while let Ok(work) = works.recv_blocking() {
                    work();
                }
            })?;
        }
        Ok(Self(sender))
    }

    /// Runs a job on one of the threads, unless the future is dropped before its turn; `None` if the process
    /// is ending.
    pub async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let (sender, done) = async_channel::bounded(1);
        let work = move || {
            // The asking task may have ended.
            if !sender.is_closed() {
                drop(sender.try_send(work()));
            }
        };
        self.0.try_send(Box::new(work)).ok()?;
        done.recv().await.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reactor::Executor;

    #[test]
    fn work_is_done_on_another_thread_and_waited_for_on_an_executor() {
        let helper = Helper::start("helper", 1).expect("a thread");
        let here = thread::current().id();
        let there = Executor::new("test").expect("io_uring").run(helper.run(move || thread::current().id()));
        assert!(there.is_some_and(|there| there != here));
    }
}
