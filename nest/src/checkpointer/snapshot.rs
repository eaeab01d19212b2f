// SPDX-License-Identifier: MIT OR Apache-2.0
//! Snapshots: clones of the program's cell that never run, and the checkpoints that are written from them while the program goes on.

use super::directory::CheckpointDirectory;
use super::file::{CheckpointWriter, KnownPages, PageRange, RestoreRequirements};
use super::image::{CellImage, FamilyImage, MemberRecord, StoredContent};
use super::image_reader::{self, PageSink, PageSpan};
use pando_abi::limits::MAX_SWAP_PAGES;
use pando_abi::{HoldingName, PAGE_SIZE};
use pando_machine::{CellsDevice, PageBuffer};
use std::io::Result;

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
        let (mut image, mut buffer) = (FamilyImage::default(), PageBuffer::default());
        for (member_record, snapshot) in snapshots {
            let base = base.and_then(|base| base.member(&member_record.path));
            let is_program = member_record.path.is_empty();
            let mut pages = FilePages { file: &mut file, buffer: &mut buffer };
            let cell = image_reader::read_cell(self.device, *snapshot, is_program, base, &mut pages)?;
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
}

/// Pages of a snapshot that are written to a file.
struct FilePages<'a> {
    file: &'a mut CheckpointWriter,
    buffer: &'a mut PageBuffer,
}

impl PageSink for FilePages<'_> {
    fn add(&mut self, device: &CellsDevice, span: PageSpan, store: &mut dyn FnMut(u64, StoredContent)) -> Result<()> {
        for further in (0..span.count).step_by(MAX_SWAP_PAGES as usize) {
            let count = (span.count - further).min(MAX_SWAP_PAGES);
            device.read_pages(span.space, span.address + further * PAGE_SIZE, self.buffer, count)?;
            for bytes in self.buffer.bytes().chunks_exact(PAGE_SIZE as usize).take(count as usize) {
                let content = match bytes.iter().all(|byte| *byte == 0) {
                    true => StoredContent::Lazy { large: false },
                    false => StoredContent::Stored(self.file.add(bytes)?),
                };
                store(1, content);
            }
        }
        Ok(())
    }
}
