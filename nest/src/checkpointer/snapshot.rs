// SPDX-License-Identifier: MIT OR Apache-2.0
//! Snapshots: clones of the program's cell that never run, and the checkpoints that are written from them while the program goes on.

use super::directory::CheckpointDirectory;
use super::file::{CheckpointWriter, KnownPages, PageRange, RestoreRequirements};
use super::image::{CellImage, FamilyImage, MemberRecord, StoredContent, StoredExtent, TreeExtents, mapped_at};
use pando_abi::cell_image::{END, ExtentContent, ImageExtent, ImageRecord, TreeOrigin, TreePlace};
use pando_abi::limits::{MAX_CONSOLE_BYTES, MAX_SWAP_PAGES};
use pando_abi::watch::state;
use pando_abi::{HoldingName, PAGE_SIZE};
use pando_machine::{CellsDevice, PageBuffer};
use std::io::{Error, Result};

/// Most earlier files that a checkpoint refers to. Then one is written that has all pages itself.
const FILES_MAX: usize = 128;
/// The least such number if old checkpoints are removed: a file stays as long as a later checkpoint refers to it.
const MIN_REFERENCED_FILES: usize = 16;

/// Most earlier files that a checkpoint refers to, if so many checkpoints are kept.
fn files_max(keep: Option<u32>) -> usize {
    keep.map_or(FILES_MAX, |keep| (keep as usize).saturating_mul(2).clamp(MIN_REFERENCED_FILES, FILES_MAX))
}

/// A checkpoint that is written, as the base of the next one.
#[derive(Clone, Debug)]
pub(super) struct Base {
    /// The cells whose memory the images of the first members of the family describe.
    pub(super) snapshots: Vec<HoldingName>,
    pub(super) image: FamilyImage,
    /// The files with pages of it, in the order of their pages.
    pub(super) files: Vec<PageRange>,
    /// The number of the first page that no file has.
    pub(super) next_page: u32,
    /// Pages of these files. Those that were not written by this process are missing.
    pub(super) known: KnownPages,
}

impl Base {
    /// The snapshot of the member with a path, and its image.
    fn member(&self, path: &[u64]) -> Option<(HoldingName, &CellImage)> {
        let mut members = self.snapshots.iter().zip(&self.image.members);
        members.find(|(_, (member_record, _))| member_record.path == path).map(|(snapshot, (_, image))| (*snapshot, image))
    }
}

/// The sizes of a checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckpointSize {
    /// Pages of the program with content of their own.
    pub pages: u64,
    /// Pages in its file: those that no earlier file has.
    pub written_pages: u64,
    /// Bytes of its file.
    pub bytes: u64,
}

/// The work of writing a checkpoint.
pub(super) struct SnapshotWriter<'a> {
    pub(super) device: &'a CellsDevice,
    pub(super) directory: &'a CheckpointDirectory,
    pub(super) requirements: RestoreRequirements,
    /// How many checkpoints are kept. `None`: all.
    pub(super) keep: Option<u32>,
}

impl SnapshotWriter<'_> {
    /// Writes the checkpoint of snapshots of a family: the difference to the base. Returns it as a base for the next one.
    ///
    /// # Errors
    /// A snapshot cannot be read, or the file cannot be written.
    pub(super) fn write(
        &self,
        snapshots: &[(MemberRecord, HoldingName)],
        base: Option<&Base>,
        number: u32,
    ) -> Result<(Base, CheckpointSize)> {
        let next_page = base.map_or(0, |base| base.next_page);
        let all_files = base.map(|base| base.files.clone()).unwrap_or_default();
        let base = base.filter(|base| base.files.len() < files_max(self.keep));
        let known = base.map(|base| base.known.clone()).unwrap_or_default();
        let mut file = CheckpointWriter::create(self.directory.path(), number, next_page, known)?;
        let mut image = FamilyImage::default();
        for (member_record, snapshot) in snapshots {
            let base = base.and_then(|base| base.member(&member_record.path));
            let cell = self.read_cell(*snapshot, member_record, base, &mut file)?;
            image.members.push((member_record.clone(), cell));
        }
        let snapshots = snapshots.iter().map(|(_, snapshot)| *snapshot).collect();
        let is_used = |range: &PageRange| image.uses(&(range.first..range.first + range.pages));
        let files: Vec<PageRange> = all_files.into_iter().filter(is_used).collect();
        let (own, mut known, bytes) = file.finish(self.requirements.clone(), &image, files.clone())?;
        let size = CheckpointSize { pages: image.stored_pages(), written_pages: own.pages.into(), bytes };
        let files: Vec<PageRange> = files.into_iter().chain([own]).filter(|range| range.pages > 0).collect();
        // The others do not belong to the checkpoint.
        known.retain(|_, number| files.iter().any(|range| (range.first..range.first + range.pages).contains(number)));
        Ok((Base { snapshots, image, files, next_page: own.first + own.pages, known }, size))
    }

    /// Reads a snapshot, and writes its pages.
    fn read_cell(
        &self,
        snapshot: HoldingName,
        member_record: &MemberRecord,
        base: Option<(HoldingName, &CellImage)>,
        file: &mut CheckpointWriter,
    ) -> Result<CellImage> {
        let mut reader = ImageReader {
            device: self.device,
            snapshot,
            is_program: member_record.path.is_empty(),
            image: CellImage {
                state: self.read_state(snapshot, state::IMAGE)?,
                layout: self.read_state(snapshot, state::LAYOUT)?,
                trees: Vec::new(),
            },
            buffer: PageBuffer::default(),
        };
        let mut position = 0;
        while position != END {
            let (next, records) = self.device.list_image(snapshot, base.map(|(snapshot, _)| snapshot), position)?;
            for record in records {
                reader.apply(record, base.map(|(_, image)| image), file)?;
            }
            position = next;
        }
        Ok(reader.image)
    }

    fn read_state(&self, snapshot: HoldingName, kind: u64) -> Result<Vec<u8>> {
        let mut bytes = vec![0; MAX_CONSOLE_BYTES as usize];
        let count = self.device.read_state(snapshot, kind, &mut bytes)?;
        bytes.truncate(count);
        Ok(bytes)
    }
}

/// An image that is read from the records of a snapshot.
struct ImageReader<'a> {
    device: &'a CellsDevice,
    snapshot: HoldingName,
    /// It is the program's cell. The pages that are taken from it are those of the checkpointer.
    is_program: bool,
    image: CellImage,
    buffer: PageBuffer,
}

impl ImageReader<'_> {
    fn apply(&mut self, record: ImageRecord, base: Option<&CellImage>, file: &mut CheckpointWriter) -> Result<()> {
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
            ImageRecord::Extent(extent) => self.add(&extent, file)?,
        }
        Ok(())
    }

    fn add(&mut self, extent: &ImageExtent, file: &mut CheckpointWriter) -> Result<()> {
        let ImageExtent { first, count, permissions, content } = *extent;
        let content = match content {
            ExtentContent::Empty => None,
            ExtentContent::Lazy { large } => Some(StoredContent::Lazy { large }),
            ExtentContent::Blocks(block) => Some(StoredContent::Blocks(block.bits())),
            // The page was given to the kernel by its number in the files.
            ExtentContent::Taken(number) if self.is_program => Some(StoredContent::Stored(number)),
            ExtentContent::Taken(number) => Some(StoredContent::Taken(number)),
            ExtentContent::Pages => return self.add_pages(extent, file),
        };
        let permissions = permissions.bits() as u8;
        self.last_tree()?.1.replace(first, count, content.map(|content| StoredExtent { count, permissions, content }));
        Ok(())
    }

    /// Adds pages by their bytes.
    fn add_pages(&mut self, extent: &ImageExtent, file: &mut CheckpointWriter) -> Result<()> {
        let place = TreePlace::from_bits(self.last_tree()?.0).ok_or_else(|| Error::other("the kernel has returned an invalid place"))?;
        let (end, permissions) = (extent.first + extent.count, extent.permissions.bits() as u8);
        for first in (extent.first..end).step_by(MAX_SWAP_PAGES as usize) {
            let count = (end - first).min(MAX_SWAP_PAGES);
            let (space, address) = mapped_at(self.snapshot, &self.image.layout, place, first)
                .ok_or_else(|| Error::other("the program has memory that no process maps"))?;
            self.device.read_pages(space, address, &mut self.buffer, count)?;
            for (page, bytes) in (first..first + count).zip(self.buffer.bytes().chunks_exact(PAGE_SIZE as usize)) {
                let content = match bytes.iter().all(|byte| *byte == 0) {
                    true => StoredContent::Lazy { large: false },
                    false => StoredContent::Stored(file.add(bytes)?),
                };
                let (_, extents) = self.image.trees.last_mut().ok_or_else(|| Error::other("the list has no tree"))?;
                extents.replace(page, 1, Some(StoredExtent { count: 1, permissions, content }));
            }
        }
        Ok(())
    }

    fn last_tree(&mut self) -> Result<&mut (u64, TreeExtents)> {
        self.image.trees.last_mut().ok_or_else(|| Error::other("the kernel has returned an invalid list of memory"))
    }
}
