// SPDX-License-Identifier: MIT OR Apache-2.0
//! This process: child processes that are copies of it (`fork` without `exec`), and its heap.

use std::io::{Error, Result};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The first descriptor that is no standard stream.
const FIRST: u32 = 3;
/// Signals of a terminal or a service manager that are meant for the parent process, which ends its children itself.
const IGNORED: [libc::c_int; 4] = [libc::SIGINT, libc::SIGQUIT, libc::SIGHUP, libc::SIGTERM];
/// Exit status of a child whose code panicked, as of a Rust program.
const PANICKED: libc::c_int = 101;

/// Free bytes at the end of a heap that the allocator keeps.
const TRIM_THRESHOLD: libc::c_int = 128 << 10;
/// Bytes of a block that makes the allocator return memory, but is no mapping of its own.
const FREED: usize = 100 << 10;

/// Starts a child process that runs `body` and exits with the status that it returns. Returns the process ID.
///
/// The child has only the standard streams and the descriptors of `keep`: `body` must not use values that own other descriptors. It
/// ignores SIGINT, SIGQUIT, SIGHUP and SIGTERM. The calling process must have one thread, because a lock that another thread holds
/// would stay locked in the child.
///
/// # Errors
/// The host allows no more processes.
pub fn fork(keep: &[BorrowedFd<'_>], body: impl FnOnce() -> u8) -> Result<i32> {
    let mut kept: Vec<u32> =
        keep.iter().map(|descriptor| descriptor.as_raw_fd().unsigned_abs()).filter(|number| *number >= FIRST).collect();
    kept.sort_unstable();
    kept.dedup();
    // SAFETY: the child runs Rust code on a copy of this process's memory. The caller promises that this process has one thread, so
    // no other thread was changing that memory.
    let process = unsafe { libc::fork() };
    match process {
        -1 => Err(Error::last_os_error()),
        0 => {
            let status = catch_unwind(AssertUnwindSafe(|| {
                close_others(&kept);
                ignore_signals();
                body()
            }));
            // SAFETY: the call ends the process at once. No destructor of the parent's values runs, so none closes a descriptor that
            // the child does not have.
            unsafe { libc::_exit(status.map_or(PANICKED, libc::c_int::from)) }
        }
        process => Ok(process),
    }
}

/// Returns free memory of the calling thread's heap to the host. The allocator would keep up to 64 MiB of it, after large blocks were
/// freed.
pub fn trim_heap() {
    // SAFETY: neither call changes memory that is in use.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::mallopt(libc::M_TRIM_THRESHOLD, TRIM_THRESHOLD);
        // The end of a thread's heap is returned only when a block as large as this one is freed.
        drop(std::hint::black_box(Vec::<u8>::with_capacity(FREED)));
        libc::malloc_trim(0);
    }
}

/// Closes all descriptors but the standard streams and those of a sorted list.
fn close_others(kept: &[u32]) {
    let mut first = FIRST;
    for end in kept.iter().copied().chain([u32::MAX]) {
        if first < end {
            // SAFETY: the values that own these descriptors are not used any more, as the caller of `fork` promises. The call takes
            // only numbers. It cannot fail for a range that is not empty.
            unsafe { libc::syscall(libc::SYS_close_range, first, end - 1, 0) };
        }
        first = end.saturating_add(1);
    }
}

fn ignore_signals() {
    for signal in IGNORED {
        // SAFETY: ignoring a signal installs no handler.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

#[cfg(test)]
mod tests {
    use super::close_others;

    /// Tests have several threads, so the tests of `fork`'s callers cover the child.
    #[test]
    fn an_empty_range_is_not_closed() {
        // All descriptors that can be open are in the list.
        let all: Vec<u32> = (super::FIRST..1 << 20).collect();
        close_others(&all);
        assert!(std::fs::File::open("/dev/null").is_ok());
    }
}
