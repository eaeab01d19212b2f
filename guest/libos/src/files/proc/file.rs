// SPDX-License-Identifier: MIT OR Apache-2.0
//! Open texts of `/proc` and `/sys`. `calls::proc` generates the content when they are opened, and handles writes.

use alloc::vec::Vec;

use super::super::file_operations::{FileOperations, OffsetUse, Transfer};
use super::super::tree::InodeRef;
use super::super::tree::node::NodeId;
use super::super::user_copy::read_text;
use super::super::{Files, OpenFile};
use super::entry::ProcEntry;
use super::table::ProcText;
use crate::errno::Errno;
use crate::random::Random;

/// An open text.
#[derive(Clone, Copy, Debug)]
pub struct ProcFile {
    /// The entry.
    pub entry: ProcEntry,
    /// The text.
    pub text: ProcText,
    /// The number of its content at the time of opening, among the [contents](Files) of all; `None`: it was not generated yet.
    content: Option<usize>,
}

impl ProcFile {
    /// An open text without a content.
    #[must_use]
    pub fn new(entry: ProcEntry, text: ProcText) -> ProcFile {
        ProcFile { entry, text, content: None }
    }

    /// Stores the content.
    #[must_use]
    pub fn with_content(self, files: &mut Files, content: Vec<u8>) -> ProcFile {
        let number = files.proc_contents.free_from(0);
        files.proc_contents.put(number, content);
        ProcFile { content: Some(number), ..self }
    }

    fn content(self, files: &Files) -> &[u8] {
        self.content.and_then(|number| files.proc_contents.get(number)).map_or(&[], Vec::as_slice)
    }
}

impl FileOperations for ProcFile {
    fn inode(&self, _files: &Files) -> Option<InodeRef> {
        Some(InodeRef::Proc(self.entry))
    }

    fn offset_use(&self) -> OffsetUse {
        OffsetUse::Position
    }

    fn end(&self, _files: &Files, _file: &OpenFile) -> Result<Option<u64>, Errno> {
        Ok(self.entry.end())
    }

    fn read(&self, files: &mut Files, transfer: Transfer<'_>, _random: &mut Random) -> Result<u64, Errno> {
        read_text(self.content(files), transfer.start(files)?, transfer.ranges)
    }

    fn kernel_read(&self, files: &Files, offset: u64, buffer: &mut [u8]) -> Result<usize, Errno> {
        let rest = self.content(files).get(usize::try_from(offset).unwrap_or(usize::MAX)..).unwrap_or_default();
        let bytes = rest.len().min(buffer.len());
        buffer[..bytes].copy_from_slice(&rest[..bytes]);
        Ok(bytes)
    }

    fn is_pollable(&self) -> bool {
        false
    }

    fn truncated_node(&self, _files: &mut Files, _number: usize) -> Result<Option<NodeId>, Errno> {
        // The size is not that of the content.
        Ok(None)
    }

    fn release(&self, files: &mut Files, _file: &OpenFile) -> Vec<OpenFile> {
        if let Some(number) = self.content {
            files.proc_contents.take(number);
        }
        Vec::new()
    }
}
