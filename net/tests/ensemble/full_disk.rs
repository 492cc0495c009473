//! Disks that run full under load, on one server and on all: what can go on does, and nothing acknowledged is
//! lost.

use std::fs;

use ringkeeper_wire::{ErrorCode, Request, SetDataRequest};

use crate::cluster::{Ensemble, SESSION_MS};
use crate::load::{Load, assert_nothing_lost};
use crate::support::{Client, SmallDisk, wait_for};

/// Segments of 64 KiB, so that the next one is soon wanted, and snapshots now and then.
const SMALL: &str = "snapCount=2000\npreAllocSize=64";

/// Three servers, each with a file system of its own. They have to be dropped after it.
fn start() -> Option<(Vec<SmallDisk>, Ensemble)> {
    let ensemble = Ensemble::prepare(3, SMALL);
    let mut disks = Vec::new();
    for server in ensemble.servers() {
        let id = fs::read(ensemble.data(server).join("myid")).expect("read");
        disks.push(SmallDisk::mount(&ensemble.data(server))?);
        fs::write(ensemble.data(server).join("myid"), id).expect("written");
    }
    ensemble.servers().for_each(|server| ensemble.run(server));
    ensemble.leader();
    Some((disks, ensemble))
}

fn is_full(ensemble: &Ensemble, server: usize) -> bool {
    ensemble.server(server).ask("mntr").is_ok_and(|said| said.contains("zk_disk_full\t1"))
}

#[test]
fn a_follower_with_a_full_disk_holds_nobody_up_and_catches_up() {
    let Some((disks, ensemble)) = start() else { return };
    let leader = ensemble.leader();
    let [full, other] = ensemble.others(leader)[..] else { panic!("three servers") };
    let load = Load::start(&[ensemble.address(leader), ensemble.address(other)]);
    load.wait_for_writes(100);
    disks[full].fill();
    wait_for("a full disk", || is_full(&ensemble, full).then_some(()));
    load.wait_for_writes(300);
    assert_eq!(load.broken(), 0, "connections were closed");
    disks[full].make_room();
    wait_for("room", || (!is_full(&ensemble, full)).then_some(()));
    load.wait_for_writes(100);
    assert_nothing_lost(&ensemble, &load.stop());
}

#[test]
fn a_leader_with_a_full_disk_makes_way_for_one_that_has_room() {
    let Some((disks, ensemble)) = start() else { return };
    let full = ensemble.leader();
    let others = ensemble.others(full);
    let load = Load::start(&others.iter().map(|&other| ensemble.address(other)).collect::<Vec<_>>());
    load.wait_for_writes(100);
    disks[full].fill();
    wait_for("another leader", || {
        others.iter().any(|&other| ensemble.server(other).mode().as_deref() == Some("leader")).then_some(())
    });
    load.wait_for_writes(300);
    assert!(ensemble.count_in_log(full, "the disk is full, and a quorum of others has room") > 0);
    disks[full].make_room();
    ensemble.leader();
    load.wait_for_writes(100);
    assert_nothing_lost(&ensemble, &load.stop());
}

#[test]
fn without_room_anywhere_writes_are_refused_reads_go_on_and_room_is_all_that_it_takes() {
    let Some((disks, ensemble)) = start() else { return };
    let load = Load::start(&ensemble.addresses());
    load.wait_for_writes(100);
    // A new session would be a write.
    let mut clients: Vec<_> = ensemble.servers().map(|server| ensemble.connect(server)).collect();
    disks.iter().for_each(SmallDisk::fill);
    let write = Request::SetData(SetDataRequest { path: "/load".into(), data: None, version: -1 });
    let full = wait_for("a refusal", || {
        let full = ensemble.servers().find(|&server| is_full(&ensemble, server))?;
        let Ok(reply) = clients[full].try_call(&write) else {
            let known = Some(clients[full].session);
            clients[full] = Client::try_attach(ensemble.address(full), SESSION_MS, known, 0).ok()??;
            return None;
        };
        (reply.err == ErrorCode::NotReadOnly.to_wire()).then_some(full)
    });
    assert!(clients[full].exists("/load", false), "reads go on");
    disks.iter().for_each(SmallDisk::make_room);
    wait_for("room", || ensemble.servers().all(|server| !is_full(&ensemble, server)).then_some(()));
    load.wait_for_writes(100);
    assert_nothing_lost(&ensemble, &load.stop());
}
