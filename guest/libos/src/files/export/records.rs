// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records for the operator, buffered to save exits.

use pando_rt::abi::channel::{Answer, ExportedFile, Header, Kind, MAX_PATH};
use pando_rt::user::fetch;

use crate::errno::Errno;

/// The channel to the operator.
pub trait Channel {
    /// Sends bytes.
    fn send(&mut self, bytes: &[u8]);

    /// Waits for the operator's next bytes. Returns how many; 0: the channel is closed.
    fn receive(&mut self, buffer: &mut [u8]) -> usize;
}

/// The buffered records.
pub struct Records<'a> {
    channel: &'a mut dyn Channel,
    buffer: &'a mut [u8],
    filled: usize,
}

impl<'a> Records<'a> {
    /// Buffers records before they are sent.
    pub fn new(channel: &'a mut dyn Channel, buffer: &'a mut [u8]) -> Records<'a> {
        Records { channel, buffer, filled: 0 }
    }

    fn flush(&mut self) {
        self.channel.send(&self.buffer[..self.filled]);
        self.filled = 0;
    }

    /// Appends bytes from memory whose reads can fail.
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

    /// Appends a record about a path, with its data.
    ///
    /// # Errors
    /// `EIO`.
    pub fn named(&mut self, kind: Kind, entry: ExportedFile, path: &[u8], rest: &[u8]) -> Result<(), Errno> {
        self.head(kind, ExportedFile::SIZE + path.len() + rest.len())?;
        self.put(&ExportedFile { path_length: path.len() as u32, ..entry }.to_bytes())?;
        self.put(path)?;
        self.put(rest)
    }

    /// Reports that the file at a path cannot be exported.
    ///
    /// # Errors
    /// `EIO`.
    pub fn report_unsent(&mut self, export: u32, path: &[u8], why: Errno) -> Result<(), Errno> {
        let entry = ExportedFile { export, size: why as u64, ..ExportedFile::default() };
        self.named(Kind::Lost, entry, &path[..path.len().min(MAX_PATH)], &[])
    }

    /// Appends up to `max` bytes of a file. `fill` writes them to a buffer and returns how many they are. Returns that number.
    ///
    /// # Errors
    /// Those of `fill`.
    pub fn data(&mut self, offset: u64, max: u64, fill: impl FnOnce(&mut [u8]) -> Result<usize, Errno>) -> Result<u64, Errno> {
        const BEFORE: usize = Header::SIZE + size_of::<u64>();
        // Minimum size of a data record.
        const FREE_MIN: usize = 4096;
        if self.buffer.len() - self.filled < BEFORE + FREE_MIN {
            self.flush();
        }
        let start = self.filled + BEFORE;
        let end = self.buffer.len().min(start.saturating_add(usize::try_from(max).unwrap_or(usize::MAX)));
        let count = fill(&mut self.buffer[start..end])?;
        self.head(Kind::Data, size_of::<u64>() + count)?;
        self.put(&offset.to_le_bytes())?;
        self.filled += count;
        Ok(count as u64)
    }

    /// Appends the end of a file.
    ///
    /// # Errors
    /// `EIO`.
    pub fn close(&mut self) -> Result<(), Errno> {
        self.head(Kind::Close, 0)
    }

    /// Requests an acknowledgement, and waits for it.
    ///
    /// # Errors
    /// The first error of the host; `EIO`: the operator does not answer.
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
