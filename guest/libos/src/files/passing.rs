// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sockets as open files, and open files that go through sockets.
//!
//! An open file that somebody has sent and nobody has received counts as if it had one more descriptor. So sockets that were sent into each other, or into
//! themselves, and then closed, stay until the cell ends: Linux looks for such circles, which only programs make that mean to.

use super::change::{New, here};
use super::names::{CURRENT, Way};
use super::socket::address::Address;
use super::socket::names::UnixName;
use super::socket::{SocketId, Style};
use super::tree::Place;
use super::{Files, Kind, OpenFile, flag};
use crate::credentials::WRITE;
use crate::erofs::{FileType, Time};
use crate::errno::Errno;

impl Files {
    /// The socket that a descriptor stands for.
    ///
    /// # Errors
    /// `EBADF`; `ENOTSOCK`: it is none.
    pub fn socket(&self, fd: u64) -> Result<SocketId, Errno> {
        match self.look(fd)?.kind {
            Kind::Socket(id) => Ok(id),
            Kind::Name(_) => Err(Errno::EBADF),
            _ => Err(Errno::ENOTSOCK),
        }
    }

    /// Opens a socket; it is gone if there is no descriptor for it.
    ///
    /// # Errors
    /// `EMFILE`.
    pub fn insert_socket(&mut self, id: SocketId, flags: u64) -> Result<u64, Errno> {
        let file = OpenFile::new(Kind::Socket(id), flag::READ_WRITE | flags & flag::NON_BLOCKING);
        self.insert(file, flags & flag::CLOSE_ON_EXEC != 0)
    }

    /// The Unix socket that an address names.
    ///
    /// # Errors
    /// `ECONNREFUSED`: nobody is there; `EPROTOTYPE`: it is one of another style; `EACCES`; those of looking up paths.
    pub fn find_socket(&self, address: &Address, style: Style) -> Result<SocketId, Errno> {
        match address {
            Address::Path(path) => {
                let place = self.tree.settle(self.find(CURRENT, path, Way::FOLLOW)?);
                let status = self.status(place)?;
                if !self.own.who.may(status.owner(), status.is_directory(), WRITE) {
                    return Err(Errno::EACCES);
                }
                match (place, status.kind()) {
                    (Place::Node(node), Some(FileType::Socket)) => self.sockets.named(&UnixName::Node(node), style),
                    _ => Err(Errno::ECONNREFUSED),
                }
            }
            Address::Abstract(name) => self.sockets.named(&UnixName::Abstract(style, name.clone()), style),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Gives a Unix socket a name; a path makes a file.
    ///
    /// # Errors
    /// `EADDRINUSE`; `EINVAL`: it has one; those of making a file.
    pub fn bind_socket(&mut self, id: SocketId, address: Address, now: Time) -> Result<(), Errno> {
        match &address {
            Address::Path(path) => {
                let made = self.make(here(path), New::File(FileType::Socket, (0, 0)), 0o777, now);
                made.map_err(|error| if error == Errno::EEXIST { Errno::EADDRINUSE } else { error })?;
                let bound = match self.tree.settle(self.find(CURRENT, path, Way::KEEP)?) {
                    Place::Node(node) => self.sockets.bind_file(id, node, address.clone()),
                    _ => Err(Errno::EIO),
                };
                // Linux too finds out only then that it has a name.
                bound.or_else(|error| self.unlink(here(path), now).and(Err(error)))
            }
            Address::Abstract(name) => self.sockets.bind_abstract(id, name),
            _ => Err(Errno::EINVAL),
        }
    }

    /// The open file of a descriptor, to be sent. It counts once it was [held](Files::hold).
    ///
    /// # Errors
    /// `EBADF`.
    pub fn to_pass(&self, fd: u64) -> Result<usize, Errno> {
        if self.look(fd)?.is_name() { Err(Errno::EBADF) } else { self.index(fd) }
    }

    /// Counts open files once more.
    pub fn hold(&mut self, files: &[usize]) {
        for index in files {
            if let Some((_, references)) = self.open.get_mut(*index) {
                *references += 1;
            }
        }
    }

    /// Counts open files once less.
    pub fn let_go(&mut self, files: &[usize]) {
        for index in files {
            if let Some(file) = self.drop_reference(*index) {
                self.end(file);
            }
        }
    }

    /// Gives the process a descriptor for an open file that was sent to it.
    ///
    /// # Errors
    /// `EMFILE`: it stays as it was.
    pub fn receive_passed(&mut self, file: usize, close_on_exec: bool) -> Result<u64, Errno> {
        let fd = self.free_from(0)?;
        self.set(fd, super::Descriptor { file, close_on_exec });
        Ok(fd)
    }

    /// Ends directions of a socket.
    ///
    /// # Errors
    /// `ENOTCONN`, `EINVAL`.
    pub fn shut_socket(&mut self, id: SocketId, how: u64) -> Result<(), Errno> {
        let files = self.sockets.shutdown(id, how)?;
        self.let_go(&files);
        Ok(())
    }
}
