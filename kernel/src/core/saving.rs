// SPDX-License-Identifier: MIT OR Apache-2.0
//! Templates as plain data: out of one kernel, and into another.
//!
//! What is exported is a clone of the memory, which costs nothing that grows with its size and which nobody changes; so its pages are listed in pieces, and their bytes copied without the lock. What is imported gets
//! its pages from a disk that it cannot name: they come in when they are touched, once for all clones.

use super::operator::waker;
use super::{Kernel, OperatorError, Shared};
use crate::cell::end::End;
use crate::cell::image::CellImage;
use crate::cell::registers::KEPT_PAGES;
use crate::cell::{CellConfig, CellId, State as CellState};
use crate::device::console::Console;
use crate::device::disk::{Disk, DiskError};
use crate::limits::BLOCK_GROUP;
use crate::memory::furnish::trees;
use crate::memory::image::MemoryImage;
use crate::memory::lesson::Lessons;
use crate::memory::listing::{Listing, Source};
use crate::memory::{AccountId, DiskId};
use pando_machine::{FRAME_SIZE, PageCount};
use std::ops::ControlFlow;
use std::sync::Arc;

/// A clone of a cell's memory that is being listed, let go of when this is.
struct Snapshot<'a> {
    shared: &'a Shared,
    account: AccountId,
    listing: Option<Listing>,
    /// What backs the cell.
    disk: Option<Arc<dyn Disk>>,
}

impl Drop for Snapshot<'_> {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        if let Some(listing) = self.listing.take() {
            listing.release(&mut state.frames);
        }
        state.frames.close_account(self.account);
    }
}

impl Kernel {
    /// Exports a template: all that it is as plain data, and the bytes of its pages, each under its number, to `sink`, in order. What was never touched, and what stands on a disk that is attached to the cell,
    /// costs nothing. Others have the kernel meanwhile, and may clone the cell or end it.
    ///
    /// # Errors
    /// The cell is no template, a page of it cannot be read, or `sink` has had enough.
    pub fn export(&self, id: CellId, sink: &mut dyn FnMut(u64, &[u8]) -> ControlFlow<()>) -> Result<CellImage, OperatorError> {
        let (mut image, mut snapshot) = self.begin_export(id)?;
        let Snapshot { listing: Some(listing), disk, .. } = &mut snapshot else { return Ok(image) };
        let mut buffer = vec![0; FRAME_SIZE * BLOCK_GROUP as usize];
        loop {
            listing.make_room();
            let piece = listing.piece(&self.shared.lock().frames);
            let Some(piece) = piece else { break };
            self.pass_on(&piece, disk.as_deref(), &mut buffer, sink)?;
        }
        image.memory = listing.image();
        Ok(image)
    }

    /// What a template is, without its memory, and a clone of that.
    fn begin_export(&self, id: CellId) -> Result<(CellImage, Snapshot<'_>), OperatorError> {
        self.weigh_lessons(id);
        let account = self.shared.lock().frames.open_account(PageCount(0));
        let mut snapshot = Snapshot { shared: &self.shared, account, listing: None, disk: None };
        // Let go of before the snapshot, which takes the lock then.
        let mut state = self.shared.lock();
        let (occupant, frames) = state.living(id).ok_or(OperatorError::NoSuchCell)?;
        if occupant.cell.state != CellState::Frozen {
            return Err(OperatorError::Busy(occupant.cell.state));
        }
        let image = CellImage {
            carried: occupant.cell.carried(),
            console: occupant.console.places(),
            channel: occupant.channel.as_ref().map(|channel| channel.places()),
            kept: occupant.cell.kept(frames)?,
            memory: MemoryImage::default(),
        };
        let memory = occupant.cell.memory.clone_set(frames, account);
        let listing = snapshot.listing.insert(Listing::new(memory, KEPT_PAGES));
        snapshot.disk = listing.backing().and_then(|disk| state.disk(disk));
        drop(state);
        Ok((image, snapshot))
    }

    /// Gives the bytes of pages to `sink`.
    fn pass_on(
        &self,
        mut pages: &[(u64, Source)],
        disk: Option<&dyn Disk>,
        buffer: &mut [u8],
        sink: &mut dyn FnMut(u64, &[u8]) -> ControlFlow<()>,
    ) -> Result<(), OperatorError> {
        while let Some((number, source)) = pages.first() {
            let count = match source {
                Source::Frame(frame) => {
                    self.shared.machine.arena().read(*frame, 0, &mut buffer[..FRAME_SIZE]);
                    1
                }
                Source::Block(block) => {
                    let follows = |(page, further): &(&(u64, Source), u64)| page.1 == Source::Block(block.further(*further));
                    let count = pages.iter().zip(0..BLOCK_GROUP).take_while(follows).count();
                    disk.ok_or(DiskError)?.read(block.number, &mut buffer[..count * FRAME_SIZE])?;
                    count
                }
            };
            for (number, bytes) in (*number..).zip(buffer[..count * FRAME_SIZE].chunks_exact(FRAME_SIZE)) {
                if sink(number, bytes).is_break() {
                    return Err(OperatorError::Stopped);
                }
            }
            pages = &pages[count..];
        }
        Ok(())
    }

    /// Makes a template of an image. Its content is read from the disk `contents` when it is touched, where page n of the image is block n; the cell cannot name that disk. `disks` are those that
    /// were attached to it, in the same order. Costs tables: a few for each gap in what its spaces hold, nothing for its size.
    ///
    /// # Errors
    /// The image is none that a cell can have, the disks are not those that it needs, or there is not enough memory.
    pub fn import(&self, image: &CellImage, contents: DiskId, disks: &[DiskId], quota: PageCount) -> Result<CellId, OperatorError> {
        image.check()?;
        let wanted = &image.memory.disks;
        if wanted.len() != disks.len() {
            return Err(OperatorError::OtherDisks { wanted: wanted.len(), given: disks.len() });
        }
        for (index, (disk, wanted)) in disks.iter().zip(wanted).enumerate() {
            let blocks = self.blocks_of(*disk)?.min(u32::MAX.into());
            if blocks != *wanted {
                return Err(OperatorError::OtherDisk { index, wanted: *wanted, blocks });
            }
        }
        let blocks = self.blocks_of(contents)?;
        if blocks < image.contents() {
            return Err(OperatorError::OtherDisk { index: disks.len(), wanted: image.contents(), blocks });
        }
        let id = self.create(CellConfig { quota, host_name: String::new() })?;
        let built = self.build_from(id, image, contents, disks);
        if built.is_err() {
            let mut state = self.shared.lock();
            state.end(id, End::Killed);
            state.forget(id);
        }
        built.map(|()| id)
    }

    /// Makes a new cell what an image says, which was checked.
    fn build_from(&self, id: CellId, image: &CellImage, contents: DiskId, disks: &[DiskId]) -> Result<(), OperatorError> {
        for disk in disks {
            self.attach(id, *disk)?;
        }
        self.with_room(|state| {
            state.disk(contents).ok_or(OperatorError::NoSuchDisk)?;
            let (cell, frames) = state.at_rest(id)?;
            cell.memory.shape(frames, &image.memory, contents);
            Ok(cell.restore_kept(frames, &image.kept)?)
        })?;
        for (index, tree) in trees(&image.memory).enumerate() {
            let mut extents = tree.as_slice();
            while !extents.is_empty() {
                self.build(id, |cell, frames| Ok(cell.memory.furnish_piece(frames, index, &mut extents)?))?;
            }
        }
        let lessons = Lessons::of(image.memory.expected.clone());
        let mut state = self.shared.lock();
        let (occupant, _) = state.living(id).ok_or(OperatorError::NoSuchCell)?;
        occupant.console = Console::new(waker(&self.shared, id)).at_places(image.console);
        occupant.channel = image.channel.map(|places| Box::new(Console::channel(waker(&self.shared, id)).at_places(places)));
        occupant.cell.carry(image.carried.clone());
        occupant.cell.memory.lessons = lessons;
        occupant.cell.is_template = true;
        occupant.cell.state = CellState::Frozen;
        Ok(())
    }
}
