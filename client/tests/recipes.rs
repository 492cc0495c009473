//! The recipes against a live server, connections breaking under them.

mod support;

use std::fmt::Debug;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::thread;
use std::time::Duration;

use ringkeeper_client::recipes::{
    Configuration, Counter, CounterFormat, DoubleBarrier, Election, Group, Lock, Loss, NodeNames,
    OrderedBarrier, Queue, ReadyConfiguration, Rendezvous, RevocableLock, RwLock, SimpleLock,
};
use ringkeeper_client::{Call, Client, CreateMode, Error, Wait, Zxid};
use ringkeeper_wire::OpCode;
use support::{Servers, servers};

const PATIENCE: Duration = Duration::from_secs(20);

/// Runs `work` on several clients at once while their connections are cut, now and then with their
/// replies lost before. Sessions outlive that.
fn under_cuts<T: Send>(
    servers: &Servers,
    clients: usize,
    work: impl Fn(usize, Client) -> T + Sync,
) -> Vec<T> {
    let (is_done, work) = (AtomicBool::new(false), &work);
    thread::scope(|scope| {
        let (mut workers, mut proxies) = (Vec::new(), Vec::new());
        for number in 0..clients {
            let proxy = Arc::new(servers.proxy());
            let client = servers.client_through(&proxy);
            proxies.push(proxy);
            workers.push(scope.spawn(move || work(number, client)));
        }
        let is_done = &is_done;
        // Also when a worker panics: the scope waits for the thread below.
        let _done = SetOnDrop(is_done);
        scope.spawn(move || {
            for round in 0.. {
                if is_done.load(Ordering::SeqCst) {
                    return;
                }
                let proxy = &proxies[round % proxies.len()];
                proxy.lose_replies();
                thread::sleep(Duration::from_millis(7));
                proxy.cut();
                thread::sleep(Duration::from_millis(11));
            }
        });
        workers.into_iter().map(|worker| worker.join().expect("no panic")).collect()
    })
}

struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Takes turns in a critical section, and tells the fencing tokens in the order of the turns.
fn take_turns(servers: &Servers, turn: impl Fn(&Client, &dyn Fn(Zxid)) + Sync) -> Vec<Zxid> {
    let (inside, tokens) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    under_cuts(servers, 4, |_, client| {
        for _ in 0..8 {
            turn(&client, &|token| {
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two in the critical section");
                tokens.lock().expect("no panic").push(token);
                thread::sleep(Duration::from_millis(1));
                inside.fetch_sub(1, Ordering::SeqCst);
            });
        }
    });
    tokens.into_inner().expect("no panic")
}

#[test]
fn a_lock_has_one_holder_at_a_time_and_growing_fencing_tokens() {
    let Some(servers) = servers() else { return };
    let tokens = take_turns(&servers, |client, critical| {
        let holding = Lock::new(client, "/locks/a").acquire().wait().expect("acquired");
        critical(holding.fencing_token());
        holding.release().wait().expect("released");
    });
    assert_eq!(tokens.len(), 32);
    assert!(tokens.is_sorted(), "{tokens:?}");
    // Nobody is left in the line, whatever the connections did.
    assert_eq!(Lock::new(&servers.client(), "/locks/a").contenders().wait(), Ok(vec![]));
}

#[test]
fn a_simple_lock_has_one_holder_at_a_time() {
    let Some(servers) = servers() else { return };
    let tokens = take_turns(&servers, |client, critical| {
        let holding = SimpleLock::new(client, "/simple").acquire().wait().expect("acquired");
        critical(holding.fencing_token());
        holding.release().wait().expect("released");
    });
    assert!(tokens.is_sorted(), "{tokens:?}");
}

#[test]
fn a_simple_lock_is_tried_without_waiting() {
    let Some(servers) = servers() else { return };
    let (client, other) = (servers.client(), servers.client());
    let (lock, theirs) = (SimpleLock::new(&client, "/tried"), SimpleLock::new(&other, "/tried"));
    let holding = lock.try_acquire().wait().expect("tried").expect("free");
    assert!(theirs.try_acquire().wait().expect("tried").is_none());
    holding.release().wait().expect("released");
    assert!(theirs.try_acquire().wait().expect("tried").is_some());
}

#[test]
fn who_waits_for_a_read_write_lock_is_told_by_name() {
    let Some(servers) = servers() else { return };
    let client = servers.client();
    let (reader, writer) =
        (RwLock::new(&client, "/named").with_id("reader"), RwLock::new(&client, "/named").with_id("writer"));
    let reading = reader.read().wait().expect("read");
    let writing = thread::spawn({
        let writer = writer.clone();
        move || writer.write().wait().expect("write").release().wait()
    });
    while writer.contenders().wait().expect("read").len() < 2 {}
    assert_eq!(reader.contenders().wait(), Ok(vec![b"reader".to_vec(), b"writer".to_vec()]));
    reading.release().wait().expect("released");
    assert_eq!(writing.join().expect("no panic"), Ok(()));
}

#[test]
fn candidates_are_told_in_the_order_in_which_they_will_lead() {
    let Some(servers) = servers() else { return };
    let client = servers.client();
    let election = |name: &str| Election::new(&client, "/candidates", name);
    assert_eq!(election("one").leader().wait(), Ok(None));
    let leadership = election("one").lead().wait().expect("leads");
    let second = election("two");
    let mut leading = pin!(second.lead());
    assert!(leading.as_mut().wait_timeout(Duration::from_millis(50)).is_none());
    while election("three").candidates().wait().expect("read").len() < 2 {}
    assert_eq!(election("three").candidates().wait(), Ok(vec![b"one".to_vec(), b"two".to_vec()]));
    leadership.release().wait().expect("resigned");
    drop(leading.wait().expect("leads"));
}

#[test]
fn a_writer_of_a_revocable_lock_waits_for_its_turn() {
    let Some(servers) = servers() else { return };
    let (client, other) = (servers.client(), servers.client());
    let lock = RevocableLock::new(&other, "/patient");
    let reading = RevocableLock::new(&client, "/patient").read().wait().expect("read");
    let mut writing = pin!(lock.write());
    assert!(writing.as_mut().wait_timeout(Duration::from_millis(50)).is_none());
    assert_eq!(reading.revoked().wait_timeout(Duration::from_millis(50)), None);
    let token = reading.fencing_token();
    reading.release().wait().expect("released");
    assert!(writing.wait().expect("write").fencing_token() > token);
}

#[test]
fn a_writer_excludes_all_and_readers_only_writers() {
    let Some(servers) = servers() else { return };
    let lock = RwLock::new(&servers.client(), "/rw");
    let (one, two) = (lock.read().wait().expect("read"), lock.read().wait().expect("read"));
    assert!(lock.try_write().wait().expect("tried").is_none());
    let writing = thread::spawn({
        let lock = lock.clone();
        move || lock.write().wait().expect("write").fencing_token()
    });
    while lock.contenders().wait().expect("read").len() < 3 {}
    // Behind a writer that waits, a reader waits too.
    assert!(lock.try_read().wait().expect("tried").is_none());
    one.release().wait().expect("released");
    let token = two.fencing_token();
    two.release().wait().expect("released");
    assert!(writing.join().expect("no panic") > token);
}

#[test]
fn a_lock_that_is_given_up_waiting_leaves_the_line() {
    let Some(servers) = servers() else { return };
    let client = servers.client();
    for names in [NodeNames::Kazoo, NodeNames::Curator] {
        let lock = Lock::new(&client, "/given-up").with_id("me").with_names(names);
        let holding = lock.acquire().wait().expect("acquired");
        assert!(lock.acquire().wait_timeout(Duration::from_millis(50)).is_none());
        assert!(lock.try_acquire().wait().expect("tried").is_none());
        // A little later, since the driver thread does it.
        while lock.contenders().wait().expect("read").len() > 1 {}
        assert_eq!(lock.contenders().wait(), Ok(vec![b"me".to_vec()]));
        drop(holding);
        while !lock.contenders().wait().expect("read").is_empty() {}
    }
}

#[test]
fn a_holder_is_told_when_its_znode_is_taken_away() {
    let Some(servers) = servers() else { return };
    let client = servers.client();
    let holding = Lock::new(&client, "/taken").acquire().wait().expect("acquired");
    assert!(holding.is_certain());
    client.set_data(holding.path(), b"still there", None).wait().expect("set");
    assert_eq!(holding.lost().wait_timeout(Duration::from_millis(100)), None);
    client.delete(holding.path(), None).wait().expect("deleted");
    assert_eq!(holding.lost().wait_timeout(PATIENCE), Some(Loss::Deleted));
}

#[test]
fn a_leader_without_servers_is_told_before_the_next_one_leads() {
    let Some(servers) = servers() else { return };
    let proxy = servers.proxy();
    let (first, second) = (servers.client_through(&proxy), servers.client());
    let election = Election::new(&second, "/election", "second");
    let leadership = Election::new(&first, "/election", "first").lead().wait().expect("leads");
    assert_eq!(election.leader().wait(), Ok(Some(b"first".to_vec())));
    let told = Mutex::new(false);
    thread::scope(|scope| {
        let next = scope.spawn(|| {
            let next = election.lead().wait().expect("leads");
            assert!(*told.lock().expect("no panic"), "two leaders");
            next.fencing_token()
        });
        proxy.set_down(true);
        proxy.cut();
        assert_eq!(leadership.lost().wait_timeout(PATIENCE), Some(Loss::Lapsed));
        *told.lock().expect("no panic") = true;
        assert!(next.join().expect("no panic") > leadership.fencing_token());
    });
}

#[test]
fn a_holder_of_a_revocable_lock_is_asked_for_it() {
    let Some(servers) = servers() else { return };
    let (client, other) = (servers.client(), servers.client());
    let holding = RevocableLock::new(&client, "/revocable").read().wait().expect("read");
    assert_eq!(holding.revoked().wait_timeout(Duration::from_millis(50)), None);
    let writing = thread::spawn(move || {
        RevocableLock::new(&other, "/revocable").write_revoking().wait().expect("write").fencing_token()
    });
    assert_eq!(holding.revoked().wait_timeout(PATIENCE), Some(Ok(())));
    RevocableLock::new(&client, "/revocable").revoke().wait().expect("asked again");
    let token = holding.fencing_token();
    holding.release().wait().expect("released");
    assert!(writing.join().expect("no panic") > token);
}

#[test]
fn members_are_those_who_joined_and_have_not_left() {
    let Some(servers) = servers() else { return };
    let (one, two) = (servers.client(), servers.client());
    let (group, membership) =
        (Group::new(&one, "/group"), Group::new(&two, "/group").join(b"two").wait().expect("joined"));
    // The server of this client may not have the other one's write yet.
    one.sync("/").wait().expect("synchronized");
    let (members, changed) = group.members_and_watch().wait().expect("read");
    assert_eq!(members.iter().map(|m| m.data.as_slice()).collect::<Vec<_>>(), [b"two"]);
    assert_eq!(members[0].path, membership.path());
    two.close().wait().expect("closed");
    changed.wait_timeout(PATIENCE).expect("in time").expect("fired");
    assert_eq!(group.members().wait(), Ok(vec![]));
    assert_eq!(membership.lost().wait(), Loss::SessionEnded(Error::Closed));
}

#[test]
fn who_waits_at_a_rendezvous_gets_the_word() {
    let Some(servers) = servers() else { return };
    let (master, worker) = (servers.client(), servers.client());
    let meeting = Rendezvous::new(&worker, "/jobs/1/master");
    let waiting = meeting.clone();
    let waiting = thread::spawn(move || waiting.meet().wait());
    let announced = Rendezvous::new(&master, "/jobs/1/master");
    announced.announce(b"here", CreateMode::Ephemeral).wait().expect("announced");
    announced.announce(b"here", CreateMode::Ephemeral).wait().expect("announced again");
    let other = servers.client();
    let taken = Rendezvous::new(&other, "/jobs/1/master").announce(b"here", CreateMode::Ephemeral).wait();
    assert_eq!(taken, Err(Error::NodeExists(Call::new("create", "/jobs/1/master"))));
    assert_eq!(waiting.join().expect("no panic"), Ok(b"here".to_vec()));
    let parting = thread::spawn(move || meeting.parted().wait());
    master.close().wait().expect("closed");
    assert_eq!(parting.join().expect("no panic"), Ok(()));
}

#[test]
fn a_configuration_tells_every_last_change() {
    let Some(servers) = servers() else { return };
    let (client, writer) = (servers.client(), servers.client());
    let (config, mut updates) =
        (Configuration::new(&writer, "/app/config"), Configuration::new(&client, "/app/config").updates());
    let mut next = || updates.next().wait_timeout(PATIENCE).expect("in time").expect("read");
    assert_eq!(next(), None);
    let stat = config.write(b"one", None).wait().expect("written");
    assert_eq!(next(), Some((b"one".to_vec(), stat)));
    let stat = config.write(b"two", stat.version).wait().expect("written");
    assert_eq!(config.read().wait(), Ok(Some((b"two".to_vec(), stat))));
    assert_eq!(config.write(b"no", 7).wait(), Err(Error::BadVersion(Call::new("set_data", "/app/config"))));
    assert_eq!(next(), Some((b"two".to_vec(), stat)));
    writer.delete("/app/config", None).wait().expect("deleted");
    assert_eq!(next(), None);
    assert_eq!(config.read().wait(), Ok(None));
}

#[test]
fn a_reader_never_sees_half_a_configuration() {
    let Some(servers) = servers() else { return };
    let is_done = AtomicBool::new(false);
    under_cuts(&servers, 3, |number, client| {
        let configuration = ReadyConfiguration::new(&client, "/whole");
        if number == 0 {
            for version in 0..30_u8 {
                let value: &[u8] = &[version];
                configuration
                    .change(&[("a", value), ("b", value), ("c", value)], None)
                    .wait()
                    .expect("changed");
            }
            is_done.store(true, Ordering::SeqCst);
            return;
        }
        let mut reads = 0;
        while !is_done.load(Ordering::SeqCst) || reads == 0 {
            let Some(read) = configuration.read().wait_timeout(Duration::from_secs(1)) else { continue };
            let (entries, _) = read.expect("read");
            assert_eq!(entries.len(), 3);
            assert!(entries.values().all(|value| *value == entries["a"]), "{entries:?}");
            reads += 1;
        }
    });
}

#[test]
fn a_change_is_refused_once_its_leader_is_replaced() {
    let Some(servers) = servers() else { return };
    let client = servers.client();
    let configuration = ReadyConfiguration::new(&client, "/fenced");
    let leadership = Election::new(&client, "/leader", "me").lead().wait().expect("leads");
    configuration.change(&[("a", b"1")], Some(&leadership)).wait().expect("changed");
    client.delete(leadership.path(), None).wait().expect("deleted");
    let refused = configuration.change(&[("a", b"2")], Some(&leadership)).wait();
    let fence = Error::NoNode(Call::new("check", leadership.path()));
    assert_eq!(refused, Err(Error::Transaction { index: 0, error: Box::new(fence) }));
    assert_eq!(configuration.read().wait().expect("read").0["a"], b"1");
}

#[test]
fn a_counter_counts_every_change_once() {
    let Some(servers) = servers() else { return };
    for (path, format) in [("/decimal", CounterFormat::Decimal), ("/curator", CounterFormat::Curator)] {
        under_cuts(&servers, 3, |_, client| {
            let mut counter = Counter::new(&client, path).with_format(format);
            for _ in 0..20 {
                counter.add(1).wait().expect("counted");
            }
        });
        let client = servers.client();
        let mut counter = Counter::new(&client, path).with_format(format);
        assert_eq!(counter.get().wait(), Ok(60));
        assert_eq!(counter.add(-70).wait(), Ok(-10));
    }
}

#[test]
fn a_queue_gives_every_entry_once_in_order() {
    let Some(servers) = servers() else { return };
    const ENTRIES: u32 = 40;
    let taken_in_all = AtomicU32::new(0);
    let taken = under_cuts(&servers, 4, |number, client| {
        let mut queue = Queue::new(&client, "/queue");
        let producer = u32::try_from(number).expect("small");
        if number < 2 {
            for entry in 0..ENTRIES {
                queue.put(&[producer, entry].map(u32::to_be_bytes).concat()).wait().expect("put");
            }
            return Vec::new();
        }
        // Timeouts that drop takes half-way lose nothing either. Now and then there is enough time.
        let (mut mine, mut patience_ms) = (Vec::new(), [3, 10, 1000].into_iter().cycle());
        while taken_in_all.load(Ordering::SeqCst) < 2 * ENTRIES {
            if let Some(entry) =
                queue.take().wait_timeout(Duration::from_millis(patience_ms.next().unwrap_or(1000)))
            {
                mine.push(entry.expect("taken"));
                taken_in_all.fetch_add(1, Ordering::SeqCst);
            }
        }
        mine
    });
    for one in &taken {
        let of = |producer: u8| one.iter().filter(move |entry| entry[3] == producer);
        assert!(of(0).is_sorted() && of(1).is_sorted(), "each producer's entries come in order");
    }
    let mut all = taken.concat();
    all.sort();
    let expected: Vec<_> =
        (0..2).flat_map(|p| (0..ENTRIES).map(move |e| [p, e].map(u32::to_be_bytes).concat())).collect();
    assert_eq!(all, expected);
}

/// Polls a future until `is_done`, although nothing wakes it.
fn poll_until<F: Future<Output: Debug>>(mut future: Pin<&mut F>, is_done: impl Fn() -> bool) {
    while !is_done() {
        let polled = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_pending(), "{polled:?}");
    }
}

#[test]
fn a_release_that_nobody_answered_does_not_take_a_simple_lock_from_its_next_holder() {
    let Some(servers) = servers() else { return };
    let (proxy, other) = (servers.proxy(), servers.client());
    let client = servers.client_through(&proxy);
    let holding = SimpleLock::new(&client, "/simple").acquire().wait().expect("held");
    proxy.lose_replies_from(OpCode::Delete);
    let mut release = pin!(holding.release());
    poll_until(release.as_mut(), || other.exists("/simple").wait().expect("read").is_none());
    assert!(proxy.loses_replies());
    let next = SimpleLock::new(&other, "/simple").acquire().wait_timeout(PATIENCE);
    let next = next.expect("it was deleted").expect("held");
    proxy.cut();
    release.wait().expect("released");
    assert!(other.exists(next.path()).wait().expect("read").is_some(), "the next holder has lost it");
}

#[test]
fn a_take_that_was_dropped_and_outlived_its_session_is_uncertain() {
    let Some(servers) = servers() else { return };
    let (proxy, other) = (servers.proxy(), servers.client());
    let client = servers.client_through(&proxy);
    let mut queue = Queue::new(&client, "/given-up");
    queue.put(b"entry").wait().expect("put");
    {
        proxy.lose_replies_from(OpCode::Multi);
        let is_taken = || other.get_children("/given-up").wait().expect("read").0.is_empty();
        poll_until(pin!(queue.take()), is_taken);
        assert!(proxy.loses_replies());
    }
    // The session ends before the queue can find out what became of it.
    let resumed = servers.builder().resume(client.session_ticket()).connect().wait().expect("the session");
    resumed.close().wait().expect("closed");
    proxy.cut();
    assert_eq!(queue.take().wait(), Err(Error::ConnectionLoss(Call::new("transaction", "/given-up"))));
}

#[test]
fn urgent_entries_are_taken_first() {
    let Some(servers) = servers() else { return };
    let client = servers.client();
    let mut queue = Queue::new(&client, "/urgent");
    assert_eq!(queue.try_take().wait(), Ok(None));
    queue.put(b"later").wait().expect("put");
    queue.put_with_priority(b"now", 5).wait().expect("put");
    assert!(queue.put_with_priority(b"", 1000).wait().is_err());
    assert_eq!(queue.len().wait(), Ok(2));
    assert_eq!(queue.try_take().wait(), Ok(Some(b"now".to_vec())));
    assert_eq!(queue.take().wait(), Ok(b"later".to_vec()));
}

/// Counts who is inside: all enter before one leaves, and all leave before one enters again.
fn go_round(servers: &Servers, rounds: usize, pass: impl Fn(&Client, usize, &dyn Fn()) + Sync) {
    const SIZE: usize = 4;
    let entered = AtomicUsize::new(0);
    under_cuts(servers, SIZE, |_, client| {
        for round in 0..rounds {
            // Everybody has left the round before this one, so that nobody has entered more than this one.
            assert!(entered.load(Ordering::SeqCst) >= round * SIZE, "one entered before all had left");
            entered.fetch_add(1, Ordering::SeqCst);
            pass(&client, SIZE, &|| {
                let entered = entered.load(Ordering::SeqCst);
                assert_eq!(entered, (round + 1) * SIZE, "one is inside before all have come");
            });
        }
    });
}

#[test]
fn a_double_barrier_opens_and_closes_for_all_at_once() {
    let Some(servers) = servers() else { return };
    go_round(&servers, 5, |client, size, inside| {
        let barrier = DoubleBarrier::new(client, "/barrier", size);
        let participation = barrier.enter("x").wait().expect("entered");
        inside();
        barrier.leave(participation).wait().expect("left");
    });
}

#[test]
fn an_ordered_barrier_opens_and_closes_for_all_at_once() {
    let Some(servers) = servers() else { return };
    go_round(&servers, 5, |client, size, inside| {
        let barrier = OrderedBarrier::new(client, "/ordered", size);
        let participation = barrier.enter("x").wait().expect("entered");
        inside();
        barrier.leave(participation).wait().expect("left");
    });
}

#[test]
fn recipes_can_be_moved_between_threads_while_they_wait() {
    fn movable<T: Send>(_: &T) {}
    let Some(servers) = servers() else { return };
    let client = servers.client();
    let (lock, mut queue) = (Lock::new(&client, "/l"), Queue::new(&client, "/q"));
    movable(&lock.acquire());
    movable(&queue.take());
    movable(&Election::new(&client, "/e", "x").lead());
    movable(&DoubleBarrier::new(&client, "/b", 1).enter("x"));
    movable(&Counter::new(&client, "/c").add(1));
    movable(&ReadyConfiguration::new(&client, "/r").read());
    movable(&Group::new(&client, "/g").members());
}
