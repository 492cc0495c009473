//! Checks the machine's preconditions before anything is touched, so that a missing one is reported in one
//! clear sentence.

use std::io;

use rustix::process::{Resource, getrlimit};

/// A precondition that the machine does not meet.
#[derive(Debug, thiserror::Error)]
pub enum Unmet {
    /// io_uring cannot be set up.
    #[error(
        "io_uring is not available ({0}): ringkeeper needs Linux 5.8 or newer with io_uring allowed; \
         check `sysctl kernel.io_uring_disabled` (it must be 0) and the container's seccomp profile"
    )]
    IoUring(io::Error),
    /// Too little memory may be locked.
    #[error(
        "only {limit} KiB of memory may be locked and {needed} KiB are needed: raise it with `ulimit -l {needed}`, \
         or LimitMEMLOCK= in the systemd unit"
    )]
    MemoryLock {
        /// What may be locked, KiB.
        limit: u64,
        /// What is needed, KiB.
        needed: u64,
    },
}

/// Descriptors for fewer connections than this are few for a service that all programs of a company use.
pub const OPEN_FILES_MIN: u64 = 16_384;

/// Before Linux 5.12, the memory of all rings counts for this limit. glommio, on which the library runs,
/// wants as much on every kernel.
const MEMLOCK_MIN_KIB: u64 = 512;

/// Checks io_uring and the limit of locked memory.
///
/// # Errors
/// One of them is missing.
pub fn check() -> Result<(), Unmet> {
    if let Some(limit) = getrlimit(Resource::Memlock).current.map(|bytes| bytes / 1024)
        && limit < MEMLOCK_MIN_KIB
    {
        return Err(Unmet::MemoryLock { limit, needed: MEMLOCK_MIN_KIB });
    }
    io_uring::IoUring::new(2).map(drop).map_err(Unmet::IoUring)
}

/// Whether the kernel says that its clock is synchronized. Where the kernel does not say, it is taken to be.
#[cfg(feature = "process-wide")]
#[must_use]
#[expect(unsafe_code, reason = "the system call has no other interface")]
pub fn is_clock_synchronized() -> bool {
    let mut report = std::mem::MaybeUninit::<libc::timex>::zeroed();
    // SAFETY: all zeros are a valid `timex`, which asks for nothing to be changed; the kernel fills the
    // structure that it is given, which lives until the call has returned.
    let state = unsafe { libc::adjtimex(report.as_mut_ptr()) };
    state != libc::TIME_ERROR
}

/// Raises the limit of open files as far as the system allows, since each connection needs a descriptor.
pub fn raise_open_files() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = rustix::process::Rlimit { current: limit.maximum, maximum: limit.maximum };
    if limit.current != limit.maximum && rustix::process::setrlimit(Resource::Nofile, raised).is_err() {
        return limit.current.unwrap_or(u64::MAX);
    }
    limit.maximum.unwrap_or(u64::MAX)
}
