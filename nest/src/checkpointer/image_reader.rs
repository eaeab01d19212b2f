// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads the image of a snapshot from the kernel: its state, its layout and its extents. A sink decides where the pages go.

use super::image::{CellImage, StoredContent, StoredExtent, TreeExtents, mapped_at};
use pando_abi::HoldingName;
use pando_abi::cell_image::{END, ExtentContent, ImageExtent, ImageRecord, TreeOrigin, TreePlace};
use pando_abi::limits::MAX_CONSOLE_BYTES;
use pando_abi::watch::state;
use pando_machine::CellsDevice;
use std::io::{Error, Result};

/// Consecutive pages of a snapshot that have content of their own.
#[derive(Clone, Copy, Debug)]
pub(super) struct PageSpan {
    /// The `space` argument of calls.
    pub(super) space: u64,
    pub(super) address: u64,
    pub(super) count: u64,
}

/// A store of the pages of a snapshot.
pub(super) trait PageSink {
    /// Adds pages. Calls `store` for all of them in order: with a number of pages, and the content that they have in the image.
    ///
    /// # Errors
    /// They cannot be read or stored.
    fn add(&mut self, device: &CellsDevice, span: PageSpan, store: &mut dyn FnMut(u64, StoredContent)) -> Result<()>;
}

/// Reads the image of a snapshot, as its difference to another one that has an image already, if one is given.
///
/// # Errors
/// It cannot be read, or its pages cannot be stored.
pub(super) fn read_cell(
    device: &CellsDevice,
    snapshot: HoldingName,
    is_program: bool,
    base: Option<(HoldingName, &CellImage)>,
    pages: &mut dyn PageSink,
) -> Result<CellImage> {
    let image = CellImage {
        state: read_state(device, snapshot, state::IMAGE)?,
        layout: read_state(device, snapshot, state::LAYOUT)?,
        trees: Vec::new(),
    };
    let mut reader = ImageReader { device, snapshot, is_program, image };
    let mut position = 0;
    while position != END {
        let (next, records) = device.list_image(snapshot, base.map(|(snapshot, _)| snapshot), position)?;
        for record in records {
            reader.apply(record, base.map(|(_, image)| image), pages)?;
        }
        position = next;
    }
    Ok(reader.image)
}

fn read_state(device: &CellsDevice, snapshot: HoldingName, kind: u64) -> Result<Vec<u8>> {
    let mut bytes = vec![0; MAX_CONSOLE_BYTES as usize];
    let count = device.read_state(snapshot, kind, &mut bytes)?;
    bytes.truncate(count);
    Ok(bytes)
}

/// An image that is read from the records of a snapshot.
struct ImageReader<'a> {
    device: &'a CellsDevice,
    snapshot: HoldingName,
    /// It is the program's own cell.
    is_program: bool,
    image: CellImage,
}

impl ImageReader<'_> {
    fn apply(&mut self, record: ImageRecord, base: Option<&CellImage>, pages: &mut dyn PageSink) -> Result<()> {
        match record {
            ImageRecord::Tree { place, origin } => {
                let of = |image: &CellImage, number: u32| image.trees.get(number as usize).map(|(_, extents)| extents.clone());
                let extents = match origin {
                    TreeOrigin::Nothing => Some(TreeExtents::default()),
                    TreeOrigin::Base(number) => base.and_then(|base| of(base, number)),
                    TreeOrigin::Own(number) => of(&self.image, number),
                };
                let extents = extents.ok_or_else(|| Error::other("the kernel has returned an invalid list of memory"))?;
                self.image.trees.push((place.bits(), extents));
            }
            ImageRecord::Extent(extent) => self.add(&extent, pages)?,
        }
        Ok(())
    }

    fn add(&mut self, extent: &ImageExtent, pages: &mut dyn PageSink) -> Result<()> {
        let ImageExtent { first, count, permissions, content } = *extent;
        let content = match content {
            ExtentContent::Empty => None,
            ExtentContent::Lazy { large } => Some(StoredContent::Lazy { large }),
            ExtentContent::Blocks(block) => Some(StoredContent::Blocks(block.bits())),
            // The page was given to the kernel by its number in the store.
            ExtentContent::Taken(number) if self.is_program => Some(StoredContent::Stored(number)),
            ExtentContent::Taken(number) => Some(StoredContent::Taken(number)),
            ExtentContent::Pages => return self.add_pages(extent, pages),
        };
        let permissions = permissions.bits() as u8;
        self.last_tree()?.1.replace(first, count, content.map(|content| StoredExtent { count, permissions, content }));
        Ok(())
    }

    /// Adds pages by their bytes.
    fn add_pages(&mut self, extent: &ImageExtent, pages: &mut dyn PageSink) -> Result<()> {
        let place = TreePlace::from_bits(self.last_tree()?.0).ok_or_else(|| Error::other("the kernel has returned an invalid place"))?;
        let (space, address) = mapped_at(self.snapshot, &self.image.layout, place, extent.first)
            .ok_or_else(|| Error::other("the program has memory that no process maps"))?;
        let (mut first, permissions) = (extent.first, extent.permissions.bits() as u8);
        let (_, extents) = self.image.trees.last_mut().ok_or_else(|| Error::other("the list has no tree"))?;
        pages.add(self.device, PageSpan { space, address, count: extent.count }, &mut |count, content| {
            extents.replace(first, count, Some(StoredExtent { count, permissions, content }));
            first += count;
        })
    }

    fn last_tree(&mut self) -> Result<&mut (u64, TreeExtents)> {
        self.image.trees.last_mut().ok_or_else(|| Error::other("the kernel has returned an invalid list of memory"))
    }
}
