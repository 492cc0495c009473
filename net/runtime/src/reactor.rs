//! The runtime of the request path: one executor for a thread, on one io_uring.
//!
//! A turn runs the tasks that are ready, then enters the kernel once: that submits all that the tasks began
//! (receives, sends, writes to the log) and waits, if nothing is ready, until something is done or the next
//! timer is due. What tasks wrote to one socket in a turn is one send, or two
//! if a part of it is shared.
//!
//! ```text
//! ┌▶ timers, tasks that are ready ──▶ one kernel entry ──▶ completions ──▶ background, a slice ─┐
//! └─────────────────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! Tasks and turns, and how other threads wake them, are in [`executor`]; sockets are in [`tcp`], files in
//! [`storage`]; [`mod@env`] is all of them as the host's environment.
//!
//! Why there are two runtimes, and what each costs: `docs/decisions/0058-the-request-path-has-its-own-runtime.md`.

pub mod env;
pub mod executor;
pub mod storage;
pub mod tcp;
mod timers;

pub use executor::{Executor, Task, spawn, spawn_local, start_thread, unblock, yield_if_needed, yield_now};
pub use timers::sleep;
