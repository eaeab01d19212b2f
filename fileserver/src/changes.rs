// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests that change how much space the served files take: performed and charged.

use crate::growth::NAME_COST;
use crate::message::{self, RequestHeader};
use crate::{FileServer, ReplyKind, errno, refuse};
use fuse_backend_rs::api::filesystem::{Context, Entry, FileSystem, GetxattrReply};
use linux_raw_sys::general::{RENAME_EXCHANGE, S_IFDIR, S_IFMT};
use message::{
    FUSE_BATCH_FORGET, FUSE_CREATE, FUSE_FORGET, FUSE_LINK, FUSE_MKDIR, FUSE_MKNOD, FUSE_OPEN, FUSE_RELEASE, FUSE_REMOVEXATTR,
    FUSE_RENAME2, FUSE_RMDIR, FUSE_SETATTR, FUSE_SETXATTR, FUSE_SYMLINK, FUSE_UNLINK, FUSE_WRITE,
};
use rustix::io::Errno;
use std::ffi::CString;
use std::io;
use std::os::fd::AsFd;

impl FileServer {
    /// Performs a request that was checked, and answers it. A request that makes files grow beyond the limit is refused.
    pub(crate) fn perform_charged(
        &mut self,
        socket: &impl AsFd,
        header: &RequestHeader,
        request: &mut [u8],
        reply: &mut [u8],
    ) -> io::Result<()> {
        match header.opcode {
            FUSE_WRITE | FUSE_SETATTR => self.resize(socket, header, request, reply),
            FUSE_CREATE | FUSE_MKNOD | FUSE_MKDIR | FUSE_SYMLINK | FUSE_LINK => self.create(socket, header, request, reply),
            FUSE_UNLINK | FUSE_RMDIR => refuse(socket, header, self.remove(header, request).err()),
            FUSE_RENAME2 => refuse(socket, header, self.rename(header, request).err()),
            FUSE_SETXATTR => refuse(socket, header, self.set_xattr(header, request).err()),
            FUSE_REMOVEXATTR => refuse(socket, header, self.remove_xattr(header, request).err()),
            FUSE_RELEASE => refuse(socket, header, self.release(header, request).err()),
            FUSE_OPEN => {
                if self.perform(socket, header, request, reply)? == ReplyKind::WithData {
                    self.growth.open(header.nodeid);
                }
                Ok(())
            }
            FUSE_FORGET | FUSE_BATCH_FORGET => self.forget(socket, header, request, reply),
            _ => self.perform(socket, header, request, reply).map(drop),
        }
    }

    /// The size of an inode that the client knows.
    fn size(&self, inode: u64) -> Result<u64, Errno> {
        let found = self.files.getattr(&Context::default(), inode, None);
        found.map(|(stat, _)| stat.st_size.unsigned_abs()).map_err(|error| errno(&error))
    }

    /// The file of a name. The caller forgets it once.
    fn named(&self, directory: u64, name: &CString) -> Result<Entry, Errno> {
        let entry = self.files.lookup(&Context::default(), directory, name).map_err(|error| errno(&error))?;
        self.files.forget(&Context::default(), entry.inode, 1);
        Ok(entry)
    }

    /// Writes a file, or sets attributes of one.
    fn resize(&mut self, socket: &impl AsFd, header: &RequestHeader, request: &mut [u8], reply: &mut [u8]) -> io::Result<()> {
        let end = match header.opcode {
            FUSE_WRITE => message::write_end(request),
            _ => message::new_size(request),
        };
        let Some(end) = end else { return self.perform(socket, header, request, reply).map(drop) };
        let charged = self.size(header.nodeid).and_then(|size| self.growth.charge(end.saturating_sub(size)).map(|()| size));
        let before = match charged {
            Ok(size) => size,
            Err(error) => return refuse(socket, header, Some(error)),
        };
        let answered = self.perform(socket, header, request, reply)?;
        match (header.opcode, answered) {
            // A cut is credited as far as it was made: it can fail, and so can what follows it in the same request.
            (FUSE_SETATTR, _) if end < before => {
                let after = self.size(header.nodeid).unwrap_or(before);
                self.growth.credit(before.saturating_sub(after));
            }
            // A growth that failed is credited as far as it was not made.
            (_, ReplyKind::WithoutData) if end > before => {
                let after = self.size(header.nodeid).unwrap_or(end);
                self.growth.credit(end.saturating_sub(after.max(before)));
            }
            _ => {}
        }
        Ok(())
    }

    /// Makes a name.
    fn create(&mut self, socket: &impl AsFd, header: &RequestHeader, request: &mut [u8], reply: &mut [u8]) -> io::Result<()> {
        let (directory, names) = (header.nodeid, self.names(header, request));
        let Ok([name, ..]) = names.as_deref() else { return refuse(socket, header, Some(Errno::INVAL)) };
        let cost = match (self.named(directory, name), names.as_deref()) {
            (Ok(_), _) => 0,
            (_, Ok([_, target, ..])) => NAME_COST + target.as_bytes().len() as u64,
            _ => NAME_COST,
        };
        if let Err(error) = self.growth.charge(cost) {
            return refuse(socket, header, Some(error));
        }
        match (self.perform(socket, header, request, reply)?, self.named(directory, name)) {
            (ReplyKind::WithData, Ok(entry)) if header.opcode == FUSE_CREATE => self.growth.open(entry.inode),
            // The name can be there even though the request has failed.
            (ReplyKind::WithoutData, Err(Errno::NOENT)) => self.growth.credit(cost),
            _ => {}
        }
        Ok(())
    }

    /// Removes a name.
    fn remove(&mut self, header: &RequestHeader, request: &[u8]) -> Result<(), Errno> {
        let names = self.names(header, request)?;
        let [name] = &names[..] else { return Err(Errno::INVAL) };
        let before = self.named(header.nodeid, name);
        let removed = match header.opcode {
            FUSE_RMDIR => self.files.rmdir(&Context::default(), header.nodeid, name),
            _ => self.files.unlink(&Context::default(), header.nodeid, name),
        };
        removed.map_err(|error| errno(&error))?;
        self.credit_name(before);
        Ok(())
    }

    /// Moves a name, maybe over another.
    fn rename(&mut self, header: &RequestHeader, request: &[u8]) -> Result<(), Errno> {
        let names = self.names(header, request)?;
        let [from, to] = &names[..] else { return Err(Errno::INVAL) };
        let (directory, flags) = message::rename_target(request).ok_or(Errno::INVAL)?;
        let (source, target) = (self.named(header.nodeid, from), self.named(directory, to));
        let renamed = self.files.rename(&Context::default(), header.nodeid, from, directory, to, flags);
        renamed.map_err(|error| errno(&error))?;
        // Two names of the same file both stay.
        let is_same = |one: &Entry, other: &Entry| (one.attr.st_dev, one.attr.st_ino) == (other.attr.st_dev, other.attr.st_ino);
        let is_replaced = matches!((&source, &target), (Ok(source), Ok(target)) if !is_same(source, target));
        if is_replaced && flags & RENAME_EXCHANGE == 0 {
            self.credit_name(target);
        }
        Ok(())
    }

    /// Credits a name that was removed. The content of a file whose last name it was is credited later.
    fn credit_name(&mut self, removed: Result<Entry, Errno>) {
        let Ok(entry) = removed else { return };
        self.growth.credit(NAME_COST);
        let is_last = entry.attr.st_mode & S_IFMT != S_IFDIR && entry.attr.st_nlink == 1;
        if !is_last {
            return;
        }
        if self.size(entry.inode).is_ok() {
            self.growth.orphan(entry.inode);
        } else {
            // The client does not know it.
            self.growth.credit(entry.attr.st_size.unsigned_abs());
        }
    }

    /// Lets the library take over that the client has forgotten inodes.
    fn forget(&mut self, socket: &impl AsFd, header: &RequestHeader, request: &mut [u8], reply: &mut [u8]) -> io::Result<()> {
        let orphan = self.growth.is_orphan(header.nodeid).then(|| self.size(header.nodeid));
        self.perform(socket, header, request, reply)?;
        if let Some(Ok(size)) = orphan
            && self.size(header.nodeid).is_err()
        {
            self.growth.forget(header.nodeid, size);
        }
        Ok(())
    }

    /// Closes a handle.
    fn release(&mut self, header: &RequestHeader, request: &[u8]) -> Result<(), Errno> {
        let handle = message::handle(request);
        let released = self.files.release(&Context::default(), header.nodeid, 0, handle, false, false, None);
        released.map_err(|error| errno(&error))?;
        self.growth.close(header.nodeid);
        Ok(())
    }

    /// Bytes of an extended attribute and its name; 0 without it.
    fn xattr_size(&self, inode: u64, name: &CString) -> u64 {
        match self.files.getxattr(&Context::default(), inode, name, 0) {
            Ok(GetxattrReply::Count(count)) => u64::from(count) + name.as_bytes().len() as u64,
            _ => 0,
        }
    }

    /// Sets an extended attribute.
    fn set_xattr(&mut self, header: &RequestHeader, request: &[u8]) -> Result<(), Errno> {
        let names = self.names(header, request)?;
        let [name] = &names[..] else { return Err(Errno::INVAL) };
        let (value, flags) = message::xattr_value(request, name).ok_or(Errno::INVAL)?;
        let before = self.xattr_size(header.nodeid, name);
        let cost = ((name.as_bytes().len() + value.len()) as u64).saturating_sub(before);
        self.growth.charge(cost)?;
        self.files.setxattr(&Context::default(), header.nodeid, name, value, flags).map_err(|error| {
            self.growth.credit(cost);
            errno(&error)
        })
    }

    /// Removes an extended attribute.
    fn remove_xattr(&mut self, header: &RequestHeader, request: &[u8]) -> Result<(), Errno> {
        let names = self.names(header, request)?;
        let [name] = &names[..] else { return Err(Errno::INVAL) };
        let before = self.xattr_size(header.nodeid, name);
        self.files.removexattr(&Context::default(), header.nodeid, name).map_err(|error| errno(&error))?;
        self.growth.credit(before);
        Ok(())
    }

    /// The names in a request.
    fn names(&self, header: &RequestHeader, request: &[u8]) -> Result<Vec<CString>, Errno> {
        message::names(header, request).into_iter().map(|name| CString::new(name).map_err(|_| Errno::INVAL)).collect()
    }
}
