//! Doubly linked lists through the entries of an arena, so that an entry can be in several lists and leave
//! each at once.

use super::arena::Arena;

/// No entry.
pub(super) const NONE: u32 = u32::MAX;

/// Neighbours of an entry in one list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Links {
    pub(super) previous: u32,
    pub(super) next: u32,
}

impl Default for Links {
    fn default() -> Self {
        Self { previous: NONE, next: NONE }
    }
}

/// Both ends of a list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ends {
    pub(super) first: u32,
    pub(super) last: u32,
}

impl Default for Ends {
    fn default() -> Self {
        Self { first: NONE, last: NONE }
    }
}

impl Ends {
    /// Appends `id`, whose links of this list are `links`.
    pub(super) fn push<T>(&mut self, id: u32, entries: &mut Arena<T>, links: impl Fn(&mut T) -> &mut Links) {
        *links(&mut entries[id]) = Links { previous: self.last, next: NONE };
        match self.last {
            NONE => self.first = id,
            last => links(&mut entries[last]).next = id,
        }
        self.last = id;
    }

    /// Takes `id` out.
    pub(super) fn remove<T>(
        &mut self,
        id: u32,
        entries: &mut Arena<T>,
        links: impl Fn(&mut T) -> &mut Links,
    ) {
        let Links { previous, next } = *links(&mut entries[id]);
        match previous {
            NONE => self.first = next,
            previous => links(&mut entries[previous]).next = next,
        }
        match next {
            NONE => self.last = previous,
            next => links(&mut entries[next]).previous = previous,
        }
    }
}
