//! What the tree costs: memory per znode, reads, updates with the root published, listings, churn, deep
//! paths.
//!
//! `cargo bench -p ringkeeper-engine --bench tree [-- GROUP...]` runs the groups of [`GROUPS`] (all but the
//! last without an argument), each in a process of its own so that its memory is its own. Each line is one
//! case, best of several rounds where it can be repeated. Memory is resident memory under mimalloc, as in the
//! server. Run it alone on the machine; its figures are compared by hand, nothing here passes or fails.
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use ringkeeper_engine::tree::{AclId, NewZnode, Owner, Tree};
use ringkeeper_wire::Zxid;
use std::fmt::Write as _;
use std::hint::black_box;
use std::time::Instant;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const ZNODES: usize = 1_000_000;
const PAYLOAD: [u8; 100] = [7; 100];
/// Operations in a timed round. Every round of a cold case takes other znodes.
const OPERATIONS: usize = 50_000;
/// Rounds, of which the fastest counts: what disturbs a round only makes it slower.
const ROUNDS: usize = 12;

/// The names of `count` znodes, 13 bytes each, spread over `directories` directories ("/" alone if 0).
#[derive(Clone, Copy)]
struct Shape {
    name: &'static str,
    directories: usize,
    count: usize,
}

impl Shape {
    fn write_path(&self, n: usize, path: &mut String) {
        path.clear();
        if self.directories > 0 {
            write!(path, "/directory-{:06}", n % self.directories).expect("strings grow");
        }
        write!(path, "/node-{n:08}").expect("strings grow");
    }

    fn build(&self) -> Tree {
        let mut tree = Tree::new(0x5eed);
        let mut path = String::new();
        for directory in 0..self.directories {
            path.clear();
            write!(path, "/directory-{directory:06}").expect("strings grow");
            create(&mut tree, &path, &[], 1);
        }
        for n in 0..self.count {
            self.write_path(n, &mut path);
            create(&mut tree, &path, &PAYLOAD, 1);
        }
        tree
    }

    /// For each round, paths of existing znodes in a random order, `distinct` different ones at most.
    fn sample(&self, distinct: usize) -> Vec<Vec<String>> {
        let mut random = Random(1);
        let mut path = String::new();
        let mut pick = || {
            let n = random.below(distinct.min(self.count)) * (self.count / distinct.min(self.count));
            self.write_path(n, &mut path);
            path.clone()
        };
        (0..ROUNDS).map(|_| (0..OPERATIONS).map(|_| pick()).collect()).collect()
    }
}

/// A small generator (splitmix64): the cases are the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((x ^ (x >> 31)) % bound as u64).expect("below a usize")
    }
}

fn create(tree: &mut Tree, path: &str, data: &[u8], zxid: u64) {
    let new = NewZnode {
        data: Some(data),
        acl: AclId::OPEN,
        owner: Owner::None,
        zxid: Zxid(zxid),
        time: 1_700_000_000_000,
        parent_cversion: -1,
    };
    tree.insert(path, &new).expect("the parent exists, the znode does not");
}

fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux has procfs");
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok());
    pages.expect("statm is numbers") * 4096
}

/// Prints the time of one of the `operations` of the fastest round.
fn report(case: &str, operations: usize, mut round: impl FnMut(usize)) {
    let nanos = (0..ROUNDS).map(|number| {
        let start = Instant::now();
        round(number);
        start.elapsed().as_nanos()
    });
    let fastest = nanos.min().expect("there is a round");
    println!("{case:<56} {:>10.1} ns", fastest as f64 / operations as f64);
}

fn memory_and_speed(shape: Shape) {
    let before = resident_bytes();
    let start = Instant::now();
    let mut tree = shape.build();
    let built = start.elapsed();
    let each = (resident_bytes() - before) as f64 / shape.count as f64;
    let name = shape.name;
    println!("{:<56} {each:>10.1} B/znode", format!("tree/memory/{name}"));
    let nanos = built.as_nanos() as f64 / shape.count as f64;
    println!("{:<56} {nanos:>10.1} ns", format!("tree/create/{name}"));
    reads(&tree, shape);
    updates(&mut tree, shape);
    churn(&mut tree, shape);
}

fn reads(tree: &Tree, shape: Shape) {
    let name = shape.name;
    for (heat, distinct) in [("hot", 1_000), ("cold", shape.count)] {
        let paths = shape.sample(distinct);
        report(&format!("tree/get/{name}/{heat}"), OPERATIONS, |round| {
            for path in &paths[round] {
                black_box(tree.get(path).expect("exists").stat());
            }
        });
    }
    let mut missing = shape.sample(shape.count);
    missing.iter_mut().flatten().for_each(|path| path.push('x'));
    report(&format!("tree/get/{name}/missing"), OPERATIONS, |round| {
        for path in &missing[round] {
            black_box(tree.get(path).is_none());
        }
    });
    report(&format!("tree/nodes/{name}"), tree.len(), |_| {
        black_box(tree.nodes().map(|znode| znode.data_len()).sum::<usize>());
    });
    report(&format!("tree/descendants/{name}"), tree.len(), |_| {
        black_box(tree.descendants("/").map(|znode| znode.data_len()).sum::<usize>());
    });
}

fn updates(tree: &mut Tree, shape: Shape) {
    let name = shape.name;
    let paths = shape.sample(shape.count);
    for batch in [1, 100] {
        report(&format!("tree/set_data/{name}/published_per_{batch}"), OPERATIONS, |round| {
            let mut published = tree.clone();
            for paths in paths[round].chunks(batch) {
                for path in paths {
                    tree.set_data(path, Some(&PAYLOAD), 1, Zxid(2), 2, |_| ()).expect("exists");
                }
                published = black_box(tree.clone());
            }
            drop(published);
        });
    }
}

fn churn(tree: &mut Tree, shape: Shape) {
    let name = shape.name;
    let mut path = String::new();
    for batch in [1, 100] {
        let before = resident_bytes();
        report(&format!("tree/create_delete/{name}/published_per_{batch}"), OPERATIONS, |_| {
            let mut published = tree.clone();
            for first in (0..OPERATIONS / 2).step_by(batch) {
                for n in first..first + batch {
                    shape.write_path(shape.count + n, &mut path);
                    create(tree, &path, &PAYLOAD, 3);
                }
                published = black_box(tree.clone());
                for n in first..first + batch {
                    shape.write_path(shape.count + n, &mut path);
                    tree.remove(&path, Zxid(4)).expect("exists");
                }
                published = black_box(tree.clone());
            }
            drop(published);
        });
        let grown = resident_bytes().saturating_sub(before);
        println!("{:<56} {:>10} KiB", format!("tree/create_delete/{name}/growth"), grown / 1024);
    }
}

fn listing(count: usize) {
    let shape = Shape { name: "flat", directories: 0, count };
    let before = resident_bytes();
    let start = Instant::now();
    let tree = shape.build();
    let nanos = start.elapsed().as_nanos() as f64 / count as f64;
    let each = (resident_bytes() - before) as f64 / count as f64;
    println!("{:<56} {nanos:>10.1} ns, {each:.1} B/znode", format!("tree/create/flat_{count}"));
    report(&format!("tree/children/flat_{count}"), count, |_| {
        black_box(tree.children("/").map(|(name, _)| name.len()).sum::<usize>());
    });
    let paths = shape.sample(count);
    report(&format!("tree/get/flat_{count}/cold"), OPERATIONS, |round| {
        for path in &paths[round] {
            black_box(tree.get(path).expect("exists").stat());
        }
    });
    let start = Instant::now();
    drop(tree);
    let nanos = start.elapsed().as_nanos() as f64 / count as f64;
    println!("{:<56} {nanos:>10.1} ns", format!("tree/drop/flat_{count}"));
}

fn deep() {
    const LEVELS: usize = 10_000;
    let whole = "/d".repeat(LEVELS);
    let before = resident_bytes();
    let mut tree = Tree::new(1);
    let start = Instant::now();
    for level in 1..=LEVELS {
        create(&mut tree, &whole[..2 * level], &[], 1);
    }
    println!(
        "{:<56} {:>10.1} us",
        "tree/create/level_of_10000",
        start.elapsed().as_micros() as f64 / LEVELS as f64
    );
    println!("{:<56} {:>10} KiB", "tree/memory/10000_levels", (resident_bytes() - before) / 1024);
    report("tree/get/10000_levels_deep", 1, |_| {
        black_box(tree.get(&whole).expect("exists"));
    });
    report("tree/descendants/10000_levels", LEVELS, |_| {
        black_box(tree.descendants("/").count());
    });
}

const GROUPS: [&str; 6] =
    ["flat", "1000_directories", "100000_directories", "deep", "listing", "listing_ten_million"];

fn run(group: &str) {
    let spread = |name, directories| memory_and_speed(Shape { name, directories, count: ZNODES });
    match group {
        "flat" => spread("flat", 0),
        "1000_directories" => spread("1000_directories", 1_000),
        "100000_directories" => spread("100000_directories", 100_000),
        "deep" => deep(),
        "listing" => listing(ZNODES),
        "listing_ten_million" => listing(10 * ZNODES),
        _ => eprintln!("no group {group}; there are {GROUPS:?}"),
    }
}

fn main() {
    let mut arguments: Vec<String> =
        std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    if let [flag, group] = arguments.as_slice()
        && flag == "--alone"
    {
        return run(group);
    }
    if arguments.is_empty() {
        arguments = GROUPS[..GROUPS.len() - 1].iter().map(|&group| group.to_owned()).collect();
    }
    let program = std::env::current_exe().expect("the benchmark's own path");
    for group in arguments {
        let status = std::process::Command::new(&program).args(["--alone", &group]).status();
        assert!(status.is_ok_and(|status| status.success()), "group {group} failed");
    }
}
