// SPDX-License-Identifier: MIT OR Apache-2.0
//! Namespaces of the host that this process has for itself.

use std::io;

/// Leaves the host's mounts, objects of System V and POSIX IPC and, if `network` says so, its network, for namespaces of its own. Only the calling thread and those that it starts do.
/// What is mounted and unmounted on the host later is seen; sockets that are open stay where they are. Files of others keep their owners, because users are those of the host.
///
/// # Errors
/// Not permitted: it takes CAP_SYS_ADMIN, which is root's.
pub fn leave_namespaces(network: bool) -> io::Result<()> {
    let network = if network { libc::CLONE_NEWNET } else { 0 };
    // SAFETY: without CLONE_FILES, CLONE_VM and CLONE_THREAD no descriptor, memory or thread of the process changes hands.
    if unsafe { libc::unshare(libc::CLONE_NEWNS | libc::CLONE_NEWIPC | network) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
