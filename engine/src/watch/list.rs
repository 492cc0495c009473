//! Doubly linked lists through the entries of an arena, so that an entry can be in several lists and leave
//! each at once.

use super::arena::Arena;

/// No entry.
pub(super) const NONE: u32 = u32::MAX;

/// Neighbours of an entry in one list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Links {
    /// The last entry, if this is the first one.
    previous: u32,
    pub(super) next: u32,
}

impl Default for Links {
    fn default() -> Self {
        Self { previous: NONE, next: NONE }
    }
}

/// A list.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    pub(super) first: u32,
}

impl Default for List {
    fn default() -> Self {
        Self { first: NONE }
    }
}

impl List {
    /// Appends `id`, whose links of this list are `links`.
    pub(super) fn push<T>(&mut self, id: u32, entries: &mut Arena<T>, links: impl Fn(&mut T) -> &mut Links) {
        let previous = if self.first == NONE {
            self.first = id;
            id
        } else {
            let last = std::mem::replace(&mut links(&mut entries[self.first]).previous, id);
            links(&mut entries[last]).next = id;
            last
        };
        *links(&mut entries[id]) = Links { previous, next: NONE };
    }

    /// Takes `id` out.
    pub(super) fn remove<T>(
        &mut self,
        id: u32,
        entries: &mut Arena<T>,
        links: impl Fn(&mut T) -> &mut Links,
    ) {
        let Links { previous, next } = *links(&mut entries[id]);
        if self.first == id {
            self.first = next;
        } else {
            links(&mut entries[previous]).next = next;
        }
        let behind = if next == NONE { self.first } else { next };
        if behind != NONE {
            links(&mut entries[behind]).previous = previous;
        }
    }
}
