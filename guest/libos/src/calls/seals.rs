// SPDX-License-Identifier: MIT OR Apache-2.0
//! Seals of memory files (`memfd_create`): they forbid operations for good.

use crate::errno::Errno;
use crate::files::sharing::Sharing;
use crate::files::tree::InodeRef;
use crate::files::tree::content::F_ALL_SEALS;
use crate::files::tree::node::NodeId;
use crate::memory::AddressSpace;
use crate::system::System;
use crate::uapi::{F_ADD_SEALS, F_GET_SEALS, F_SEAL_EXEC, F_SEAL_FUTURE_WRITE, F_SEAL_GROW, F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_WRITE};

/// Commands of `fcntl` for seals. `None`: it is another command.
pub fn control(system: &mut System, fd: u64, command: u64, argument: u64) -> Option<Result<u64, Errno>> {
    match command {
        F_ADD_SEALS => Some(add(system, fd, argument as u32)),
        F_GET_SEALS => Some(get(system, fd)),
        _ => None,
    }
}

fn get(system: &mut System, fd: u64) -> Result<u64, Errno> {
    match system.files.inode(fd)? {
        InodeRef::Node(id) => system.files.tree.node(id)?.content()?.seals.map(u64::from).ok_or(Errno::EINVAL),
        _ => Err(Errno::EINVAL),
    }
}

/// Whether a process may write to a file of the overlay through a mapping, at least after `mprotect`.
fn may_write_to(system: &System, node: NodeId) -> bool {
    let memories = system.other_memories().chain([&*system.memory]).flat_map(AddressSpace::all);
    let mut files = memories.filter_map(|(_, region)| region.backing.node());
    files.any(|file| file.node == node && file.sharing == Sharing::Writes)
}

fn add(system: &mut System, fd: u64, seals: u32) -> Result<u64, Errno> {
    let before = get(system, fd)? as u32;
    let InodeRef::Node(id) = system.files.inode(fd)? else { return Err(Errno::EINVAL) };
    if !system.files.raw_file(fd)?.writable() {
        return Err(Errno::EPERM);
    }
    if seals & !F_ALL_SEALS != 0 {
        return Err(Errno::EINVAL);
    }
    if before & F_SEAL_SEAL != 0 {
        return Err(Errno::EPERM);
    }
    if seals & !before & F_SEAL_WRITE != 0 && may_write_to(system, id) {
        return Err(Errno::EBUSY);
    }
    // An executable file does not change any more.
    let is_executable = system.files.tree.node(id)?.owner.permissions & 0o111 != 0;
    let implied = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_FUTURE_WRITE;
    let implied = if seals & F_SEAL_EXEC != 0 && is_executable { implied } else { 0 };
    system.files.tree.node_mut(id)?.content_mut()?.seals = Some(before | seals | implied);
    Ok(0)
}
