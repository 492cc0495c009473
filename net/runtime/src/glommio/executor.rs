//! Executors that are sure to wake up, and that end when the kernel is done with their memory.

use std::cell::Cell;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;

use glommio::{LocalExecutorBuilder, Placement};

/// How often a task checks whether others wait. glommio's default of 100 ms lets one busy task delay all
/// sockets.
const PREEMPT: Duration = Duration::from_millis(10);

/// The longest sleep of an executor. glommio (0.9) sleeps in spite of runnable tasks if its thread was off
/// the CPU for longer than [`PREEMPT`] just before it was to run them; then only a timer or I/O wakes it. A
/// timer whose own task is among those runnable ones does not help, so the next longer timer wakes the
/// executor, and so on, since a thread may be off the CPU for any time.
const SLEEPS_MAX: [Duration; 5] = [
    Duration::from_millis(10),
    Duration::from_millis(100),
    Duration::from_secs(1),
    Duration::from_secs(60),
    Duration::from_secs(3600),
];

/// How often an executor that ends looks whether its I/O has ended.
const LOOK: Duration = Duration::from_millis(1);

/// Looks after which the kernel has taken back what was cancelled on sockets: the first hands the
/// cancellations over, the second finds them done.
const LOOKS_MIN: u32 = 2;

thread_local! {
    /// How many operations go on although nobody waits for them, while a [`main()`] runs on this thread.
    static ABANDONED: Cell<Option<usize>> = const { Cell::new(None) };
}

/// A builder of an executor with this much registered I/O memory. What it runs has to be a [`main()`].
#[must_use]
pub fn executor(name: &str, placement: Placement, io_memory_bytes: usize) -> LocalExecutorBuilder {
    LocalExecutorBuilder::new(placement).name(name).preempt_timer(PREEMPT).io_memory(io_memory_bytes)
}

/// What an executor is to run: `task`, and behind it the end of all I/O that it began. glommio (0.9) frees
/// the buffers of I/O with the executor, but the kernel writes to them until it is done, wherever they are
/// by then.
pub async fn main<T>(task: impl Future<Output = T>) -> T {
    keep_awake();
    ABANDONED.set(Some(0));
    let result = task.await;
    let mut looks = 0;
    while looks < LOOKS_MIN || ABANDONED.get() > Some(0) {
        glommio::timer::sleep(LOOK).await;
        looks += 1;
    }
    ABANDONED.set(None);
    result
}

/// Ends erroneous sleeps of this executor, see [`SLEEPS_MAX`].
fn keep_awake() {
    for sleep_max in SLEEPS_MAX {
        glommio::spawn_local(async move {
            loop {
                glommio::timer::sleep(sleep_max).await;
            }
        })
        .detach();
    }
}

/// I/O on a file, which cannot be taken back once the disk has it: if whoever waits for it is cancelled, it
/// goes on by itself, and [`main()`] waits for it.
pub(super) async fn to_its_end<T>(io: impl Future<Output = T> + 'static) -> T {
    FileIo { io: Some(Box::pin(io)), begun: false }.await
}

struct FileIo<F: Future + 'static> {
    io: Option<Pin<Box<F>>>,
    begun: bool,
}

impl<F: Future + 'static> Future for FileIo<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        self.begun = true;
        let io = self.io.as_mut().expect("it is not polled after its end");
        let polled = io.as_mut().poll(context);
        if polled.is_ready() {
            self.io = None;
        }
        polled
    }
}

impl<F: Future + 'static> Drop for FileIo<F> {
    fn drop(&mut self) {
        let Some(io) = self.io.take().filter(|_| self.begun) else { return };
        let Some(others) = ABANDONED.get().filter(|_| !thread::panicking()) else {
            // Nobody waits for it, and the executor may be gone before the kernel: its memory is never freed.
            mem::forget(io);
            return;
        };
        ABANDONED.set(Some(others + 1));
        glommio::spawn_local(async move {
            io.await;
            ABANDONED.set(ABANDONED.get().map(|others| others - 1));
        })
        .detach();
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;
    use std::path::{Path, PathBuf};
    use std::rc::Rc;

    use ringkeeper_log::storage::{BLOCK_LEN, Storage, StorageFile, WriteMode};

    use super::super::dma::DmaStorage;

    use super::*;

    const READ_LEN: usize = 2 * BLOCK_LEN;
    const READS: usize = 100;
    const ON_DISK: u8 = 0x5a;

    /// A file that is not in the page cache, so that reads of it take the disk's time.
    fn cold_file(folder: &Path) -> PathBuf {
        let path = folder.join("data");
        let mut file = File::create(&path).expect("a file");
        file.write_all(&vec![ON_DISK; READS * READ_LEN]).expect("written");
        file.sync_all().expect("synced");
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("advice is taken");
        path
    }

    /// Begins many reads and drops them all, at the end of the executor.
    fn end_amid_reads(folder: &Path) {
        let folder = folder.to_path_buf();
        let thread = executor("reads", Placement::Unbound, 64 << 10).spawn(move || {
            main(async move {
                let storage = DmaStorage::open(&folder).await.expect("a folder");
                let file = Rc::new(storage.open("data", WriteMode::Synced).await.expect("the file"));
                for number in 0..READS {
                    let file = Rc::clone(&file);
                    glommio::spawn_local(async move {
                        let offset = (number * READ_LEN) as u64;
                        let read = file.read_at(offset, READ_LEN);
                        let at_once = glommio::timer::sleep(Duration::from_micros(1));
                        futures_lite::future::or(async { drop(read.await) }, at_once).await;
                    })
                    .detach();
                }
                glommio::timer::sleep(Duration::from_micros(100)).await;
            })
        });
        thread.expect("a thread").join().expect("no panic");
    }

    #[test]
    fn what_is_read_when_an_executor_ends_does_not_come_into_memory_of_others() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        cold_file(folder.path());
        for round in 0..100 {
            end_amid_reads(folder.path());
            // The memory that the executor had, as likely as not.
            let others: Vec<Vec<u8>> = vec![vec![0; READ_LEN]; 3 * READS];
            thread::sleep(Duration::from_millis(2));
            assert!(!others.concat().contains(&ON_DISK), "round {round}");
        }
    }

    #[test]
    fn an_executor_waits_for_reads_that_were_given_up() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().to_path_buf();
        cold_file(&path);
        let thread = executor("reads", Placement::Unbound, 64 << 10).spawn(move || async move {
            let given_up = main(async {
                let storage = DmaStorage::open(&path).await.expect("a folder");
                let file = storage.open("data", WriteMode::Synced).await.expect("the file");
                for number in 0..READS {
                    let read = file.read_at((number * READ_LEN) as u64, READ_LEN);
                    assert!(futures_lite::future::poll_once(read).await.is_none(), "the disk takes its time");
                }
                ABANDONED.get()
            })
            .await;
            (given_up, ABANDONED.get())
        });
        assert_eq!(thread.expect("a thread").join().expect("no panic"), (Some(READS), None));
    }
}
