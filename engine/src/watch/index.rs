//! A hash table of entries' numbers, in parts that grow one by one: a single table of a million entries
//! hashes all of them again when it grows, and everybody else waits for that.

use hashbrown::HashTable;

/// Parts of a table; each holds the hashes of one value of eight bits.
const PARTS: usize = 256;

/// Entries' numbers by the hashes of what they name.
#[derive(Debug)]
pub(super) struct Index(Box<[HashTable<u32>]>);

impl Index {
    pub(super) fn new() -> Self {
        Self((0..PARTS).map(|_| HashTable::new()).collect())
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.iter().map(HashTable::len).sum()
    }

    /// The number under `hash` that `is_it` knows for the one looked for.
    pub(super) fn find(&self, hash: u64, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        self.0[part(hash)].find(hash, |&id| is_it(id)).copied()
    }

    /// Adds a number that is not there; `hash_of` hashes others again.
    pub(super) fn insert(&mut self, hash: u64, id: u32, hash_of: impl Fn(u32) -> u64) {
        self.0[part(hash)].insert_unique(hash, id, |&other| hash_of(other));
    }

    /// Removes a number.
    pub(super) fn remove(&mut self, hash: u64, id: u32) {
        if let Ok(entry) = self.0[part(hash)].find_entry(hash, |&other| other == id) {
            entry.remove();
        }
    }
}

/// Neither the highest bits nor the lowest, which say where in its part an entry lies.
const fn part(hash: u64) -> usize {
    (hash >> 32) as usize % PARTS
}
