//! A server as a process of its own, and a client that speaks to it byte for byte: the test kit's, for tests
//! in which whatever fails ends the test.

mod client;
mod collector;
mod http;
mod process;
mod small_disk;

pub(crate) use client::{Client, is_closed, request_frame};
pub(crate) use collector::{Collector, Sent};
pub(crate) use http::{Answer, get, post, request, request_by_name};
pub(crate) use process::{Server, ServerSpec, command_in, run_to_end, wait_for};
pub(crate) use ringkeeper_testkit::{Event, Reply, Session};
pub(crate) use small_disk::SmallDisk;

use std::time::Duration;

/// Nothing here takes this long; whoever waits longer has found a defect.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
