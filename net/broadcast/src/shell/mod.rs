//! What every shell around the broadcast needs: executors, rings between them, sockets, links between
//! servers, the log's task. The server `ringkeeper` stands on it as well; it is no part of the library's
//! interface.

pub mod clock;
pub mod cooperative;
pub mod env;
pub mod executor;
pub mod log_quota;
pub mod peers;
pub mod preflight;
pub mod ring;
pub mod socket;
