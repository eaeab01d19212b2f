// SPDX-License-Identifier: MIT OR Apache-2.0
//! Mappings of files of the overlay. A mapping has pages of its own, which are synchronised with the file at its next use.
//!
//! A read of a file first copies the changes that shared mappings made to that part into the file. A write changes the mappings, and a
//! new size moves their end. Memory that processes share ([`crate::shared`]) is always as new as the file or newer. A mapping in the
//! space of one process alone is synchronised before another process runs, and updated before it runs again. So all processes see one
//! content if each has one mapping of each part of the file, which is what programs do.
//!
//! Two shared mappings of one part in one process do not see each other's changes before the file is read or one of them is
//! unmapped. Where both changed the same bytes, the mapping that is synchronised last wins.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::ops::Range;

use pando_abi::{BlockNumber, PAGE_SIZE, Permissions};
use pando_rt::memory::{self, PageRange};
use pando_rt::{clock, user};

use crate::errno::Errno;
use crate::files::sharing::Sharing;
use crate::files::status::time;
use crate::files::tree::InodeRef;
use crate::files::tree::content;
use crate::files::tree::node::{Node, NodeId};
use crate::memory::layout::is_shared;
use crate::memory::regions::{Backing, NodePages, Region};
use crate::shared::{gaps, union};
use crate::system::System;

/// The whole of a file.
const ALL: Range<u64> = 0..u64::MAX;

/// A mapping of a file, or a part of one.
#[derive(Clone, Copy, Debug)]
struct Mapping {
    pages: PageRange,
    file: NodePages,
    region: Region,
}

impl Mapping {
    /// The part of the file that the mapping shows.
    fn part(&self) -> Range<u64> {
        let start = self.file.at(self.pages.start());
        start..start.saturating_add(self.pages.bytes())
    }

    /// The address that shows an offset of the file, which must lie in the mapping.
    fn address(&self, offset: u64) -> u64 {
        self.pages.start() + (offset - self.part().start)
    }
}

fn overlap(one: &Range<u64>, other: &Range<u64>) -> Range<u64> {
    one.start.max(other.start)..one.end.min(other.end)
}

impl System {
    /// The mappings of files in a range of pages. Mappings of a removed file keep their contents and are not listed.
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
        // Memory that other processes share lies at the same address in every space. The running process may have a part of it.
        for (pages, region) in all.map(|all| self.others.shared.pieces(all)).unwrap_or_default() {
            if let Some(file) = region.backing.node().filter(|file| self.files.tree.node(file.node).is_ok()) {
                let not_own = gaps(pages, &self.memory.pieces(pages));
                mappings.extend(not_own.into_iter().map(|pages| Mapping { pages, file, region }));
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

    /// The file's node behind a descriptor, if there can be mappings.
    fn mapped_node(&self, fd: u64) -> Option<NodeId> {
        if !self.shows_nodes() {
            return None;
        }
        self.files.regular(fd).ok()??.node(&self.files.tree)
    }

    /// Maps a part of a file over the present contents of `pages`.
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

    /// Fills fresh pages with the contents of a file.
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
                // The mapped pages are writable, so a failed copy means that the file cannot be read.
                if done < piece.len() { Err(Errno::EIO) } else { Ok(done) }
            })?;
        }
        Ok(())
    }

    /// Takes over the changes of mappings in a part of a file that is about to be read.
    pub fn before_read(&mut self, fd: u64, offset: Option<u64>, bytes: u64) {
        let Some(node) = self.mapped_node(fd) else { return };
        let start = offset.unwrap_or_else(|| self.files.raw_file(fd).map_or(0, |file| file.offset));
        self.sync_mappings_of(node, &(start..start.saturating_add(bytes)));
    }

    /// Shows a write to a file in its mappings: `bytes` bytes that end at `end`.
    ///
    /// # Errors
    /// `ENOMEM`, `EIO`.
    pub fn after_write(&mut self, fd: u64, end: u64, bytes: u64) -> Result<(), Errno> {
        if self.has_blocks_to_replace() {
            self.replace_blocks();
        }
        let Some(node) = self.mapped_node(fd) else { return Ok(()) };
        self.show_change(node, &(end.saturating_sub(bytes)..end))
    }

    /// Takes over the changes of shared mappings in pages that are about to be unmapped.
    pub fn before_unmap(&mut self, pages: PageRange) {
        if self.shows_nodes() {
            for mapping in self.mappings_in(pages) {
                self.sync_mapping(&mapping, &ALL);
            }
        }
    }

    /// Takes over the changes of all mappings.
    pub fn sync_mappings(&mut self) {
        for mapping in self.mappings_of(None) {
            self.sync_mapping(&mapping, &ALL);
        }
    }

    /// Takes over the changes of mappings in a part of a file.
    pub fn sync_mappings_of(&mut self, node: NodeId, part: &Range<u64>) {
        for mapping in self.mappings_of(Some(node)) {
            self.sync_mapping(&mapping, part);
        }
    }

    /// Changes a part of a file's contents by other means than a write, and shows it in the mappings. A new size changes everything
    /// from the lesser of both sizes on.
    ///
    /// # Errors
    /// Those of `change`; `ENOMEM`, `EIO`.
    pub fn change_content(
        &mut self,
        node: NodeId,
        part: &Range<u64>,
        change: impl FnOnce(&mut Node) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        change(self.files.tree.node_mut(node)?)?;
        self.show_change(node, part)
    }

    /// Shows a changed part of a file in its mappings, and ends them where the file ends.
    ///
    /// # Errors
    /// `ENOMEM`, `EIO`.
    pub fn show_change(&mut self, node: NodeId, part: &Range<u64>) -> Result<(), Errno> {
        if self.has_blocks_to_replace() {
            self.replace_blocks();
        }
        if self.shows_nodes() {
            self.resize_mappings(node)?;
            self.show_in_mappings(node, part);
        }
        Ok(())
    }

    /// Takes over the changes of one mapping. Pages that cannot be read or written back keep their contents: there is no call to
    /// fail, as on Linux when writeback fails.
    fn sync_mapping(&mut self, mapping: &Mapping, part: &Range<u64>) {
        let is_written = |region: &Region| matches!(region.backing, Backing::Node(file) if file.sharing == Sharing::Writes);
        // Other processes may write where the running one only reads.
        let by_others =
            |pages: PageRange| is_shared(pages.start()) && self.others.shared.pieces(pages).iter().any(|(_, region)| is_written(region));
        if mapping.region.backing.is_nothing() || !is_written(&mapping.region) && !by_others(mapping.pages) {
            return;
        }
        // Pages that only other processes have may be out of reach of the running one.
        let is_hidden = is_shared(mapping.pages.start()) && self.is_hidden_from_others(mapping.region.backing);
        let hidden = if is_hidden && self.memory.is_free(mapping.pages) { self.others.contested.pieces(mapping.pages) } else { Vec::new() };
        for (pages, _) in &hidden {
            // Pages that stay unreadable keep their contents.
            let _ = memory::protect(*pages, Permissions::READ);
        }
        self.copy_changes(mapping, part);
        for (pages, region) in hidden {
            let _ = memory::protect(pages, region.permissions);
        }
    }

    /// Copies the changes of one readable mapping to its file, and shows them in the other mappings.
    fn copy_changes(&mut self, mapping: &Mapping, part: &Range<u64>) {
        let Ok(node) = self.files.tree.node_mut(mapping.file.node) else { return };
        let Ok(content) = node.content_mut() else { return };
        let part = overlap(&overlap(&mapping.part(), part), &(0..content.size()));
        let (mut at, mut changed) = (part.start, Vec::<Range<u64>>::new());
        while at < part.end {
            let bytes = (PAGE_SIZE - at % PAGE_SIZE).min(part.end - at) as usize;
            let (mut mapped, mut is_equal) = ([0; PAGE_SIZE as usize], true);
            if user::read(mapping.address(at), &mut mapped[..bytes]).is_ok() {
                let mut done = 0;
                let compared = content.read(at, bytes as u64, |piece| {
                    // The lower file system may fail to read, so its bytes are copied before they are compared.
                    let mut stored = [0; PAGE_SIZE as usize];
                    let stored = &mut stored[..piece.len()];
                    is_equal &= user::fetch(piece, stored) == piece.len() && stored == &mapped[done..done + piece.len()];
                    done += piece.len();
                    Ok(piece.len())
                });
                if compared.is_ok() && !is_equal {
                    let mut rest = &mapped[..bytes];
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
        // The gaps between the changes may have changed in another mapping, which is not taken over yet.
        for part in &changed {
            self.show_in_mappings(mapping.file.node, part);
        }
    }

    /// Shows a part of a file in its shared mappings. The last page is zero behind the file's end.
    fn show_in_mappings(&mut self, node: NodeId, part: &Range<u64>) {
        self.mappings_of(Some(node)).iter().for_each(|mapping| self.show_in(mapping, part));
    }

    /// Shows a part of a file in a mapping, if that is shared.
    fn show_in(&self, mapping: &Mapping, part: &Range<u64>) {
        if mapping.file.sharing == Sharing::Private || mapping.region.backing.is_nothing() {
            return;
        }
        let part = overlap(&mapping.part(), part);
        let Ok(content) = self.files.tree.node(mapping.file.node).and_then(Node::content) else { return };
        let mut at = part.start;
        // A mapping that has been unmapped meanwhile shows nothing.
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

    /// Gives mappings pages where their file has grown, and removes those behind its end.
    fn resize_mappings(&mut self, node: NodeId) -> Result<(), Errno> {
        let size = self.files.tree.node(node)?.content()?.size();
        for Mapping { pages, file, region } in self.mappings_of(Some(node)) {
            match (region.backing, file.split(pages, size)) {
                (Backing::Beyond(_), (Some(changed), _)) | (Backing::Node(_), (_, Some(changed))) => {
                    self.map_again(changed, region.permissions, file)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Maps a part of a mapping anew for all processes that share it.
    fn map_again(&mut self, pages: PageRange, permissions: Permissions, file: NodePages) -> Result<(), Errno> {
        if !is_shared(pages.start()) {
            return self.map_node(pages, permissions, file);
        }
        let own_regions = self.memory.pieces(pages);
        let others = self.others.memories.values().flat_map(|memory| memory.pieces(pages));
        if own_regions.is_empty() {
            // Only noted regions are unmapped.
            self.others.shared.pieces(pages).into_iter().for_each(|(piece, region)| self.memory.note(piece, region));
        }
        // The pages permit the union of what the processes permit.
        let all = others.map(|(_, region)| region.permissions).fold(permissions, union);
        self.map_node(pages, all, file)?;
        let mapped_regions = self.memory.pieces(pages);
        for (part, mapped) in mapped_regions {
            let spaces = self.others.memories.values_mut().map(|memory| &mut **memory);
            for memory in spaces {
                for (piece, region) in memory.pieces(part) {
                    memory.note(piece, region.like(mapped));
                }
            }
            for regions in [&mut self.others.shared, &mut self.others.contested] {
                for (piece, region) in regions.pieces(part) {
                    regions.put(piece, Region { permissions: mapped.permissions, ..region.like(mapped) });
                }
            }
            if own_regions.is_empty() {
                self.memory.forget(part);
            }
            for (piece, region) in &own_regions {
                let both = PageRange::new(piece.start().max(part.start()), piece.end().min(part.end()));
                both.into_iter().for_each(|piece| self.memory.note(piece, region.like(mapped)));
            }
        }
        self.apply_permissions();
        Ok(())
    }

    /// Takes over the changes of mappings that only the running process's space has, before another process runs.
    pub(crate) fn leave_mappings(&mut self) {
        if self.memory.shows_nodes() {
            for mapping in self.own_mappings() {
                self.sync_mapping(&mapping, &ALL);
            }
        }
        self.memory.known_changes = content::changes();
    }

    /// Updates the mappings that only the running process's space has with changes that others made to the files meanwhile.
    pub(crate) fn enter_mappings(&mut self) {
        if self.has_blocks_to_replace() {
            self.replace_blocks();
        }
        let mappings = if self.memory.shows_nodes() { self.own_mappings() } else { Vec::new() };
        let nodes: BTreeSet<NodeId> = mappings.iter().map(|mapping| mapping.file.node).collect();
        for node in nodes {
            // Memory that processes share is never older than the file. Only mappings of this process alone may be.
            for mapping in self.mappings_of(Some(node)).iter().filter(|mapping| is_shared(mapping.pages.start())) {
                self.sync_mapping(mapping, &ALL);
            }
            let content = self.files.tree.node(node).and_then(Node::content);
            if content.is_ok_and(|content| content.changed() > self.memory.known_changes) {
                // A part that cannot be shown now has no pages, or keeps its present ones.
                let _ = self.resize_mappings(node);
                for mapping in self.own_mappings().iter().filter(|mapping| mapping.file.node == node) {
                    self.show_in(mapping, &ALL);
                }
            }
        }
        self.memory.known_changes = content::changes();
    }

    /// The mappings of files in the running process's space alone.
    fn own_mappings(&self) -> Vec<Mapping> {
        let mut mappings = PageRange::new(0, user::END).map(|all| self.mappings_in(all)).unwrap_or_default();
        mappings.retain(|mapping| !is_shared(mapping.pages.start()));
        mappings
    }

    /// Whether files of volumes were copied up to nodes since shared mappings of their blocks were last looked for.
    fn has_blocks_to_replace(&self) -> bool {
        self.memory.shows_blocks && self.memory.known_owned != self.files.tree.owned()
    }

    /// Replaces the blocks in shared mappings of volumes' files by the nodes that the files were copied up to.
    fn replace_blocks(&mut self) {
        self.memory.known_owned = self.files.tree.owned();
        for (pages, region) in self.memory.all() {
            let Backing::Blocks(_) = region.backing else { continue };
            let Some((file_mapping, offset)) =
                self.memory.file_mapping(region.backing, pages.start()).filter(|_| region.backing.is_shared())
            else {
                continue;
            };
            let (file_mapping, offset) = (file_mapping.clone(), offset);
            if let InodeRef::Node(node) = self.files.tree.real_inode(file_mapping.inode) {
                let file = NodePages::new(node, Sharing::Reads, pages.start(), offset);
                // Without memory for it, the mapping is gone, as if the file could not be read.
                if self.map_node(pages, region.permissions, file).is_ok() {
                    self.memory.record_file_mapping(Backing::Node(file), BlockNumber(0), file_mapping.inode, file_mapping.name);
                }
            }
        }
    }

    /// Makes a private mapping show its file's contents again.
    ///
    /// # Errors
    /// `ENOMEM`, `EIO`.
    pub fn renew(&mut self, pages: PageRange) -> Result<(), Errno> {
        for mapping in self.mappings_in(pages) {
            let is_private = matches!(mapping.region.backing, Backing::Node(file) if file.sharing == Sharing::Private);
            if is_private {
                self.sync_mappings_of(mapping.file.node, &mapping.part());
                self.map_node(mapping.pages, mapping.region.permissions, mapping.file)?;
            }
        }
        Ok(())
    }

    /// Fills the pages that mappings have grown by.
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

/// Writes to pages of a mapping, regardless of their permissions.
fn put(address: u64, bytes: &[u8]) -> Result<(), Errno> {
    if user::write(address, bytes).is_err() {
        memory::write(address, bytes)?;
    }
    Ok(())
}
