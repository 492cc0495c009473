//! All that a power loss may leave behind.
//!
//! What is not durable is a list of sectors, lengths and names, and a file system may have written any set of
//! them. Sets are counted by what they leave: of the writes to one sector the last that survives counts, and
//! one that writes what is there anyway changes no more than the file's length, which grows by whole blocks.
//! So the states of a file are the combinations of what its sectors may hold, each at all lengths that it may
//! have; those of a folder are the combinations of its files' states under each set of names.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use super::disk::{Change, Disk, Names, Node, SECTOR, grow, index, overwrite};
use crate::storage::BLOCK_LEN;

/// The greatest number of states that are looked at after one power loss.
pub const CRASH_STATES_MAX: usize = 1 << 16;

impl Disk {
    /// Hands over all disks that a power loss now may leave, no two of them equal.
    pub(super) fn crash_states(&self, each: &mut dyn FnMut(Self)) {
        let contents: BTreeMap<u64, Vec<Rc<Vec<u8>>>> =
            self.nodes.iter().map(|(inode, node)| (*inode, node.contents_left())).collect();
        let names = self.names_left();
        let states = |names: &Names| names.values().map(|inode| contents[inode].len()).product::<usize>();
        let count: usize = names.iter().map(states).sum();
        assert!(count <= CRASH_STATES_MAX, "{count} states after one power loss");
        for names in names {
            let inodes: BTreeSet<u64> = names.values().copied().collect();
            let choices: Vec<_> = inodes.iter().map(|inode| contents[inode].len()).collect();
            for choice in combinations(&choices) {
                let nodes = inodes.iter().zip(choice);
                let nodes =
                    nodes.map(|(inode, choice)| (*inode, Node::settled(Rc::clone(&contents[inode][choice]))));
                each(self.settled(names.clone(), nodes.collect()));
            }
        }
    }

    fn names_left(&self) -> BTreeSet<Names> {
        let mut left = BTreeSet::from([self.durable_names.clone()]);
        for (_, change) in &self.pending_names {
            let applied: Vec<Names> = left
                .iter()
                .map(|names| {
                    let mut names = names.clone();
                    change.apply(&mut names);
                    names
                })
                .collect();
            left.extend(applied);
        }
        left
    }
}

impl Node {
    /// What a power loss may leave of the file.
    fn contents_left(&self) -> Vec<Rc<Vec<u8>>> {
        if self.pending.is_empty() {
            return vec![Rc::clone(&self.durable)];
        }
        let mut sectors: BTreeMap<usize, Vec<&[u8]>> = BTreeMap::new();
        // Lengths that need no change of contents.
        let mut lengths = BTreeSet::from([self.durable.len()]);
        for pending in &self.pending {
            match &pending.change {
                Change::Grow { len } => {
                    lengths.insert(index(*len));
                }
                Change::Write { offset, data } => {
                    for (nth, sector) in data.chunks(SECTOR).enumerate() {
                        let at = index(*offset) + nth * SECTOR;
                        if self.holds(at, sector) {
                            lengths.insert((at + sector.len()).next_multiple_of(BLOCK_LEN));
                        } else if !sectors.get(&at).is_some_and(|values| values.contains(&sector)) {
                            sectors.entry(at).or_default().push(sector);
                        }
                    }
                }
            }
        }
        let choices: Vec<_> = sectors.values().map(|values| values.len() + 1).collect();
        let count = choices.iter().product::<usize>().saturating_mul(lengths.len());
        assert!(count <= CRASH_STATES_MAX, "{count} states of one file after one power loss");
        let mut left = Vec::new();
        for choice in combinations(&choices) {
            let mut contents = Vec::clone(&self.durable);
            for ((at, values), choice) in sectors.iter().zip(choice) {
                if let Some(value) = choice.checked_sub(1).and_then(|choice| values.get(choice)) {
                    overwrite(&mut contents, *at, value);
                    let len = contents.len().next_multiple_of(BLOCK_LEN);
                    grow(&mut contents, len);
                }
            }
            let shortest = contents.len();
            for longer in lengths.range(shortest + 1..) {
                let mut contents = contents.clone();
                grow(&mut contents, *longer);
                left.push(Rc::new(contents));
            }
            left.push(Rc::new(contents));
        }
        left
    }

    /// Whether the medium has these bytes there, zeros behind the file's end.
    fn holds(&self, at: usize, bytes: &[u8]) -> bool {
        let durable = self.durable.get(at.min(self.durable.len())..).unwrap_or_default();
        let (there, behind) = bytes.split_at(bytes.len().min(durable.len()));
        durable.starts_with(there) && behind.iter().all(|byte| *byte == 0)
    }
}

/// All ways to choose one of so many each.
fn combinations(choices: &[usize]) -> impl Iterator<Item = Vec<usize>> {
    let count: usize = choices.iter().product();
    (0..count).map(move |mut number| {
        choices
            .iter()
            .map(|choices| {
                let choice = number % choices;
                number /= choices;
                choice
            })
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use futures_lite::future::block_on;

    use crate::memory::{CrashMode, MemoryDisk, MemoryFile};
    use crate::storage::{BLOCK_LEN, Storage, StorageFile, WriteMode};

    async fn write(file: &MemoryFile, offset: u64, sectors: &[u8]) {
        let mut buffer = file.buffer(BLOCK_LEN);
        buffer.fill(0);
        for (sector, value) in buffer.chunks_mut(512).zip(sectors) {
            sector.fill(*value);
        }
        file.write_at(buffer, offset).await.expect("a healthy disk");
    }

    type Files = Vec<(String, Vec<u8>)>;

    fn files(disk: &MemoryDisk) -> Files {
        let names = disk.names().into_iter();
        names.map(|name| (name.clone(), disk.contents(&name).expect("listed"))).collect()
    }

    fn states(disk: &MemoryDisk) -> BTreeSet<Files> {
        let mut states = BTreeSet::new();
        let count = disk.crash_states(|disk| {
            assert!(states.insert(files(disk)), "a state came twice");
        });
        assert_eq!(count, states.len() as u64);
        states
    }

    /// Three sectors that differ, one of them written twice, two names.
    async fn scene() -> MemoryDisk {
        let disk = MemoryDisk::new();
        let storage = disk.storage();
        let file = storage.create("a", WriteMode::Synced).await.expect("a healthy disk");
        write(&file, 0, &[1, 2]).await;
        file.datasync().await.expect("a healthy disk");
        storage.sync_dir().await.expect("a healthy disk");
        write(&file, 0, &[1, 3, 0, 4]).await;
        write(&file, 0, &[1, 5, 0, 4]).await;
        storage.rename("a", "b").await.expect("a healthy disk");
        storage.create("c", WriteMode::Synced).await.expect("a healthy disk");
        disk
    }

    #[test]
    fn every_set_of_what_is_not_durable_is_a_state() {
        block_on(async {
            let disk = scene().await;
            // The second sector holds 2, 3 or 5, the fourth 0 or 4; the name is a or b, and c is there or
            // not.
            let all = states(&disk);
            assert_eq!(all.len(), 3 * 2 * 2 * 2);
            // Whatever a drawn power loss leaves is among them, and each of them is drawn at some time.
            let mut drawn = BTreeSet::new();
            for seed in 0..2000 {
                let disk = disk.fork();
                disk.crash(CrashMode::Tear { seed });
                drawn.insert(files(&disk));
            }
            assert_eq!(drawn, all);
        });
    }

    #[test]
    fn a_file_may_be_left_at_any_length_that_was_written() {
        block_on(async {
            let disk = MemoryDisk::new();
            let storage = disk.storage();
            let file = storage.create("a", WriteMode::Synced).await.expect("a healthy disk");
            storage.sync_dir().await.expect("a healthy disk");
            for block in 0..3 {
                write(&file, block * 4096, &[]).await;
            }
            let lengths: Vec<_> = states(&disk).iter().map(|files| files[0].1.len()).collect();
            assert_eq!(lengths, [0, 4096, 8192, 12_288]);
        });
    }

    #[test]
    fn what_is_durable_is_in_every_state() {
        block_on(async {
            let disk = scene().await;
            disk.crash(CrashMode::KeepAll);
            assert_eq!(states(&disk), BTreeSet::from([files(&disk)]));
        });
    }
}
