// SPDX-License-Identifier: MIT OR Apache-2.0
//! Open files of the console: the standard streams, which may be the operator's terminal.

use alloc::format;
use alloc::vec::Vec;

use pando_rt::console::{self, IoError, Stream};

use super::edge::EventTimes;
use super::file_operations::{FileOperations, OffsetUse};
use super::poll::{READING, WRITING};
use super::status::{Status, minor, time};
use super::tree::InodeRef;
use super::{Files, OpenFile};
use crate::errno::Errno;
use crate::wait::Channel;

/// A direction of the console.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StandardStream {
    /// The standard input.
    Input,
    /// The standard output.
    Output,
    /// The standard error stream.
    Errors,
}

impl StandardStream {
    /// The console stream to which it writes.
    #[must_use]
    pub fn output(self) -> Stream {
        if self == StandardStream::Errors { Stream::Stderr } else { Stream::Stdout }
    }
}

/// An open stream of the console.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConsoleFile {
    /// The stream.
    pub stream: StandardStream,
    /// The inode of the operator's terminal, if the stream is that terminal.
    pub terminal: Option<InodeRef>,
}

impl ConsoleFile {
    /// The operator's terminal, opened by its name.
    #[must_use]
    pub fn terminal(inode: InodeRef) -> ConsoleFile {
        ConsoleFile { stream: StandardStream::Output, terminal: Some(inode) }
    }
}

impl FileOperations for ConsoleFile {
    fn inode(&self, files: &Files) -> Option<InodeRef> {
        self.terminal.map(|inode| files.tree.real_inode(inode))
    }

    fn status(&self, files: &Files) -> Result<Status, Errno> {
        Ok(Status::anonymous_device(minor::PIPES, 1 + self.stream as u64, Status::FIFO, time(files.current.started)))
    }

    fn link_text(&self, files: &Files, file: &OpenFile) -> Result<Vec<u8>, Errno> {
        if self.terminal.is_some() {
            return Ok(files.path_of_open(file));
        }
        Ok(format!("pipe:[{}]", files.status_of(file)?.number).into_bytes())
    }

    fn offset_use(&self) -> OffsetUse {
        OffsetUse::Stream
    }

    fn kernel_write(&self, _files: &mut Files, _number: usize, _offset: Option<u64>, bytes: &[u8], _now: u64) -> Result<usize, Errno> {
        match console::send_bytes(self.stream.output(), bytes) {
            Ok(sent) => Ok(sent as usize),
            Err(IoError::NoReader) => Err(Errno::EPIPE),
            Err(_) => Err(Errno::EIO),
        }
    }

    fn accepts_image_bytes(&self) -> bool {
        true
    }

    fn can_splice(&self) -> (bool, bool) {
        (false, true)
    }

    fn poll(&self, files: &Files, file: &OpenFile) -> u16 {
        let reading = if file.readable() && files.input.is_some() { READING } else { 0 };
        reading | if file.writable() { WRITING } else { 0 }
    }

    fn add_channels(&self, _files: &Files, _number: usize, channels: &mut Vec<Channel>) {
        channels.push(Channel::Input);
    }

    fn event_times(&self, files: &Files, file: &OpenFile) -> EventTimes {
        if file.readable() { files.input.unwrap_or_default() } else { EventTimes::default() }
    }

    fn polls_console(&self, _files: &Files, file: &OpenFile) -> bool {
        file.readable()
    }

    fn check_fasync(&self) -> Result<(), Errno> {
        Ok(())
    }

    fn reopen(&self, _files: &mut Files, _reads: bool, _writes: bool) -> Result<(), Errno> {
        Ok(())
    }
}
