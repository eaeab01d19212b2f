// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory that a parent builds from an image, in a child that was not started. The image is untrusted: everything in it is
//! checked.

use super::format::{MemoryImage, MountImage};
use crate::limits::{BUILD_PAGES, IMPORT_STEP};
use crate::memory::frames::Frames;
use crate::memory::paging::MemoryError;
use crate::memory::spaces::{MountSource, SpaceSet};
use crate::memory::swapped_page::SwapNumber;
use crate::memory::tree::{Entry, TREE_PAGES, Tree, span};
use pando_abi::cell_image::{ExtentContent, ImageExtent, ImageRecord, LAYOUT_WORDS, LayoutMount, RECORD_BYTES, TreePlace};
use pando_abi::layout::{SLOT_SIZE, USER_END, USER_START};
use pando_abi::limits::{MAX_SEGMENTS, MAX_SPACES};
use pando_abi::{PAGE_SIZE, Refusal};
use std::ops::Range;

/// The spaces and segments of a cell without their content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MemoryLayout(MemoryImage);

impl MemoryLayout {
    /// The layout of a cell's memory, as bytes.
    pub(crate) fn encode(memory: &SpaceSet) -> Vec<u8> {
        let bits = |range: Range<usize>| {
            let there = range.clone().filter(|index| memory.segments.get(*index).is_some_and(Option::is_some));
            there.fold(0, |bits, index| bits | 1 << (index - range.start))
        };
        let spaces = (0..).zip(&memory.spaces).filter_map(|(index, space)| Some((index, space.as_ref()?)));
        let mounts = spaces.flat_map(|(space, mounts)| {
            mounts.mounts.iter().map(move |mount| {
                let segment = match mount.source {
                    MountSource::Segment(index) => Some(index.0),
                    MountSource::Private(_) => None,
                };
                LayoutMount { space, slot: mount.slot as u32, segment }.bits()
            })
        });
        let head: [u32; LAYOUT_WORDS] = [memory.current().0, memory.spaces.len() as u32, bits(0..32), bits(32..64)];
        head.into_iter().chain(mounts).flat_map(u32::to_le_bytes).collect()
    }

    /// Decodes bytes. `reserved` is the number of pages at the start of the system segment that no image has.
    ///
    /// # Errors
    /// No cell can have these spaces and segments.
    pub(crate) fn decode(bytes: &[u8], reserved: u64) -> Result<MemoryLayout, Refusal> {
        let (words, rest) = bytes.as_chunks::<4>();
        let words: Vec<u32> = words.iter().map(|word| u32::from_le_bytes(*word)).collect();
        let Some(([current, spaces, low, high], mounts)) = words.split_first_chunk::<LAYOUT_WORDS>() else {
            return Err(Refusal::BadArgument);
        };
        if !rest.is_empty() || *spaces > MAX_SPACES {
            return Err(Refusal::BadArgument);
        }
        let segments = u64::from(*low) | u64::from(*high) << 32;
        let count = u64::BITS - segments.leading_zeros();
        let mut image = MemoryImage {
            current: *current,
            segments: (0..count.min(MAX_SEGMENTS)).map(|index| (segments >> index & 1 != 0).then(Vec::new)).collect(),
            spaces: vec![None; *spaces as usize],
            ..MemoryImage::default()
        };
        for bits in mounts {
            let LayoutMount { space, slot, segment } = LayoutMount::from_bits(*bits).ok_or(Refusal::BadArgument)?;
            let mounts = image.spaces.get_mut(space as usize).ok_or(Refusal::BadArgument)?.get_or_insert_default();
            mounts.push((slot, segment.map_or_else(|| MountImage::Private(Vec::new()), MountImage::Segment)));
        }
        image.check(reserved).map_err(|_| Refusal::BadArgument)?;
        Ok(MemoryLayout(image))
    }

    /// Adds these spaces and segments to a new set that has only the system segment.
    pub(crate) fn build(&self, frames: &mut Frames, memory: &mut SpaceSet) {
        memory.build_spaces(frames, &self.0, None);
    }
}

/// The progress in a stream of records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BuildProgress {
    /// Number of records that are done.
    records: usize,
    /// Pages of the next one that are done.
    pages: u64,
    /// The tree that extents belong to.
    place: Option<TreePlace>,
}

impl SpaceSet {
    /// Adds some of the content that records describe. `true`: they are complete.
    ///
    /// # Errors
    /// A record is refused, or there is not enough memory for tables. The progress shows what is done.
    pub(crate) fn build_step(
        &mut self,
        frames: &mut Frames,
        records: &[u8],
        progress: &mut BuildProgress,
        reserved: u64,
    ) -> Result<bool, MemoryError> {
        let mut budget = BUILD_PAGES;
        for _ in 0..IMPORT_STEP {
            let Some(bytes) = records.chunks(RECORD_BYTES).nth(progress.records) else { return Ok(true) };
            match decode(bytes).ok_or(Refusal::BadArgument)? {
                ImageRecord::Tree { place, .. } => progress.place = Some(place),
                ImageRecord::Extent(extent) => {
                    let place = progress.place.ok_or(Refusal::BadArgument)?;
                    if !self.build_extent(frames, (place, &extent), reserved, &mut progress.pages, &mut budget)? {
                        return Ok(false);
                    }
                }
            }
            (progress.records, progress.pages) = (progress.records + 1, 0);
        }
        Ok(false)
    }

    /// Adds an extent. `false`: the budget is used up, and `done` pages are there.
    fn build_extent(
        &mut self,
        frames: &mut Frames,
        (place, extent): (TreePlace, &ImageExtent),
        reserved: u64,
        done: &mut u64,
        budget: &mut u64,
    ) -> Result<bool, MemoryError> {
        let ImageExtent { first, count, permissions, content } = *extent;
        let room = room_of(place, reserved);
        let end = first.checked_add(count).filter(|end| count > 0 && first >= room.start && *end <= room.end);
        let end = end.ok_or(Refusal::BadAddress)?;
        let account = self.account();
        let entry = match content {
            ExtentContent::Empty => Entry::EMPTY,
            ExtentContent::Lazy { large } => Entry::lazy(permissions, large),
            ExtentContent::Blocks(block) => Entry::block(self.blocks(block, count)?, permissions),
            // Pages arrive by `write` or `give`, not here.
            ExtentContent::Pages => return Err(Refusal::BadArgument.into()),
            // The libOS cannot wait for its own pages.
            ExtentContent::Taken(_) if place == TreePlace::Segment(0) => return Err(Refusal::BadAddress.into()),
            ExtentContent::Taken(number) => {
                if u64::from(u32::MAX - number) < count - 1 {
                    return Err(Refusal::BadArgument.into());
                }
                self.tree_at(place).ok_or(Refusal::BadAddress)?;
                self.note_taken();
                let tree = self.tree_at(place).ok_or(Refusal::BadAddress)?;
                while first + *done < end {
                    let start = first + *done;
                    let stop = ((start / span(2) + 1) * span(2)).min(end);
                    if *budget == 0 {
                        return Ok(false);
                    }
                    *budget = budget.saturating_sub(stop - start);
                    tree.build_taken(frames, account, start..stop, (SwapNumber(number).offset(*done), permissions))?;
                    *done += stop - start;
                }
                return Ok(true);
            }
        };
        self.tree_at(place).ok_or(Refusal::BadAddress)?.replace(frames, account, first..end, entry)?;
        Ok(true)
    }

    /// The tree at a place.
    fn tree_at(&mut self, place: TreePlace) -> Option<&mut Tree> {
        match place {
            TreePlace::Segment(index) => Some(&mut self.segments.get_mut(index as usize)?.as_mut()?.tree),
            TreePlace::Private { space, slot } => match self.spaces.get_mut(space as usize)?.as_mut()?.at(slot as usize)? {
                MountSource::Private(tree) => Some(tree),
                MountSource::Segment(_) => None,
            },
        }
    }
}

/// The pages of a tree that an image may have.
fn room_of(place: TreePlace, reserved: u64) -> Range<u64> {
    match place {
        TreePlace::Segment(0) => reserved..TREE_PAGES,
        TreePlace::Segment(_) => 0..TREE_PAGES,
        TreePlace::Private { slot, .. } => {
            let within = |address: u64| address.saturating_sub(u64::from(slot) * SLOT_SIZE) / PAGE_SIZE;
            within(USER_START)..within(USER_END).min(TREE_PAGES)
        }
    }
}

fn decode(bytes: &[u8]) -> Option<ImageRecord> {
    let words: Vec<u64> = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
    ImageRecord::from_words(words.try_into().ok()?)
}
