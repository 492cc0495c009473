//! io_urings that do not interrupt their executors.
//!
//! When an operation completes on an io_uring whose thread runs on another core, the kernel interrupts that
//! core, so that the thread handles the completion at once. An executor cannot use a completion before it has
//! finished its current task, and then enters the kernel anyway. With `IORING_SETUP_COOP_TASKRUN` (Linux
//! 5.19) the kernel sends no interrupt, and a busy server takes several completions together
//! (docs/decisions/0018-no-interrupts-for-completions.md).
//!
//! glommio (0.9) has no setting for this flag. It creates its rings with liburing, which is linked statically
//! and whose system calls are four functions of one object file. They are defined here instead: with all
//! four, the linker does not use liburing's own. If an upgrade of glommio adds a fifth function, both objects
//! are linked and their names clash. If an upgrade creates rings in another way, a test below fails.
//!
//! An executor that spins before it parks ([`glommio::LocalExecutorBuilder::spin_before_park`]) looks for
//! completions without entering the kernel, so it would see them late. Our executors do not spin.
#![expect(unsafe_code, reason = "these are functions of a C library")]

use std::ffi::{c_int, c_long, c_uint, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::io_uring::{IoringSetupFlags, io_uring_params};

/// Number of rings of this process that have the flag.
static COOPERATIVE: AtomicUsize = AtomicUsize::new(0);

/// Number of rings of this process that do not interrupt their executors; none before Linux 5.19.
#[must_use]
pub fn rings() -> usize {
    COOPERATIVE.load(Ordering::Relaxed)
}

/// liburing's `__sys_io_uring_setup`: creates a ring with `entries` places. Result and `errno` are those of
/// the system call.
///
/// # Safety
/// `params` points to parameters that no other thread uses meanwhile.
#[unsafe(no_mangle)]
unsafe extern "C" fn __sys_io_uring_setup(entries: c_uint, params: *mut io_uring_params) -> c_int {
    // SAFETY: the caller's promise.
    let asked = unsafe { *params };
    // A ring that is polled sends no interrupts.
    if !asked.flags.contains(IoringSetupFlags::IOPOLL) {
        // SAFETY: the caller's promise.
        unsafe { (*params).flags |= IoringSetupFlags::COOP_TASKRUN };
        // SAFETY: the caller's promise; the parameters are the kernel's to fill in.
        let fd = unsafe { libc::syscall(libc::SYS_io_uring_setup, entries, params) };
        if fd >= 0 {
            COOPERATIVE.fetch_add(1, Ordering::Relaxed);
            return result(fd);
        }
        // An older kernel, or a conflict of flags. The call is repeated without the flag, for its own result.
        // SAFETY: the caller's promise.
        unsafe { *params = asked };
    }
    // SAFETY: as above.
    result(unsafe { libc::syscall(libc::SYS_io_uring_setup, entries, params) })
}

/// liburing's `__sys_io_uring_register`, which is the system call.
///
/// # Safety
/// As the operation says in io_uring_register(2).
#[unsafe(no_mangle)]
unsafe extern "C" fn __sys_io_uring_register(
    fd: c_int,
    operation: c_uint,
    argument: *const c_void,
    len: c_uint,
) -> c_int {
    // SAFETY: the caller's promise.
    result(unsafe { libc::syscall(libc::SYS_io_uring_register, fd, operation, argument, len) })
}

/// liburing's `__sys_io_uring_enter2`, which is the system call.
///
/// # Safety
/// What was submitted stays valid until it has completed; `argument` is null or what `flags` say it is,
/// `size` bytes of it.
#[unsafe(no_mangle)]
unsafe extern "C" fn __sys_io_uring_enter2(
    fd: c_int,
    submitted: c_uint,
    completed_min: c_uint,
    flags: c_uint,
    argument: *mut c_void,
    size: c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    result(unsafe {
        libc::syscall(
            libc::SYS_io_uring_enter,
            fd,
            submitted,
            completed_min,
            flags,
            argument,
            c_long::from(size),
        )
    })
}

/// liburing's `__sys_io_uring_enter`: the system call with a set of signals.
///
/// # Safety
/// What was submitted stays valid until it has completed; `signals` is null or a set of signals.
#[unsafe(no_mangle)]
unsafe extern "C" fn __sys_io_uring_enter(
    fd: c_int,
    submitted: c_uint,
    completed_min: c_uint,
    flags: c_uint,
    signals: *mut c_void,
) -> c_int {
    /// The kernel's `_NSIG`, of which a set has as many bits.
    const SIGNALS: c_int = 64;
    // SAFETY: the caller's promise.
    unsafe { __sys_io_uring_enter2(fd, submitted, completed_min, flags, signals, SIGNALS / 8) }
}

/// A system call's result as a C function's.
fn result(value: c_long) -> c_int {
    c_int::try_from(value).expect("descriptors and counts are C's integers")
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

    use glommio::{LocalExecutorBuilder, Placement};

    use super::*;

    fn kernel_can() -> bool {
        use io_uring::{cqueue, squeue};

        io_uring::IoUring::<squeue::Entry, cqueue::Entry>::builder().setup_coop_taskrun().build(2).is_ok()
    }

    #[test]
    fn the_rings_of_an_executor_leave_it_uninterrupted() {
        let before = rings();
        let executor = LocalExecutorBuilder::new(Placement::Unbound).make().expect("io_uring is available");
        executor.run(async { glommio::timer::sleep(std::time::Duration::from_millis(1)).await });
        if kernel_can() {
            assert!(rings() >= before + 2, "glommio has made its rings without this module's knowledge");
        }
    }

    #[test]
    fn a_ring_that_cannot_have_it_is_made_without() {
        let mut params = io_uring_params::default();
        params.flags = IoringSetupFlags::SQPOLL; // which excludes it
        // SAFETY: the parameters are this function's own.
        let fd = unsafe { __sys_io_uring_setup(2, &raw mut params) };
        assert!(fd >= 0, "{}", std::io::Error::last_os_error());
        // SAFETY: the kernel has just given out the descriptor, and nobody else has it.
        let ring = unsafe { OwnedFd::from_raw_fd(fd) };
        assert!(ring.as_raw_fd() >= 0 && params.sq_entries == 2 && params.flags == IoringSetupFlags::SQPOLL);
    }

    #[test]
    fn what_the_kernel_refuses_is_told_as_liburing_expects_it() {
        let mut params = io_uring_params::default();
        // SAFETY: the parameters are this function's own.
        let refused = unsafe { __sys_io_uring_setup(0, &raw mut params) };
        assert_eq!((refused, std::io::Error::last_os_error().raw_os_error()), (-1, Some(libc::EINVAL)));
    }
}
