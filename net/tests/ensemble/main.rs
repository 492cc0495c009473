//! Ensembles as their users meet them: processes with `zoo.cfg` files in Apache's format, killed, stopped and
//! cut off from one another while clients work.

#[path = "../support/mod.rs"]
#[allow(dead_code, unused_imports, reason = "another test program uses the rest of it")]
mod support;

mod backup;
mod catch_up;
mod cluster;
mod command;
mod damage;
mod failover;
mod far;
mod feature_level;
mod feed;
mod full_disk;
mod hand_over;
mod hostile;
mod leader_serves;
mod load;
mod local_sessions;
mod metrics;
mod observers;
mod partitions;
mod quorum_auth;
mod read_only;
mod serving;
mod sessions;
mod slips;
mod slow;
mod tls;
mod traces;
mod upgrade;
