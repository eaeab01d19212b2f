// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records for the operator, gathered until there is enough to be worth an exit.

use pando_rt::abi::channel::{Answer, Entry, Header, Kind, MAX_PATH};
use pando_rt::user::fetch;

use crate::errno::Errno;

/// The way to the operator.
pub trait Channel {
    /// Sends bytes.
    fn send(&mut self, bytes: &[u8]);

    /// Waits for the operator's next bytes; returns how many, 0 if none will come.
    fn receive(&mut self, room: &mut [u8]) -> usize;
}

/// Records on their way.
pub struct Records<'a> {
    channel: &'a mut dyn Channel,
    buffer: &'a mut [u8],
    filled: usize,
}

impl<'a> Records<'a> {
    /// Gathers records in a buffer.
    pub fn new(channel: &'a mut dyn Channel, buffer: &'a mut [u8]) -> Records<'a> {
        Records { channel, buffer, filled: 0 }
    }

    fn flush(&mut self) {
        self.channel.send(&self.buffer[..self.filled]);
        self.filled = 0;
    }

    /// Takes bytes on, which may lie where a read can fail.
    fn put(&mut self, mut bytes: &[u8]) -> Result<(), Errno> {
        while !bytes.is_empty() {
            if self.filled == self.buffer.len() {
                self.flush();
            }
            let (now, later) = bytes.split_at(bytes.len().min(self.buffer.len() - self.filled));
            if fetch(now, &mut self.buffer[self.filled..self.filled + now.len()]) < now.len() {
                return Err(Errno::EIO);
            }
            self.filled += now.len();
            bytes = later;
        }
        Ok(())
    }

    fn head(&mut self, kind: Kind, length: usize) -> Result<(), Errno> {
        self.put(&Header { kind, length: length as u32 }.to_bytes())
    }

    /// A record about a path, with what follows it.
    ///
    /// # Errors
    /// `EIO`.
    pub fn named(&mut self, kind: Kind, entry: Entry, path: &[u8], rest: &[u8]) -> Result<(), Errno> {
        self.head(kind, Entry::SIZE + path.len() + rest.len())?;
        self.put(&Entry { path_length: path.len() as u32, ..entry }.to_bytes())?;
        self.put(path)?;
        self.put(rest)
    }

    /// Says that what a path leads to cannot be said.
    ///
    /// # Errors
    /// `EIO`.
    pub fn lost(&mut self, export: u32, path: &[u8], why: Errno) -> Result<(), Errno> {
        let entry = Entry { export, size: why as u64, ..Entry::default() };
        self.named(Kind::Lost, entry, &path[..path.len().min(MAX_PATH)], &[])
    }

    /// Up to `most` bytes of a file: `fill` puts them where it is told, and says how many they are. Returns that.
    ///
    /// # Errors
    /// Those of `fill`.
    pub fn data(&mut self, offset: u64, most: u64, fill: impl FnOnce(&mut [u8]) -> Result<usize, Errno>) -> Result<u64, Errno> {
        const BEFORE: usize = Header::SIZE + size_of::<u64>();
        // What is worth a record.
        const LEAST: usize = 4096;
        if self.buffer.len() - self.filled < BEFORE + LEAST {
            self.flush();
        }
        let start = self.filled + BEFORE;
        let end = self.buffer.len().min(start.saturating_add(usize::try_from(most).unwrap_or(usize::MAX)));
        let count = fill(&mut self.buffer[start..end])?;
        self.head(Kind::Data, size_of::<u64>() + count)?;
        self.put(&offset.to_le_bytes())?;
        self.filled += count;
        Ok(count as u64)
    }

    /// The end of a file.
    ///
    /// # Errors
    /// `EIO`.
    pub fn close(&mut self) -> Result<(), Errno> {
        self.head(Kind::Close, 0)
    }

    /// Asks whether all is done, and waits for the answer.
    ///
    /// # Errors
    /// What went wrong first; `EIO`: nobody answers.
    pub fn sync(&mut self) -> Result<(), Errno> {
        self.head(Kind::Sync, 0)?;
        self.flush();
        let mut answer = [0; Answer::SIZE];
        let mut read = 0;
        while read < answer.len() {
            match self.channel.receive(&mut answer[read..]) {
                0 => return Err(Errno::EIO),
                count => read += count,
            }
        }
        match Answer::from_bytes(answer).errno {
            0 => Ok(()),
            number => Err(Errno::from_number(number).unwrap_or(Errno::EIO)),
        }
    }
}
