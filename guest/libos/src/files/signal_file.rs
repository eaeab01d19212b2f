// SPDX-License-Identifier: MIT OR Apache-2.0
//! Open files of pending signals (`signalfd`). `calls::signalfd` reads them.

use alloc::vec::Vec;

use super::edge::EventTimes;
use super::file_operations::FileOperations;
use super::{Files, OpenFile};
use crate::errno::Errno;
use crate::signals::SignalSet;
use crate::uapi::POLLIN;
use crate::wait::Channel;

/// An open file of pending signals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignalFile {
    /// The signals that it returns.
    pub wanted: SignalSet,
}

impl FileOperations for SignalFile {
    fn link_text(&self, _files: &Files, _file: &OpenFile) -> Result<Vec<u8>, Errno> {
        Ok(b"anon_inode:[signalfd]".to_vec())
    }

    fn poll(&self, files: &Files, _file: &OpenFile) -> u16 {
        if files.signals.0.0 & self.wanted.0 != 0 { POLLIN } else { 0 }
    }

    fn add_channels(&self, files: &Files, _number: usize, channels: &mut Vec<Channel>) {
        channels.push(Channel::Signal(files.current.process));
    }

    fn event_times(&self, files: &Files, _file: &OpenFile) -> EventTimes {
        files.signals.1
    }
}
