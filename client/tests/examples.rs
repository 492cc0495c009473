//! The programs of `examples`, against a live server. They are built by `cargo test`, though not by
//! `cargo test --test examples`: then these tests say so, and do nothing.

mod support;

use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStdout, Command, Stdio};

use support::{Servers, servers};

/// A running example, and what it says. Ended when dropped.
struct Example {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Example {
    fn start(name: &str, servers: &Servers, words: &[&str]) -> Option<Self> {
        // target/<profile>/deps/<this test>
        let test = std::env::current_exe().expect("the path of this test");
        let program = test.parent()?.with_file_name("examples").join(name);
        if !program.is_file() {
            eprintln!("skipped: the examples are not built");
            return None;
        }
        let mut command = Command::new(program);
        command.arg(servers.connect_string()).args(words).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the example starts");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        Some(Self { child, lines })
    }

    /// The next line.
    fn says(&mut self) -> String {
        self.lines.next().expect("it goes on").expect("text")
    }

    /// Reads until this line.
    fn says_at_last(&mut self, line: &str) {
        while self.says() != line {}
    }

    /// The lines that are left, and a good end.
    fn ends(mut self) -> Vec<String> {
        // Some of them wait for the end of their input.
        drop(self.child.stdin.take());
        let lines = self.lines.by_ref().map(|line| line.expect("text")).collect();
        assert!(self.child.wait().expect("it ends").success());
        lines
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_configuration_is_read_as_it_is_written() {
    let Some(servers) = servers() else { return };
    let Some(mut reader) = Example::start("configuration", &servers, &["read"]) else { return };
    for (version, text) in ["threads = 8", "threads = 9"].into_iter().enumerate() {
        let writer = Example::start("configuration", &servers, &["write", text]).expect("built");
        assert_eq!(writer.ends(), [format!("written as version {version}")]);
        reader.says_at_last(&format!("version {version}: {text}"));
    }
}

#[test]
fn one_holds_the_lock_after_the_other() {
    let Some(servers) = servers() else { return };
    let Some(mut one) = Example::start("lock", &servers, &["one"]) else { return };
    assert!(one.says().starts_with("one works, step 1, fenced by 0x"));
    let mut two = Example::start("lock", &servers, &["two"]).expect("built");
    assert_eq!(one.ends().len(), 4);
    assert!(two.says().starts_with("two works, step 1, fenced by 0x"));
}

#[test]
fn the_workers_of_a_master_share_the_shards() {
    let Some(servers) = servers() else { return };
    let Some(mut one) = Example::start("master_workers", &servers, &["one"]) else { return };
    while !one.says().starts_with("one is the master, fenced by 0x") {}
    let mut two = Example::start("master_workers", &servers, &["two"]).expect("built");
    two.says_at_last(r#"two serves shards ["1", "3", "5", "7", "9", "11"]"#);
    one.says_at_last(r#"one serves shards ["0", "2", "4", "6", "8", "10"]"#);
}

#[test]
fn members_see_one_another() {
    let Some(servers) = servers() else { return };
    let Some(mut one) = Example::start("membership", &servers, &["one"]) else { return };
    one.says_at_last("1 members: one");
    let _two = Example::start("membership", &servers, &["two"]).expect("built");
    while !one.says().starts_with("2 members: ") {}
}

#[test]
fn nobody_begins_a_phase_before_all_have_done_the_one_before() {
    let Some(servers) = servers() else { return };
    let Some(job) = Example::start("phases", &servers, &["3"]) else { return };
    let lines = job.ends();
    let last_map = lines.iter().rposition(|line| line.ends_with(": map")).expect("mapped");
    let first_done = lines.iter().position(|line| line.ends_with("all have done their map")).expect("done");
    assert!(last_map < first_done, "{lines:?}");
    assert_eq!(lines.len(), 3 * 4);
}

#[test]
fn a_worker_meets_its_master_and_hears_of_its_end() {
    let Some(servers) = servers() else { return };
    let Some(mut worker) = Example::start("rendezvous", &servers, &["worker"]) else { return };
    let mut master = Example::start("rendezvous", &servers, &["master", "host-1:9000"]).expect("built");
    assert_eq!(master.says(), "announced host-1:9000; press Enter to end");
    assert_eq!(worker.says(), "the master is at host-1:9000");
    assert_eq!(master.ends(), [""; 0]);
    assert_eq!(worker.ends(), ["the master is gone"]);
}
