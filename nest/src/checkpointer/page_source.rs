// SPDX-License-Identifier: MIT OR Apache-2.0
//! The pages of a restored program that it has not needed yet, on their way from their store to its cell.

use super::directory::error_text;
use super::image::{FamilyImage, StoredContent, mapped_at};
use super::page_store::PageStore;
use super::restore::{can_wait_for, tree_place};
use pando_abi::watch::state;
use pando_abi::{HoldingName, PAGE_SIZE};
use pando_machine::{CellsDevice, PageBuffer};
use rustix::system::sysinfo;
use std::io::{Error, ErrorKind, Result};
use std::ops::Range;

/// Pages that a fault reads at most.
const READ_AHEAD: usize = 64;
/// Bytes of the bitmap of swap numbers that one call copies.
const BITMAP_BYTES: usize = 1 << 16;
/// Swap numbers that such a bitmap has.
const BITMAP_NUMBERS: u32 = BITMAP_BYTES as u32 * 8;

/// The part of the memory that is not filled with pages for which the program does not wait.
const RESERVED_PART: u64 = 32;

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

    /// Gives the halted program pages that have come without its need, and finds out which ones it still lacks, if that is due. Pages that
    /// several processes share are kept instead: each process would get a copy.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub(super) fn give_arrived(&mut self, device: &CellsDevice, child: HoldingName) -> Result<()> {
        while self.has_memory() {
            let Some(pages) = self.store.take_arrived() else { break };
            let end = pages.first.saturating_add((pages.bytes.len() / PAGE_SIZE as usize) as u32);
            let (parts, has_shared) = unshared_parts(&self.places, self.longest, pages.first..end);
            for (place, numbers) in parts {
                let bytes = |number: u32| (number - pages.first) as usize * PAGE_SIZE as usize;
                let address = place.address + u64::from(numbers.start - place.first) * PAGE_SIZE;
                let content = &pages.bytes[bytes(numbers.start)..bytes(numbers.end)];
                self.given += give_at(device, place.space, address, (numbers.start, content), &mut self.buffer)?;
            }
            if has_shared {
                self.store.keep(pages);
            }
        }
        if self.store.needs_missing() {
            self.store.request_all(missing(device, child, self.store.next_page())?);
        }
        Ok(())
    }

    /// Whether there is memory for pages that the program does not wait for: a part of it stays free for the program.
    pub(super) fn has_memory(&self) -> bool {
        let info = sysinfo();
        info.freeram >= info.totalram / RESERVED_PART
    }
}

/// The parts of pages with consecutive numbers that are at one place each, and whether others are at several places.
fn unshared_parts(places: &[PagePlace], longest: u32, pages: Range<u32>) -> (Vec<(PagePlace, Range<u32>)>, bool) {
    // Places overlap if processes share pages.
    let from = places.partition_point(|place| place.first.saturating_add(longest) <= pages.start);
    let near = places[from..].iter().take_while(|place| place.first < pages.end);
    let near: Vec<(PagePlace, Range<u32>)> = near
        .map(|place| (*place, place.first.max(pages.start)..(place.first + place.count).min(pages.end)))
        .filter(|(_, numbers)| !numbers.is_empty())
        .collect();
    let is_unshared = |number: u32| near.iter().filter(|(_, numbers)| numbers.contains(&number)).count() == 1;
    let (mut parts, mut has_shared) = (Vec::new(), false);
    for (place, numbers) in &near {
        let mut next = numbers.start;
        while next < numbers.end {
            let end = (next..numbers.end).find(|number| !is_unshared(*number)).unwrap_or(numbers.end);
            if next < end {
                parts.push((*place, next..end));
            }
            let shared_end = (end..numbers.end).find(|number| is_unshared(*number)).unwrap_or(numbers.end);
            has_shared |= end < shared_end;
            next = shared_end;
        }
    }
    (parts, has_shared)
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

#[cfg(test)]
mod tests {
    use super::{PagePlace, unshared_parts};

    fn place(first: u32, count: u32, space: u64) -> PagePlace {
        PagePlace { first, count, space, address: 0 }
    }

    #[test]
    fn pages_that_several_processes_share_are_not_given_in_the_background() {
        // Two processes share 40 to 59, and each has pages of its own.
        let places = [place(0, 60, 1), place(40, 20, 2), place(60, 40, 2), place(200, 10, 1)];
        let parts = |pages| {
            let (parts, has_shared) = unshared_parts(&places, 60, pages);
            (parts.into_iter().map(|(place, numbers)| (place.space, numbers)).collect::<Vec<_>>(), has_shared)
        };
        assert_eq!(parts(0..64), (vec![(1, 0..40), (2, 60..64)], true));
        assert_eq!(parts(0..40), (vec![(1, 0..40)], false));
        assert_eq!(parts(42..50), (vec![], true));
        assert_eq!(parts(64..128), (vec![(2, 64..100)], false));
        assert_eq!(parts(128..192), (vec![], false));
    }
}
