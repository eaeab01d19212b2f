// SPDX-License-Identifier: MIT OR Apache-2.0
//! The pages of a restored program that it has not needed yet, on their way from their store to its cell.

use super::directory::error_text;
use super::image::{FamilyImage, StoredContent, mapped_at};
use super::page_store::PageStore;
use super::restore::{can_wait_for, tree_place};
use pando_abi::watch::state;
use pando_abi::{HoldingName, PAGE_SIZE};
use pando_machine::{CellsDevice, PageBuffer};
use std::io::{Error, ErrorKind, Result};

/// Pages that a fault reads at most.
const READ_AHEAD: usize = 64;
/// Bytes of the bitmap of swap numbers that one call copies.
const BITMAP_BYTES: usize = 1 << 16;
/// Swap numbers that such a bitmap has.
const BITMAP_NUMBERS: u32 = BITMAP_BYTES as u32 * 8;

/// Where pages of an image are in the program's cell, unless the program has moved them.
#[derive(Clone, Copy, Debug)]
pub(super) struct PagePlace {
    first: u32,
    count: u32,
    /// The `space` argument of calls.
    space: u64,
    address: u64,
}

/// The pages of a restored program that it has not needed yet.
#[derive(Debug)]
pub(super) struct PageSource {
    pub(super) store: Box<dyn PageStore>,
    /// In the order of their numbers.
    places: Vec<PagePlace>,
    /// Number of pages of the longest one.
    longest: u32,
    buffer: PageBuffer,
    /// Pages that were given.
    pub(super) given: u64,
}

impl PageSource {
    /// The pages of a store, which are at these places if they come by themselves.
    pub(super) fn new(store: Box<dyn PageStore>, places: Vec<PagePlace>) -> PageSource {
        let longest = places.iter().map(|place| place.count).max().unwrap_or(0);
        PageSource { store, places, longest, buffer: PageBuffer::default(), given: 0 }
    }

    /// Gives a page that the program needs, and some after it. `false`: it has not come yet.
    ///
    /// # Errors
    /// It cannot be read, or the program's memory is used up.
    pub(super) fn give(&mut self, device: &CellsDevice, child: HoldingName, (space, address, number): (u32, u64, u32)) -> Result<bool> {
        let bytes = READ_AHEAD * PAGE_SIZE as usize;
        let failed = |error: Error| Error::new(error.kind(), format!("cannot read a page of the program: {}", error_text(&error)));
        let Some(count) = self.store.load(number, &mut self.buffer.bytes_mut()[..bytes]).map_err(failed)? else { return Ok(false) };
        match device.give(child.space(space), address, &self.buffer, count.into(), number)? {
            Some(0) => Err(Error::other("the kernel has lost the page that the program needs")),
            Some(given) => {
                self.given += given;
                Ok(true)
            }
            None => Err(Error::new(ErrorKind::OutOfMemory, "the memory of the program is used up: give it more with --memory")),
        }
    }

    /// Gives the halted program pages that have come without its need, and finds out which ones it still lacks, if that is due.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub(super) fn give_arrived(&mut self, device: &CellsDevice, child: HoldingName) -> Result<()> {
        while let Some(pages) = self.store.take_arrived() {
            let end = pages.first.saturating_add((pages.bytes.len() / PAGE_SIZE as usize) as u32);
            // Places overlap if processes share pages.
            let from = self.places.partition_point(|place| place.first.saturating_add(self.longest) <= pages.first);
            let near = self.places[from..].iter().take_while(|place| place.first < end);
            for place in near.filter(|place| place.first + place.count > pages.first) {
                let (first, last) = (place.first.max(pages.first), (place.first + place.count).min(end));
                let skipped = (first - pages.first) as usize * PAGE_SIZE as usize;
                let bytes = &pages.bytes[skipped..][..(last - first) as usize * PAGE_SIZE as usize];
                let address = place.address + u64::from(first - place.first) * PAGE_SIZE;
                self.given += give_at(device, place.space, address, (first, bytes), &mut self.buffer)?;
            }
        }
        if self.store.wants_missing() {
            self.store.keep_only(missing(device, child, self.store.next_page())?);
        }
        Ok(())
    }
}

/// Gives pages that the program may have been given already, moved or unmapped. Returns their number.
fn give_at(device: &CellsDevice, space: u64, address: u64, (number, bytes): (u32, &[u8]), buffer: &mut PageBuffer) -> Result<u64> {
    let (count, mut done, mut given) = ((bytes.len() / PAGE_SIZE as usize) as u64, 0, 0);
    while done < count {
        let rest = &bytes[(done * PAGE_SIZE) as usize..];
        buffer.bytes_mut()[..rest.len()].copy_from_slice(rest);
        match device.give(space, address + done * PAGE_SIZE, buffer, count - done, number + done as u32) {
            Ok(Some(0)) => done += 1,
            Ok(Some(pages)) => {
                given += pages;
                done += pages;
            }
            // Too little memory. The program asks for the page if it needs it.
            Ok(None) => break,
            // The process has ended, or has nothing mapped there any more.
            Err(error) if error.kind() == ErrorKind::Other => break,
            Err(error) => return Err(error),
        }
    }
    Ok(given)
}

/// The numbers below `end` of the pages that the halted program lacks.
fn missing(device: &CellsDevice, child: HoldingName, end: u32) -> Result<Vec<u32>> {
    let mut numbers = Vec::new();
    for first in (0..end).step_by(BITMAP_NUMBERS as usize) {
        let mut bitmap = vec![0; BITMAP_BYTES];
        device.read_state(child, state::SWAP_NUMBERS | u64::from(first) << 32, &mut bitmap)?;
        for (byte, bits) in (0_u32..).zip(bitmap).filter(|(_, bits)| *bits != 0) {
            let set = (0..8).filter(|bit| bits >> bit & 1 == 1).filter_map(|bit| first.checked_add(byte * 8 + bit));
            numbers.extend(set.filter(|number| *number < end));
        }
    }
    Ok(numbers)
}

/// The places of the pages that a program may wait for, in the order of their numbers.
///
/// # Errors
/// The image is damaged.
pub(super) fn places(image: &FamilyImage, child: HoldingName) -> Result<Vec<PagePlace>> {
    let mut places = Vec::new();
    let (_, image) = image.members.first().ok_or_else(|| Error::other("the image has no cell"))?;
    for (place, extents) in &image.trees {
        let place = tree_place(*place)?;
        for (page, extent) in extents.iter().filter(|_| can_wait_for(place, true)) {
            let (StoredContent::Stored(first), Ok(count)) = (extent.content, u32::try_from(extent.count)) else { continue };
            first.checked_add(count).ok_or_else(|| Error::other("the image has too many pages"))?;
            let mapped = mapped_at(child, &image.layout, place, page);
            places.extend(mapped.map(|(space, address)| PagePlace { first, count, space, address }));
        }
    }
    places.sort_unstable_by_key(|place| place.first);
    Ok(places)
}
