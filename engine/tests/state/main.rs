//! What a client can rely on of writes and reads, on one server's state: requests go through `execute` as on
//! the leader, and every check of a test is made against what `docs/protocol.md` says, not against the code.

mod authorisation;
mod fixture;
mod model;
mod multi;
mod precedence;
mod quotas;
mod reads;
mod replay;
mod sessions;
mod snapshot;
mod stat_rules;
mod tenants;
