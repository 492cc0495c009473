//! Steps: how much work is done before others have their turn, for tests and the simulator, which check that
//! no request takes more than its bound.
//!
//! A step is one look-up in the tree or among the watches, one entry that is visited (a znode of a listing, a
//! watch of a path, an entry of an ACL that is compared), or one KiB that is decoded, encoded or copied. The
//! shell yields after each call of a shard or of the leader core, so the steps of a call are what bounds
//! everybody's wait.
//!
//! Counted with the feature `mutations` and in this crate's own tests; otherwise nothing is counted.

#[cfg(any(test, feature = "mutations"))]
mod counter {
    use std::cell::Cell;

    thread_local! {
        static TAKEN: Cell<u64> = const { Cell::new(0) };
    }

    pub(crate) fn count(steps: usize) {
        TAKEN.set(TAKEN.get() + steps as u64);
    }

    /// What `call` returns, and the steps that it takes.
    pub fn of<T>(call: impl FnOnce() -> T) -> (T, u64) {
        TAKEN.set(0);
        let returned = call();
        (returned, TAKEN.get())
    }
}

#[cfg(not(any(test, feature = "mutations")))]
mod counter {
    pub(crate) const fn count(_: usize) {}

    /// What `call` returns; nothing is counted.
    pub fn of<T>(call: impl FnOnce() -> T) -> (T, u64) {
        (call(), 0)
    }
}

pub(crate) use counter::count;
pub use counter::of;

/// Counts bytes that are decoded, encoded or copied.
pub(crate) const fn kib(bytes: usize) -> usize {
    bytes / 1024
}

#[cfg(test)]
mod tests;
