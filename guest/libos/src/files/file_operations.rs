// SPDX-License-Identifier: MIT OR Apache-2.0
//! The operations of open files: one table per type of file, as Linux's `struct file_operations`.
//!
//! A type of file is a small handle that can be copied and implements [`FileOperations`]. Its state is in the handle, or in a table of
//! [`Files`] to which the handle refers. An operation copies the handle out of the open file, so it may borrow all of `Files`.
//!
//! No operation waits: `EAGAIN` means that the call is made again when one of the file's [channels](FileOperations::add_channels) is
//! woken. The defaults return the errors that Linux returns for files without the operation. Calls that also concern processes, signals
//! or the network are in `calls::file_operations`.

use alloc::string::String;
use alloc::vec::Vec;

use pando_abi::{BlockAddress, BlockNumber};
use pando_rt::user::UserRange;

use super::edge::EventTimes;
use super::poll::{READING, WRITING};
use super::sharing::Sharing;
use super::status::{Status, minor, time};
use super::tree::InodeRef;
use super::tree::node::NodeId;
use super::tree::volume::ImageFile;
use super::{Files, OpenFile};
use crate::errno::Errno;
use crate::random::Random;
use crate::wait::Channel;

/// The source of a file mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mappable {
    /// Zero memory.
    Zero,
    /// Blocks from `first` up to `end`.
    Blocks {
        /// The file's first block.
        first: BlockAddress,
        /// The number after that of the file's last block.
        end: BlockNumber,
    },
    /// Bytes that must be copied.
    Bytes {
        /// The file's size.
        size: u64,
    },
    /// A file of the overlay.
    Node {
        /// The file.
        node: NodeId,
    },
}

/// A read or write of an open file.
#[derive(Clone, Copy, Debug)]
pub struct Transfer<'a> {
    /// The number of the open file.
    pub file: usize,
    /// The application's memory.
    pub ranges: &'a [UserRange],
    /// The offset of the call; `None`: the file's own.
    pub offset: Option<u64>,
    /// The time, in nanoseconds since 1970.
    pub now: u64,
}

impl Transfer<'_> {
    /// The offset at which the transfer begins, if it does not append.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn start(&self, files: &Files) -> Result<u64, Errno> {
        self.offset.map_or_else(|| files.file_at(self.file).map(|file| file.offset), Ok)
    }
}

/// One side of a transfer between two files.
#[derive(Clone, Copy, Debug)]
pub struct Side {
    /// The descriptor.
    pub fd: u64,
    /// The offset; `None`: the file's own, if it has one.
    pub offset: Option<u64>,
}

/// The use that a type of file makes of the file offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffsetUse {
    /// Reads and writes begin at the offset and move it.
    Position,
    /// There is no offset, and `lseek` does nothing (`noop_llseek`).
    Ignored,
    /// There is no offset, and `lseek` fails (`stream_open`).
    Stream,
}

/// The operations of a type of open file. `number` is the number of the open file, and `file` the open file itself.
pub trait FileOperations {
    /// The inode, if the file has one.
    fn inode(&self, _files: &Files) -> Option<InodeRef> {
        None
    }

    /// The directory of a descriptor from which paths are looked up.
    ///
    /// # Errors
    /// `ENOTDIR`: it is no directory.
    fn lookup_base(&self) -> Result<InodeRef, Errno> {
        Err(Errno::ENOTDIR)
    }

    /// The metadata of a file without an inode (`fstat`).
    ///
    /// # Errors
    /// `EBADF`.
    fn status(&self, files: &Files) -> Result<Status, Errno> {
        Ok(Status::anonymous_device(minor::ANONYMOUS, 1, 0o600, time(files.current.started)))
    }

    /// The text of the descriptor's link in `/proc/PID/fd`.
    ///
    /// # Errors
    /// `ENOENT`, `EIO`.
    fn link_text(&self, files: &Files, file: &OpenFile) -> Result<Vec<u8>, Errno> {
        Ok(files.path_of_open(file))
    }

    /// Adds lines that only this type of file has in `/proc/PID/fdinfo`.
    fn show_fdinfo(&self, _files: &Files, _text: &mut String) {}

    /// The use of the file offset.
    fn offset_use(&self) -> OffsetUse {
        OffsetUse::Ignored
    }

    /// The position from which `SEEK_END` counts. `None`: there is none, so `lseek` fails with `EINVAL`.
    ///
    /// # Errors
    /// `ENOENT`, `EIO`.
    fn end(&self, files: &Files, file: &OpenFile) -> Result<Option<u64>, Errno> {
        files.status_of(file).map(|status| Some(status.size))
    }

    /// The offset of the next data, or of the next hole.
    ///
    /// # Errors
    /// `EINVAL`: the file has no holes. `ENXIO`: there is none, or the offset is behind the end.
    fn seek_data(&self, _files: &Files, _offset: i64, _data: bool) -> Result<u64, Errno> {
        Err(Errno::EINVAL)
    }

    /// Moves the file offset. Returns the new one.
    ///
    /// # Errors
    /// Those of `lseek`.
    fn seek(&self, files: &mut Files, number: usize, offset: i64, whence: u64) -> Result<u64, Errno> {
        match self.offset_use() {
            OffsetUse::Position => files.seek_position(number, offset, whence),
            OffsetUse::Ignored => Ok(0),
            OffsetUse::Stream => Err(Errno::ESPIPE),
        }
    }

    /// Reads. Returns how many bytes; the caller moves the offset.
    ///
    /// # Errors
    /// Those of `read`; `EAGAIN`: no data is available yet.
    fn read(&self, _files: &mut Files, _transfer: Transfer<'_>, _random: &mut Random) -> Result<u64, Errno> {
        Err(Errno::EINVAL)
    }

    /// Writes, and moves the offset if there is one. Returns how many bytes.
    ///
    /// # Errors
    /// Those of `write`; `EAGAIN`: the file is full for now.
    fn write(&self, _files: &mut Files, _transfer: Transfer<'_>) -> Result<u64, Errno> {
        Err(Errno::EINVAL)
    }

    /// Reads into memory of the libOS (`kernel_read`).
    ///
    /// # Errors
    /// `EINVAL`: the file cannot be read so. `EIO`, `EBADF`.
    fn kernel_read(&self, _files: &Files, _offset: u64, _buffer: &mut [u8]) -> Result<usize, Errno> {
        Err(Errno::EINVAL)
    }

    /// Writes bytes in the libOS's memory, at least one (`kernel_write`); `offset`: not at the file's own. Returns how many.
    ///
    /// # Errors
    /// `EINVAL`: the file cannot be written so. Those of `write`.
    fn kernel_write(&self, _files: &mut Files, _number: usize, _offset: Option<u64>, _bytes: &[u8], _now: u64) -> Result<usize, Errno> {
        Err(Errno::EINVAL)
    }

    /// The bytes in a volume's memory, which can be written to another file without a copy.
    fn image_file(&self, _files: &Files) -> Option<ImageFile> {
        None
    }

    /// Whether [`kernel_write`](FileOperations::kernel_write) accepts bytes of a volume, whose access may fault.
    fn accepts_image_bytes(&self) -> bool {
        false
    }

    /// Whether bytes can be spliced from the file, and to it.
    fn can_splice(&self) -> (bool, bool) {
        (false, false)
    }

    /// Moves up to `room` bytes into the pipe of a descriptor, which has that much room. Returns how many.
    ///
    /// # Errors
    /// `EAGAIN`, `EPIPE`; `EINVAL`: the file cannot be spliced from.
    fn splice_read(&self, _files: &mut Files, _from: Side, _pipe: u64, _room: usize, _now: u64) -> Result<u64, Errno> {
        Err(Errno::EINVAL)
    }

    /// The `poll` events.
    fn poll(&self, _files: &Files, _file: &OpenFile) -> u16 {
        READING | WRITING
    }

    /// Whether the readiness can change; files that are always ready cannot be watched by `epoll`.
    fn is_pollable(&self) -> bool {
        true
    }

    /// Adds the channels that are woken when the readiness may have changed.
    fn add_channels(&self, _files: &Files, _number: usize, _channels: &mut Vec<Channel>) {}

    /// The channel that is woken after each read and write.
    fn changed_channel(&self, _number: usize) -> Option<Channel> {
        None
    }

    /// When the file last became ready.
    fn event_times(&self, _files: &Files, _file: &OpenFile) -> EventTimes {
        EventTimes::default()
    }

    /// Whether the readiness depends on the console's input.
    fn polls_console(&self, _files: &Files, _file: &OpenFile) -> bool {
        false
    }

    /// The number of bytes that can be read (`FIONREAD`).
    ///
    /// # Errors
    /// `ENOTTY`: the file has no such number.
    fn readable_bytes(&self, _files: &Files, _file: &OpenFile) -> Result<u64, Errno> {
        Err(Errno::ENOTTY)
    }

    /// Checks that signals can be requested for readiness (`FIOASYNC`).
    ///
    /// # Errors
    /// `ENOTTY`: they cannot.
    fn check_fasync(&self) -> Result<(), Errno> {
        Err(Errno::ENOTTY)
    }

    /// Checks that changes of the directory can be watched (`F_NOTIFY`).
    ///
    /// # Errors
    /// `ENOTDIR`: it is none.
    fn check_dnotify(&self) -> Result<(), Errno> {
        Err(Errno::ENOTDIR)
    }

    /// The source for a mapping; `writes`: the mapping may be written.
    ///
    /// # Errors
    /// `ENODEV`: the file cannot be mapped. `EACCES`, `ENOSPC`, `EIO`.
    fn mmap(&self, _files: &mut Files, _number: usize, _sharing: Sharing, _writes: bool) -> Result<Mappable, Errno> {
        Err(Errno::ENODEV)
    }

    /// Whether `fsync` applies.
    fn is_synced(&self) -> bool {
        false
    }

    /// Checks that `readahead` applies.
    ///
    /// # Errors
    /// `EINVAL`: it does not.
    fn check_readahead(&self) -> Result<(), Errno> {
        Err(Errno::EINVAL)
    }

    /// Checks that parts can be copied by `copy_file_range`.
    ///
    /// # Errors
    /// `EINVAL`: they cannot. `EISDIR`.
    fn check_copy_range(&self) -> Result<(), Errno> {
        Err(Errno::EINVAL)
    }

    /// Checks that space can be allocated by `fallocate`.
    ///
    /// # Errors
    /// `ENODEV`: it cannot. `EISDIR`, `ESPIPE`.
    fn check_allocate(&self) -> Result<(), Errno> {
        Err(Errno::ENODEV)
    }

    /// The node whose size `ftruncate` changes. `None`: the call has no effect.
    ///
    /// # Errors
    /// `EINVAL`: the file has no size. `ENOSPC`, `EIO`.
    fn truncated_node(&self, _files: &mut Files, _number: usize) -> Result<Option<NodeId>, Errno> {
        Err(Errno::EINVAL)
    }

    /// Prepares a file without an inode for another open file with the same handle, which is opened by its name in `/proc/PID/fd`.
    ///
    /// # Errors
    /// `ENXIO`: it cannot be opened.
    fn reopen(&self, _files: &mut Files, _reads: bool, _writes: bool) -> Result<(), Errno> {
        Err(Errno::ENXIO)
    }

    /// Acts when a process closes a descriptor of the file.
    fn flush(&self, _files: &mut Files) {}

    /// Frees the file's own state after its last descriptor was closed. Returns other open files that it had kept open.
    fn release(&self, _files: &mut Files, _file: &OpenFile) -> Vec<OpenFile> {
        Vec::new()
    }
}
