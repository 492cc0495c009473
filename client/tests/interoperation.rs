//! Our recipes and kazoo's on the same znodes. `RINGKEEPER_TEST_PYTHON` names a Python that has kazoo;
//! without it these tests say so, and do nothing.

mod support;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use ringkeeper_client::Wait;
use ringkeeper_client::recipes::{
    Counter, CounterFormat, Election, Group, Lock, OrderedBarrier, Queue, RwLock,
};
use support::{Servers, servers};

/// A running `kazoo_peer.py`.
struct Kazoo {
    child: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Kazoo {
    fn start(servers: &Servers) -> Option<Self> {
        let Some(python) = std::env::var_os("RINGKEEPER_TEST_PYTHON") else {
            eprintln!("skipped: set RINGKEEPER_TEST_PYTHON to a Python with kazoo");
            return None;
        };
        let mut child = Command::new(python)
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kazoo_peer.py"))
            .arg(servers.connect_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("Python starts");
        let commands = child.stdin.take().expect("piped");
        let answers = BufReader::new(child.stdout.take().expect("piped"));
        Some(Self { child, commands, answers })
    }

    fn tell(&mut self, command: &str) {
        writeln!(self.commands, "{command}").expect("kazoo listens");
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("kazoo answers");
        line.trim_end().to_owned()
    }

    fn ask(&mut self, command: &str) -> String {
        self.tell(command);
        self.answer()
    }
}

impl Drop for Kazoo {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn locks_and_elections_exclude_kazoo_and_are_excluded_by_it() {
    let Some(servers) = servers() else { return };
    let Some(mut kazoo) = Kazoo::start(&servers) else { return };
    let client = servers.client();
    let lock = Lock::new(&client, "/lock").with_id("ours");
    let holding = lock.acquire().wait().expect("acquired");
    assert_eq!(kazoo.ask("acquire lock /lock no"), "False");
    kazoo.tell("acquire lock /lock wait");
    while lock.contenders().wait().expect("read").len() < 2 {}
    assert_eq!(lock.contenders().wait(), Ok(vec![b"ours".to_vec(), b"kazoo".to_vec()]));
    holding.release().wait().expect("released");
    assert_eq!(kazoo.answer(), "True");
    assert!(lock.try_acquire().wait().expect("tried").is_none());
    // kazoo's election is its lock.
    let election = Election::new(&client, "/lock", "ours");
    assert_eq!(election.leader().wait(), Ok(Some(b"kazoo".to_vec())));
    assert_eq!(kazoo.ask("release"), "done");
    let leadership = election.lead().wait().expect("leads");
    assert_eq!(kazoo.ask("contenders /lock"), "ours");
    leadership.release().wait().expect("resigned");
}

#[test]
fn readers_and_writers_wait_for_those_of_kazoo() {
    let Some(servers) = servers() else { return };
    let Some(mut kazoo) = Kazoo::start(&servers) else { return };
    let client = servers.client();
    let lock = RwLock::new(&client, "/rw");
    assert_eq!(kazoo.ask("acquire read /rw wait"), "True");
    lock.read().wait().expect("read").release().wait().expect("released");
    assert!(lock.try_write().wait().expect("tried").is_none());
    assert_eq!(kazoo.ask("release"), "done");
    let writing = lock.write().wait().expect("write");
    assert_eq!(kazoo.ask("acquire read /rw no"), "False");
    writing.release().wait().expect("released");
    assert_eq!(kazoo.ask("acquire write /rw wait"), "True");
    assert!(lock.try_read().wait().expect("tried").is_none());
}

#[test]
fn groups_queues_and_counters_are_shared_with_kazoo() {
    let Some(servers) = servers() else { return };
    let Some(mut kazoo) = Kazoo::start(&servers) else { return };
    let client = servers.client();
    let membership = Group::new(&client, "/party").join(b"ours").wait().expect("joined");
    assert_eq!(kazoo.ask("join /party"), "done");
    assert_eq!(kazoo.ask("members /party"), "kazoo,ours");
    assert_eq!(Group::new(&client, "/party").members().wait().expect("read").len(), 2);
    membership.leave().wait().expect("left");
    assert_eq!(kazoo.ask("members /party"), "kazoo");

    let mut queue = Queue::new(&client, "/queue");
    queue.put(b"first").wait().expect("put");
    assert_eq!(kazoo.ask("put /queue second"), "done");
    assert_eq!(kazoo.ask("get /queue"), "b'first'");
    assert_eq!(queue.take().wait(), Ok(b"second".to_vec()));
    assert_eq!(kazoo.ask("get /queue"), "None");

    for (path, format, name) in
        [("/n", CounterFormat::Decimal, "kazoo"), ("/m", CounterFormat::Curator, "curator")]
    {
        let mut counter = Counter::new(&client, path).with_format(format);
        assert_eq!(counter.add(5).wait(), Ok(5));
        assert_eq!(kazoo.ask(&format!("count {path} 7 {name}")), "12");
        assert_eq!(counter.add(-13).wait(), Ok(-1));
    }
}

#[test]
fn a_barrier_holds_kazoo_and_ours_together() {
    let Some(servers) = servers() else { return };
    let Some(mut kazoo) = Kazoo::start(&servers) else { return };
    let client = servers.client();
    let barrier = OrderedBarrier::new(&client, "/barrier", 2);
    for _ in 0..3 {
        assert!(barrier.enter("alone").wait_timeout(Duration::from_millis(50)).is_none());
        while !client.get_children("/barrier").wait().expect("read").0.is_empty() {}
        kazoo.tell("enter /barrier 2");
        let inside = barrier.enter("ours").wait().expect("entered");
        assert_eq!(kazoo.answer(), "True");
        kazoo.tell("leave");
        barrier.leave(inside).wait().expect("left");
        assert_eq!(kazoo.answer(), "done");
    }
}
