//! A hash index of entry numbers, in parts that grow one by one. A single table of a million entries would
//! rehash them all when it grows, and every connection would wait for that.

use hashbrown::HashTable;

/// Number of parts; eight bits of the hash select one.
const PARTS: usize = 256;

/// Entry numbers by the hashes of their keys.
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

    /// The number under `hash` for which `is_it` holds.
    pub(super) fn find(&self, hash: u64, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        self.0[part(hash)].find(hash, |&id| is_it(id)).copied()
    }

    /// Adds a number that is not in the index; `hash_of` computes the hashes of others when a part grows.
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

/// Uses neither the highest nor the lowest bits of the hash, which select the place within a part.
const fn part(hash: u64) -> usize {
    (hash >> 32) as usize % PARTS
}
