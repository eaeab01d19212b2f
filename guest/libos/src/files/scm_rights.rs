// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sockets as open files, and open files that are sent through sockets.
//!
//! An open file that has been sent and not received holds a reference. So sockets that were sent through each other, or through
//! themselves, and then closed stay until the cell ends. Linux collects such cycles, which only programs that want them create.

use super::change::{NewNode, at_cwd};
use super::namei::LookupFlags;
use super::socket::address::Address;
use super::socket::names::UnixName;
use super::socket::{SockType, SocketId};
use super::tree::InodeRef;
use super::{Files, OpenFile};
use crate::credentials::WRITE;
use crate::erofs::{FileType, Time};
use crate::errno::Errno;
use crate::uapi::{AT_FDCWD, O_CLOEXEC, O_NONBLOCK, O_RDWR};

impl Files {
    /// The socket of a descriptor.
    ///
    /// # Errors
    /// `EBADF`; `ENOTSOCK`: it is no socket.
    pub fn socket(&self, fd: u64) -> Result<SocketId, Errno> {
        self.opened(fd)?.downcast().ok_or(Errno::ENOTSOCK)
    }

    /// Opens a socket; on errors the socket is freed.
    ///
    /// # Errors
    /// `EMFILE`.
    pub fn insert_socket(&mut self, id: SocketId, flags: u64) -> Result<u64, Errno> {
        let file = OpenFile::new(id, O_RDWR | flags & O_NONBLOCK);
        self.insert(file, flags & O_CLOEXEC != 0)
    }

    /// The Unix socket with an address.
    ///
    /// # Errors
    /// `ECONNREFUSED`: there is none; `EPROTOTYPE`: its type differs; `EACCES`; those of path lookup.
    pub fn find_socket(&self, address: &Address, socket_type: SockType) -> Result<SocketId, Errno> {
        match address {
            Address::Path(path) => {
                let inode = self.tree.real_inode(self.find(AT_FDCWD, path, LookupFlags::FOLLOW)?);
                let status = self.status(inode)?;
                if !self.current.credentials.may(status.owner(), status.is_directory(), WRITE) {
                    return Err(Errno::EACCES);
                }
                match (inode, status.kind()) {
                    (InodeRef::Node(node), Some(FileType::Socket)) => self.sockets.named(&UnixName::Node(node), socket_type),
                    _ => Err(Errno::ECONNREFUSED),
                }
            }
            Address::Abstract(name) => self.sockets.named(&UnixName::Abstract(socket_type, name.clone()), socket_type),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Binds a Unix socket to an address; a path creates a file.
    ///
    /// # Errors
    /// `EADDRINUSE`; `EINVAL`: it is bound already; those of creating a file.
    pub fn bind_socket(&mut self, id: SocketId, address: Address, now: Time) -> Result<(), Errno> {
        match &address {
            Address::Path(path) => {
                let created = self.make(at_cwd(path), NewNode::File(FileType::Socket, (0, 0)), 0o777, now);
                created.map_err(|error| if error == Errno::EEXIST { Errno::EADDRINUSE } else { error })?;
                let bound = match self.tree.real_inode(self.find(AT_FDCWD, path, LookupFlags::KEEP)?) {
                    InodeRef::Node(node) => self.sockets.bind_file(id, node, address.clone()),
                    _ => Err(Errno::EIO),
                };
                // Linux too detects an existing address only after creating the file.
                bound.or_else(|error| self.unlink(at_cwd(path), now).and(Err(error)))
            }
            Address::Abstract(name) => self.sockets.bind_abstract(id, name),
            _ => Err(Errno::EINVAL),
        }
    }

    /// The open file of a descriptor, to be sent. It has no reference until [`hold`](Files::hold) adds one.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn to_pass(&self, fd: u64) -> Result<usize, Errno> {
        if self.raw_file(fd)?.is_path() { Err(Errno::EBADF) } else { self.index(fd) }
    }

    /// Increments the reference counts of open files.
    pub fn hold(&mut self, files: &[usize]) {
        for index in files {
            if let Some((_, references)) = self.open.get_mut(*index) {
                *references += 1;
            }
        }
    }

    /// Decrements the reference counts of open files.
    pub fn release_passed(&mut self, files: &[usize]) {
        for index in files {
            if let Some(file) = self.drop_reference(*index) {
                self.end(file);
            }
        }
    }

    /// Adds a descriptor of the process for a received open file.
    ///
    /// # Errors
    /// `EMFILE`: nothing has changed.
    pub fn receive_passed(&mut self, file: usize, close_on_exec: bool) -> Result<u64, Errno> {
        let fd = self.free_from(0)?;
        self.set(fd, super::Descriptor { file, close_on_exec });
        Ok(fd)
    }

    /// Shuts down directions of a socket.
    ///
    /// # Errors
    /// `ENOTCONN`, `EINVAL`.
    pub fn shut_socket(&mut self, id: SocketId, how: u64) -> Result<(), Errno> {
        let files = self.sockets.shutdown(id, how)?;
        self.release_passed(&files);
        Ok(())
    }
}
