// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory devices of Linux's `drivers/char/mem.c`: `/dev/null`, `/dev/zero`, `/dev/full`, `/dev/random`.

use alloc::vec;

use pando_rt::user;

use super::Files;
use super::file_operations::{FileOperations, Mappable, OffsetUse, Side, Transfer};
use super::sharing::Sharing;
use super::tree::InodeRef;
use super::user_copy::each;
use crate::errno::Errno;
use crate::random::Random;
use crate::uapi::SEEK_END;

/// The type of a memory device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryDeviceKind {
    /// `/dev/null`
    Null,
    /// `/dev/zero`
    Zero,
    /// `/dev/full`
    Full,
    /// `/dev/random`, `/dev/urandom`
    Random,
}

/// An open memory device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryDevice {
    /// The type.
    pub kind: MemoryDeviceKind,
    /// The inode by which it was opened.
    pub inode: InodeRef,
}

impl MemoryDevice {
    fn accept(self, bytes: u64) -> Result<u64, Errno> {
        if self.kind == MemoryDeviceKind::Full && bytes > 0 { Err(Errno::ENOSPC) } else { Ok(bytes) }
    }
}

impl FileOperations for MemoryDevice {
    fn inode(&self, files: &Files) -> Option<InodeRef> {
        Some(files.tree.real_inode(self.inode))
    }

    fn offset_use(&self) -> OffsetUse {
        OffsetUse::Position
    }

    fn seek(&self, files: &mut Files, number: usize, offset: i64, whence: u64) -> Result<u64, Errno> {
        // The offset stays 0 (`null_lseek`).
        if whence as u32 as u64 != SEEK_END {
            files.seek_position(number, offset, whence)?;
            files.file_at_mut(number)?.offset = 0;
        }
        Ok(0)
    }

    fn read(&self, _files: &mut Files, transfer: Transfer<'_>, random: &mut Random) -> Result<u64, Errno> {
        match self.kind {
            MemoryDeviceKind::Null => Ok(0),
            MemoryDeviceKind::Zero | MemoryDeviceKind::Full => {
                each(transfer.ranges, |range, _| Ok(user::zero(range).map(|()| range.length())?))
            }
            MemoryDeviceKind::Random => each(transfer.ranges, |range, _| random.fill_user(range)),
        }
    }

    fn write(&self, _files: &mut Files, transfer: Transfer<'_>) -> Result<u64, Errno> {
        self.accept(transfer.ranges.iter().map(|range| range.length()).sum())
    }

    fn kernel_write(&self, _files: &mut Files, _number: usize, _offset: Option<u64>, bytes: &[u8], _now: u64) -> Result<usize, Errno> {
        self.accept(bytes.len() as u64).map(|done| done as usize)
    }

    fn accepts_image_bytes(&self) -> bool {
        true
    }

    fn can_splice(&self) -> (bool, bool) {
        (true, true)
    }

    fn splice_read(&self, files: &mut Files, _from: Side, pipe: u64, room: usize, _now: u64) -> Result<u64, Errno> {
        match self.kind {
            MemoryDeviceKind::Null => Ok(0),
            MemoryDeviceKind::Zero | MemoryDeviceKind::Full => {
                let pipe = files.pipe_of(pipe)?;
                files.pipes.get_mut(pipe)?.push(&vec![0; room]).map(|done| done as u64)
            }
            MemoryDeviceKind::Random => Err(Errno::EINVAL),
        }
    }

    fn is_pollable(&self) -> bool {
        false
    }

    fn mmap(&self, _files: &mut Files, _number: usize, _sharing: Sharing, _writes: bool) -> Result<Mappable, Errno> {
        if self.kind == MemoryDeviceKind::Zero { Ok(Mappable::Zero) } else { Err(Errno::ENODEV) }
    }
}
