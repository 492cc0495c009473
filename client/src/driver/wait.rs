use std::cell::OnceCell;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}

thread_local! {
    static WAKER: OnceCell<Waker> = const { OnceCell::new() };
}

fn thread_waker() -> Waker {
    WAKER.with(|waker| waker.get_or_init(|| Arc::new(Unpark(std::thread::current())).into()).clone())
}

/// The synchronous form of every call: blocks the thread until the future is ready.
///
/// For threads of their own; inside an asynchronous runtime, await instead.
///
/// ```no_run
/// use ringkeeper_client::{Client, Wait};
///
/// let client = Client::connect("127.0.0.1:2181").wait()?;
/// let (data, stat) = client.get_data("/config").wait()?;
/// # Ok::<(), ringkeeper_client::Error>(())
/// ```
pub trait Wait: Future + Sized {
    /// Blocks until the future is ready.
    fn wait(self) -> Self::Output {
        let mut future = pin!(self);
        let waker = thread_waker();
        let mut cx = Context::from_waker(&waker);
        loop {
            if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
                return output;
            }
            std::thread::park();
        }
    }

    /// Blocks until the future is ready, or for `timeout`: then the future is dropped. A request that it
    /// has made may be executed all the same.
    fn wait_timeout(self, timeout: Duration) -> Option<Self::Output> {
        let deadline = Instant::now() + timeout;
        let mut future = pin!(self);
        let waker = thread_waker();
        let mut cx = Context::from_waker(&waker);
        loop {
            if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
                return Some(output);
            }
            let left = deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())?;
            std::thread::park_timeout(left);
        }
    }
}

impl<F: Future> Wait for F {}
