// SPDX-License-Identifier: MIT OR Apache-2.0
//! Exports: files and directories whose changes go back to the host, at `fsync`, at `sync` and when the program ends.
//!
//! The operator is told what the host's files shall be from now on ([`pando_rt::abi::channel`]); it replaces each as a whole. What it has been told is remembered, so that the
//! next time only what has changed since is said.

mod records;
mod told;
mod walk;

use alloc::boxed::Box;
use alloc::vec::Vec;

use pando_rt::console::channel;
use pando_rt::global::{Global, OnOwnPage};

use super::names::{CURRENT, Last, Way};
use super::tree::Place;
use super::tree::volume::{ImagePlace, VolumeIndex};
use super::{Files, Kind};
use crate::errno::Errno;
pub use records::{Channel, Records};
use told::{Told, Version};
use walk::{Here, Walk};

/// Bytes of records that are worth an exit.
const BUFFER: usize = 64 << 10;

/// Of its own, so that changes can be said even if there is no memory left.
static ROOM: OnOwnPage<Global<[u8; BUFFER]>> = OnOwnPage(Global::new([0; BUFFER]));

/// What is exported.
#[derive(Debug)]
enum Root {
    /// All that lies in a volume.
    Volume(VolumeIndex),
    /// What a name leads to, if it is a regular file.
    File {
        /// The directory of the name.
        directory: Place,
        /// The name.
        name: Box<[u8]>,
        /// What it was when it was said last.
        version: Option<Version>,
    },
}

/// Something that is exported.
#[derive(Debug)]
pub struct Export {
    root: Root,
    told: Told,
}

/// The channel of the cell.
struct Operator;

impl Channel for Operator {
    fn send(&mut self, bytes: &[u8]) {
        channel::send(bytes);
    }

    fn receive(&mut self, room: &mut [u8]) -> usize {
        channel::receive(room)
    }
}

impl Files {
    /// Exports what an absolute path names, from now on.
    ///
    /// # Errors
    /// `EINVAL`: neither a volume is mounted there nor is it a file. Those of looking up paths.
    pub fn export(&mut self, path: &[u8]) -> Result<(), Errno> {
        let found = self.walk(CURRENT, path, Way::NAME)?;
        let place = self.tree.settle(found.place.ok_or(Errno::ENOENT)?);
        let root = match (self.tree.volume_of(place), found.last) {
            (Some(volume), _) if self.tree.is_mount(place) => Root::Volume(volume),
            (Some(_), Last::Name(name)) if !self.status(place)?.is_directory() => {
                Root::File { directory: found.directory, name: name.bytes().into(), version: Some(Version::of(&self.tree, place)?) }
            }
            _ => return Err(Errno::EINVAL),
        };
        self.exports.push(Export { root, told: Told::default() });
        Ok(())
    }

    /// Whether a name is that of an exported file: it may get another file, but it stays, because the host cannot be told of its end.
    pub(super) fn keeps_name(&self, directory: Place, name: &[u8]) -> bool {
        let directory = self.tree.settle(directory);
        let is_it = |export: &Export| matches!(&export.root, Root::File { directory: kept, name: its, .. } if **its == *name && self.tree.settle(*kept) == directory);
        self.exports.iter().any(is_it)
    }

    /// Sends what has changed of a file that is open, and waits until the host has it; nothing if it is not exported.
    ///
    /// # Errors
    /// `EBADF`; what went wrong on the way to the host.
    pub fn sync_open(&mut self, fd: u64) -> Result<(), Errno> {
        if self.exports.is_empty() {
            return Ok(());
        }
        let Ok(place) = self.place(fd) else { return Ok(()) };
        let place = self.tree.settle(place);
        let Some(volume) = self.tree.volume_of(place) else { return Ok(()) };
        let is_it = |export: &Export| match &export.root {
            Root::Volume(exported) => *exported == volume,
            Root::File { directory, name, .. } => self.tree.lookup(*directory, name).is_ok_and(|found| self.tree.settle(found) == place),
        };
        let Some(number) = self.exports.iter().position(is_it) else { return Ok(()) };
        let path = self.path_in_volume(fd, place, volume);
        ROOM.0.with(|room| self.sync_export(number, path.as_deref(), &mut Operator, room))
    }

    /// Sends all that has changed in every export, and waits until the host has it.
    ///
    /// # Errors
    /// What went wrong first.
    pub fn sync_all(&mut self) -> Result<(), Errno> {
        if self.exports.is_empty() {
            return Ok(());
        }
        ROOM.0.with(|room| self.sync_all_through(&mut Operator, room))
    }

    /// The same through this channel, gathering records in this buffer.
    ///
    /// # Errors
    /// What went wrong first.
    pub fn sync_all_through(&mut self, channel: &mut dyn Channel, buffer: &mut [u8]) -> Result<(), Errno> {
        let mut outcome = Ok(());
        for number in 0..self.exports.len() {
            outcome = outcome.and(self.sync_export(number, None, channel, buffer));
        }
        outcome
    }

    /// Sends what has changed in an export; only at a path and below, if one is given.
    fn sync_export(&mut self, number: usize, path: Option<&[u8]>, channel: &mut dyn Channel, buffer: &mut [u8]) -> Result<(), Errno> {
        let Files { exports, tree, .. } = self;
        let Some(Export { root, told }) = exports.get_mut(number) else { return Ok(()) };
        let records = Records::new(channel, buffer);
        match root {
            Root::Volume(volume) => {
                let top = ImagePlace { volume: *volume, nid: tree.volume(*volume)?.image.root() };
                let here = Here { now: tree.settle(Place::Image(top)), before: Some(top) };
                let mut walk = Walk::new(tree, number as u32, *volume, told, records);
                let said = match path {
                    None => walk.directory(&[], here),
                    Some(path) => along(&mut walk, path, here),
                };
                // What was said is to be done, whatever went wrong.
                walk.finish(said)
            }
            Root::File { directory, name, version } => {
                let Ok(place) = tree.lookup(*directory, name) else { return Ok(()) };
                let (place, now) = (tree.settle(place), Version::of(tree, place)?);
                let Some(volume) = tree.volume_of(place).filter(|_| *version != Some(now)) else { return Ok(()) };
                let mut walk = Walk::new(tree, number as u32, volume, told, records);
                let said = walk.file(&[], place);
                let done = walk.finish(said);
                *version = done.ok().map(|()| now);
                done
            }
        }
    }

    /// The path of an open file in its volume, if the name by which it was opened still leads there.
    fn path_in_volume(&self, fd: u64, place: Place, volume: VolumeIndex) -> Option<Vec<u8>> {
        let file = self.look(fd).ok()?;
        let (directory, name) = match (&file.kind, &file.name) {
            (Kind::Directory(_), _) => (place, None),
            (_, Some(open)) => (open.directory, Some(&*open.name)),
            _ => return None,
        };
        let top = ImagePlace { volume, nid: self.tree.volume(volume).ok()?.image.root() };
        let (mount, whole) = (self.path_of(Place::Image(top)).ok()??, self.path_of(directory).ok()??);
        let rest = whole.strip_prefix(&mount[..])?;
        let mut path = rest.strip_prefix(b"/").unwrap_or(rest).to_vec();
        if let Some(name) = name {
            if self.tree.lookup(directory, name).map(|found| self.tree.settle(found)) != Ok(place) {
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

/// Says that the directories of a path are there, and what differs at its end.
fn along(walk: &mut Walk<'_>, path: &[u8], mut here: Here) -> Result<(), Errno> {
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
    walk.rest()
}
