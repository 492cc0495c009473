//! Data folders of real servers of Apache ZooKeeper, whole and damaged (see `fixtures/README.md`).

mod damage;
mod fixture;
mod golden;
mod round_trip;
