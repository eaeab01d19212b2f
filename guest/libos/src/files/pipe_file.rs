// SPDX-License-Identifier: MIT OR Apache-2.0
//! Open ends of pipes and FIFOs.

use alloc::format;
use alloc::vec::Vec;

use pando_rt::user::UserRange;

use super::edge::EventTimes;
use super::file_operations::{FileOperations, OffsetUse, Transfer};
use super::pipe::{CAPACITY_MAX, Pipe, PipeId};
use super::status::{Status, minor, time};
use super::tree::InodeRef;
use super::user_copy::{deliver, each, gather};
use super::{Files, OpenFile};
use crate::errno::Errno;
use crate::random::Random;
use crate::uapi::O_DIRECT;
use crate::wait::Channel;

/// An open end of a pipe; the flags of the open file say which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PipeFile {
    /// The pipe.
    pub pipe: PipeId,
    /// How often the other end of a FIFO had been opened when the open of this one began to wait.
    other_opens: Option<u64>,
}

impl PipeFile {
    /// An open end of a pipe.
    #[must_use]
    pub fn new(pipe: PipeId) -> PipeFile {
        PipeFile { pipe, other_opens: None }
    }

    /// Records that the open of a FIFO begins to wait.
    #[must_use]
    pub fn begin_open(self, files: &Files, reads: bool) -> PipeFile {
        PipeFile { other_opens: files.pipes.get(self.pipe).ok().map(|pipe| pipe.other_opens(reads)), ..self }
    }

    /// Whether the open of a FIFO still waits for its other end.
    #[must_use]
    pub fn awaits_other_end(self, files: &Files, file: &OpenFile) -> bool {
        let Ok(pipe) = files.pipes.get(self.pipe) else { return false };
        // An other end that was opened and closed meanwhile counts.
        let is_alone = file.readable() && pipe.writers == 0 || file.writable() && pipe.readers == 0;
        pipe.inode.is_some() && is_alone && self.other_opens == Some(pipe.other_opens(file.readable()))
    }
}

impl FileOperations for PipeFile {
    fn inode(&self, files: &Files) -> Option<InodeRef> {
        files.pipes.get(self.pipe).ok()?.inode
    }

    fn status(&self, files: &Files) -> Result<Status, Errno> {
        let number = 16 + files.pipes.get(self.pipe)?.number;
        Ok(Status::anonymous_device(minor::PIPES, number, Status::FIFO, time(files.current.started)).owned_by(&files.current.credentials))
    }

    fn link_text(&self, files: &Files, file: &OpenFile) -> Result<Vec<u8>, Errno> {
        Ok(format!("pipe:[{}]", files.status_of(file)?.number).into_bytes())
    }

    fn offset_use(&self) -> OffsetUse {
        OffsetUse::Stream
    }

    fn read(&self, files: &mut Files, transfer: Transfer<'_>, _random: &mut Random) -> Result<u64, Errno> {
        let waits = files.file_at(transfer.file)?.waits();
        let pipe = files.pipes.get_mut(self.pipe)?;
        let read =
            if pipe.packet().is_some() { read_packet(pipe, transfer.ranges) } else { each(transfer.ranges, |range, _| pipe.read(range)) };
        pipe.has_waiting_reader = waits && read == Err(Errno::EAGAIN);
        read
    }

    fn write(&self, files: &mut Files, transfer: Transfer<'_>) -> Result<u64, Errno> {
        let file = files.file_at(transfer.file)?;
        let (is_packets, waits) = (file.flags & O_DIRECT != 0, file.waits());
        if is_packets && transfer.ranges.iter().any(|range| range.length() > 0) {
            let packets = gather(transfer.ranges, CAPACITY_MAX)?;
            return files.pipes.get_mut(self.pipe)?.push_packets(&packets).map(|done| done as u64);
        }
        let pipe = files.pipes.get_mut(self.pipe)?;
        each(transfer.ranges, |range, _| pipe.write(range, waits))
    }

    fn kernel_write(&self, files: &mut Files, _number: usize, _offset: Option<u64>, bytes: &[u8], _now: u64) -> Result<usize, Errno> {
        let pushed = files.pipes.get_mut(self.pipe)?.push(bytes)?;
        files.changed.push(Channel::Pipe(self.pipe.0));
        Ok(pushed)
    }

    fn can_splice(&self) -> (bool, bool) {
        (true, true)
    }

    fn poll(&self, files: &Files, file: &OpenFile) -> u16 {
        files.pipes.get(self.pipe).map_or(0, |pipe| pipe.ready(file.readable(), file.writable()))
    }

    fn add_channels(&self, _files: &Files, _number: usize, channels: &mut Vec<Channel>) {
        channels.push(Channel::Pipe(self.pipe.0));
    }

    fn changed_channel(&self, _number: usize) -> Option<Channel> {
        Some(Channel::Pipe(self.pipe.0))
    }

    fn event_times(&self, files: &Files, file: &OpenFile) -> EventTimes {
        files.pipes.get(self.pipe).map_or_else(|_| EventTimes::default(), |pipe| pipe.event_times.seen_by(file.readable(), file.writable()))
    }

    fn readable_bytes(&self, files: &Files, _file: &OpenFile) -> Result<u64, Errno> {
        Ok(files.pipes.get(self.pipe)?.length() as u64)
    }

    fn check_fasync(&self) -> Result<(), Errno> {
        Ok(())
    }

    fn check_allocate(&self) -> Result<(), Errno> {
        Err(Errno::ESPIPE)
    }

    fn reopen(&self, files: &mut Files, reads: bool, writes: bool) -> Result<(), Errno> {
        let pipe = files.pipes.get_mut(self.pipe)?;
        pipe.readers += u32::from(reads);
        pipe.writers += u32::from(writes);
        Ok(())
    }

    fn release(&self, files: &mut Files, file: &OpenFile) -> Vec<OpenFile> {
        files.pipes.close(self.pipe, file.readable(), file.writable());
        files.changed.push(Channel::Pipe(self.pipe.0));
        Vec::new()
    }
}

/// Reads one packet. The rest of a packet that does not fit is lost.
fn read_packet(pipe: &mut Pipe, ranges: &[UserRange]) -> Result<u64, Errno> {
    let packet = pipe.packet().unwrap_or_default();
    let length = packet.len();
    let done = each(ranges, |range, done| {
        let rest = packet.get(done as usize..).unwrap_or_default();
        deliver(range, &rest[..rest.len().min(range.length() as usize)]).map(|bytes| bytes as u64)
    })?;
    pipe.skip(if done > 0 { length } else { 0 });
    Ok(done)
}
