// SPDX-License-Identifier: MIT OR Apache-2.0
//! Open files of pseudo terminals. `calls::pseudo` reads and writes them.

use alloc::format;
use alloc::vec::Vec;

use pando_rt::clock;

use super::edge::EventTimes;
use super::file_operations::{FileOperations, OffsetUse};
use super::pty::PtyEnd;
use super::status::time;
use super::tree::InodeRef;
use super::{Files, OpenFile};
use crate::errno::Errno;
use crate::terminal::PtyId;
use crate::uapi::POLLHUP;
use crate::wait::Channel;

/// The open master of a pseudo terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PtyMaster {
    /// The pseudo terminal.
    pub pty: PtyId,
    /// The inode by which it was opened.
    pub inode: InodeRef,
}

/// The open slave of a pseudo terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PtySlave {
    /// The pseudo terminal.
    pub pty: PtyId,
    /// The inode by which it was opened.
    pub inode: InodeRef,
}

impl FileOperations for PtyMaster {
    fn inode(&self, files: &Files) -> Option<InodeRef> {
        Some(files.tree.real_inode(self.inode))
    }

    fn offset_use(&self) -> OffsetUse {
        OffsetUse::Stream
    }

    fn poll(&self, files: &Files, _file: &OpenFile) -> u16 {
        files.ptys.get(self.pty).map_or(POLLHUP, |pty| pty.ready(PtyEnd::Master))
    }

    fn add_channels(&self, _files: &Files, _number: usize, channels: &mut Vec<Channel>) {
        channels.push(Channel::Terminal(self.pty.0));
    }

    fn event_times(&self, files: &Files, _file: &OpenFile) -> EventTimes {
        files.ptys.get(self.pty).map_or_else(|_| EventTimes::default(), |pty| pty.event_times(PtyEnd::Master))
    }

    fn release(&self, files: &mut Files, _file: &OpenFile) -> Vec<OpenFile> {
        files.close_pty(self.pty, PtyEnd::Master, time(clock::wall()));
        Vec::new()
    }
}

impl FileOperations for PtySlave {
    fn inode(&self, files: &Files) -> Option<InodeRef> {
        Some(files.tree.real_inode(self.inode))
    }

    fn link_text(&self, _files: &Files, _file: &OpenFile) -> Result<Vec<u8>, Errno> {
        Ok(format!("/dev/pts/{}", self.pty.0).into_bytes())
    }

    fn offset_use(&self) -> OffsetUse {
        OffsetUse::Stream
    }

    fn poll(&self, files: &Files, _file: &OpenFile) -> u16 {
        files.ptys.get(self.pty).map_or(POLLHUP, |pty| pty.ready(PtyEnd::Slave))
    }

    fn add_channels(&self, _files: &Files, _number: usize, channels: &mut Vec<Channel>) {
        channels.push(Channel::Terminal(self.pty.0));
    }

    fn event_times(&self, files: &Files, _file: &OpenFile) -> EventTimes {
        files.ptys.get(self.pty).map_or_else(|_| EventTimes::default(), |pty| pty.event_times(PtyEnd::Slave))
    }

    fn release(&self, files: &mut Files, _file: &OpenFile) -> Vec<OpenFile> {
        files.close_pty(self.pty, PtyEnd::Slave, time(clock::wall()));
        Vec::new()
    }
}
