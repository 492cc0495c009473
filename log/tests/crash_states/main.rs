//! Everything that a disk may leave behind or do wrong, at every step that creates, renames, cuts or removes
//! a file.
//!
//! Each test is one sequence of steps. It is run again and again, each time with something else going wrong:
//!
//! - **The power fails** in the middle of every operation that changes something, and every state that this
//!   may leave is recovered: all sets of the sectors, lengths and names that were not durable
//!   ([`MemoryDisk::crash_states`]), none left out. Recovery is interrupted again at every change, with all
//!   states of that; and the server goes on from what it has found. Every acknowledged frame and promise is
//!   there, what was under way is there as a prefix or not at all, what was cut off stays away.
//! - **The disk is full** at every single operation that needs room, for once or from then on. The server
//!   waits, or ends.
//! - **A sync fails** at every single place, and what it was to write is never written, although later syncs
//!   say so. The process ends. What the next one finds and takes for durable is durable.
//! - **A bit flips** in every sector. The folder is refused with the file that is damaged, or holds exactly
//!   what it held.
//! - **A write is lost or lands elsewhere**, each in turn: likewise.
//!
//! With log files written through, synced, and either by length. The counts are printed:
//! `cargo test -p ringkeeper-log --test crash_states -- --nocapture`.
//!
//! [`MemoryDisk::crash_states`]: ringkeeper_log::memory::MemoryDisk::crash_states

mod examine;
mod folder;
mod log;
mod small_files;
mod snapshots;
