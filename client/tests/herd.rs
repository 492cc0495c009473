//! A thousand waiters on one lock: whoever gives it up, or gives up waiting, wakes one. Counted at the
//! server.

mod support;

use std::sync::mpsc;
use std::thread;

use ringkeeper_client::recipes::Lock;
use ringkeeper_client::{Client, Wait};
use support::{Servers, servers};

/// Sessions, and waiters of each.
const CLIENTS: usize = 50;
const WAITERS: usize = 20;

/// How many are let go one after another.
const HANDED_ON: u32 = 25;

/// A waiting thread's, in bytes: it does nothing but wait.
const STACK: usize = 256 * 1024;

/// Notifications sent by the servers so far: ringkeeper counts them, ZooKeeper counts who was told.
fn notifications(servers: &Servers) -> Option<f64> {
    servers.metric("zk_notifications_sent").or_else(|| {
        let kinds = ["created", "deleted", "changed", "children"];
        kinds.iter().map(|kind| servers.metric(&format!("zk_sum_node_{kind}_watch_count"))).sum()
    })
}

#[test]
fn releasing_a_lock_wakes_one_of_a_thousand_waiters() {
    let Some(servers) = servers() else { return };
    if notifications(&servers).is_none() {
        eprintln!("skipped: the servers do not answer mntr");
        return;
    }
    let lock = Lock::new(&servers.client(), "/lock");
    let mut holding = lock.acquire().wait().expect("acquired");
    // Asked of a server for the watches that are there, whosever they are.
    let watches = || servers.metric("zk_watch_count").expect("told above");
    let others = watches();

    let clients: Vec<Client> = (0..CLIENTS).map(|_| servers.client()).collect();
    let (acquired, turns) = mpsc::channel();
    for client in &clients {
        for _ in 0..WAITERS {
            let (lock, acquired) = (Lock::new(client, "/lock"), acquired.clone());
            let wait = move || {
                // Nobody receives what comes after the test.
                let _ = acquired.send(lock.acquire().wait());
            };
            thread::Builder::new().stack_size(STACK).spawn(wait).expect("a thread");
        }
    }
    #[expect(clippy::cast_precision_loss, reason = "a thousand")]
    let waiters = (CLIENTS * WAITERS) as f64;
    while watches() < others + waiters {
        thread::yield_now();
    }

    let before = notifications(&servers).expect("told above");
    for turn in 1..=HANDED_ON {
        holding.release().wait().expect("released");
        holding = turns.recv().expect("waiters are left").expect("acquired");
        // The notifications of a deletion are sent together: all of them before the next holder's reply.
        assert_eq!(notifications(&servers).expect("told above") - before, f64::from(turn));
        assert_eq!(watches(), others + waiters - f64::from(turn));
    }
    assert!(turns.try_recv().is_err(), "two hold at once");

    // Nobody is woken who would have to wait on: those who are left leave with their sessions.
    holding.release().wait().expect("released");
    clients.iter().for_each(|client| client.close().wait().expect("closed"));
}
