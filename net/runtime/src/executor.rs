//! Creates executors that are sure to wake up.

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

/// A builder of an executor with this much registered I/O memory. Its first task has to call [`keep_awake`].
#[must_use]
pub fn executor(name: &str, placement: Placement, io_memory_bytes: usize) -> LocalExecutorBuilder {
    LocalExecutorBuilder::new(placement).name(name).preempt_timer(PREEMPT).io_memory(io_memory_bytes)
}

/// Ends erroneous sleeps of this executor, see [`SLEEPS_MAX`]. To be called at its start.
pub fn keep_awake() {
    for sleep_max in SLEEPS_MAX {
        glommio::spawn_local(async move {
            loop {
                glommio::timer::sleep(sleep_max).await;
            }
        })
        .detach();
    }
}
