// SPDX-License-Identifier: MIT OR Apache-2.0
//! Private namespaces of this process.

use std::io;

/// Unshares the mount, IPC and network namespaces. This affects only the calling thread and the threads that it starts. Later mounts and
/// unmounts of the host still propagate; open sockets stay in their network. Files keep their owners, because the user namespace is the
/// host's.
///
/// # Errors
/// Not permitted: it takes CAP_SYS_ADMIN, which is root's.
pub fn unshare_namespaces() -> io::Result<()> {
    // SAFETY: without CLONE_FILES, CLONE_VM and CLONE_THREAD no descriptor, memory or thread of the process changes hands.
    if unsafe { libc::unshare(libc::CLONE_NEWNS | libc::CLONE_NEWIPC | libc::CLONE_NEWNET) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
