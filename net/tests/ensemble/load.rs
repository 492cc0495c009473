//! Clients that write all the time, go from server to server when they have to, and remember what was
//! acknowledged.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, sleep};
use std::time::Duration;

use ringkeeper_testkit::OPEN_ACL;
use ringkeeper_wire::{CreateMode, CreateRequest, ErrorCode, Request, SetDataRequest};

use crate::cluster::{Ensemble, SESSION_MS};
use crate::support::{Client, wait_for};

const WRITERS: usize = 3;

/// Writers at work.
pub(crate) struct Load {
    shared: Arc<Shared>,
    writers: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    /// Names of the znodes whose creation was acknowledged.
    acknowledged: Mutex<BTreeSet<String>>,
    /// Connections that ended without being asked to.
    broken: AtomicUsize,
}

impl Load {
    /// Writers below `/load`, each on one of the servers at `addresses` for as long as it can be.
    pub(crate) fn start(addresses: &[SocketAddr]) -> Self {
        let mut client = wait_for("a server that takes clients", || {
            addresses.iter().find_map(|address| Client::try_attach(*address, SESSION_MS, None, 0).ok()?)
        });
        client.create("/load", b"", CreateMode::Persistent);
        let shared = Arc::new(Shared::default());
        let writer = |number: usize| {
            let (shared, mut addresses) = (Arc::clone(&shared), addresses.to_vec());
            let count = addresses.len();
            addresses.rotate_left(number % count);
            std::thread::spawn(move || shared.write(number, &addresses))
        };
        Self { writers: (0..WRITERS).map(writer).collect(), shared }
    }

    /// How many writes were acknowledged so far.
    pub(crate) fn acknowledged(&self) -> usize {
        self.shared.acknowledged.lock().expect("no writer failed").len()
    }

    /// Restarts all servers, one at a time and while writes go on, once for each of `rounds` but the first:
    /// what their configurations have of the round before gives way to the next.
    pub(crate) fn restart_in_rounds(&self, ensemble: &Ensemble, rounds: &[&str]) {
        for (before, next) in rounds.iter().zip(&rounds[1..]) {
            for server in ensemble.servers() {
                self.wait_for_writes(20);
                ensemble.stop(server);
                ensemble.reconfigure(server, before, next);
                ensemble.run(server);
                ensemble.leader();
            }
        }
        self.wait_for_writes(20);
    }

    /// Waits until `more` writes than now are acknowledged.
    pub(crate) fn wait_for_writes(&self, more: usize) {
        let from = self.acknowledged();
        wait_for("writes", || {
            assert!(!self.writers.iter().any(JoinHandle::is_finished), "a writer has failed");
            (self.acknowledged() >= from + more).then_some(())
        });
    }

    /// How many connections were lost so far.
    pub(crate) fn broken(&self) -> usize {
        self.shared.broken.load(Ordering::SeqCst)
    }

    /// Ends the writers; the names of what they were promised.
    pub(crate) fn stop(self) -> BTreeSet<String> {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.writers.into_iter().for_each(|writer| writer.join().expect("no writer failed"));
        std::mem::take(&mut self.shared.acknowledged.lock().expect("no writer failed"))
    }
}

impl Shared {
    fn write(&self, writer: usize, addresses: &[SocketAddr]) {
        let mut number = 0;
        for address in addresses.iter().cycle() {
            if self.stop.load(Ordering::SeqCst) {
                return;
            }
            // A session anew each time: what is tested here is the writes.
            let Ok(Some(client)) = Client::try_attach(*address, SESSION_MS, None, 0) else {
                sleep(Duration::from_millis(5));
                continue;
            };
            if self.write_on(client, writer, &mut number).is_err() {
                self.broken.fetch_add(1, Ordering::SeqCst);
            }
        }
    }

    fn write_on(&self, mut client: Client, writer: usize, number: &mut u64) -> anyhow::Result<()> {
        while !self.stop.load(Ordering::SeqCst) {
            // Never the same name again: whether an unanswered write was done stays open.
            *number += 1;
            let name = format!("{writer}-{number}");
            let create = CreateRequest {
                path: format!("/load/{name}").into(),
                data: Some(&[b'x'; 2000]),
                acl: Some(OPEN_ACL.as_slice().into()),
                flags: CreateMode::Persistent.to_wire(),
            };
            let reply = client.try_call(&Request::Create(create))?;
            if reply.err == ErrorCode::NotReadOnly.to_wire() {
                // Its disk is full: on to another.
                sleep(Duration::from_millis(5));
                return Ok(());
            }
            assert_eq!(reply.err, ErrorCode::Ok.to_wire(), "create {name}");
            self.acknowledged.lock().expect("no writer failed").insert(name);
        }
        Ok(())
    }
}

/// Makes the hundred znodes that [`change`] changes.
pub(crate) fn create_hundred(client: &mut Client) {
    (0..100).for_each(|number| drop(client.create(&format!("/{number}"), b"", CreateMode::Persistent)));
}

/// Changes the hundred znodes in turn, `outstanding` at a time; the zxid of the last change.
pub(crate) fn change(client: &mut Client, changes: usize, outstanding: usize) -> i64 {
    let (mut sent, mut zxid) = (0, 0);
    for answered in 0..changes {
        while sent < changes.min(answered + outstanding) {
            let path = format!("/{}", sent % 100).into();
            let data = sent.to_string().repeat(20);
            client.send(&Request::SetData(SetDataRequest { path, data: Some(data.as_bytes()), version: -1 }));
            sent += 1;
        }
        let reply = client.reply().expect("a reply");
        assert_eq!(reply.err, 0);
        zxid = reply.zxid;
    }
    zxid
}

/// Every server has every write that was acknowledged, and all have the same tree.
pub(crate) fn assert_nothing_lost(ensemble: &Ensemble, acknowledged: &BTreeSet<String>) {
    ensemble.leader();
    for server in ensemble.servers() {
        let mut client = ensemble.connect_synced(server);
        let found: BTreeSet<_> = client.children("/load", false).into_iter().collect();
        let lost: Vec<_> = acknowledged.difference(&found).collect();
        assert!(
            lost.is_empty(),
            "server {} lacks {} of {}: {lost:?}",
            server + 1,
            lost.len(),
            acknowledged.len()
        );
    }
    ensemble.assert_equal_trees(1);
}
