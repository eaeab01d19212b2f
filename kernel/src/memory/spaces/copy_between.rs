// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copies from one cell's memory into another's.

use super::set::SpaceSet;
use crate::memory::frames::Frames;
use crate::memory::paging::{CopyAuthority, CopyError, pages_of};
use pando_abi::layout::SLOT_SIZE;
use pando_machine::FRAME_SIZE;

/// The content of lazy memory.
static ZERO: [u8; FRAME_SIZE] = [0; FRAME_SIZE];

/// The side on which a copy between two cells failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CopyBetweenError {
    /// The source.
    Source(CopyError),
    /// The destination.
    Destination(CopyError),
}

/// Copies bytes from one cell's running space into another's, each given with its address, under both cells' permissions: from
/// frame to frame, in one copy.
///
/// # Errors
/// They are not all mapped, a cell's permissions forbid it, or there is no memory for pages of the destination; the bytes before
/// are written.
pub(crate) fn copy_between(
    frames: &mut Frames,
    (from, address): (&mut SpaceSet, u64),
    (to, target): (&mut SpaceSet, u64),
    length: usize,
) -> Result<(), CopyBetweenError> {
    let (from_space, to_space, slot_of) = (from.current(), to.current(), |address: u64| (address / SLOT_SIZE) as usize);
    let (source, _, start) = from.locate(address, length).map_err(CopyBetweenError::Source)?;
    let (tree, account, offset) = to.locate(target, length).map_err(CopyBetweenError::Destination)?;
    for (page, within, range) in pages_of(offset, length) {
        let destination = tree
            .writable_frame(frames, account, page, CopyAuthority::Cell)
            .map_err(|error| CopyBetweenError::Destination(error.in_slot(to_space, slot_of(target))))?;
        // Looked up after that: making room for the destination may reclaim the block that a page of the source is in.
        let mut position = within;
        for (page, within, range) in pages_of(start + range.start as u64, range.len()) {
            let frame = source
                .readable_frame(frames, page, CopyAuthority::Cell)
                .map_err(|error| CopyBetweenError::Source(error.in_slot(from_space, slot_of(address))))?;
            match frame {
                Some(frame) => frames.arena().copy_part((frame, within), (destination, position), range.len()),
                None => frames.arena().write(destination, position, &ZERO[..range.len()]),
            }
            position += range.len();
        }
    }
    Ok(())
}
