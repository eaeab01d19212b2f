// SPDX-License-Identifier: MIT OR Apache-2.0
//! The pages of a program that moves, by their numbers in its image. They stay where they are until they are sent.

use super::frame::FRAME_PAGES;
use crate::checkpointer::image::{FamilyImage, StoredContent};
use crate::checkpointer::image_reader::{PageSink, PageSpan};
use crate::checkpointer::page_store::PageStore;
use crate::checkpointer::restore::{can_wait_for, tree_place};
use pando_abi::PAGE_SIZE;
use pando_machine::{CellsDevice, PageBuffer};
use std::collections::HashSet;
use std::io::{Error, Result};
use std::ops::Range;

/// Pages with consecutive numbers, and where they are.
#[derive(Clone, Copy, Debug)]
struct PageRun {
    first: u32,
    count: u32,
    /// The `space` argument of calls and the address in a snapshot. `None`: they are in the store of a program that was restored itself.
    place: Option<(u64, u64)>,
}

impl PageRun {
    fn end(&self) -> u32 {
        self.first + self.count
    }
}

/// Numbers the pages of snapshots, without reading them.
#[derive(Debug)]
pub(super) struct PageNumbers {
    /// The first number that no page has.
    next: u32,
    runs: Vec<PageRun>,
}

impl PageNumbers {
    /// Gives numbers from `next` on.
    pub(super) fn new(next: u32) -> PageNumbers {
        PageNumbers { next, runs: Vec::new() }
    }
}

impl PageSink for PageNumbers {
    fn add(&mut self, _: &CellsDevice, span: PageSpan, store: &mut dyn FnMut(u64, StoredContent)) -> Result<()> {
        let end = u32::try_from(span.count).ok().and_then(|count| self.next.checked_add(count));
        let end = end.ok_or_else(|| Error::other("the program has too many pages to be moved"))?;
        self.runs.push(PageRun { first: self.next, count: end - self.next, place: Some((span.space, span.address)) });
        store(span.count, StoredContent::Stored(self.next));
        self.next = end;
        Ok(())
    }
}

/// The pages of a program that moves.
#[derive(Debug)]
pub(super) struct MovingPages {
    /// In the order of their numbers, without overlaps.
    runs: Vec<PageRun>,
    /// The pieces that were sent, by their first numbers.
    sent: HashSet<u32>,
    /// The run and the page in it that is sent next without a request.
    next: (usize, u32),
    buffer: PageBuffer,
}

impl MovingPages {
    /// All pages of an image: those that were numbered, and those before them, which the store has.
    pub(super) fn new(image: &FamilyImage, numbers: PageNumbers, first_numbered: u32) -> MovingPages {
        let mut stored: Vec<Range<u32>> = image
            .extents()
            .filter_map(|extent| {
                let StoredContent::Stored(first) = extent.content else { return None };
                let end = u64::from(first) + extent.count;
                Some(first..u32::try_from(end).unwrap_or(u32::MAX).min(first_numbered)).filter(|range| !range.is_empty())
            })
            .collect();
        stored.sort_unstable_by_key(|range| range.start);
        let mut runs: Vec<PageRun> = Vec::new();
        for range in stored {
            // Extents may share pages.
            let first = runs.last().map_or(range.start, |last| last.end().max(range.start));
            if first < range.end {
                runs.push(PageRun { first, count: range.end - first, place: None });
            }
        }
        runs.extend(numbers.runs);
        MovingPages { runs, sent: HashSet::new(), next: (0, 0), buffer: PageBuffer::default() }
    }

    /// Number of all pages.
    pub(super) fn count(&self) -> u64 {
        self.runs.iter().map(|run| u64::from(run.count)).sum()
    }

    /// The piece that has a page: at most one frame's pages, all in one run.
    pub(super) fn piece_of(&self, number: u32) -> Option<Range<u32>> {
        let index = self.runs.partition_point(|run| run.end() <= number);
        self.runs.get(index).filter(|run| run.first <= number).map(|run| piece(run, number))
    }

    /// The next piece that was not sent.
    pub(super) fn next_piece(&mut self) -> Option<Range<u32>> {
        loop {
            let (index, done) = self.next;
            let run = self.runs.get(index)?;
            if done >= run.count {
                self.next = (index + 1, 0);
                continue;
            }
            let piece = piece(run, run.first + done);
            self.next.1 = piece.end - run.first;
            if !self.sent.contains(&piece.start) {
                return Some(piece);
            }
        }
    }

    /// Reads the pages of a piece.
    ///
    /// # Errors
    /// They cannot be read.
    pub(super) fn read(
        &mut self,
        device: &CellsDevice,
        store: Option<&mut (dyn PageStore + 'static)>,
        piece: &Range<u32>,
    ) -> Result<&[u8]> {
        let index = self.runs.partition_point(|run| run.end() <= piece.start);
        let run = self.runs.get(index).ok_or_else(|| Error::other("the program has no such page"))?;
        let count = u64::from(piece.end - piece.start);
        let bytes = (count * PAGE_SIZE) as usize;
        match (run.place, store) {
            (Some((space, address)), _) => {
                let address = address + u64::from(piece.start - run.first) * PAGE_SIZE;
                device.read_pages(space, address, &mut self.buffer, count)?;
            }
            (None, Some(store)) => store.read(piece.start, &mut self.buffer.bytes_mut()[..bytes])?,
            (None, None) => return Err(Error::other("the program has no store of pages")),
        }
        self.sent.insert(piece.start);
        Ok(&self.buffer.bytes()[..bytes])
    }

    /// The numbers of the pages that the destination needs before it starts the program, in its order.
    pub(super) fn urgent(image: &FamilyImage) -> Result<Vec<Range<u32>>> {
        let mut urgent = Vec::new();
        for (member_record, image) in &image.members {
            for (place, extents) in &image.trees {
                let place = tree_place(*place)?;
                for (_, extent) in extents.iter().filter(|_| !can_wait_for(place, member_record.path.is_empty())) {
                    let StoredContent::Stored(first) = extent.content else { continue };
                    urgent.push(first..first + extent.count as u32);
                }
            }
        }
        Ok(urgent)
    }
}

/// The piece of a run that has a page.
fn piece(run: &PageRun, number: u32) -> Range<u32> {
    let group = number - number % FRAME_PAGES;
    group.max(run.first)..group.saturating_add(FRAME_PAGES).min(run.end())
}
