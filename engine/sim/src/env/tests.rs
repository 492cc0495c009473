use std::cell::{Cell, RefCell};
use std::rc::Rc;

use futures_lite::{AsyncReadExt, AsyncWriteExt};
use ringkeeper_host::env::{Connection, Stream};
use ringkeeper_log::memory::CrashMode;
use ringkeeper_log::storage::{BLOCK_LEN, Storage, StorageFile, WriteMode};
use ringkeeper_wire::ServerId;

use super::strangers::{PORT, hardware, peer, quality, run_until, socket};
use super::*;

mod links;
mod networks;
mod tickets;

fn machines(seed: u64) -> Machines {
    Machines::new(&Executor::new(seed, 50), quality(), &[hardware(), hardware()])
}

/// What has arrived, and how the last read ended.
type Arrived = Rc<RefCell<(Vec<u8>, Option<io::Result<()>>)>>;

fn numbers(len: usize) -> Vec<u8> {
    (0..=250).cycle().take(len).collect()
}

/// Sends bytes from machine 0 to machine 1.
fn transfer(machines: &Machines, len: usize) -> Arrived {
    let arrived = Arrived::default();
    let (receiver, listener) = machines.begin(1, PORT);
    let seen = Rc::clone(&arrived);
    let read = async move {
        let (stream, _) = listener.accept().await.expect("it always works");
        let Connection { mut reader, writer: _writer, .. } = stream.open().await.expect("it always works");
        let mut buffer = [0; 1000];
        let end = loop {
            match reader.read(&mut buffer).await {
                Ok(0) => break Ok(()),
                Ok(len) => seen.borrow_mut().0.extend_from_slice(&buffer[..len]),
                Err(error) => break Err(error),
            }
        };
        seen.borrow_mut().1 = Some(end);
    };
    receiver.spawn(Class::Requests, read).detach();
    let (sender, _) = machines.begin(0, PORT);
    let env = sender.clone();
    let write = async move {
        let stream = env.dial(socket(1), Duration::from_secs(10)).await.expect("it listens");
        let Connection { reader: _reader, mut writer, .. } = stream.open().await.expect("it always works");
        if writer.write_all(&numbers(len)).await.is_ok() {
            writer.close().await.expect("it always works");
        }
    };
    sender.spawn(Class::Requests, write).detach();
    arrived
}

#[test]
fn one_seed_decides_what_happens_and_when() {
    let fingerprint = |seed| {
        let machines = machines(seed);
        machines.network().set_quality(Quality { loss: 200, ..quality() });
        let _arrived = transfer(&machines, 100_000);
        run_until(&machines, 1_000_000);
        machines.executor.fingerprint()
    };
    for seed in 0..20 {
        assert_eq!(fingerprint(seed), fingerprint(seed), "seed {seed}");
        assert_ne!(fingerprint(seed), fingerprint(seed + 1), "seed {seed}");
    }
}

#[test]
fn the_seed_decides_the_order_of_tasks_that_are_ready() {
    let orders = (0..20).map(|seed| {
        let machines = machines(seed);
        let (env, _listener) = machines.begin(0, PORT);
        let order = Rc::new(RefCell::new(Vec::new()));
        for task in 0..4 {
            let order = Rc::clone(&order);
            env.spawn(Class::Requests, async move { order.borrow_mut().push(task) }).detach();
        }
        run_until(&machines, 1000);
        order.take()
    });
    let orders: std::collections::BTreeSet<Vec<i32>> = orders.collect();
    assert!(orders.len() > 5 && orders.iter().all(|order| order.len() == 4), "{orders:?}");
}

#[test]
fn a_task_that_yields_goes_on_behind_all_that_are_ready() {
    for seed in 0..50 {
        let machines = machines(seed);
        let (env, _listener) = machines.begin(0, PORT);
        let order = Rc::new(RefCell::new(Vec::new()));
        let (first, yielding) = (Rc::clone(&order), env.clone());
        let others: Vec<_> = (0..3).map(|_| (Rc::clone(&order), env.clone())).collect();
        let task = async move {
            for (order, env) in others {
                env.spawn(Class::Requests, async move { order.borrow_mut().push("ready") }).detach();
            }
            yielding.yield_now().await;
            first.borrow_mut().push("yielded");
        };
        env.spawn(Class::Requests, task).detach();
        run_until(&machines, 10_000);
        assert_eq!(order.take(), ["ready", "ready", "ready", "yielded"], "seed {seed}");
    }
}

#[test]
fn clocks_run_at_their_own_rates_and_are_wrong_by_their_own_errors() {
    let executor = Executor::new(1, 1);
    let fast = Hardware { clock_error_ms: -500, clock_rate: 1250, ..hardware() };
    let machines = Machines::new(&executor, quality(), &[hardware(), fast]);
    let woke = Rc::new(RefCell::new(Vec::new()));
    for number in 0..2 {
        let (env, _) = machines.begin(number, PORT);
        let (woke, executor, own) = (Rc::clone(&woke), executor.clone(), env.clone());
        let task = async move {
            own.sleep(Duration::from_secs(1)).await;
            woke.borrow_mut().push((number, executor.now_us() / 1000, own.now()));
        };
        env.spawn(Class::Requests, task).detach();
    }
    machines.machine(0).jump_clock(60_000);
    run_until(&machines, 2_000_000);
    let woke = woke.take();
    let [(1, 800, fast), (0, 1000, exact)] = woke[..] else { panic!("{woke:?}") };
    assert_eq!((fast.monotonic_ms, exact.monotonic_ms), (1000, 1000));
    assert_eq!(exact.wall_ms - fast.wall_ms, 60_500);
}

#[test]
fn a_paused_process_stands_still_and_its_clock_goes_on() {
    let machines = machines(1);
    let (env, _listener) = machines.begin(0, PORT);
    let turns = Rc::new(RefCell::new(Vec::new()));
    let (seen, own) = (Rc::clone(&turns), env.clone());
    let task = async move {
        loop {
            seen.borrow_mut().push(own.now().monotonic_ms);
            own.sleep(Duration::from_millis(10)).await;
        }
    };
    env.spawn(Class::Requests, task).detach();
    run_until(&machines, 100_000);
    machines.pause(0, 500_000);
    run_until(&machines, 600_000);
    let turns = turns.take();
    assert!(turns.iter().any(|ms| *ms < 100) && turns.iter().any(|ms| *ms >= 500), "{turns:?}");
    assert!(!turns.iter().any(|ms| (101..500).contains(ms)), "{turns:?}");
}

#[test]
fn the_end_of_a_process_drops_its_tasks_where_they_are_and_resets_its_connections() {
    struct Dropped(Rc<Cell<bool>>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.set(true);
        }
    }
    let machines = machines(1);
    let arrived = transfer(&machines, 10_000_000);
    let (env, dropped) = (machines.machine(0).process().expect("it runs"), Rc::new(Cell::new(false)));
    let held = Dropped(Rc::clone(&dropped));
    let task = async move {
        std::future::pending::<()>().await;
        drop(held);
    };
    machines.executor.spawn(&env, 1, task).detach();
    run_until(&machines, 50_000);
    machines.end(0, 20_000);
    assert!(dropped.get());
    run_until(&machines, 60_000);
    assert!(arrived.borrow().1.is_none(), "the peer cannot know yet");
    run_until(&machines, 100_000);
    let (bytes, end) = arrived.take();
    assert_eq!(end.expect("over").expect_err("broken").kind(), io::ErrorKind::ConnectionReset);
    assert_eq!(bytes, numbers(bytes.len()));
}

#[test]
fn bytes_arrive_whole_and_in_order_however_often_packets_are_lost() {
    for seed in 0..100 {
        let machines = machines(seed);
        machines.network().set_quality(Quality { loss: 100, ..quality() });
        let arrived = transfer(&machines, 20_000);
        run_until(&machines, 60_000_000);
        let (bytes, end) = arrived.take();
        let whole = bytes.len() == 20_000 && matches!(end, Some(Ok(())));
        let broken = matches!(end, Some(Err(_)));
        assert!(whole || broken, "seed {seed}: {} bytes, {end:?}", bytes.len());
        assert_eq!(bytes, numbers(bytes.len()), "seed {seed}");
    }
}

#[test]
fn a_block_of_one_direction_stalls_what_is_under_way_and_loses_nothing() {
    let machines = machines(1);
    let arrived = transfer(&machines, 2_000_000);
    run_until(&machines, 20_000);
    machines.network().block(0, 1);
    run_until(&machines, 25_000);
    let before = arrived.borrow().0.len();
    run_until(&machines, 3_000_000);
    assert!(before > 0 && arrived.borrow().0.len() == before && arrived.borrow().1.is_none());
    machines.network().unblock(0, 1);
    run_until(&machines, 60_000_000);
    assert_eq!(arrived.borrow().0, numbers(2_000_000));
}

#[test]
fn a_direction_that_is_behind_hears_everything_in_slow_motion_and_in_order() {
    let machines = machines(1);
    let arrived = transfer(&machines, 2_000_000);
    run_until(&machines, 20_000);
    let before = arrived.borrow().0.len();
    run_until(&machines, 40_000);
    let as_ever = arrived.borrow().0.len() - before;
    machines.network().fall_behind(0, 1, 10);
    run_until(&machines, 60_000);
    let behind = arrived.borrow().0.len() - before - as_ever;
    assert!(behind > 0 && behind < as_ever, "{behind} beside {as_ever}");
    machines.network().catch_up(0, 1);
    run_until(&machines, 60_000_000);
    assert_eq!(arrived.borrow().0, numbers(2_000_000));
}

#[test]
fn connections_break_in_the_middle_of_what_is_sent() {
    let lengths: std::collections::BTreeSet<usize> = (0..50)
        .map(|seed| {
            let machines = machines(seed);
            machines.network().set_quality(Quality { cut: 100, ..quality() });
            let arrived = transfer(&machines, 20_000);
            run_until(&machines, 10_000_000);
            let (bytes, end) = arrived.take();
            assert_eq!(bytes, numbers(bytes.len()), "seed {seed}");
            assert_eq!(bytes.len() == 20_000, matches!(end, Some(Ok(()))), "seed {seed}: {end:?}");
            bytes.len()
        })
        .collect();
    assert!(lengths.len() > 20, "{lengths:?}");
}

#[test]
fn a_peer_that_does_not_read_stops_the_writer() {
    let machines = machines(1);
    let (receiver, listener) = machines.begin(1, PORT);
    let idle = async move {
        let _connection = listener.accept().await;
        std::future::pending::<()>().await;
    };
    receiver.spawn(Class::Requests, idle).detach();
    let (sender, _) = machines.begin(0, PORT);
    let (env, written) = (sender.clone(), Rc::new(Cell::new(0)));
    let count = Rc::clone(&written);
    let write = async move {
        let stream = env.dial(socket(1), Duration::from_secs(1)).await.expect("it listens");
        let Connection { reader: _reader, mut writer, .. } = stream.open().await.expect("it always works");
        while let Ok(len) = writer.write(&[0; 100]).await {
            count.set(count.get() + len);
        }
    };
    sender.spawn(Class::Requests, write).detach();
    run_until(&machines, 1_000_000);
    assert_eq!(written.get(), quality().window_bytes);
}

#[test]
fn dials_say_why_they_fail() {
    let machines = machines(1);
    let (env, _) = machines.begin(0, PORT);
    let (own, kinds) = (env.clone(), Rc::new(RefCell::new(Vec::new())));
    let seen = Rc::clone(&kinds);
    machines.network().block(1, 0);
    let network = machines.network().clone();
    let task = async move {
        let nobody = PeerAddress { host: "elsewhere".to_owned(), ..peer(1) };
        let unknown = own.resolve(&nobody).await;
        seen.borrow_mut().push(unknown.err().map(|error| error.kind()));
        for heals in [false, true] {
            if heals {
                network.unblock(1, 0);
            }
            let address = own.resolve(&peer(1)).await.expect("a machine")[0];
            let dialed = own.dial(address, Duration::from_millis(100)).await;
            seen.borrow_mut().push(dialed.err().map(|error| error.kind()));
        }
    };
    env.spawn(Class::Requests, task).detach();
    run_until(&machines, 1_000_000);
    let expected =
        [io::ErrorKind::NotFound, io::ErrorKind::TimedOut, io::ErrorKind::ConnectionRefused].map(Some);
    assert_eq!(kinds.take(), expected);
}

/// The power fails after so long in the middle of a file's writing: its blocks on the medium.
fn cut_off(after_us: u64, mode: CrashMode) -> Vec<u8> {
    let machines = machines(1);
    let (env, _listener) = machines.begin(0, PORT);
    let storage = env.storage();
    let task = async move {
        let file = storage.create("a", WriteMode::Synced).await.expect("a healthy disk");
        storage.sync_dir().await.expect("a healthy disk");
        for block in 0..8_u8 {
            let mut buffer = file.buffer(BLOCK_LEN);
            buffer.fill(block + 1);
            let offset = u64::from(block) * BLOCK_LEN as u64;
            file.write_at(buffer, offset).await.expect("a healthy disk");
            file.datasync().await.expect("a healthy disk");
        }
    };
    env.spawn(Class::Requests, task).detach();
    run_until(&machines, after_us);
    machines.end(0, 0);
    let disk = machines.machine(0).disk();
    disk.crash(mode);
    let contents = disk.contents("a").unwrap_or_default();
    contents.chunks(BLOCK_LEN).map(|block| block[0]).collect()
}

#[test]
fn operations_of_a_disk_take_their_time_and_a_crash_comes_between_any_two() {
    let lengths: std::collections::BTreeSet<usize> = (1..200)
        .map(|step| {
            let durable = cut_off(step * 50, CrashMode::LoseUnsynced);
            assert!(durable.iter().copied().eq(1..=u8::try_from(durable.len()).expect("few")));
            let issued = cut_off(step * 50, CrashMode::KeepAll).len();
            assert!(issued == durable.len() || issued == durable.len() + 1, "{issued} of {durable:?}");
            durable.len()
        })
        .collect();
    assert!(lengths.iter().copied().eq(0..=8), "{lengths:?}");
}
