//! The workload of the clients: few paths, so that they interfere with each other.

use std::sync::Arc;

use ringkeeper_wire::CreateMode;

use super::ask::Ask;
use super::rules;
use crate::random::Random;

const PARENTS: [&str; 3] = ["/a", "/b", "/c"];
const NAMES: [&str; 3] = ["x", "y", "z"];

fn any_path(random: &mut Random) -> Arc<str> {
    let parent = PARENTS[random.index(PARENTS.len())];
    match random.below(3) {
        0 => parent.into(),
        _ => format!("{parent}/{}", NAMES[random.index(NAMES.len())]).into(),
    }
}

fn data(random: &mut Random) -> Arc<[u8]> {
    let len = [0, 8, 8, 100][random.index(4)];
    let fresh = random.next().to_le_bytes();
    (0..len).map(|at| fresh[at % fresh.len()]).collect()
}

fn version(random: &mut Random) -> i32 {
    if random.chance(800) { -1 } else { i32::try_from(random.below(4)).unwrap_or_default() }
}

fn change(random: &mut Random) -> Ask {
    let path = any_path(random);
    match random.below(10) {
        0..=4 => {
            let modes = [
                CreateMode::Persistent,
                CreateMode::Persistent,
                CreateMode::Ephemeral,
                CreateMode::EphemeralSequential,
                CreateMode::PersistentSequential,
            ];
            let mode = modes[random.index(modes.len())];
            // Sequential ones are short-lived, or nobody would ever see the same name again.
            let path = if mode.is_sequential() { format!("{path}-").into() } else { path };
            Ask::Create { path, data: data(random), mode, stat: random.chance(500), closed: false }
        }
        5..=7 => Ask::Set { path, data: data(random), version: version(random) },
        _ => Ask::Delete { path, version: version(random) },
    }
}

/// One request.
pub(crate) fn draw(random: &mut Random) -> Ask {
    match random.below(100) {
        0..=39 => change(random),
        40..=45 => {
            let len = random.between(1, 3);
            let mut parts: Vec<Ask> = (0..len).map(|_| change(random)).collect();
            if random.chance(300) {
                parts.push(Ask::Check { path: any_path(random), version: version(random) });
            }
            Ask::Multi(parts)
        }
        46..=97 => draw_read(random),
        // Deletes a znode with a known name, so that the tree stays small.
        _ => Ask::Delete { path: any_path(random), version: -1 },
    }
}

/// One request, often as large as a client may send: long multis, and watches of many paths.
pub(crate) fn draw_greedy(random: &mut Random) -> Ask {
    match random.below(10) {
        0 => {
            let len = random.between(50, 300);
            Ask::Multi((0..len).map(|_| change(random)).collect())
        }
        1..=4 => {
            let path = format!("{}/{}", any_path(random), random.below(300)).into();
            Ask::Exists { path, watch: true }
        }
        _ => draw(random),
    }
}

/// One request that changes nothing.
pub(crate) fn draw_read(random: &mut Random) -> Ask {
    match random.below(50) {
        0..=16 => Ask::Data { path: any_path(random), watch: random.chance(400) },
        17..=29 => Ask::Exists { path: any_path(random), watch: random.chance(400) },
        30..=41 => {
            let (path, stat) =
                if random.chance(150) { ("/".into(), false) } else { (any_path(random), true) };
            Ask::Children { path, watch: random.chance(400), stat }
        }
        42..=44 => Ask::Sync,
        45..=47 => {
            let read = Ask::Data { path: any_path(random), watch: random.chance(400) };
            Ask::Linearizable(Box::new(read))
        }
        48 => Ask::Ping,
        _ => Ask::AddWatch { path: any_path(random), recursive: random.chance(500) },
    }
}

const ACCESSES: [&str; 4] = ["none", "read", "acl", "all"];
const SUBTREES: [&str; 5] = ["/a", "/b", "/a/x", "/b/y", "/c"];

/// The text of a rule that leaves something to most of its subjects; sometimes one that is refused.
fn rule(random: &mut Random) -> Arc<[u8]> {
    let mut lines = vec![format!("{} /", ["all", "all", "read", "none"][random.index(4)])];
    for _ in 0..random.below(3) {
        let access = ACCESSES[random.index(ACCESSES.len())];
        lines.push(format!("{access} {}", SUBTREES[random.index(SUBTREES.len())]));
    }
    lines.join("\n").into_bytes().into()
}

/// A change of the rules.
fn change_of_rules(random: &mut Random) -> Ask {
    let paths = rules::paths();
    let path = Arc::clone(&paths[random.index(paths.len())]);
    let create =
        |path, data| Ask::Create { path, data, mode: CreateMode::Persistent, stat: true, closed: false };
    match random.below(12) {
        0..=2 => create(rules::PLACE.into(), [].into()),
        3..=6 => create(path, rule(random)),
        7..=9 => Ask::Set { path, data: rule(random), version: version(random) },
        10 => Ask::Delete { path: rules::PLACE.into(), version: -1 },
        _ => Ask::Delete { path, version: -1 },
    }
}

/// One request of the administrator.
pub(crate) fn draw_administration(random: &mut Random) -> Ask {
    match random.below(20) {
        0..=5 => change_of_rules(random),
        6..=7 => {
            let mode = CreateMode::Persistent;
            Ask::Create { path: any_path(random), data: data(random), mode, stat: false, closed: true }
        }
        // What one of them does binds the next one.
        8 => Ask::Multi(vec![change_of_rules(random), change_of_rules(random), change(random)]),
        _ => draw(random),
    }
}

/// One request about the rules themselves, which all but the administrator are refused. `reads`: it changes
/// nothing.
pub(crate) fn draw_about_rules(random: &mut Random, reads: bool) -> Ask {
    if !reads && random.chance(200) {
        return change_of_rules(random);
    }
    let paths = rules::paths();
    let path: Arc<str> = match random.index(paths.len() + 1) {
        index if index < paths.len() => Arc::clone(&paths[index]),
        _ => rules::PLACE.into(),
    };
    match random.below(6) {
        0..=1 => Ask::Data { path, watch: random.chance(400) },
        2..=3 => Ask::Exists { path, watch: random.chance(400) },
        4 => Ask::Children { path: rules::PLACE.into(), watch: random.chance(400), stat: true },
        _ => Ask::AddWatch { path, recursive: random.chance(500) },
    }
}

/// The requests that every client completes after healing, to show progress.
pub(crate) fn finale(random: &mut Random) -> Vec<Ask> {
    let path = any_path(random);
    let mode = CreateMode::EphemeralSequential;
    vec![
        Ask::Sync,
        Ask::Data { path: Arc::clone(&path), watch: false },
        Ask::Create { path: "/last-".into(), data: data(random), mode, stat: true, closed: false },
        Ask::Set { path: Arc::clone(&path), data: data(random), version: -1 },
        Ask::Data { path, watch: false },
    ]
}
