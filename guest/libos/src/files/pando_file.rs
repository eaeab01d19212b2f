// SPDX-License-Identifier: MIT OR Apache-2.0
//! Open files of `/dev/pando`: reads report that the cell continues as a clone. `calls::pando_device` handles the written messages.

use alloc::format;
use alloc::vec::Vec;

use pando_abi::virtual_registers::Identity;
use pando_rt::registers;

use super::edge::EventTimes;
use super::file_operations::{FileOperations, OffsetUse, Transfer};
use super::poll::{READING, WRITING};
use super::tree::InodeRef;
use super::user_copy::read_text;
use super::{Files, OpenFile};
use crate::errno::Errno;
use crate::random::Random;
use crate::wait::Channel;

/// Device number of `/dev/pando`, in the range for local use.
pub const PANDO: (u32, u32) = (10, 240);

/// An open `/dev/pando`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PandoFile {
    /// The inode by which it was opened.
    inode: InodeRef,
    /// The generation that was reported last.
    reported: u64,
}

impl PandoFile {
    /// Opens the device: the present generation counts as reported.
    #[must_use]
    pub fn open(inode: InodeRef) -> PandoFile {
        PandoFile { inode, reported: registers::identity().generation }
    }
}

impl FileOperations for PandoFile {
    fn inode(&self, files: &Files) -> Option<InodeRef> {
        Some(files.tree.real_inode(self.inode))
    }

    fn offset_use(&self) -> OffsetUse {
        OffsetUse::Ignored
    }

    /// Returns generation and index of this clone, once per generation.
    fn read(&self, files: &mut Files, transfer: Transfer<'_>, _random: &mut Random) -> Result<u64, Errno> {
        let Identity { generation, clone_index, .. } = registers::identity();
        if self.reported == generation {
            return Err(Errno::EAGAIN);
        }
        let done = read_text(format!("{generation} {clone_index}\n").as_bytes(), 0, transfer.ranges)?;
        files.replace_object(transfer.file, PandoFile { reported: generation, ..*self });
        Ok(done)
    }

    fn poll(&self, _files: &Files, _file: &OpenFile) -> u16 {
        WRITING | if self.reported == registers::identity().generation { 0 } else { READING }
    }

    fn add_channels(&self, _files: &Files, _number: usize, channels: &mut Vec<Channel>) {
        channels.push(Channel::Generation);
    }

    fn event_times(&self, files: &Files, _file: &OpenFile) -> EventTimes {
        files.cloned
    }
}
