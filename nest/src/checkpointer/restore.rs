// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cell of a restored program: it is built from an image without reading its pages, except for the libOS's. The program gets the
//! others when it needs them, as from a pager.

use super::family::{MEMBER_HALT_MAX, STATE_INTERVAL};
use super::image::{CellImage, MemberRecord, MemberRunState, StoredContent, StoredExtent, mapped_at};
use super::page_store::PageStore;
use pando_abi::cell_image::{ExtentContent, ImageExtent, ImageRecord, RECORD_BYTES, TreeOrigin, TreePlace};
use pando_abi::holding::ChildState;
use pando_abi::holding_record::HoldingRecord;
use pando_abi::limits::{MAX_CONSOLE_BYTES, MAX_SWAP_PAGES};
use pando_abi::watch::state;
use pando_abi::{BlockAddress, HoldingName, PAGE_SIZE, Permissions};
use pando_machine::{CellsDevice, PageBuffer};
use rustix::event::{PollFd, PollFlags, poll};
use std::collections::HashMap;
use std::io::{Error, Result};
use std::time::Instant;

/// The segment of the libOS, which cannot wait for its own pages.
const SYSTEM_SEGMENT: TreePlace = TreePlace::Segment(0);
/// A nested cell of a restored program, as a view, and its state.
type NestedCell = (HoldingName, MemberRunState);

/// Builds a child that was not started from an image, and all cells below it. Returns those, parents before their children.
///
/// # Errors
/// The kernel refuses the image, or a page of the libOS or of a nested cell cannot be read.
pub(super) fn build(device: &CellsDevice, child: HoldingName, stored: &mut dyn PageStore) -> Result<Vec<NestedCell>> {
    let mut cells: HashMap<Vec<u64>, HoldingName> = HashMap::new();
    let mut nested = Vec::new();
    for (member_record, image) in stored.image().members.clone() {
        let cell = match member_record.path.split_last() {
            None => child,
            Some((name, parent)) => {
                let name = HoldingName::from_bits(*name).ok_or_else(|| Error::other("the image is damaged: a cell has no name"))?;
                let parent = cells.get(parent).ok_or_else(|| Error::other("the image is damaged: a cell has no parent"))?;
                device.view(*parent, name).map_err(cannot_build)?
            }
        };
        build_cell(device, cell, &image, stored, member_record.path.is_empty())?;
        write_member_record(device, cell, &member_record).map_err(cannot_build)?;
        if !member_record.path.is_empty() {
            nested.push((cell, member_record.state));
        }
        cells.insert(member_record.path, cell);
    }
    Ok(nested)
}

/// Starts the nested cells of a program that is restored, children before their parents. Then nobody needs the views any more.
///
/// # Errors
/// One does not start, or does not halt again as it was halted.
pub(super) fn start(device: &CellsDevice, nested: Vec<NestedCell>) -> Result<()> {
    for (cell, state) in nested.into_iter().rev() {
        if state != MemberRunState::New {
            device.run(cell)?;
        }
        let began = Instant::now();
        while matches!(state, MemberRunState::Halted(_)) && device.state(cell)? != ChildState::Halted {
            if began.elapsed() > MEMBER_HALT_MAX {
                return Err(Error::other("a nested cell of the program was halted in the image, and does not halt again"));
            }
            // The halt is no event for this cell.
            let _ = poll(&mut [PollFd::new(device, PollFlags::IN)], Some(&STATE_INTERVAL));
            device.forget_events()?;
        }
        device.give_up(cell)?;
    }
    Ok(())
}

fn cannot_build(error: Error) -> Error {
    Error::new(error.kind(), format!("cannot build the program's cell from the image: {error}"))
}

/// Writes the holdings, the console and the halt of a cell.
fn write_member_record(device: &CellsDevice, cell: HoldingName, member_record: &MemberRecord) -> Result<()> {
    let records = member_record.holdings.iter().map(|words| HoldingRecord::from_words(*words));
    let records: Option<Vec<HoldingRecord>> = records.collect();
    device.add_holdings(cell, &records.ok_or_else(|| Error::other("a holding is invalid"))?)?;
    for part in &member_record.console {
        device.write_state(cell, state::CONSOLE, part)?;
    }
    if let MemberRunState::Halted(words) = member_record.state {
        let bytes: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
        device.write_state(cell, state::REASON, &bytes)?;
    }
    Ok(())
}

/// Builds a cell. Only the program's own cell can wait for pages: a nested one would wait for its parent, which has none of them.
fn build_cell(device: &CellsDevice, cell: HoldingName, image: &CellImage, stored: &mut dyn PageStore, can_wait: bool) -> Result<()> {
    device.write_state(cell, state::LAYOUT, &image.layout).map_err(cannot_build)?;
    let mut records = RecordBuffer { can_wait, ..RecordBuffer::default() };
    for (place, extents) in &image.trees {
        let place = tree_place(*place)?;
        records.begin(place);
        for (first, extent) in extents.iter() {
            if records.is_full() {
                records.write(device, cell).map_err(cannot_build)?;
            }
            records.add(place, first, extent);
        }
    }
    records.write(device, cell).map_err(cannot_build)?;
    let mut buffer = PageBuffer::default();
    for (place, extents) in &image.trees {
        let place = tree_place(*place)?;
        if can_wait_for(place, can_wait) {
            continue;
        }
        for (first, extent) in extents.iter() {
            let StoredContent::Stored(number) = extent.content else { continue };
            for further in (0..extent.count).step_by(MAX_SWAP_PAGES as usize) {
                let count = (extent.count - further).min(MAX_SWAP_PAGES);
                stored.read(number + further as u32, &mut buffer.bytes_mut()[..(count * PAGE_SIZE) as usize])?;
                let (space, address) = mapped_at(cell, &image.layout, place, first + further)
                    .ok_or_else(|| Error::other("the image is damaged: it has memory that no process maps"))?;
                device.write_pages(space, address, &buffer, count)?;
            }
        }
    }
    device.write_state(cell, state::IMAGE, &image.state).map_err(cannot_build)
}

/// Whether the pages of a tree may come when they are needed: those of a program's own cell, except the libOS's.
pub(super) fn can_wait_for(place: TreePlace, is_program: bool) -> bool {
    is_program && place != SYSTEM_SEGMENT
}

pub(super) fn tree_place(place: u64) -> Result<TreePlace> {
    TreePlace::from_bits(place).ok_or_else(|| Error::other("the image is damaged: it has an invalid place"))
}

/// Records on their way to the kernel.
#[derive(Default)]
struct RecordBuffer {
    bytes: Vec<u8>,
    /// The tree of the next extents.
    place: Option<TreePlace>,
    /// Pages are taken, until the cell needs them. Otherwise they are written afterwards.
    can_wait: bool,
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
            StoredContent::Stored(_) if !can_wait_for(place, self.can_wait) => ExtentContent::Lazy { large: false },
            StoredContent::Stored(number) | StoredContent::Taken(number) => ExtentContent::Taken(number),
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
