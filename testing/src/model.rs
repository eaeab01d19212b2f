// SPDX-License-Identifier: MIT OR Apache-2.0
//! A reference model of a cell's memory: the simplest description of spaces and segments, against which tests check the kernel.
//!
//! A page has permissions and the two words that the model tracks, the first and the last. There are no tables, no sharing
//! and no laziness: a clone is a copy, and mapped memory reads zero. Only a window of each slot is tracked, even if more is
//! mapped. The window lies across a boundary of 1 GiB, so that edits of a few pages reach every level of a tree.

use pando_abi::layout::{SLOT_SIZE, SYSTEM_SLOT};
use pando_abi::memory::CURRENT_SPACE;
use pando_abi::{BlockAddress, DiskIndex, Hypercall, MapFlags, PAGE_SIZE, Permissions, Refusal};
use std::collections::BTreeMap;

/// First page of the window, counted from the start of a slot.
pub const WINDOW_START: u64 = 512 * 512 - WINDOW_PAGES / 2;
/// Pages of the window: four large pages, two on each side of the boundary.
pub const WINDOW_PAGES: u64 = 2048;
/// Offsets of the tracked words in each page.
pub const WORDS: [u64; 2] = [0, PAGE_SIZE - 8];

/// A page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The cell's permissions for it.
    pub permissions: Permissions,
    /// The values at [`WORDS`].
    pub words: [u64; 2],
    /// It is a block that cannot be read.
    pub lost: bool,
}

/// The disk of all cells, with index 0.
#[derive(Clone, Copy, Debug)]
pub struct Disk {
    /// Its size in blocks.
    pub blocks: u32,
    /// Returns the values at [`WORDS`] of a block. `None`: it cannot be read.
    pub words: fn(u32) -> Option<[u64; 2]>,
}

/// The window of a tree: its mapped pages.
pub type ModelTree = BTreeMap<u64, Page>;

/// The content of a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlotContent {
    /// Memory of the space alone.
    Private(ModelTree),
    /// A segment, by index.
    Segment(usize),
}

/// All memory of a cell.
#[derive(Clone, Debug)]
pub struct Memory {
    disk: Disk,
    spaces: Vec<Option<BTreeMap<usize, SlotContent>>>,
    segments: Vec<Option<ModelTree>>,
    current: usize,
}

fn system() -> BTreeMap<usize, SlotContent> {
    BTreeMap::from([(SYSTEM_SLOT, SlotContent::Segment(0))])
}

/// Puts a value into the first free entry and returns its index.
fn put<T>(room: &mut Vec<Option<T>>, value: T) -> u64 {
    let index = room.iter().position(Option::is_none).unwrap_or(room.len());
    if index == room.len() {
        room.push(None);
    }
    room[index] = Some(value);
    index as u64
}

/// The slot of an address, and the page within the slot.
fn place(address: u64) -> (usize, u64) {
    ((address / SLOT_SIZE) as usize, address % SLOT_SIZE / PAGE_SIZE)
}

/// The index in [`Page::words`] of the word at `address`.
///
/// # Panics
/// If the model does not track a word there.
fn word(address: u64) -> usize {
    WORDS.iter().position(|offset| address % PAGE_SIZE == *offset).expect("a word that the model follows")
}

impl Memory {
    /// Creates one space with the system segment, which is not tracked.
    #[must_use]
    pub fn new(disk: Disk) -> Memory {
        Memory { disk, spaces: vec![Some(system())], segments: vec![Some(ModelTree::new())], current: 0 }
    }

    /// The running space.
    #[must_use]
    pub fn current(&self) -> u64 {
        self.current as u64
    }

    /// The indices of all spaces.
    #[must_use]
    pub fn spaces(&self) -> Vec<u64> {
        indices(&self.spaces)
    }

    /// The indices of all segments.
    #[must_use]
    pub fn segments(&self) -> Vec<u64> {
        indices(&self.segments)
    }

    /// The page of a space at an address.
    #[must_use]
    pub fn page(&self, space: u64, address: u64) -> Option<Page> {
        let (slot, page) = place(address);
        let tree = match self.spaces.get(space as usize)?.as_ref()?.get(&slot)? {
            SlotContent::Private(tree) => tree,
            SlotContent::Segment(index) => self.segments.get(*index)?.as_ref()?,
        };
        tree.get(&page).copied()
    }

    /// The pages that a space maps in a slot.
    #[must_use]
    pub fn mapped(&self, space: u64, slot: usize) -> Vec<u64> {
        match self.spaces.get(space as usize).and_then(Option::as_ref).and_then(|parts| parts.get(&slot)) {
            Some(SlotContent::Private(tree)) => tree.keys().copied().collect(),
            Some(SlotContent::Segment(index)) => self.segments[*index].iter().flat_map(|tree| tree.keys().copied()).collect(),
            None => Vec::new(),
        }
    }

    /// A read by the cell; `None`: it faults.
    #[must_use]
    pub fn load(&self, address: u64) -> Option<u64> {
        let page = self.page(self.current(), address)?;
        (page.permissions.readable() && !page.lost).then_some(page.words[word(address)])
    }

    /// An instruction fetch by the cell; `None`: it faults.
    #[must_use]
    pub fn fetch(&self, address: u64) -> Option<u64> {
        let page = self.page(self.current(), address)?;
        (page.permissions.executable() && !page.lost).then_some(page.words[word(address)])
    }

    /// A write by the cell; `false`: it faults.
    #[must_use]
    pub fn store(&mut self, address: u64, value: u64) -> bool {
        match self.page_mut(self.current, address) {
            Some(page) if page.permissions.writable() && !page.lost => {
                page.words[word(address)] = value;
                true
            }
            _ => false,
        }
    }

    /// A read by the operator, which ignores permissions; `None`: nothing is mapped, or the block cannot be read.
    #[must_use]
    pub fn peek(&self, address: u64) -> Option<u64> {
        self.page(self.current(), address).filter(|page| !page.lost).map(|page| page.words[word(address)])
    }

    /// A write by the operator, which ignores permissions; `false`: nothing is mapped, or the block cannot be read.
    #[must_use]
    pub fn poke(&mut self, address: u64, value: u64) -> bool {
        match self.page_mut(self.current, address) {
            Some(page) if !page.lost => {
                page.words[word(address)] = value;
                true
            }
            _ => false,
        }
    }

    fn page_mut(&mut self, space: usize, address: u64) -> Option<&mut Page> {
        let (slot, page) = place(address);
        self.tree(space, slot)?.get_mut(&page)
    }

    fn tree(&mut self, space: usize, slot: usize) -> Option<&mut ModelTree> {
        match self.spaces.get_mut(space)?.as_mut()?.get_mut(&slot)? {
            SlotContent::Private(tree) => Some(tree),
            SlotContent::Segment(index) => self.segments.get_mut(*index)?.as_mut(),
        }
    }

    /// Performs a memory hypercall whose range is valid.
    ///
    /// # Errors
    /// The refusal that the kernel must return.
    ///
    /// # Panics
    /// If the model does not know the call.
    pub fn call(&mut self, call: Hypercall) -> Result<u64, Refusal> {
        match call {
            Hypercall::Map { space, address, pages, flags } => {
                let flags = MapFlags::from_bits(flags).ok_or(Refusal::BadArgument)?;
                self.map(space, address, pages, |_| Page { permissions: flags.permissions, ..Page::default() })
            }
            Hypercall::MapBlocks { space, address, pages, block, flags } => {
                let permissions = MapFlags::from_bits(flags).filter(|flags| !flags.large).ok_or(Refusal::BadArgument)?.permissions;
                self.space(space)?;
                let BlockAddress { disk, block } = BlockAddress::from_bits(block);
                if disk != DiskIndex(0) {
                    return Err(Refusal::NoSuchDisk);
                }
                let Disk { blocks, words } = self.disk;
                if u64::from(block.0) + pages > blocks.into() {
                    return Err(Refusal::NoSuchBlock);
                }
                self.map(space, address, pages, |page| {
                    let words = words(block.further(page).0);
                    Page { permissions, words: words.unwrap_or_default(), lost: words.is_none() }
                })
            }
            Hypercall::Populate { space, .. } => self.space(space).map(|_| 0),
            Hypercall::Unmap { space, address, pages } => self.unmap(space, address, pages),
            Hypercall::Protect { space, address, pages, permissions } => {
                let permissions = Permissions::from_bits(permissions).ok_or(Refusal::BadArgument)?;
                self.protect(space, address, pages, permissions)
            }
            Hypercall::SpaceCreate {} => Ok(put(&mut self.spaces, system())),
            Hypercall::SpaceClone { space } => {
                let copy = self.spaces[self.space(space)?].clone().ok_or(Refusal::NoSuchSpace)?;
                Ok(put(&mut self.spaces, copy))
            }
            Hypercall::SpaceSwitch { space } => {
                self.current = self.space(space)?;
                Ok(0)
            }
            Hypercall::SpaceDestroy { space } => {
                let index = self.space(space)?;
                if index == self.current {
                    return Err(Refusal::Busy);
                }
                self.spaces[index] = None;
                Ok(0)
            }
            Hypercall::SegmentCreate {} => Ok(put(&mut self.segments, ModelTree::new())),
            Hypercall::SegmentMount { segment, space, address } => self.mount_segment(segment, space, address),
            Hypercall::SegmentDestroy { segment } => self.destroy_segment(segment),
            Hypercall::Inspect { space, address } => {
                let space = self.space(space)? as u64;
                Ok(self.page(space, address).map_or(0, |page| page.permissions.bits() | MAPPED))
            }
            other => panic!("{} is not about memory", other.name()),
        }
    }

    fn space(&self, space: u64) -> Result<usize, Refusal> {
        let index = if space == CURRENT_SPACE { self.current as u64 } else { space };
        match self.spaces.get(index as usize) {
            Some(Some(_)) => Ok(index as usize),
            _ => Err(Refusal::NoSuchSpace),
        }
    }

    fn segment(&self, segment: u64) -> Result<usize, Refusal> {
        match self.segments.get(segment as usize) {
            Some(Some(_)) => Ok(segment as usize),
            _ => Err(Refusal::NoSuchSegment),
        }
    }

    /// Maps pages; `made` returns the page for each index of the range.
    fn map(&mut self, space: u64, address: u64, pages: u64, made: impl Fn(u64) -> Page) -> Result<u64, Refusal> {
        let space = self.space(space)?;
        let (slot, first) = place(address);
        let parts = self.spaces[space].as_mut().ok_or(Refusal::NoSuchSpace)?;
        parts.entry(slot).or_insert_with(|| SlotContent::Private(ModelTree::new()));
        let tree = self.tree(space, slot).ok_or(Refusal::NoSuchSpace)?;
        tree.extend(within(first, pages).map(|page| (page, made(page - first))));
        Ok(0)
    }

    fn unmap(&mut self, space: u64, address: u64, pages: u64) -> Result<u64, Refusal> {
        let space = self.space(space)?;
        let (slot, first) = place(address);
        let gone = within(first, pages);
        if let Some(tree) = self.tree(space, slot) {
            tree.retain(|page, _| !gone.contains(page));
        }
        Ok(0)
    }

    fn protect(&mut self, space: u64, address: u64, pages: u64, permissions: Permissions) -> Result<u64, Refusal> {
        let space = self.space(space)?;
        let (slot, first) = place(address);
        if let Some(tree) = self.tree(space, slot) {
            for (_, page) in tree.range_mut(within(first, pages)) {
                page.permissions = permissions;
            }
        }
        Ok(0)
    }

    fn mount_segment(&mut self, segment: u64, space: u64, address: u64) -> Result<u64, Refusal> {
        let segment = self.segment(segment)?;
        let space = self.space(space)?;
        if !address.is_multiple_of(SLOT_SIZE) {
            return Err(Refusal::BadAddress);
        }
        let parts = self.spaces[space].as_mut().ok_or(Refusal::NoSuchSpace)?;
        if parts.contains_key(&place(address).0) {
            return Err(Refusal::SlotTaken);
        }
        parts.insert(place(address).0, SlotContent::Segment(segment));
        Ok(0)
    }

    fn destroy_segment(&mut self, segment: u64) -> Result<u64, Refusal> {
        let segment = self.segment(segment)?;
        if self.spaces.iter().flatten().flat_map(BTreeMap::values).any(|part| *part == SlotContent::Segment(segment)) {
            return Err(Refusal::Busy);
        }
        self.segments[segment] = None;
        Ok(0)
    }
}

/// A bit in the model's answer to `inspect`: the page is mapped. The model ignores whether it is resident.
pub const MAPPED: u64 = 1 << 3;

/// The part of a range that lies in the window.
fn within(first: u64, pages: u64) -> std::ops::Range<u64> {
    let start = first.max(WINDOW_START);
    start..(first + pages).min(WINDOW_START + WINDOW_PAGES).max(start)
}

fn indices<T>(room: &[Option<T>]) -> Vec<u64> {
    (0..room.len()).filter(|index| room[*index].is_some()).map(|index| index as u64).collect()
}
