//! The workload of the clients: few paths, so that they interfere with each other.

use std::sync::Arc;

use ringkeeper_wire::CreateMode;

use super::ask::Ask;
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
            Ask::Create { path, data: data(random), mode, stat: random.chance(500) }
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

/// The requests that every client completes after healing, to show progress.
pub(crate) fn finale(random: &mut Random) -> Vec<Ask> {
    let path = any_path(random);
    let mode = CreateMode::EphemeralSequential;
    vec![
        Ask::Sync,
        Ask::Data { path: Arc::clone(&path), watch: false },
        Ask::Create { path: "/last-".into(), data: data(random), mode, stat: true },
        Ask::Set { path: Arc::clone(&path), data: data(random), version: -1 },
        Ask::Data { path, watch: false },
    ]
}
