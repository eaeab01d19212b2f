// SPDX-License-Identifier: MIT OR Apache-2.0
//! Terminals among the files: their names in `/dev/pts`, and open files of them.

use alloc::format;

use super::pty::{End, MAJOR, TTY_GROUP};
use super::tree::node::{Body, Owner};
use super::tree::{Named, Place};
use super::{Files, Kind, OpenName};
use crate::erofs::{FileType, Time};
use crate::errno::Errno;
use crate::terminal::PtyId;
use crate::wait::Channel;

impl Files {
    /// Where the names of pseudo terminals are.
    fn pts(&self) -> Result<Place, Errno> {
        let device = self.tree.lookup(self.tree.root(), b"dev")?;
        self.tree.lookup(device, b"pts")
    }

    /// Makes a pseudo terminal with its name.
    ///
    /// # Errors
    /// `ENOSPC`: there are too many, or there is no memory.
    pub(super) fn create_pty(&mut self, now: Time) -> Result<PtyId, Errno> {
        let id = self.ptys.free()?;
        self.name_terminal(id.0, now)?;
        self.ptys.add(id);
        Ok(id)
    }

    /// Gives a terminal its name in `/dev/pts`. Returns what has the name, and the name.
    ///
    /// # Errors
    /// `ENOSPC`, `ENOENT`: the directory is gone.
    pub(super) fn name_terminal(&mut self, number: u32, now: Time) -> Result<(Place, OpenName), Errno> {
        let owner = Owner { uid: self.own.who.user.real, gid: TTY_GROUP, permissions: 0o620 };
        let name = format!("{number}");
        let directory = self.pts()?;
        let at = Named { directory, name: name.as_bytes() };
        let id = self.tree.create(at, Body::Special(FileType::CharacterDevice, (MAJOR, number)), owner, now)?;
        Ok((Place::Node(id), OpenName { directory, name: name.into_bytes().into() }))
    }

    /// Opens a pseudo terminal by its number.
    ///
    /// # Errors
    /// `EIO`: it is locked, or gone.
    pub(super) fn open_pty(&mut self, id: PtyId, place: Place) -> Result<Kind, Errno> {
        self.ptys.get_mut(id)?.open()?;
        self.changed.push(Channel::Terminal(id.0));
        Ok(Kind::Slave(id, place))
    }

    /// Opens the terminal of a master.
    ///
    /// # Errors
    /// `EIO`: it is locked, or gone.
    pub fn open_peer(&mut self, id: PtyId) -> Result<Kind, Errno> {
        let name = format!("{}", id.0);
        let place = self.tree.lookup(self.pts()?, name.as_bytes()).map_err(|_| Errno::EIO)?;
        self.open_pty(id, place)
    }

    /// Closes an open file of a pseudo terminal. It is gone with its last one, and its name with the master.
    pub(super) fn close_pty(&mut self, id: PtyId, end: End, now: Time) {
        if self.ptys.close(id, end).is_err() {
            return;
        }
        self.changed.push(Channel::Terminal(id.0));
        if end == End::Master
            && let Ok(directory) = self.pts()
        {
            // Whoever has taken the name away has done it already.
            let _ = self.tree.unlink(Named { directory, name: format!("{}", id.0).as_bytes() }, now);
        }
    }
}
