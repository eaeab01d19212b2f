// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pinning of threads: without it, migrations between cores are measured too.

use std::io;

/// The calling thread, pinned to one core until this is dropped. Child processes inherit the pinning.
#[derive(Debug)]
pub(crate) struct PinnedThread {
    before: libc::cpu_set_t,
}

impl PinnedThread {
    /// Pins the calling thread to the last core that it may use: the first ones serve most interrupts.
    pub(crate) fn to_one_core() -> io::Result<PinnedThread> {
        let before = allowed()?;
        // SAFETY: every index is below `CPU_SETSIZE`, the size of the set in bits.
        let last = (0..libc::CPU_SETSIZE as usize).rev().find(|core| unsafe { libc::CPU_ISSET(*core, &before) });
        let core = last.ok_or_else(|| io::Error::other("no core may be used"))?;
        // SAFETY: an all-zero set is a valid, empty one; the index is within it.
        let one = unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(core, &mut set);
            set
        };
        set(&one)?;
        Ok(PinnedThread { before })
    }
}

impl Drop for PinnedThread {
    fn drop(&mut self) {
        // Restores the previous set. If that fails, the thread stays on its core.
        let _ = set(&self.before);
    }
}

fn allowed() -> io::Result<libc::cpu_set_t> {
    // SAFETY: an all-zero set is a valid, empty one.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: 0 is the calling thread; the pointer is to a live set of the size given.
    let result = unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) };
    if result == 0 { Ok(set) } else { Err(io::Error::last_os_error()) }
}

fn set(set: &libc::cpu_set_t) -> io::Result<()> {
    // SAFETY: 0 is the calling thread; the pointer is to a live set of the size given.
    let result = unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), set) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
