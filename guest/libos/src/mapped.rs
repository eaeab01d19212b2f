// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files of the overlay in memory: a mapping has pages of its own, and what is written to the one is carried to the other when somebody looks.
//!
//! Reading a file first takes over what its shared mappings changed in that part; writing to it changes the mappings, and a new size moves their end. So a
//! program sees one content as long as it has one mapping of each part of the file, which is what programs do. Two shared mappings of one part do not see each
//! other's changes before the file is read or a mapping is given up; what was changed in both then is as the one of them has it that was looked at last.

use alloc::vec::Vec;
use core::ops::Range;

use pando_abi::{PAGE_SIZE, Permissions};
use pando_rt::memory::{self, PageRange};
use pando_rt::{clock, user};

use crate::errno::Errno;
use crate::files::Kind;
use crate::files::status::time;
use crate::files::tree::Place;
use crate::files::tree::node::NodeId;
use crate::memory::regions::{Backing, NodePages, Region, Sharing};
use crate::shared::is_shared;
use crate::system::System;

/// Bytes without end.
const ALL: Range<u64> = 0..u64::MAX;

/// A mapping of a file, or a part of one.
#[derive(Clone, Copy, Debug)]
struct Mapping {
    pages: PageRange,
    file: NodePages,
    region: Region,
}

impl Mapping {
    /// The part of the file that it shows.
    fn part(&self) -> Range<u64> {
        let start = self.file.at(self.pages.start());
        start..start.saturating_add(self.pages.bytes())
    }

    /// Where it shows an offset of the file, which lies in it.
    fn address(&self, offset: u64) -> u64 {
        self.pages.start() + (offset - self.part().start)
    }
}

fn overlap(one: &Range<u64>, other: &Range<u64>) -> Range<u64> {
    one.start.max(other.start)..one.end.min(other.end)
}

impl System {
    /// The mappings of files in a range of pages. A file that is gone has left what its mappings hold.
    fn mappings_in(&self, pages: PageRange) -> Vec<Mapping> {
        let is_there = |file: &NodePages| self.files.tree.node(file.node).is_ok();
        let mapping =
            |(pages, region): (PageRange, Region)| region.backing.node().filter(is_there).map(|file| Mapping { pages, file, region });
        self.memory.pieces(pages).into_iter().filter_map(mapping).collect()
    }

    /// The mappings of a file, or of all.
    fn mappings_of(&self, node: Option<NodeId>) -> Vec<Mapping> {
        let all = PageRange::new(0, user::END).filter(|_| self.shows_nodes());
        let mut mappings = all.map(|all| self.mappings_in(all)).unwrap_or_default();
        // What other processes share lies at the same place in every space.
        for (pages, region) in all.map(|all| self.others.shared.pieces(all)).unwrap_or_default() {
            if let Some(file) = region.backing.node().filter(|file| self.files.tree.node(file.node).is_ok())
                && self.memory.is_free(pages)
            {
                mappings.push(Mapping { pages, file, region });
            }
        }
        mappings.retain(|mapping| node.is_none_or(|node| mapping.file.node == node));
        mappings
    }

    /// Whether a file of the overlay may be mapped, by the running process or shared.
    #[must_use]
    pub fn shows_nodes(&self) -> bool {
        self.memory.shows_nodes() || self.others.shared.count() > 0
    }

    /// The node that a descriptor stands for, if anything may be mapped.
    fn mapped_node(&self, fd: u64) -> Option<NodeId> {
        match self.files.look(fd).ok().filter(|_| self.shows_nodes())?.kind {
            Kind::Node(id) => Some(id),
            Kind::Image(place, _) => match self.files.tree.settle(Place::Image(place)) {
                Place::Node(id) => Some(id),
                _ => None,
            },
            _ => None,
        }
    }

    /// Maps what a file has over whatever is there.
    ///
    /// # Errors
    /// `ENOMEM`, `EIO`; `EPERM`: nothing may be mapped there.
    pub fn map_node(&mut self, pages: PageRange, permissions: Permissions, file: NodePages) -> Result<(), Errno> {
        let (inside, beyond) = file.split(pages, self.files.tree.node(file.node)?.content()?.size());
        if let Some(beyond) = beyond {
            self.memory.map(beyond, permissions, Backing::Beyond(Some(file)))?;
        }
        if let Some(inside) = inside {
            self.memory.map(inside, Permissions::READ_WRITE, Backing::Node(file))?;
            self.fill(inside, file)?;
            if permissions != Permissions::READ_WRITE {
                self.memory.protect(inside, permissions)?;
            }
        }
        Ok(())
    }

    /// Fills fresh pages with what a file has there.
    fn fill(&self, pages: PageRange, file: NodePages) -> Result<(), Errno> {
        let content = self.files.tree.node(file.node)?.content()?;
        let start = file.at(pages.start());
        let end = start.saturating_add(pages.bytes());
        let mut at = start;
        while let Some(data) = content.next_data(at).filter(|data| *data < end) {
            at = content.next_hole(data).min(end);
            let mut address = pages.start() + (data - start);
            content.read(data, at - data, |piece| {
                let done = user::write_some(address, piece);
                address += done as u64;
                // What is mapped can be written: it is the file that cannot be read.
                if done < piece.len() { Err(Errno::EIO) } else { Ok(done) }
            })?;
        }
        Ok(())
    }

    /// Takes over what mappings changed in a part of a file that is about to be read.
    pub fn before_read(&mut self, fd: u64, offset: Option<u64>, bytes: u64) {
        let Some(node) = self.mapped_node(fd) else { return };
        let start = offset.unwrap_or_else(|| self.files.look(fd).map_or(0, |file| file.offset));
        self.take_over(node, &(start..start.saturating_add(bytes)));
    }

    /// Shows in the mappings what was just written to a file: `bytes` bytes that end at `end`.
    ///
    /// # Errors
    /// `ENOMEM`, `EIO`.
    pub fn after_write(&mut self, fd: u64, end: u64, bytes: u64) -> Result<(), Errno> {
        let Some(node) = self.mapped_node(fd) else { return Ok(()) };
        self.resize_mappings(node)?;
        self.show_in_mappings(node, &(end.saturating_sub(bytes)..end));
        Ok(())
    }

    /// Takes over what is mapped shared in pages that are about to go.
    pub fn before_unmap(&mut self, pages: PageRange) {
        if self.shows_nodes() {
            for mapping in self.mappings_in(pages) {
                self.take_over_mapping(&mapping, &ALL);
            }
        }
    }

    /// Takes over what all mappings changed.
    pub fn take_over_all(&mut self) {
        for mapping in self.mappings_of(None) {
            self.take_over_mapping(&mapping, &ALL);
        }
    }

    /// Takes over what mappings changed in a part of a file.
    pub fn take_over(&mut self, node: NodeId, part: &Range<u64>) {
        for mapping in self.mappings_of(Some(node)) {
            self.take_over_mapping(&mapping, part);
        }
    }

    /// Does something to files that may change their content other than by writing, and shows it in their mappings.
    ///
    /// # Errors
    /// Those of `change`; `ENOMEM`, `EIO`.
    pub fn around_change<T>(&mut self, change: impl FnOnce(&mut System) -> Result<T, Errno>) -> Result<T, Errno> {
        self.take_over_all();
        let result = change(self);
        let mut last = None;
        for Mapping { file: NodePages { node, .. }, .. } in self.mappings_of(None) {
            if last.replace(node) != Some(node) {
                self.resize_mappings(node)?;
                self.show_in_mappings(node, &ALL);
            }
        }
        result
    }

    /// What cannot be read or kept stays as it is: there is nobody to tell, as on Linux when pages cannot be written back.
    fn take_over_mapping(&mut self, mapping: &Mapping, part: &Range<u64>) {
        let is_written = |region: &Region| matches!(region.backing, Backing::Node(file) if file.sharing == Sharing::Writes);
        // Others may write where the running process only reads.
        let by_others =
            |pages: PageRange| is_shared(pages.start()) && self.others.shared.pieces(pages).iter().any(|(_, region)| is_written(region));
        if mapping.region.backing.is_nothing() || !is_written(&mapping.region) && !by_others(mapping.pages) {
            return;
        }
        let Ok(node) = self.files.tree.node_mut(mapping.file.node) else { return };
        let Ok(content) = node.content_mut() else { return };
        let part = overlap(&overlap(&mapping.part(), part), &(0..content.size()));
        let (mut at, mut changed) = (part.start, Vec::<Range<u64>>::new());
        while at < part.end {
            let bytes = (PAGE_SIZE - at % PAGE_SIZE).min(part.end - at) as usize;
            let (mut seen, mut kept) = ([0; PAGE_SIZE as usize], true);
            if user::read(mapping.address(at), &mut seen[..bytes]).is_ok() {
                let mut done = 0;
                let compared = content.read(at, bytes as u64, |piece| {
                    // What is below may be impossible to read, and then must not be compared in place.
                    let mut known = [0; PAGE_SIZE as usize];
                    let known = &mut known[..piece.len()];
                    kept &= user::fetch(piece, known) == piece.len() && known == &seen[done..done + piece.len()];
                    done += piece.len();
                    Ok(piece.len())
                });
                if compared.is_ok() && !kept {
                    let mut rest = &seen[..bytes];
                    let _ = content.write(at, bytes as u64, |room| {
                        let (piece, left) = rest.split_at(room.len());
                        room.copy_from_slice(piece);
                        rest = left;
                        Ok(piece.len())
                    });
                    let end = at + bytes as u64;
                    match changed.last_mut() {
                        Some(last) if last.end == at => last.end = end,
                        _ => changed.push(at..end),
                    }
                }
            }
            at += bytes as u64;
        }
        if !changed.is_empty() {
            node.touch(time(clock::wall()));
        }
        // What lies between was perhaps changed in another mapping, and is not taken over yet.
        for part in &changed {
            self.show_in_mappings(mapping.file.node, part);
        }
    }

    /// Shows a part of a file in its shared mappings; what is behind the file's end in its last page is zero.
    fn show_in_mappings(&mut self, node: NodeId, part: &Range<u64>) {
        for mapping in self.mappings_of(Some(node)) {
            if mapping.file.sharing == Sharing::Private || mapping.region.backing.is_nothing() {
                continue;
            }
            let part = overlap(&mapping.part(), part);
            let Ok(content) = self.files.tree.node(node).and_then(|node| node.content()) else { return };
            let mut at = part.start;
            // A mapping that is gone by now shows nothing.
            let _ = content.read(at, part.end.saturating_sub(part.start), |piece| {
                put(mapping.address(at), piece)?;
                at += piece.len() as u64;
                Ok(piece.len())
            });
            let tail = at..part.end.min(at.next_multiple_of(PAGE_SIZE));
            if at == content.size() && !tail.is_empty() {
                let _ = put(mapping.address(at), &[0; PAGE_SIZE as usize][..(tail.end - tail.start) as usize]);
            }
        }
    }

    /// Gives mappings pages where their file has grown, and takes those away that it has not any more.
    fn resize_mappings(&mut self, node: NodeId) -> Result<(), Errno> {
        for Mapping { pages, file, region } in self.mappings_of(Some(node)) {
            let size = self.files.tree.node(node)?.content()?.size();
            match (region.backing, file.split(pages, size)) {
                (Backing::Beyond(_), (Some(inside), _)) => self.map_grown(inside, region.permissions, file)?,
                (Backing::Node(_), (_, Some(beyond))) => self.memory.map(beyond, region.permissions, Backing::Beyond(Some(file)))?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Gives a mapping pages where its file has grown, for all who share it.
    fn map_grown(&mut self, inside: PageRange, permissions: Permissions, file: NodePages) -> Result<(), Errno> {
        let is_own = !self.memory.is_free(inside);
        self.map_node(inside, permissions, file)?;
        if is_shared(inside.start()) {
            for memory in self.others.memories.values_mut() {
                for (part, known) in memory.pieces(inside) {
                    let file = known.backing.node().unwrap_or(file);
                    memory.note(part, Region { backing: Backing::Node(file), ..known });
                }
            }
            if !is_own {
                self.memory.forget(inside);
            }
        }
        Ok(())
    }

    /// Makes a private mapping show its file again.
    ///
    /// # Errors
    /// `ENOMEM`, `EIO`.
    pub fn renew(&mut self, pages: PageRange) -> Result<(), Errno> {
        for mapping in self.mappings_in(pages) {
            let is_private = matches!(mapping.region.backing, Backing::Node(file) if file.sharing == Sharing::Private);
            if is_private {
                self.take_over(mapping.file.node, &mapping.part());
                self.map_node(mapping.pages, mapping.region.permissions, mapping.file)?;
            }
        }
        Ok(())
    }

    /// Fills what mappings have grown by.
    ///
    /// # Errors
    /// `ENOMEM`, `EIO`.
    pub fn fill_grown(&mut self, pages: PageRange) -> Result<(), Errno> {
        for mapping in self.mappings_in(pages) {
            self.map_node(mapping.pages, mapping.region.permissions, mapping.file)?;
        }
        Ok(())
    }
}

/// Writes to pages of a mapping, whatever their permissions.
fn put(address: u64, bytes: &[u8]) -> Result<(), Errno> {
    if user::write(address, bytes).is_err() {
        memory::write(address, bytes)?;
    }
    Ok(())
}
