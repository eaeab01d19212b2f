// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sockets as open files. `calls::messages` reads and writes them.

use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

use super::super::edge::EventTimes;
use super::super::file_operations::{FileOperations, OffsetUse, Side};
use super::super::status::{Status, minor, time};
use super::super::{Files, OpenFile};
use super::SocketId;
use super::transfer::ReceiveRequest;
use crate::errno::Errno;
use crate::wait::Channel;

impl FileOperations for SocketId {
    fn status(&self, files: &Files) -> Result<Status, Errno> {
        let number = files.sockets.get(*self)?.number;
        Ok(Status::anonymous_device(minor::SOCKETS, number, Status::SOCKET, time(files.current.started))
            .owned_by(&files.current.credentials))
    }

    fn link_text(&self, files: &Files, file: &OpenFile) -> Result<Vec<u8>, Errno> {
        Ok(format!("socket:[{}]", files.status_of(file)?.number).into_bytes())
    }

    fn offset_use(&self) -> OffsetUse {
        OffsetUse::Stream
    }

    fn kernel_write(&self, files: &mut Files, _number: usize, _offset: Option<u64>, bytes: &[u8], _now: u64) -> Result<usize, Errno> {
        let sent = files.sockets.send_bytes(*self, bytes)?;
        files.changed.push(Channel::Sockets);
        Ok(sent)
    }

    fn can_splice(&self) -> (bool, bool) {
        (true, true)
    }

    fn splice_read(&self, files: &mut Files, _from: Side, pipe: u64, room: usize, _now: u64) -> Result<u64, Errno> {
        let pipe = files.pipe_of(pipe)?;
        let mut bytes = vec![0; room];
        let mut filled = 0;
        let mut take = |piece: &[u8]| {
            bytes[filled..filled + piece.len()].copy_from_slice(piece);
            filled += piece.len();
            piece.len()
        };
        let received = files.sockets.receive(*self, ReceiveRequest { room, peeks: false, waits: false, take: &mut take })?;
        files.release_passed(&received.files);
        files.pipes.get_mut(pipe)?.push(&bytes[..filled]).map(|done| done as u64)
    }

    fn poll(&self, files: &Files, _file: &OpenFile) -> u16 {
        files.sockets.ready(*self)
    }

    fn add_channels(&self, _files: &Files, _number: usize, channels: &mut Vec<Channel>) {
        channels.push(Channel::Sockets);
    }

    fn changed_channel(&self, _number: usize) -> Option<Channel> {
        Some(Channel::Sockets)
    }

    fn event_times(&self, files: &Files, _file: &OpenFile) -> EventTimes {
        files.sockets.get(*self).map_or_else(|_| EventTimes::default(), |socket| socket.event_times)
    }

    fn check_fasync(&self) -> Result<(), Errno> {
        Ok(())
    }

    fn release(&self, files: &mut Files, _file: &OpenFile) -> Vec<OpenFile> {
        let passed = files.sockets.close(*self);
        files.changed.push(Channel::Sockets);
        passed.into_iter().filter_map(|index| files.drop_reference(index)).collect()
    }
}
