// SPDX-License-Identifier: MIT OR Apache-2.0
//! Walks an exported tree and sends its differences from the host's files.
//!
//! All additions and changes are sent first. Deletions follow, and only if the host has everything else. So a file that moves from one
//! directory to another is at every moment in one place or in both on the host. A file that cannot be sent is reported as lost, and the
//! rest is sent. The attributes of directories come last, because changes in a directory change them.
//!
//! Trees may be deeper than the stack allows, so the pending directories are kept in lists.

use alloc::boxed::Box;
use alloc::vec::Vec;

use pando_rt::abi::channel::{ExportedFile, Kind, MAX_PATH};

use super::host_state::{FileVersion, HostFile, HostState};
use super::records::Records;
use crate::erofs::FileType;
use crate::errno::Errno;
use crate::files::tree::node::Body;
use crate::files::tree::volume::{ImageInode, VolumeIndex};
use crate::files::tree::{InodeRef, Tree};

/// Temporary permissions of the host's directories during the walk.
const TEMPORARY_MODE: u32 = 0o700;

/// A directory, now and in the volume.
#[derive(Clone, Copy, Debug)]
pub struct DirectoryState {
    /// The current directory.
    pub now: InodeRef,
    /// The volume's directory with which the host's started; `None`: the host had none here.
    pub before: Option<ImageInode>,
}

/// The state of a walk.
pub struct Walk<'a> {
    tree: &'a Tree,
    /// The number of the export.
    export: u32,
    volume: VolumeIndex,
    host_state: &'a mut HostState,
    records: Records<'a>,
    /// Files of the volume have changed, possibly in directories whose own names have not.
    has_nested_changes: bool,
    /// Directories whose names are to be visited.
    pending: Vec<(Box<[u8]>, DirectoryState)>,
    deletions: Vec<(Box<[u8]>, HostFile)>,
    /// Completed directories, parents before their descendants.
    complete: Vec<(Box<[u8]>, InodeRef, HostFile)>,
}

impl<'a> Walk<'a> {
    /// A walk through the tree of a volume that is export number `export`.
    pub fn new(tree: &'a Tree, export: u32, volume: VolumeIndex, host_state: &'a mut HostState, records: Records<'a>) -> Walk<'a> {
        let is_changed = |id| FileVersion::of(tree, InodeRef::Node(id)).is_ok_and(|version| version.changed.is_some());
        let top = tree.volume(volume).map(|volume| volume.image.root());
        let has_nested_changes = tree.nodes_of_inodes().any(|(inode, id)| inode.volume == volume && Ok(inode.nid) != top && is_changed(id));
        Walk {
            tree,
            export,
            volume,
            host_state,
            records,
            has_nested_changes,
            pending: Vec::new(),
            deletions: Vec::new(),
            complete: Vec::new(),
        }
    }

    /// Sends the differences in a directory and below it; continues after errors.
    ///
    /// # Errors
    /// The first error: `EIO`, `ENOSPC`, `ENAMETOOLONG`.
    pub fn directory(&mut self, path: &[u8], here: DirectoryState) -> Result<(), Errno> {
        self.pending.push((path.into(), here));
        self.send_pending()
    }

    /// Sends the differences in the pending directories and below them.
    ///
    /// # Errors
    /// The first error.
    pub fn send_pending(&mut self) -> Result<(), Errno> {
        let mut outcome = Ok(());
        while let Some((path, here)) = self.pending.pop() {
            outcome = outcome.and(self.names(path.into_vec(), here));
        }
        outcome
    }

    /// Sends the differences at the names of a directory, and queues its subdirectories.
    fn names(&mut self, mut path: Vec<u8>, here: DirectoryState) -> Result<(), Errno> {
        let tree = self.tree;
        let mut outcome = Ok(());
        tree.list(here.now, 0, |listed| {
            if !matches!(listed.name, b"." | b"..") {
                outcome = outcome.and(self.child(&mut path, here, listed.name, true).map(|_| ()));
            }
            true
        })?;
        outcome?;
        if matches!(here.now, InodeRef::Image(image) if Some(image) == here.before) {
            // Its names are unchanged.
            return Ok(());
        }
        self.missing(&path, here)
    }

    /// Sends the difference at a name; of a directory, only its existence. `deep` queues a subdirectory. Returns the file at the name in
    /// the form of a directory.
    ///
    /// # Errors
    /// `ENOENT`: the name does not exist. `EIO`, `ENOSPC`.
    pub fn child(&mut self, path: &mut Vec<u8>, here: DirectoryState, name: &[u8], deep: bool) -> Result<DirectoryState, Errno> {
        let inode = self.tree.real_inode(self.tree.lookup(here.now, name)?);
        let original = self.original(here, name)?;
        let elsewhere = DirectoryState { now: inode, before: None };
        if self.tree.volume_of(inode) != Some(self.volume) {
            // Another volume is mounted there.
            return Ok(elsewhere);
        }
        let length = path.len();
        if length > 0 {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        let found = match self.tree.kind(inode) {
            _ if path.len() > MAX_PATH => self.report_unsent(path, Errno::ENAMETOOLONG).map(|()| elsewhere),
            Ok(FileType::Directory) => self.subdirectory(path, inode, original, deep),
            Ok(FileType::Regular | FileType::Symlink) => self.leaf(path, inode, original).map(|()| elsewhere),
            // Devices, FIFOs and sockets are not exported.
            Ok(_) => Ok(elsewhere),
            Err(error) => self.report_unsent(path, error).map(|()| elsewhere),
        };
        path.truncate(length);
        found
    }

    /// The volume's file at a name, if the host started with that directory.
    fn original(&self, here: DirectoryState, name: &[u8]) -> Result<Option<ImageInode>, Errno> {
        here.before.map_or(Ok(None), |before| self.tree.original(before, name))
    }

    fn subdirectory(&mut self, path: &[u8], inode: InodeRef, original: Option<ImageInode>, deep: bool) -> Result<DirectoryState, Errno> {
        let host = self.host_state.host(self.tree, path, original)?;
        let version = FileVersion::of(self.tree, inode)?;
        let before = match host {
            Some(HostFile { is_directory: true, below, .. }) => below,
            other => {
                if let Some(file) = other {
                    self.remove(path, file)?;
                }
                let mut entry = self.entry(inode)?;
                entry.permissions |= TEMPORARY_MODE;
                self.records.named(Kind::Directory, entry, path, &[])?;
                self.host_state.note(path, Some(HostFile { version: None, is_directory: true, below: None }))?;
                None
            }
        };
        let here = DirectoryState { now: inode, before };
        if !deep {
            return Ok(here);
        }
        let untouched = matches!(inode, InodeRef::Image(image) if Some(image) == before);
        if !untouched || self.has_nested_changes {
            self.pending.push((path.into(), here));
        }
        if host.and_then(|file| file.version) != Some(version) {
            self.complete.push((path.into(), inode, HostFile { version: Some(version), is_directory: true, below: before }));
        }
        Ok(here)
    }

    fn leaf(&mut self, path: &[u8], inode: InodeRef, original: Option<ImageInode>) -> Result<(), Errno> {
        let host = self.host_state.host(self.tree, path, original)?;
        let version = FileVersion::of(self.tree, inode)?;
        match host {
            Some(file) if file.version == Some(version) => return Ok(()),
            Some(file @ HostFile { is_directory: true, .. }) => self.remove(path, file)?,
            _ => {}
        }
        self.file(path, inode)?;
        self.host_state.note(path, Some(HostFile { version: Some(version), is_directory: false, below: None }))
    }

    /// Reports a file that cannot be sent.
    ///
    /// # Errors
    /// The reason.
    fn report_unsent(&mut self, path: &[u8], why: Errno) -> Result<(), Errno> {
        self.records.report_unsent(self.export, path, why).and(Err(why))
    }

    /// Sends a file or a link, or reports that it cannot be sent.
    ///
    /// # Errors
    /// `EIO`.
    pub fn file(&mut self, path: &[u8], inode: InodeRef) -> Result<(), Errno> {
        self.whole(path, inode).or_else(|error| self.report_unsent(path, error))
    }

    fn whole(&mut self, path: &[u8], inode: InodeRef) -> Result<(), Errno> {
        let entry = self.entry(inode)?;
        if self.tree.kind(inode)? == FileType::Symlink {
            return self.records.named(Kind::Symlink, entry, path, self.tree.target(inode)?);
        }
        self.records.named(Kind::File, entry, path, &[])?;
        match self.tree.real_inode(inode) {
            InodeRef::Node(id) => {
                let Body::Regular(content) = &self.tree.node(id)?.body else { return Err(Errno::EIO) };
                let mut offset = 0;
                while let Some(start) = content.next_data(offset) {
                    offset = start;
                    let end = content.next_hole(start);
                    while offset < end {
                        offset += self.records.data(offset, end - offset, |room| {
                            let mut filled = 0;
                            content.read(offset, room.len() as u64, |piece| {
                                let count = pando_rt::user::fetch(piece, &mut room[filled..filled + piece.len()]);
                                filled += count;
                                if count == piece.len() { Ok(count) } else { Err(Errno::EIO) }
                            })?;
                            if filled == room.len() { Ok(filled) } else { Err(Errno::EIO) }
                        })?;
                    }
                }
            }
            InodeRef::Image(image) => {
                let file = self.tree.image_file(image)?;
                let mut offset = 0;
                while offset < file.size() {
                    offset += self.records.data(offset, file.size() - offset, |room| file.read(offset, room))?;
                }
            }
            InodeRef::Proc(_) | InodeRef::Descriptor(_) => return Err(Errno::EIO),
        }
        self.records.close()
    }

    fn entry(&self, inode: InodeRef) -> Result<ExportedFile, Errno> {
        let status = self.tree.status(inode)?;
        Ok(ExportedFile {
            export: self.export,
            path_length: 0,
            permissions: u32::from(status.owner().permissions),
            modified_seconds: status.times.modified.seconds,
            modified_nanoseconds: status.times.modified.nanoseconds,
            size: status.size,
        })
    }

    /// Records the names in a directory that the host has and the cell has not.
    fn missing(&mut self, path: &[u8], here: DirectoryState) -> Result<(), Errno> {
        for name in self.names_of_host(path, here.before)? {
            match self.tree.lookup(here.now, &name) {
                Ok(_) => continue,
                Err(Errno::ENOENT) => {}
                Err(error) => return Err(error),
            }
            let full = if path.is_empty() { name.clone() } else { [path, &b"/"[..], &name].concat().into() };
            let original = self.original(here, &name)?;
            if let Some(file) = self.host_state.host(self.tree, &full, original)? {
                self.deletions.push((full, file));
            }
        }
        Ok(())
    }

    /// The names that the host may have in a directory, each once.
    fn names_of_host(&self, path: &[u8], before: Option<ImageInode>) -> Result<Vec<Box<[u8]>>, Errno> {
        let mut names = self.host_state.names_below(path);
        if let Some(before) = before {
            self.tree.original_names(before, |name| names.push(name.into()))?;
        }
        names.sort_unstable();
        names.dedup();
        Ok(names)
    }

    /// Sends the deletion of a file, with everything below it.
    fn remove(&mut self, path: &[u8], file: HostFile) -> Result<(), Errno> {
        let mut doomed: Vec<(Box<[u8]>, HostFile)> = [(path.into(), file)].into();
        let mut next = 0;
        while let Some((path, HostFile { is_directory, below, .. })) = doomed.get(next).cloned() {
            let names = if is_directory { self.names_of_host(&path, below)? } else { Vec::new() };
            for name in names {
                let full = [&path, &b"/"[..], &name].concat();
                let original = below.map_or(Ok(None), |before| self.tree.original(before, &name))?;
                if let Some(file) = self.host_state.host(self.tree, &full, original)? {
                    doomed.push((full.into(), file));
                }
            }
            next += 1;
        }
        // Descendants sort behind their ancestors, and are deleted first.
        for (path, _) in doomed.iter().rev() {
            self.records.named(Kind::Remove, ExportedFile { export: self.export, ..ExportedFile::default() }, path, &[])?;
            self.host_state.forget_below(path);
            self.host_state.note(path, None)?;
        }
        Ok(())
    }

    /// Sends deletions if everything else was sent and committed (`outcome`): the host may have the only copy of a file that could not be
    /// sent. Then sends the attributes of the completed directories, and waits until the host has done everything.
    ///
    /// # Errors
    /// The first error.
    pub fn finish(mut self, mut outcome: Result<(), Errno>) -> Result<(), Errno> {
        let deletions = core::mem::take(&mut self.deletions);
        if outcome.is_ok() && !deletions.is_empty() {
            outcome = self.records.sync();
        }
        if outcome.is_ok() {
            deletions.into_iter().try_for_each(|(path, file)| self.remove(&path, file))?;
        }
        for (path, inode, file) in core::mem::take(&mut self.complete).into_iter().rev() {
            self.records.named(Kind::Directory, self.entry(inode)?, &path, &[])?;
            self.host_state.note(&path, Some(file))?;
        }
        outcome = outcome.and(self.records.sync());
        if outcome.is_err() {
            self.host_state.invalidate();
        }
        outcome
    }
}
