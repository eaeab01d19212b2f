// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cell of a restored program: it is built from an image without reading its pages, except for the libOS's. The program gets the
//! others when it needs them, as from a pager.

use super::directory::{StoredCheckpoint, plain};
use super::image::{StoredContent, StoredExtent, TreeExtents, mapped_at};
use pando_abi::cell_image::{ExtentContent, ImageExtent, ImageRecord, RECORD_BYTES, TreeOrigin, TreePlace};
use pando_abi::limits::{MAX_CONSOLE_BYTES, MAX_SWAP_PAGES};
use pando_abi::watch::state;
use pando_abi::{BlockAddress, HoldingName, PAGE_SIZE, Permissions};
use pando_machine::{CellsDevice, PageBuffer};
use std::io::{Error, ErrorKind, Result};

/// The segment of the libOS, which cannot wait for its own pages.
const SYSTEM_SEGMENT: TreePlace = TreePlace::Segment(0);
/// Pages that a fault reads at most.
const READ_AHEAD: u32 = 64;

/// Builds a child that was not started from a checkpoint.
///
/// # Errors
/// The kernel refuses the image, or a page of the libOS cannot be read.
pub(super) fn build(device: &CellsDevice, child: HoldingName, stored: &mut StoredCheckpoint) -> Result<()> {
    let refused = |error: Error| Error::new(error.kind(), format!("the checkpoint does not fit to this kernel: {error}"));
    device.write_state(child, state::LAYOUT, &stored.image().layout).map_err(refused)?;
    let mut records = RecordBuffer::default();
    let mut system = TreeExtents::default();
    for (place, extents) in stored.image().trees.clone() {
        let place = TreePlace::from_bits(place).ok_or_else(|| Error::other("the checkpoint is damaged: it has an invalid place"))?;
        records.begin(place);
        for (first, extent) in extents.iter() {
            if records.is_full() {
                records.write(device, child).map_err(refused)?;
            }
            records.add(place, first, extent);
        }
        if place == SYSTEM_SEGMENT {
            system = extents;
        }
    }
    records.write(device, child).map_err(refused)?;
    let mut buffer = PageBuffer::default();
    for (first, extent) in system.iter() {
        let StoredContent::Stored(number) = extent.content else { continue };
        for further in (0..extent.count).step_by(MAX_SWAP_PAGES as usize) {
            let count = (extent.count - further).min(MAX_SWAP_PAGES);
            stored.read(number + further as u32, &mut buffer.bytes_mut()[..(count * PAGE_SIZE) as usize])?;
            let (space, address) = mapped_at(child, &stored.image().layout, SYSTEM_SEGMENT, first + further)
                .ok_or_else(|| Error::other("the checkpoint is damaged: it has no libOS"))?;
            device.write_pages(space, address, &buffer, count)?;
        }
    }
    device.write_state(child, state::IMAGE, &stored.image().state).map_err(refused)
}

/// Records on their way to the kernel.
#[derive(Default)]
struct RecordBuffer {
    bytes: Vec<u8>,
    /// The tree of the next extents.
    place: Option<TreePlace>,
}

impl RecordBuffer {
    fn begin(&mut self, place: TreePlace) {
        self.place = Some(place);
        if self.is_full() {
            // The record comes at the beginning of the next part.
            return;
        }
        self.push(ImageRecord::Tree { place, origin: TreeOrigin::Nothing });
    }

    fn is_full(&self) -> bool {
        self.bytes.len() + 2 * RECORD_BYTES > MAX_CONSOLE_BYTES as usize
    }

    fn push(&mut self, record: ImageRecord) {
        self.bytes.extend(record.to_words().into_iter().flat_map(u64::to_le_bytes));
    }

    fn add(&mut self, place: TreePlace, first: u64, extent: StoredExtent) {
        let permissions = Permissions::from_bits(extent.permissions.into()).unwrap_or(Permissions::NONE);
        let content = match extent.content {
            StoredContent::Lazy { large } => ExtentContent::Lazy { large },
            StoredContent::Blocks(block) => ExtentContent::Blocks(BlockAddress::from_bits(block)),
            StoredContent::Stored(_) if place == SYSTEM_SEGMENT => ExtentContent::Lazy { large: false },
            StoredContent::Stored(number) => ExtentContent::Taken(number),
        };
        self.push(ImageRecord::Extent(ImageExtent { first, count: extent.count, permissions, content }));
    }

    fn write(&mut self, device: &CellsDevice, child: HoldingName) -> Result<()> {
        device.write_state(child, state::EXTENTS, &self.bytes)?;
        self.bytes.clear();
        if let Some(place) = self.place {
            self.push(ImageRecord::Tree { place, origin: TreeOrigin::Nothing });
        }
        Ok(())
    }
}

/// The pages of a restored program that it has not needed yet.
#[derive(Debug)]
pub(super) struct PageSource {
    pub(super) stored: StoredCheckpoint,
    buffer: PageBuffer,
    /// Pages that were given.
    pub(super) given: u64,
}

impl PageSource {
    pub(super) fn new(stored: StoredCheckpoint) -> PageSource {
        PageSource { stored, buffer: PageBuffer::default(), given: 0 }
    }

    /// Gives a page that the program needs, and some after it.
    ///
    /// # Errors
    /// It cannot be read, or the program's memory is used up.
    pub(super) fn give(&mut self, device: &CellsDevice, child: HoldingName, (space, address, number): (u32, u64, u32)) -> Result<()> {
        let count = self.stored.run(number).clamp(1, READ_AHEAD);
        let bytes = count as usize * PAGE_SIZE as usize;
        let failed = |error: Error| Error::new(error.kind(), format!("cannot read a page of the checkpoint: {}", plain(&error)));
        self.stored.read(number, &mut self.buffer.bytes_mut()[..bytes]).map_err(failed)?;
        match device.give(child.space(space), address, &self.buffer, count.into(), number)? {
            Some(0) => Err(Error::other("the kernel has lost the page that the program needs")),
            Some(given) => {
                self.given += given;
                Ok(())
            }
            None => Err(Error::new(ErrorKind::OutOfMemory, "the memory of the program is used up: give it more with --memory")),
        }
    }
}
