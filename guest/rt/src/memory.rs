// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory calls for application memory, and views of memory that the kernel maps.

use alloc::vec::Vec;
use core::marker::PhantomData;
use core::ptr::with_exposed_provenance;
use core::slice;

use pando_abi::boot_info::{ArgumentsHeader, VolumesHeader};
use pando_abi::hypercall::RECORD_WORDS;
use pando_abi::limits::{MAX_BATCH_CALLS, MAX_WRITE_BYTES};
use pando_abi::memory::{CURRENT_SPACE, counted};
use pando_abi::{BlockAddress, Hypercall, MapFlags, PAGE_SIZE, Permissions, Refusal, layout};

use crate::hypercall::perform;
use crate::user::{self, UserRange};

/// Whole pages, at least one, in the address range of applications.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageRange {
    start: u64,
    end: u64,
}

impl PageRange {
    /// The pages from `start` to `end`. `None`: one is not page aligned, the range is empty, or it is not the application's.
    #[must_use]
    pub const fn new(start: u64, end: u64) -> Option<PageRange> {
        if start < end && end <= user::END && start.is_multiple_of(PAGE_SIZE) && end.is_multiple_of(PAGE_SIZE) {
            return Some(PageRange { start, end });
        }
        None
    }

    /// The first page's address.
    #[must_use]
    pub const fn start(self) -> u64 {
        self.start
    }

    /// The address after the last page.
    #[must_use]
    pub const fn end(self) -> u64 {
        self.end
    }

    /// The size in bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.end - self.start
    }

    /// The number of pages.
    #[must_use]
    pub const fn pages(self) -> u64 {
        self.bytes() / PAGE_SIZE
    }
}

/// Splits a range at slot boundaries, because a call names pages of one slot.
fn slot_parts(range: PageRange) -> impl Iterator<Item = PageRange> {
    let mut rest = Some(range);
    core::iter::from_fn(move || {
        let PageRange { start, end } = rest?;
        let cut = end.min((start / layout::SLOT_SIZE + 1) * layout::SLOT_SIZE);
        rest = PageRange::new(cut, end);
        Some(PageRange { start, end: cut })
    })
}

/// Splits a range at slot boundaries. Calls `step` with each part, until one fails.
fn by_slot(range: PageRange, mut step: impl FnMut(PageRange) -> Result<u64, Refusal>) -> Result<(), Refusal> {
    slot_parts(range).try_for_each(|part| step(part).map(|_| ()))
}

/// Maps zero memory in the running space; earlier mappings there are removed first.
///
/// # Errors
/// The quota or the machine has no memory left, or the range is too long.
pub fn map(range: PageRange, flags: MapFlags) -> Result<(), Refusal> {
    map_in(CURRENT_SPACE, range, flags)
}

/// The same in any space.
///
/// # Errors
/// The same; there is no such space.
pub fn map_in(space: u64, range: PageRange, flags: MapFlags) -> Result<(), Refusal> {
    by_slot(range, |part| {
        let call = Hypercall::Map { space, address: part.start, pages: part.pages(), flags: flags.bits() };
        // SAFETY: 1: the range lies in application memory. 2: vector registers survive the call.
        unsafe { perform(call) }
    })
}

/// Maps blocks of a disk in the running space, from `first` on; earlier mappings there are removed first. A written
/// page becomes the cell's private copy. `eager`: they are made present at once, as [`populate`] does.
///
/// # Errors
/// There are no such blocks, or the quota or the machine has no memory left for the tables.
pub fn map_blocks(range: PageRange, first: BlockAddress, permissions: Permissions, eager: bool) -> Result<(), Refusal> {
    map_blocks_in(CURRENT_SPACE, range, first, permissions, eager)
}

/// The same in any space.
///
/// # Errors
/// The same; there is no such space.
pub fn map_blocks_in(space: u64, range: PageRange, first: BlockAddress, permissions: Permissions, eager: bool) -> Result<(), Refusal> {
    let flags = MapFlags { eager, ..MapFlags::lazy(permissions) }.bits();
    by_slot(range, |part| {
        let block = first.bits() + (part.start - range.start) / PAGE_SIZE;
        let call = Hypercall::MapBlocks { space, address: part.start, pages: part.pages(), block, flags };
        // SAFETY: as for `map`.
        unsafe { perform(call) }
    })
}

/// Makes mapped memory of the running space present, so that reading it does not fault: all mappings in the pages that
/// hold `bytes` bytes at `start`. It works for memory of programs and for volumes. Blocks that cannot be read are skipped.
///
/// # Errors
/// The range is invalid, or the quota or the machine has no memory left; then only a part of it is present.
pub fn populate(start: u64, bytes: u64) -> Result<(), Refusal> {
    let first = start & !(PAGE_SIZE - 1);
    let pages = (start - first).saturating_add(bytes).div_ceil(PAGE_SIZE);
    // SAFETY: 1: the call changes no content and no permission, wherever the range lies. 2: vector registers survive the call.
    unsafe { perform(Hypercall::Populate { space: CURRENT_SPACE, address: first, pages }) }.map(|_| ())
}

/// Counts of resident pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResidentPages {
    /// All of them.
    pub pages: u64,
    /// Those without another holder: no other space, nor the cache of blocks.
    pub own: u64,
}

/// Counts the resident pages of a range in a space.
///
/// # Errors
/// There is no such space.
pub fn count_in(space: u64, range: PageRange) -> Result<ResidentPages, Refusal> {
    let mut all = ResidentPages::default();
    by_slot(range, |part| {
        let call = Hypercall::Count { space, address: part.start, pages: part.pages() };
        // SAFETY: 1: the call changes nothing. 2: vector registers survive the call.
        let (pages, own) = counted::split(unsafe { perform(call) }?);
        all.pages += pages;
        all.own += own;
        Ok(0)
    })?;
    Ok(all)
}

/// Unmaps pages of the running space.
///
/// # Errors
/// As for [`unmap_in`].
pub fn unmap(range: PageRange) -> Result<(), Refusal> {
    unmap_in(CURRENT_SPACE, range)
}

/// Unmaps pages of a space.
///
/// # Errors
/// There is no such space, the range is too long, or the machine has no memory for the tables.
pub fn unmap_in(space: u64, range: PageRange) -> Result<(), Refusal> {
    by_slot(range, |part| {
        let call = Hypercall::Unmap { space, address: part.start, pages: part.pages() };
        // SAFETY: as for `map`.
        unsafe { perform(call) }
    })
}

/// Sets the permissions of mappings in pages of the running space.
///
/// # Errors
/// The range is too long, or the machine has no memory for the tables.
pub fn protect(range: PageRange, permissions: Permissions) -> Result<(), Refusal> {
    by_slot(range, |part| {
        let call = Hypercall::Protect { space: CURRENT_SPACE, address: part.start, pages: part.pages(), permissions: permissions.bits() };
        // SAFETY: as for `map`.
        unsafe { perform(call) }
    })
}

/// Copies bytes into application memory of the running space, regardless of the permissions there.
///
/// # Errors
/// A part is not mapped, or the quota or the machine has no memory left for a copy of shared pages.
pub fn write(to: u64, from: &[u8]) -> Result<(), Refusal> {
    write_in(CURRENT_SPACE, to, from)
}

/// Copies bytes into application memory of a space, regardless of the permissions there.
///
/// # Errors
/// A part is not mapped, or the quota or the machine has no memory left for a copy of shared pages.
pub fn write_in(space: u64, to: u64, from: &[u8]) -> Result<(), Refusal> {
    UserRange::new(to, from.len() as u64).map_err(|_| Refusal::BadAddress)?;
    for (index, piece) in from.chunks(MAX_WRITE_BYTES as usize).enumerate() {
        let address = to + index as u64 * MAX_WRITE_BYTES;
        let source = piece.as_ptr().addr() as u64;
        let call = Hypercall::Write { space, address, source, bytes: piece.len() as u64 };
        // SAFETY: 1: the bytes written lie in application memory. 2: vector registers survive the call.
        unsafe { perform(call) }?;
    }
    Ok(())
}

/// Memory calls that are performed in order at one exit.
#[derive(Debug, Default)]
pub struct Batch<'a> {
    records: Vec<[u64; RECORD_WORDS]>,
    /// The bytes that the calls read.
    sources: PhantomData<&'a [u8]>,
}

impl<'a> Batch<'a> {
    /// Adds a copy of at most [`MAX_WRITE_BYTES`] bytes into application memory of the running space, regardless of the permissions
    /// there.
    ///
    /// # Errors
    /// The range is not the application's; nothing is added.
    pub fn write(&mut self, to: u64, from: &'a [u8]) -> Result<(), Refusal> {
        UserRange::new(to, from.len() as u64).map_err(|_| Refusal::BadAddress)?;
        let source = from.as_ptr().addr() as u64;
        self.records.push(Hypercall::Write { space: CURRENT_SPACE, address: to, source, bytes: from.len() as u64 }.record());
        Ok(())
    }

    /// Adds a mapping of zero memory in the running space; earlier mappings there are removed first.
    pub fn map(&mut self, range: PageRange, flags: MapFlags) {
        let call = |part: PageRange| Hypercall::Map { space: CURRENT_SPACE, address: part.start, pages: part.pages(), flags: flags.bits() };
        self.records.extend(slot_parts(range).map(|part| call(part).record()));
    }

    /// Adds a change of the permissions of mappings in pages of the running space.
    pub fn protect(&mut self, range: PageRange, permissions: Permissions) {
        let call = |part: PageRange| Hypercall::Protect {
            space: CURRENT_SPACE,
            address: part.start,
            pages: part.pages(),
            permissions: permissions.bits(),
        };
        self.records.extend(slot_parts(range).map(|part| call(part).record()));
    }

    /// Adds the removal of the mappings in pages of the running space.
    pub fn unmap(&mut self, range: PageRange) {
        let call = |part: PageRange| Hypercall::Unmap { space: CURRENT_SPACE, address: part.start, pages: part.pages() };
        self.records.extend(slot_parts(range).map(|part| call(part).record()));
    }

    /// Number of calls.
    #[must_use]
    pub fn count(&self) -> usize {
        self.records.len()
    }

    /// Performs the calls up to the first refused one, and returns their number. One exit for each [`MAX_BATCH_CALLS`].
    #[must_use]
    pub fn perform(&self) -> usize {
        let mut performed = 0;
        for records in self.records.chunks(MAX_BATCH_CALLS as usize) {
            let call = Hypercall::Batch { address: records.as_ptr().addr() as u64, calls: records.len() as u64 };
            // SAFETY: as for `write`, `map`, `protect` and `unmap`: records have no other calls.
            let now = unsafe { perform(call) }.unwrap_or(0) as usize;
            performed += now;
            if now < records.len() {
                break;
            }
        }
        performed
    }
}

/// Whether the parent of the cell makes room when its memory is short.
#[must_use]
pub fn is_paged() -> bool {
    #[cfg(target_os = "none")]
    {
        arguments().header.options & pando_abi::boot_info::options::PAGED != 0
    }
    #[cfg(not(target_os = "none"))]
    false
}

/// Pages that the cell may still allocate, as of the last memory call; unlimited on the host, and if the cell is paged.
#[must_use]
pub fn free_pages() -> u64 {
    #[cfg(target_os = "none")]
    {
        let memory = crate::registers::memory();
        if is_paged() { u64::MAX } else { memory.quota.saturating_sub(memory.used) }
    }
    #[cfg(not(target_os = "none"))]
    u64::MAX
}

/// The most pages that programs can have: the cell's quota; unlimited on the host, and if the cell is paged.
#[must_use]
pub fn quota_pages() -> u64 {
    #[cfg(target_os = "none")]
    {
        if is_paged() { u64::MAX } else { crate::registers::memory().quota }
    }
    #[cfg(not(target_os = "none"))]
    u64::MAX
}

/// The arguments from the operator: header and strings.
#[derive(Clone, Copy, Debug)]
pub struct Arguments {
    /// The header.
    pub header: ArgumentsHeader,
    /// The strings, each ended by a zero byte.
    pub strings: &'static [u8],
}

/// The volumes of the root that the cell is a clone of: header and mount points.
#[derive(Clone, Copy, Debug)]
pub struct Volumes {
    /// The header.
    pub header: VolumesHeader,
    /// The mount points, each ended by a zero byte.
    pub points: &'static [u8],
}

impl Volumes {
    /// The mount points in order.
    pub fn mount_points(&self) -> impl Iterator<Item = &'static [u8]> {
        self.points.split(|byte| *byte == 0).take(self.header.volumes as usize)
    }

    /// The bytes of a volume; empty if there is no such volume.
    #[must_use]
    pub fn volume(&self, index: usize) -> &'static [u8] {
        let bytes = self.header.volume_bytes.get(index).map_or(0, |bytes| (*bytes).min(layout::SLOT_SIZE));
        if bytes == 0 || index >= self.header.volumes as usize {
            return &[];
        }
        let start = with_exposed_provenance::<u8>(layout::volume(index) as usize);
        // SAFETY: the operator maps each volume as long as the header says before a clone runs; nobody in the cell
        // writes to it, and it is never unmapped, because memory calls of this crate name application memory only.
        unsafe { slice::from_raw_parts(start, bytes as usize) }
    }
}

/// Reads the table of volumes; a template has none before it is cloned as a root.
#[must_use]
pub fn volumes() -> Volumes {
    let table = with_exposed_provenance::<VolumesHeader>(layout::VOLUMES as usize);
    // SAFETY: the operator maps the table whole, before a clone runs; nobody in the cell writes to it, and it is never
    // unmapped, because memory calls of this crate name application memory only.
    unsafe {
        let header = table.read();
        let room = layout::VOLUMES_SIZE as usize - VolumesHeader::SIZE;
        let points = slice::from_raw_parts(table.add(1).cast::<u8>(), (header.bytes as usize).min(room));
        Volumes { header, points }
    }
}

/// Reads the arguments from the operator; a template has none before it is cloned.
#[must_use]
pub fn arguments() -> Arguments {
    let block = with_exposed_provenance::<ArgumentsHeader>(layout::ARGUMENTS as usize);
    // SAFETY: the kernel maps the block whole, before a clone runs; nobody in the cell writes to it, and it is never
    // unmapped, because memory calls of this crate name application memory only.
    unsafe {
        let header = block.read();
        let room = layout::ARGUMENTS_SIZE as usize - ArgumentsHeader::SIZE;
        let strings = slice::from_raw_parts(block.add(1).cast::<u8>(), (header.bytes as usize).min(room));
        Arguments { header, strings }
    }
}
