//! Executors that are sure to wake up.

use std::time::Duration;

use glommio::{LocalExecutorBuilder, Placement};

/// How often tasks look whether others wait; glommio's default of 100 ms lets one busy task hold up all
/// sockets.
const PREEMPT: Duration = Duration::from_millis(10);

/// The longest that an executor sleeps. glommio (0.9) goes to sleep in spite of runnable tasks when its
/// thread was off the CPU for longer than [`PREEMPT`] just before it was to run them; only a timer or I/O
/// wakes it then. A timer that has fired and whose task is among those that were not run is none: the next
/// longer one stands by for it, and so on, for a thread can be off the CPU for as long as it pleases the
/// machine.
const SLEEPS_MAX: [Duration; 5] = [
    Duration::from_millis(10),
    Duration::from_millis(100),
    Duration::from_secs(1),
    Duration::from_secs(60),
    Duration::from_secs(3600),
];

/// An executor to be made, with so much registered I/O memory. Its first task is to call [`keep_awake`].
#[must_use]
pub fn executor(name: &str, placement: Placement, io_memory_bytes: usize) -> LocalExecutorBuilder {
    LocalExecutorBuilder::new(placement).name(name).preempt_timer(PREEMPT).io_memory(io_memory_bytes)
}

/// Ends sleeps that should not have begun, see [`SLEEPS_MAX`]. On every executor, from its start.
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
