//! Numbered entries in chunks of a fixed size. Adding one never moves the others, so every insertion takes
//! the same time.

use std::ops::{Index, IndexMut};

use super::list::NONE;

/// Entries of a chunk, a power of two.
const CHUNK: usize = 1 << CHUNK_BITS;
const CHUNK_BITS: u32 = 10;

/// Numbered entries; numbers of removed entries are reused.
#[derive(Debug)]
pub(super) struct Arena<T> {
    chunks: Vec<Vec<Entry<T>>>,
    len: usize,
    /// The entry that was vacated last; vacant entries form a list.
    vacant: u32,
}

#[derive(Debug)]
pub(super) enum Entry<T> {
    Taken(T),
    /// The next vacant entry.
    Vacant(u32),
}

impl<T> Arena<T> {
    pub(super) const fn new() -> Self {
        Self { chunks: Vec::new(), len: 0, vacant: NONE }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[cfg(test)]
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// One more than the greatest number assigned so far.
    pub(super) fn end(&self) -> u32 {
        let full = self.chunks.len().saturating_sub(1) * CHUNK;
        number(full + self.chunks.last().map_or(0, Vec::len))
    }

    /// Adds an entry; gives its number.
    pub(super) fn insert(&mut self, value: T) -> u32 {
        self.len += 1;
        if self.vacant != NONE {
            let id = self.vacant;
            let entry = self.entry_mut(id);
            let Entry::Vacant(next) = *entry else { unreachable!("{id} was vacated") };
            *entry = Entry::Taken(value);
            self.vacant = next;
            return id;
        }
        let id = self.end();
        if self.chunks.last().is_none_or(|chunk| chunk.len() == CHUNK) {
            self.chunks.push(Vec::new());
        }
        self.chunks.last_mut().expect("there is one with room").push(Entry::Taken(value));
        id
    }

    /// Removes an entry that is there.
    pub(super) fn remove(&mut self, id: u32) {
        let vacant = self.vacant;
        *self.entry_mut(id) = Entry::Vacant(vacant);
        self.vacant = id;
        self.len -= 1;
    }

    /// The entry, if it is there.
    pub(super) fn get(&self, id: u32) -> Option<&T> {
        match self.chunks.get(id as usize >> CHUNK_BITS)?.get(id as usize % CHUNK)? {
            Entry::Taken(value) => Some(value),
            Entry::Vacant(_) => None,
        }
    }

    fn entry_mut(&mut self, id: u32) -> &mut Entry<T> {
        &mut self.chunks[id as usize >> CHUNK_BITS][id as usize % CHUNK]
    }
}

impl<T> Index<u32> for Arena<T> {
    type Output = T;

    fn index(&self, id: u32) -> &T {
        self.get(id).expect("the tables name entries that are there")
    }
}

impl<T> IndexMut<u32> for Arena<T> {
    fn index_mut(&mut self, id: u32) -> &mut T {
        match self.entry_mut(id) {
            Entry::Taken(value) => value,
            Entry::Vacant(_) => unreachable!("the tables name entries that are there"),
        }
    }
}

fn number(index: usize) -> u32 {
    let number = u32::try_from(index).expect("2^32 watches exceed the memory of a shard");
    assert_ne!(number, NONE, "2^32 watches exceed the memory of a shard");
    number
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_given_again_and_entries_stay_where_they_are() {
        let mut arena = Arena::new();
        let ids: Vec<u32> = (0..3000).map(|value| arena.insert(value)).collect();
        assert_eq!((ids[0], ids[2999], arena.end()), (0, 2999, 3000));
        arena.remove(7);
        arena.remove(2048);
        assert_eq!((arena.get(7), arena[8], arena.get(5000)), (None, 8, None));
        assert_eq!((arena.insert(-1), arena.insert(-2), arena.insert(-3)), (2048, 7, 3000));
        assert_eq!((arena[2048], arena[7], arena[2999]), (-1, -2, 2999));
        ids.into_iter().chain([3000]).for_each(|id| arena.remove(id));
        assert!(arena.is_empty());
    }
}
