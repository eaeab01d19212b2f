// SPDX-License-Identifier: MIT OR Apache-2.0
//! Exports: files and directories whose changes are written back to the host, at `fsync`, at `sync` and when the program ends.
//!
//! The cell sends the operator the new content of the host's files ([`pando_rt::abi::channel`]), and the operator replaces each file as a
//! whole. The cell remembers the sent versions, so that it sends only later changes the next time.

mod host_state;
mod records;
mod walk;

use alloc::boxed::Box;
use alloc::vec::Vec;

use pando_rt::console::channel;
use pando_rt::global::{Global, OnOwnPage};

use super::Files;
use super::directory_file::DirectoryFile;
use super::mounts::Mounts;
use super::namei::{LastComponent, LookupFlags};
use super::tree::InodeRef;
use super::tree::volume::{ImageInode, VolumeIndex};
use crate::errno::Errno;
use crate::uapi::AT_FDCWD;

use host_state::{FileVersion, HostState};
pub use records::{Channel, Records};
use walk::{DirectoryState, Walk};

/// Bytes of records that justify an exit.
const BUFFER: usize = 64 << 10;

/// Preallocated, so that changes can be sent even if no memory is left.
static RECORD_BUFFER: OnOwnPage<Global<[u8; BUFFER]>> = OnOwnPage(Global::new([0; BUFFER]));

/// The exported tree or file.
#[derive(Debug)]
enum Root {
    /// All files of a volume.
    Volume(VolumeIndex),
    /// The regular file at a name.
    File {
        /// The directory of the name.
        directory: InodeRef,
        /// The name.
        name: Box<[u8]>,
        /// The version that was sent last.
        version: Option<FileVersion>,
    },
}

/// An export.
#[derive(Debug)]
pub struct Export {
    root: Root,
    host_state: HostState,
}

/// The channel to the operator, which also carries the messages of live mounts.
struct OperatorChannel<'a>(&'a mut Mounts);

impl Channel for OperatorChannel<'_> {
    fn send(&mut self, bytes: &[u8]) {
        channel::send(bytes);
    }

    fn receive(&mut self, buffer: &mut [u8]) -> usize {
        let Ok(answer) = self.0.receive_sync() else { return 0 };
        let bytes = answer.to_bytes();
        let count = buffer.len().min(bytes.len());
        buffer[..count].copy_from_slice(&bytes[..count]);
        count
    }
}

impl Files {
    /// Exports the volume or file at an absolute path.
    ///
    /// # Errors
    /// `EINVAL`: it is neither a mount point nor a regular file. Those of path lookup.
    pub fn export(&mut self, path: &[u8]) -> Result<(), Errno> {
        let found = self.walk(AT_FDCWD, path, LookupFlags::NAME)?;
        let inode = self.tree.real_inode(found.inode.ok_or(Errno::ENOENT)?);
        let root = match (self.tree.volume_of(inode), found.last) {
            (Some(volume), _) if self.tree.is_mount(inode) => Root::Volume(volume),
            (Some(_), LastComponent::Name(name)) if !self.status(inode)?.is_directory() => {
                Root::File { directory: found.directory, name: name.bytes().into(), version: Some(FileVersion::of(&self.tree, inode)?) }
            }
            _ => return Err(Errno::EINVAL),
        };
        self.exports.push(Export { root, host_state: HostState::default() });
        Ok(())
    }

    /// Whether a name is that of an exported file. Its file may be replaced but not removed, because the host cannot be told of a
    /// removal.
    pub(super) fn keeps_name(&self, directory: InodeRef, name: &[u8]) -> bool {
        let directory = self.tree.real_inode(directory);
        let is_it = |export: &Export| match &export.root {
            Root::File { directory: above, name: last, .. } => **last == *name && self.tree.real_inode(*above) == directory,
            Root::Volume(_) => false,
        };
        self.exports.iter().any(is_it)
    }

    /// Sends the changes of an open file, and waits until the host has them. Does nothing for a file that is not exported.
    ///
    /// # Errors
    /// `EBADF`; the error of the transfer to the host.
    pub fn sync_open(&mut self, fd: u64) -> Result<(), Errno> {
        if self.exports.is_empty() {
            return Ok(());
        }
        let Ok(inode) = self.inode(fd) else { return Ok(()) };
        let inode = self.tree.real_inode(inode);
        let Some(volume) = self.tree.volume_of(inode) else { return Ok(()) };
        let is_it = |export: &Export| match &export.root {
            Root::Volume(exported) => *exported == volume,
            Root::File { directory, name, .. } => {
                self.tree.lookup(*directory, name).is_ok_and(|found| self.tree.real_inode(found) == inode)
            }
        };
        let Some(number) = self.exports.iter().position(is_it) else { return Ok(()) };
        let path = self.path_in_volume(fd, inode, volume);
        let mut mounts = core::mem::take(&mut self.mounts);
        let done = RECORD_BUFFER.0.with(|room| self.sync_export(number, path.as_deref(), &mut OperatorChannel(&mut mounts), room));
        self.mounts = mounts;
        done
    }

    /// Sends all changes of every export, and waits until the host has them.
    ///
    /// # Errors
    /// The first error.
    pub fn sync_all(&mut self) -> Result<(), Errno> {
        if self.exports.is_empty() {
            return Ok(());
        }
        let mut mounts = core::mem::take(&mut self.mounts);
        let done = RECORD_BUFFER.0.with(|room| self.sync_all_through(&mut OperatorChannel(&mut mounts), room));
        self.mounts = mounts;
        done
    }

    /// Sends all changes of every export through this channel, collecting records in this buffer.
    ///
    /// # Errors
    /// The first error.
    pub fn sync_all_through(&mut self, channel: &mut dyn Channel, buffer: &mut [u8]) -> Result<(), Errno> {
        let mut outcome = Ok(());
        for number in 0..self.exports.len() {
            outcome = outcome.and(self.sync_export(number, None, channel, buffer));
        }
        outcome
    }

    /// Sends the changes of an export, or only those at a path and below it.
    fn sync_export(&mut self, number: usize, path: Option<&[u8]>, channel: &mut dyn Channel, buffer: &mut [u8]) -> Result<(), Errno> {
        let Files { exports, tree, .. } = self;
        let Some(Export { root, host_state }) = exports.get_mut(number) else { return Ok(()) };
        let records = Records::new(channel, buffer);
        match root {
            Root::Volume(volume) => {
                let top = ImageInode { volume: *volume, nid: tree.volume(*volume)?.image.root() };
                let here = DirectoryState { now: tree.real_inode(InodeRef::Image(top)), before: Some(top) };
                let mut walk = Walk::new(tree, number as u32, *volume, host_state, records);
                let outcome = match path {
                    None => walk.directory(&[], here),
                    Some(path) => along(&mut walk, path, here),
                };
                // The records that were sent are committed even after an error.
                walk.finish(outcome)
            }
            Root::File { directory, name, version } => {
                let Ok(inode) = tree.lookup(*directory, name) else { return Ok(()) };
                let (inode, now) = (tree.real_inode(inode), FileVersion::of(tree, inode)?);
                let Some(volume) = tree.volume_of(inode).filter(|_| *version != Some(now)) else { return Ok(()) };
                let mut walk = Walk::new(tree, number as u32, volume, host_state, records);
                let outcome = walk.file(&[], inode);
                let done = walk.finish(outcome);
                *version = done.ok().map(|()| now);
                done
            }
        }
    }

    /// The path of an open file in its volume, if the name by which it was opened still leads there.
    fn path_in_volume(&self, fd: u64, inode: InodeRef, volume: VolumeIndex) -> Option<Vec<u8>> {
        let file = self.raw_file(fd).ok()?;
        let (directory, name) = match (file.downcast::<DirectoryFile>(), &file.name) {
            (Some(_), _) => (inode, None),
            (_, Some(open)) => (open.directory, Some(&*open.name)),
            _ => return None,
        };
        let top = ImageInode { volume, nid: self.tree.volume(volume).ok()?.image.root() };
        let (mount, whole) = (self.path_of(InodeRef::Image(top)).ok()??, self.path_of(directory).ok()??);
        let rest = whole.strip_prefix(&mount[..])?;
        let mut path = rest.strip_prefix(b"/").unwrap_or(rest).to_vec();
        if let Some(name) = name {
            if self.tree.lookup(directory, name).map(|found| self.tree.real_inode(found)) != Ok(inode) {
                return None;
            }
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(name);
        }
        Some(path)
    }
}

/// Sends records for the directories of a path, and the differences at its end.
fn along(walk: &mut Walk<'_>, path: &[u8], mut here: DirectoryState) -> Result<(), Errno> {
    let mut at = Vec::new();
    let mut names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).peekable();
    if names.peek().is_none() {
        return walk.directory(&at, here);
    }
    while let Some(name) = names.next() {
        here = walk.child(&mut at, here, name, names.peek().is_none())?;
        if !at.is_empty() {
            at.push(b'/');
        }
        at.extend_from_slice(name);
    }
    walk.send_pending()
}
