// SPDX-License-Identifier: MIT OR Apache-2.0
//! The address space as an ordered map of regions that never overlap. Nothing is mapped here.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

use pando_abi::{BlockAddress, BlockNumber, DiskIndex, PAGE_SIZE, Permissions};
use pando_rt::memory::PageRange;

use crate::files::sharing::Sharing;
use crate::files::tree::node::NodeId;

/// The source of a region's pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// Nothing is mapped: address space reserved without any permission so far.
    Reserved,
    /// Zero memory.
    Anonymous,
    /// Zero memory that processes share.
    Shared(SharedObject),
    /// Zero memory for a thread's stack, of which little is touched: small pages, allocated on use.
    Stack,
    /// Zero memory that grows down as it is touched (`MAP_GROWSDOWN`).
    Downward,
    /// A copy of bytes of a volume.
    Copy,
    /// Blocks of a volume's file, copied on write.
    Blocks(Blocks),
    /// Pages that were filled from a file of the overlay.
    Node(NodePages),
    /// A System V shared memory segment, by its number.
    Segment(u32),
    /// Nothing: behind the end of the file. A file of the overlay may grow.
    Beyond(Option<NodePages>),
}

impl Backing {
    /// Whether nothing is mapped.
    #[must_use]
    pub fn is_nothing(self) -> bool {
        matches!(self, Backing::Reserved | Backing::Beyond(_))
    }

    /// Whether it may never become writable: it is shared, and its file was not opened for writing.
    #[must_use]
    pub fn is_read_only(self) -> bool {
        let sharing = match self {
            Backing::Blocks(blocks) => blocks.sharing,
            Backing::Node(pages) | Backing::Beyond(Some(pages)) => pages.sharing,
            _ => Sharing::Private,
        };
        sharing == Sharing::Reads
    }

    /// The file of the overlay that it maps.
    #[must_use]
    pub fn node(self) -> Option<NodePages> {
        match self {
            Backing::Node(pages) | Backing::Beyond(Some(pages)) => Some(pages),
            _ => None,
        }
    }

    /// The offset of an address in shared anonymous memory, which may have become a file.
    #[must_use]
    pub fn anonymous_offset(self, address: u64) -> Option<u64> {
        match self {
            Backing::Shared(object) => Some(address.wrapping_sub(object.start())),
            Backing::Node(file) | Backing::Beyond(Some(file)) => Some(file.at(address)),
            _ => None,
        }
    }

    /// The same kind of backing for another file of the overlay, or for the same one with other sharing.
    #[must_use]
    pub fn of(self, file: NodePages) -> Backing {
        if self.is_nothing() { Backing::Beyond(Some(file)) } else { Backing::Node(file) }
    }

    /// Whether others see writes to it.
    #[must_use]
    pub fn is_shared(self) -> bool {
        match self {
            Backing::Blocks(blocks) => blocks.sharing != Sharing::Private,
            Backing::Node(pages) | Backing::Beyond(Some(pages)) => pages.sharing != Sharing::Private,
            Backing::Shared(_) | Backing::Segment(_) => true,
            _ => false,
        }
    }

    /// Whether it maps a file.
    #[must_use]
    pub fn is_file(self) -> bool {
        !matches!(self, Backing::Reserved | Backing::Anonymous | Backing::Stack | Backing::Downward)
    }

    /// The same backing at another address.
    #[must_use]
    pub fn moved(self, from: u64, to: u64) -> Backing {
        let pages = (from / PAGE_SIZE).wrapping_sub(to / PAGE_SIZE);
        match self {
            Backing::Blocks(blocks) => Backing::Blocks(Blocks { shift: blocks.shift.wrapping_add(pages), ..blocks }),
            Backing::Shared(object) => Backing::Shared(SharedObject { first: object.first.wrapping_sub(pages), ..object }),
            Backing::Node(node) => Backing::Node(NodePages { shift: node.shift.wrapping_add(pages), ..node }),
            Backing::Beyond(Some(node)) => Backing::Beyond(Some(NodePages { shift: node.shift.wrapping_add(pages), ..node })),
            other => other,
        }
    }
}

/// Shared anonymous memory, as `mmap` created it. Its mappings may be parts of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedObject {
    /// Number of the page in memory at which the object begins, or would begin if all of it were mapped.
    first: u64,
    /// Its pages.
    pages: u64,
}

impl SharedObject {
    /// A new object that is mapped as a whole.
    #[must_use]
    pub fn new(range: PageRange) -> SharedObject {
        SharedObject { first: range.start() / PAGE_SIZE, pages: range.bytes() / PAGE_SIZE }
    }

    /// The address at which it begins, modulo 2^64.
    #[must_use]
    pub fn start(self) -> u64 {
        self.first.wrapping_mul(PAGE_SIZE)
    }

    /// Its size in bytes.
    #[must_use]
    pub fn bytes(self) -> u64 {
        self.pages * PAGE_SIZE
    }
}

/// A file of the overlay in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodePages {
    /// The file.
    pub node: NodeId,
    /// Whether changes are shared.
    pub sharing: Sharing,
    /// Number of a page in the file minus its number in memory.
    shift: u64,
}

impl NodePages {
    /// A file from `offset` on, at `address`; both are the start of a page.
    #[must_use]
    pub fn new(node: NodeId, sharing: Sharing, address: u64, offset: u64) -> NodePages {
        NodePages { node, sharing, shift: (offset / PAGE_SIZE).wrapping_sub(address / PAGE_SIZE) }
    }

    /// The offset in the file of an address.
    #[must_use]
    pub fn at(self, address: u64) -> u64 {
        (address / PAGE_SIZE).wrapping_add(self.shift).wrapping_mul(PAGE_SIZE)
    }

    /// The part of `pages` inside a file of `size` bytes, and the part behind its last page.
    #[must_use]
    pub fn split(self, pages: PageRange, size: u64) -> (Option<PageRange>, Option<PageRange>) {
        let inside = size.saturating_sub(self.at(pages.start())).checked_next_multiple_of(PAGE_SIZE).unwrap_or(u64::MAX);
        let end = pages.start().saturating_add(inside).min(pages.end());
        (PageRange::new(pages.start(), end), PageRange::new(end, pages.end()))
    }
}

/// Consecutive blocks of a file in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocks {
    disk: DiskIndex,
    /// Number of a block minus the number of its page in memory; the same for all of them.
    shift: u64,
    /// The number after that of the file's last block.
    end: BlockNumber,
    sharing: Sharing,
    /// They were writable at some time, and may differ from the file's.
    written: bool,
}

impl Blocks {
    /// The blocks from `first` on, up to `end`, at `address`.
    #[must_use]
    pub fn new(address: u64, first: BlockAddress, end: BlockNumber, sharing: Sharing) -> Blocks {
        let shift = u64::from(first.block.0).wrapping_sub(address / PAGE_SIZE);
        Blocks { disk: first.disk, shift, end, sharing, written: false }
    }

    /// The block at an address.
    #[must_use]
    pub fn at(self, address: u64) -> BlockAddress {
        BlockAddress { disk: self.disk, block: BlockNumber((address / PAGE_SIZE).wrapping_add(self.shift) as u32) }
    }

    /// The same blocks after they were writable.
    #[must_use]
    pub fn as_written(self) -> Blocks {
        Blocks { written: true, ..self }
    }

    /// Whether both are blocks of one file.
    #[must_use]
    pub fn is_same_file(self, other: Blocks) -> bool {
        (self.disk, self.end) == (other.disk, other.end)
    }

    /// Their disk.
    #[must_use]
    pub fn disk(self) -> DiskIndex {
        self.disk
    }

    /// The number after that of the file's last block.
    #[must_use]
    pub fn end_block(self) -> BlockNumber {
        self.end
    }

    /// Whether they equal the file's blocks, apart from patches, and no one else can change them.
    #[must_use]
    pub fn is_pristine(self) -> bool {
        !self.written && self.sharing == Sharing::Private
    }

    /// The address behind the last one.
    #[must_use]
    pub fn end(self) -> u64 {
        u64::from(self.end.0).wrapping_sub(self.shift).wrapping_mul(PAGE_SIZE)
    }
}

/// The properties of a range of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// The application's permissions.
    pub permissions: Permissions,
    /// The source of its pages.
    pub backing: Backing,
}

impl Region {
    /// Its file mapped with the sharing of another region.
    #[must_use]
    pub fn like(self, other: Region) -> Region {
        Region { backing: self.backing.node().map_or(self.backing, |file| other.backing.of(file)), ..self }
    }
}

/// Regions by their start.
#[derive(Clone, Debug, Default)]
pub struct Regions(BTreeMap<u64, (u64, Region)>);

impl Regions {
    /// The number of regions.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Whether no page of the range is in a region.
    #[must_use]
    pub fn is_free(&self, range: PageRange) -> bool {
        self.last_before(range.end()).is_none_or(|(_, end)| end <= range.start())
    }

    /// Start and end of the last region that starts before `address`.
    fn last_before(&self, address: u64) -> Option<(u64, u64)> {
        self.0.range(..address).next_back().map(|(&start, &(end, _))| (start, end))
    }

    /// The end of the region that contains `address`, and the region.
    #[must_use]
    pub fn end_of(&self, address: u64) -> Option<(u64, Region)> {
        self.0.range(..=address).next_back().map(|(_, &found)| found).filter(|&(end, _)| end > address)
    }

    /// The start of the first region behind `address`; `address` itself if that is in a region. All ones: there is none.
    #[must_use]
    pub fn free_until(&self, address: u64) -> u64 {
        if self.end_of(address).is_some() { address } else { self.0.range(address..).next().map_or(u64::MAX, |(&start, _)| start) }
    }

    /// The parts of the range that are in regions, in order.
    #[must_use]
    pub fn pieces(&self, range: PageRange) -> Vec<(PageRange, Region)> {
        let first = self.last_before(range.start()).map_or(range.start(), |(start, _)| start);
        let regions = self.0.range(first..range.end());
        let cut = |(&start, &(end, region)): (&u64, &(u64, Region))| {
            PageRange::new(start.max(range.start()), end.min(range.end())).map(|part| (part, region))
        };
        regions.filter_map(cut).collect()
    }

    /// All regions, in order.
    #[must_use]
    pub fn all(&self) -> Vec<(PageRange, Region)> {
        self.0.iter().filter_map(|(&start, &(end, region))| PageRange::new(start, end).map(|part| (part, region))).collect()
    }

    /// Whether every page of the range is in a region.
    #[must_use]
    pub fn covers(&self, range: PageRange) -> bool {
        self.pieces(range).iter().map(|(part, _)| part.bytes()).sum::<u64>() == range.bytes()
    }

    /// Removes the range from all regions. Returns the removed parts.
    pub fn remove(&mut self, range: PageRange) -> Vec<(PageRange, Region)> {
        let pieces = self.pieces(range);
        for (part, region) in &pieces {
            // A piece is in exactly one region, which starts at or before it.
            let Some((start, end)) = self.last_before(part.start() + 1) else { continue };
            self.0.remove(&start);
            if start < part.start() {
                self.0.insert(start, (part.start(), *region));
            }
            if part.end() < end {
                self.0.insert(part.end(), (end, *region));
            }
        }
        pieces
    }

    /// Puts a region over the range, in place of earlier ones. Joins it with equal neighbours.
    pub fn put(&mut self, range: PageRange, mut region: Region) {
        if let Backing::Blocks(blocks) = &mut region.backing {
            blocks.written |= region.permissions.writable();
        }
        self.remove(range);
        let (mut start, mut end) = (range.start(), range.end());
        if let Some((&before, &(before_end, other))) = self.0.range(..start).next_back()
            && before_end == start
            && other == region
        {
            self.0.remove(&before);
            start = before;
        }
        if let Some(&(after_end, other)) = self.0.get(&end)
            && other == region
        {
            self.0.remove(&end);
            end = after_end;
        }
        self.0.insert(start, (end, region));
    }

    /// Finds the highest free range of `bytes` bytes at a multiple of `alignment` inside `area`, outside `avoid`.
    #[must_use]
    pub fn find(&self, bytes: u64, alignment: u64, area: Range<u64>, avoid: &Range<u64>) -> Option<PageRange> {
        let highest = |gap: Range<u64>| {
            let start = gap.end.checked_sub(bytes)? / alignment * alignment;
            PageRange::new(start, start + bytes).filter(|_| start >= gap.start)
        };
        let around = |gap: Range<u64>| {
            let (below, above) = (gap.end.min(avoid.start), gap.start.max(avoid.end));
            if avoid.is_empty() { highest(gap) } else { highest(above..gap.end).or_else(|| highest(gap.start..below)) }
        };
        // Walks down from one region to the next, once: there may be tens of thousands.
        let regions = self.0.range(..area.end).rev().map(|(&start, &(end, _))| start..end);
        let mut ceiling = area.end;
        for region in regions.chain(core::iter::once(area.start..area.start)) {
            if let Some(found) = around(region.end.max(area.start)..ceiling) {
                return Some(found);
            }
            ceiling = region.start;
            if ceiling <= area.start {
                break;
            }
        }
        None
    }
}
