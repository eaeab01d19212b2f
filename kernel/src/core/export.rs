// SPDX-License-Identifier: MIT OR Apache-2.0
//! Export and import of templates as plain data.
//!
//! An export works on a clone of the memory, which costs the same at any size and never changes. So its pages are listed in steps,
//! and their bytes copied without the lock. An imported template gets its pages from a disk that it cannot name: they are read on
//! first access, once for all clones.

use super::{Kernel, OperatorError, Shared};
use crate::cell::end::End;
use crate::cell::image::{CellImage, CellRecord};
use crate::cell::run_state::{Requirement, RunState};
use crate::cell::virtual_registers::RESERVED_PAGES;
use crate::cell::{CellConfig, CellId};
use crate::device::console::Console;
use crate::device::disk::{Disk, DiskError};
use crate::limits::BLOCK_GROUP;
use crate::memory::{AccountId, DiskId, MemoryExport, MemoryImage, PageSource, TrainingTraces};
use pando_abi::Refusal;
use pando_machine::{FRAME_SIZE, PageCount};
use std::ops::ControlFlow;
use std::sync::Arc;

/// A clone of a cell's memory that is being exported, released on drop.
struct Snapshot<'a> {
    shared: &'a Shared,
    account: AccountId,
    listing: Option<MemoryExport>,
    /// The disk that backs the cell.
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
    /// Exports a template: returns its state as plain data, and passes the bytes of its pages to `sink`, in order, each with its
    /// number. Untouched memory, and blocks of disks that are attached to the cell, cost nothing. The lock is free between steps:
    /// the cell may be cloned or ended meanwhile.
    ///
    /// # Errors
    /// The cell is no template, a page of it cannot be read, or `sink` has stopped the export.
    pub fn export(&self, id: CellId, sink: &mut dyn FnMut(u64, &[u8]) -> ControlFlow<()>) -> Result<CellImage, OperatorError> {
        let (mut image, mut snapshot) = self.begin_export(id)?;
        let Snapshot { listing: Some(listing), disk, .. } = &mut snapshot else { return Ok(image) };
        let mut buffer = vec![0; FRAME_SIZE * BLOCK_GROUP as usize];
        loop {
            listing.make_room();
            let piece = listing.next_step(&self.shared.lock().frames);
            let Some(piece) = piece else { break };
            self.pass_on(&piece, disk.as_deref(), &mut buffer, sink)?;
        }
        image.memory = listing.image();
        Ok(image)
    }

    /// The state of a template without its memory, and a clone of the memory.
    fn begin_export(&self, id: CellId) -> Result<(CellImage, Snapshot<'_>), OperatorError> {
        self.update_prefetch_set(id);
        let account = self.shared.lock().frames.open_account(PageCount(0), None);
        let mut snapshot = Snapshot { shared: &self.shared, account, listing: None, disk: None };
        let image = self.attempt("export", |state| {
            let (live, frames) = state.require(id, Requirement::Frozen)?;
            if live.cell.memory.had_pages_taken() {
                return Err(Refusal::Taken.into());
            }
            let image = CellImage {
                record: CellRecord::of(&live.cell, &live.execution),
                console: live.console.positions(),
                channel: live.channel.as_ref().map(|channel| channel.positions()),
                reserved: live.cell.copy_reserved_pages(frames)?,
                memory: MemoryImage::default(),
            };
            let memory = live.cell.memory.clone_set(frames, account);
            let listing = snapshot.listing.insert(MemoryExport::new(memory, RESERVED_PAGES));
            snapshot.disk = listing.backing().and_then(|disk| state.disk(disk));
            Ok(image)
        })?;
        Ok((image, snapshot))
    }

    /// Passes the bytes of pages to `sink`.
    fn pass_on(
        &self,
        mut pages: &[(u64, PageSource)],
        disk: Option<&dyn Disk>,
        buffer: &mut [u8],
        sink: &mut dyn FnMut(u64, &[u8]) -> ControlFlow<()>,
    ) -> Result<(), OperatorError> {
        while let Some((number, source)) = pages.first() {
            let count = match source {
                PageSource::Frame(frame) => {
                    self.shared.machine.arena().read(*frame, 0, &mut buffer[..FRAME_SIZE]);
                    1
                }
                PageSource::Block(block) => {
                    let follows = |(page, further): &(&(u64, PageSource), u64)| page.1 == PageSource::Block(block.offset(*further));
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

    /// Creates a template from an image. Its content is read on first access from the disk `contents`, where page n of the image is
    /// block n; the cell cannot name that disk. `disks` are those that were attached to the exported cell, in the same order. Costs
    /// tables: a few for each gap in its spaces, whatever its size.
    ///
    /// # Errors
    /// The image is invalid, the disks are not those that it needs, or there is not enough memory.
    pub fn import(&self, image: &CellImage, contents: DiskId, disks: &[DiskId], quota: PageCount) -> Result<CellId, OperatorError> {
        image.check()?;
        let wanted = &image.memory.disks;
        if wanted.len() != disks.len() {
            return Err(OperatorError::WrongDiskCount { wanted: wanted.len(), given: disks.len() });
        }
        for (index, (disk, wanted)) in disks.iter().zip(wanted).enumerate() {
            let blocks = self.blocks_of(*disk)?.min(u32::MAX.into());
            if blocks != *wanted {
                return Err(OperatorError::WrongDisk { index, wanted: *wanted, blocks });
            }
        }
        let blocks = self.blocks_of(contents)?;
        if blocks < image.contents() {
            return Err(OperatorError::WrongDisk { index: disks.len(), wanted: image.contents(), blocks });
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

    /// Fills a new cell from a checked image.
    fn build_from(&self, id: CellId, image: &CellImage, contents: DiskId, disks: &[DiskId]) -> Result<(), OperatorError> {
        for disk in disks {
            self.attach(id, *disk)?;
        }
        self.attempt("import", |state| {
            state.disk(contents).ok_or(OperatorError::NoSuchDisk)?;
            let (live, frames) = state.require(id, Requirement::NotStarted)?;
            live.cell.memory.build_spaces(frames, &image.memory, Some(contents));
            Ok(live.cell.restore_reserved_pages(frames, &image.reserved)?)
        })?;
        for (index, tree) in image.memory.trees().enumerate() {
            let mut extents = tree.as_slice();
            while !extents.is_empty() {
                self.change("import", id, |cell, frames| Ok(cell.memory.import_step(frames, index, &mut extents)?))?;
            }
        }
        self.attempt("import", |state| {
            let (wake, wake_channel) = (state.waker(id), state.waker(id));
            let (live, _) = state.require(id, Requirement::NotStarted)?;
            live.console = Console::new(wake).at_positions(image.console);
            live.channel = image.channel.map(|positions| Box::new(Console::channel(wake_channel).at_positions(positions)));
            live.execution = image.record.clone().restore(&mut live.cell);
            live.execution.transition(RunState::Frozen);
            live.cell.memory.clone_traces = Some(Box::new(TrainingTraces::of(image.memory.prefetch_set.clone())));
            live.cell.is_template = true;
            Ok(())
        })
    }
}
