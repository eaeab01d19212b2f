// SPDX-License-Identifier: MIT OR Apache-2.0
//! Terminals in the file tree: their names in `/dev/pts`, and open files of them.

use alloc::format;

use super::pty::{MAJOR, PtyEnd, TTY_GROUP};
use super::pty_file::PtySlave;
use super::tree::node::Body;
use super::tree::{InodeRef, NameAt};
use super::{Files, OpenName};
use crate::credentials::Owner;
use crate::erofs::{FileType, Time};
use crate::errno::Errno;
use crate::terminal::PtyId;
use crate::wait::Channel;

impl Files {
    /// The directory `/dev/pts`.
    fn pts(&self) -> Result<InodeRef, Errno> {
        let device = self.tree.lookup(self.tree.root(), b"dev")?;
        self.tree.lookup(device, b"pts")
    }

    /// Creates a pseudo terminal and its name.
    ///
    /// # Errors
    /// `ENOSPC`: there are too many, or there is no memory.
    pub(super) fn create_pty(&mut self, now: Time) -> Result<PtyId, Errno> {
        let id = self.ptys.free()?;
        self.name_terminal(id.0, now)?;
        self.ptys.add(id);
        Ok(id)
    }

    /// Adds the name of a terminal in `/dev/pts`. Returns its inode and name.
    ///
    /// # Errors
    /// `ENOSPC`, `ENOENT`: the directory was removed.
    pub(super) fn name_terminal(&mut self, number: u32, now: Time) -> Result<(InodeRef, OpenName), Errno> {
        let owner = Owner { uid: self.current.credentials.user.real, gid: TTY_GROUP, permissions: 0o620 };
        let name = format!("{number}");
        let directory = self.pts()?;
        let at = NameAt { directory, name: name.as_bytes() };
        let id = self.tree.create(at, Body::Special(FileType::CharacterDevice, (MAJOR, number)), owner, now)?;
        Ok((InodeRef::Node(id), OpenName { directory, name: name.into_bytes().into() }))
    }

    /// Opens the slave end of a pseudo terminal.
    ///
    /// # Errors
    /// `EIO`: it is locked, or does not exist any more.
    pub(super) fn open_pty(&mut self, id: PtyId, inode: InodeRef) -> Result<PtySlave, Errno> {
        self.ptys.get_mut(id)?.open()?;
        self.changed.push(Channel::Terminal(id.0));
        Ok(PtySlave { pty: id, inode })
    }

    /// Opens the slave end of a master (`TIOCGPTPEER`).
    ///
    /// # Errors
    /// `EIO`: it is locked, or does not exist any more.
    pub fn open_peer(&mut self, id: PtyId) -> Result<PtySlave, Errno> {
        let name = format!("{}", id.0);
        let inode = self.tree.lookup(self.pts()?, name.as_bytes()).map_err(|_| Errno::EIO)?;
        self.open_pty(id, inode)
    }

    /// Closes an open file of a pseudo terminal. The last one frees it, and the master's close removes its name.
    pub(super) fn close_pty(&mut self, id: PtyId, end: PtyEnd, now: Time) {
        if self.ptys.close(id, end).is_err() {
            return;
        }
        self.changed.push(Channel::Terminal(id.0));
        if end == PtyEnd::Master
            && let Ok(directory) = self.pts()
        {
            // The name may have been removed already.
            let _ = self.tree.unlink(NameAt { directory, name: format!("{}", id.0).as_bytes() }, now);
        }
    }
}
