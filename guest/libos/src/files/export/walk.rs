// SPDX-License-Identifier: MIT OR Apache-2.0
//! The walk through an exported tree: what differs from what the host has is said.
//!
//! First everything that is new or has changed, everywhere, and only then what is gone, if the host has all the rest: who moves a file from one directory to another has it
//! on the host in one place or in both, never in none. What cannot be said is told to be lost, and the rest is said. Directories' own attributes come last, because what happens in a directory changes them.
//!
//! Trees are as deep as programs make them, and the stack is not: what is still to be walked stands in lists.

use alloc::boxed::Box;
use alloc::vec::Vec;

use pando_rt::abi::channel::{Entry, Kind, MAX_PATH};

use super::records::Records;
use super::told::{Known, Told, Version};
use crate::erofs::FileType;
use crate::errno::Errno;
use crate::files::tree::node::Body;
use crate::files::tree::volume::{ImagePlace, VolumeIndex};
use crate::files::tree::{Place, Tree};

/// What the host gets to work in a directory, until that is complete.
const FOR_NOW: u32 = 0o700;

/// A directory, now and as the volume had it.
#[derive(Clone, Copy, Debug)]
pub struct Here {
    /// What it is now.
    pub now: Place,
    /// The volume's directory that the host began with; `None`: the host had none here.
    pub before: Option<ImagePlace>,
}

/// A walk.
pub struct Walk<'a> {
    tree: &'a Tree,
    /// The number of the export.
    export: u32,
    volume: VolumeIndex,
    told: &'a mut Told,
    records: Records<'a>,
    /// Something of the volume has changed, perhaps in a directory whose own names have not.
    scattered: bool,
    /// Directories whose names are still to be looked at.
    pending: Vec<(Box<[u8]>, Here)>,
    gone: Vec<(Box<[u8]>, Known)>,
    /// Directories in whose order all that lies below one comes behind it.
    complete: Vec<(Box<[u8]>, Place, Known)>,
}

impl<'a> Walk<'a> {
    /// A walk through the tree of a volume that is export number `export`.
    pub fn new(tree: &'a Tree, export: u32, volume: VolumeIndex, told: &'a mut Told, records: Records<'a>) -> Walk<'a> {
        let is_changed = |id| Version::of(tree, Place::Node(id)).is_ok_and(|version| version.changed.is_some());
        let top = tree.volume(volume).map(|volume| volume.image.root());
        let scattered = tree.made().any(|(place, id)| place.volume == volume && Ok(place.nid) != top && is_changed(id));
        Walk { tree, export, volume, told, records, scattered, pending: Vec::new(), gone: Vec::new(), complete: Vec::new() }
    }

    /// Says what differs in a directory and all below it, as far as that can be said.
    ///
    /// # Errors
    /// What went wrong first: `EIO`, `ENOSPC`, `ENAMETOOLONG`.
    pub fn directory(&mut self, path: &[u8], here: Here) -> Result<(), Errno> {
        self.pending.push((path.into(), here));
        self.rest()
    }

    /// Says what differs in the directories that were put off, and in all below them.
    ///
    /// # Errors
    /// What went wrong first.
    pub fn rest(&mut self) -> Result<(), Errno> {
        let mut outcome = Ok(());
        while let Some((path, here)) = self.pending.pop() {
            outcome = outcome.and(self.names(path.into_vec(), here));
        }
        outcome
    }

    /// Says what differs at the names of a directory, and puts off what lies in directories below.
    fn names(&mut self, mut path: Vec<u8>, here: Here) -> Result<(), Errno> {
        let tree = self.tree;
        let mut outcome = Ok(());
        tree.list(here.now, 0, |listed| {
            if !matches!(listed.name, b"." | b"..") {
                outcome = outcome.and(self.child(&mut path, here, listed.name, true).map(|_| ()));
            }
            true
        })?;
        outcome?;
        if matches!(here.now, Place::Image(image) if Some(image) == here.before) {
            // Nobody has touched its names.
            return Ok(());
        }
        self.missing(&path, here)
    }

    /// Says what differs at a name, only that it is there if it is a directory; `deep` puts off what lies below. Returns what the name leads to, as a directory.
    ///
    /// # Errors
    /// `ENOENT`: it leads nowhere. `EIO`, `ENOSPC`.
    pub fn child(&mut self, path: &mut Vec<u8>, here: Here, name: &[u8], deep: bool) -> Result<Here, Errno> {
        let place = self.tree.settle(self.tree.lookup(here.now, name)?);
        let original = self.original(here, name)?;
        let elsewhere = Here { now: place, before: None };
        if self.tree.volume_of(place) != Some(self.volume) {
            // Something else is mounted there.
            return Ok(elsewhere);
        }
        let length = path.len();
        if length > 0 {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        let found = match self.tree.kind(place) {
            _ if path.len() > MAX_PATH => self.lost(path, Errno::ENAMETOOLONG).map(|()| elsewhere),
            Ok(FileType::Directory) => self.subdirectory(path, place, original, deep),
            Ok(FileType::Regular | FileType::Symlink) => self.leaf(path, place, original).map(|()| elsewhere),
            // Devices, FIFOs and sockets are the cell's own affair.
            Ok(_) => Ok(elsewhere),
            Err(error) => self.lost(path, error).map(|()| elsewhere),
        };
        path.truncate(length);
        found
    }

    /// What the volume had at a name, if the host began with that.
    fn original(&self, here: Here, name: &[u8]) -> Result<Option<ImagePlace>, Errno> {
        here.before.map_or(Ok(None), |before| self.tree.original(before, name))
    }

    fn subdirectory(&mut self, path: &[u8], place: Place, original: Option<ImagePlace>, deep: bool) -> Result<Here, Errno> {
        let host = self.told.host(self.tree, path, original)?;
        let version = Version::of(self.tree, place)?;
        let before = match host {
            Some(Known { is_directory: true, below, .. }) => below,
            other => {
                if let Some(known) = other {
                    self.remove(path, known)?;
                }
                let mut entry = self.entry(place)?;
                entry.permissions |= FOR_NOW;
                self.records.named(Kind::Directory, entry, path, &[])?;
                self.told.note(path, Some(Known { version: None, is_directory: true, below: None }))?;
                None
            }
        };
        let here = Here { now: place, before };
        if !deep {
            return Ok(here);
        }
        let untouched = matches!(place, Place::Image(image) if Some(image) == before);
        if !untouched || self.scattered {
            self.pending.push((path.into(), here));
        }
        if host.and_then(|known| known.version) != Some(version) {
            self.complete.push((path.into(), place, Known { version: Some(version), is_directory: true, below: before }));
        }
        Ok(here)
    }

    fn leaf(&mut self, path: &[u8], place: Place, original: Option<ImagePlace>) -> Result<(), Errno> {
        let host = self.told.host(self.tree, path, original)?;
        let version = Version::of(self.tree, place)?;
        match host {
            Some(known) if known.version == Some(version) => return Ok(()),
            Some(known @ Known { is_directory: true, .. }) => self.remove(path, known)?,
            _ => {}
        }
        self.file(path, place)?;
        self.told.note(path, Some(Known { version: Some(version), is_directory: false, below: None }))
    }

    /// Says that something cannot be said.
    ///
    /// # Errors
    /// Why it cannot.
    fn lost(&mut self, path: &[u8], why: Errno) -> Result<(), Errno> {
        self.records.lost(self.export, path, why).and(Err(why))
    }

    /// Says what a file or a link is, or that it cannot.
    ///
    /// # Errors
    /// `EIO`.
    pub fn file(&mut self, path: &[u8], place: Place) -> Result<(), Errno> {
        self.whole(path, place).or_else(|error| self.lost(path, error))
    }

    fn whole(&mut self, path: &[u8], place: Place) -> Result<(), Errno> {
        let entry = self.entry(place)?;
        if self.tree.kind(place)? == FileType::Symlink {
            return self.records.named(Kind::Symlink, entry, path, self.tree.target(place)?);
        }
        self.records.named(Kind::File, entry, path, &[])?;
        match self.tree.settle(place) {
            Place::Node(id) => {
                let Body::Regular(content) = &self.tree.node(id)?.body else { return Err(Errno::EIO) };
                let mut offset = 0;
                while let Some(start) = content.next_data(offset) {
                    offset = start;
                    let end = content.next_hole(start);
                    while offset < end {
                        offset += self.records.data(offset, end - offset, |room| {
                            let mut filled = 0;
                            content.read(offset, room.len() as u64, |piece| {
                                let taken = pando_rt::user::fetch(piece, &mut room[filled..filled + piece.len()]);
                                filled += taken;
                                if taken == piece.len() { Ok(taken) } else { Err(Errno::EIO) }
                            })?;
                            if filled == room.len() { Ok(filled) } else { Err(Errno::EIO) }
                        })?;
                    }
                }
            }
            Place::Image(image) => {
                let file = self.tree.image_file(image)?;
                let mut offset = 0;
                while offset < file.size() {
                    offset += self.records.data(offset, file.size() - offset, |room| file.read(offset, room))?;
                }
            }
            Place::Proc(_) | Place::Descriptor(_) => return Err(Errno::EIO),
        }
        self.records.close()
    }

    fn entry(&self, place: Place) -> Result<Entry, Errno> {
        let status = self.tree.status(place)?;
        Ok(Entry {
            export: self.export,
            path_length: 0,
            permissions: u32::from(status.owner().permissions),
            modified_seconds: status.times.modified.seconds,
            modified_nanoseconds: status.times.modified.nanoseconds,
            size: status.size,
        })
    }

    /// Takes note of what the host has in a directory and the cell has not.
    fn missing(&mut self, path: &[u8], here: Here) -> Result<(), Errno> {
        for name in self.names_of_host(path, here.before)? {
            match self.tree.lookup(here.now, &name) {
                Ok(_) => continue,
                Err(Errno::ENOENT) => {}
                Err(error) => return Err(error),
            }
            let full = if path.is_empty() { name.clone() } else { [path, &b"/"[..], &name].concat().into() };
            let original = self.original(here, &name)?;
            if let Some(known) = self.told.host(self.tree, &full, original)? {
                self.gone.push((full, known));
            }
        }
        Ok(())
    }

    /// The names that the host may have in a directory, each once.
    fn names_of_host(&self, path: &[u8], before: Option<ImagePlace>) -> Result<Vec<Box<[u8]>>, Errno> {
        let mut names = self.told.names_below(path);
        if let Some(before) = before {
            self.tree.original_names(before, |name| names.push(name.into()))?;
        }
        names.sort_unstable();
        names.dedup();
        Ok(names)
    }

    /// Says that something is gone, with all below it.
    fn remove(&mut self, path: &[u8], known: Known) -> Result<(), Errno> {
        let mut doomed: Vec<(Box<[u8]>, Known)> = [(path.into(), known)].into();
        let mut next = 0;
        while let Some((path, Known { is_directory, below, .. })) = doomed.get(next).cloned() {
            let names = if is_directory { self.names_of_host(&path, below)? } else { Vec::new() };
            for name in names {
                let full = [&path, &b"/"[..], &name].concat();
                let original = below.map_or(Ok(None), |before| self.tree.original(before, &name))?;
                if let Some(known) = self.told.host(self.tree, &full, original)? {
                    doomed.push((full.into(), known));
                }
            }
            next += 1;
        }
        // What lies below something comes behind it, and goes before it.
        for (path, _) in doomed.iter().rev() {
            self.records.named(Kind::Remove, Entry { export: self.export, ..Entry::default() }, path, &[])?;
            self.told.forget_below(path);
            self.told.note(path, None)?;
        }
        Ok(())
    }

    /// Says what is gone, if all else was `said` and done: the host's copy may be the only one of what could not be. Then says what directories are like now that
    /// they are complete, and waits until the host has done it all.
    ///
    /// # Errors
    /// What went wrong first.
    pub fn finish(mut self, said: Result<(), Errno>) -> Result<(), Errno> {
        let gone = core::mem::take(&mut self.gone);
        let mut outcome = said;
        if outcome.is_ok() && !gone.is_empty() {
            outcome = self.records.sync();
        }
        if outcome.is_ok() {
            gone.into_iter().try_for_each(|(path, known)| self.remove(&path, known))?;
        }
        for (path, place, known) in core::mem::take(&mut self.complete).into_iter().rev() {
            self.records.named(Kind::Directory, self.entry(place)?, &path, &[])?;
            self.told.note(&path, Some(known))?;
        }
        outcome = outcome.and(self.records.sync());
        if outcome.is_err() {
            self.told.doubt();
        }
        outcome
    }
}
