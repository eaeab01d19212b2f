// SPDX-License-Identifier: MIT OR Apache-2.0
//! Open directories, and files that were opened as a location only (`O_PATH`).

use alloc::vec::Vec;

use super::file_operations::{FileOperations, OffsetUse, Transfer};
use super::tree::InodeRef;
use super::{Files, OpenFile};
use crate::errno::Errno;
use crate::random::Random;

/// An open directory; the offset is a position in its listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectoryFile(pub InodeRef);

impl FileOperations for DirectoryFile {
    fn inode(&self, files: &Files) -> Option<InodeRef> {
        Some(files.tree.real_inode(self.0))
    }

    fn lookup_base(&self) -> Result<InodeRef, Errno> {
        Ok(self.0)
    }

    fn link_text(&self, files: &Files, _file: &OpenFile) -> Result<Vec<u8>, Errno> {
        Ok(files.path_of(self.0)?.unwrap_or_else(|| b"(unreachable)".to_vec()))
    }

    fn offset_use(&self) -> OffsetUse {
        OffsetUse::Position
    }

    fn end(&self, _files: &Files, _file: &OpenFile) -> Result<Option<u64>, Errno> {
        Ok(None)
    }

    fn read(&self, _files: &mut Files, _transfer: Transfer<'_>, _random: &mut Random) -> Result<u64, Errno> {
        Err(Errno::EISDIR)
    }

    fn is_pollable(&self) -> bool {
        false
    }

    fn check_dnotify(&self) -> Result<(), Errno> {
        Ok(())
    }

    fn is_synced(&self) -> bool {
        true
    }

    fn check_copy_range(&self) -> Result<(), Errno> {
        Err(Errno::EISDIR)
    }

    fn check_allocate(&self) -> Result<(), Errno> {
        Err(Errno::EISDIR)
    }
}

/// A location only, for neither reading nor writing (`O_PATH`). Most calls fail with `EBADF` before they come to its operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathFile(pub InodeRef);

impl FileOperations for PathFile {
    fn inode(&self, files: &Files) -> Option<InodeRef> {
        Some(files.tree.real_inode(self.0))
    }

    fn lookup_base(&self) -> Result<InodeRef, Errno> {
        Ok(self.0)
    }

    fn offset_use(&self) -> OffsetUse {
        OffsetUse::Position
    }
}
