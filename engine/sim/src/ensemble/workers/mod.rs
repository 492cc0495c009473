//! Workers: the client library in the ensemble, with the programs that its users would write.
//!
//! ```text
//! program (recipes) --calls--> ringkeeper_client::hosted --bytes--> tap --> link --> server
//!                   <--futures--                          <--bytes-- tap <-- link <--
//!    facts                                                           what the plain clients are held to
//!      └────────▶ examiner: facts against the committed order
//! ```
//!
//! A [`worker`] is a process with one client at a time: it carries bytes between the library and the network,
//! and begins anew when its session has ended. The [`tap`] reads along, so that the judge knows the library's
//! requests and every reply and event is checked as those of the plain clients are. [`cast()`] draws who does
//! what; the programs are in [`lines`] (locks, read/write locks, elections), [`queues`], [`counters`],
//! [`configurations`], [`barriers`], [`watchers`] and [`writers`]. What they believe, they state as facts,
//! which the [`examiner`] holds against the committed order.

mod alarms;
mod barriers;
mod cast;
mod configurations;
mod counters;
mod desk;
mod examiner;
mod lines;
mod queues;
mod stage;
mod tap;
mod task;
mod turns;
mod watchers;
mod worker;
mod writers;

pub(super) use cast::cast;
pub(super) use examiner::Examiner;
pub(super) use stage::Stage;
pub(super) use worker::{Act, Worker};
