// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reading of an archive's headers with a limit for each member, because the lengths in them are not trusted.

use std::{
    cell::Cell,
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    rc::Rc,
};

/// Maximal bytes of one member's headers, names, extended headers and sparse map: a thousand times what a path needs. All of it is read
/// into memory.
const HEADERS_MAX: u64 = 1 << 20;

/// Reads an archive's headers, with a limit for each member. File contents are not read through this. Clones share the limit.
#[derive(Clone, Debug)]
pub struct BoundedHeaders<'a> {
    file: &'a File,
    left: Rc<Cell<u64>>,
}

impl<'a> BoundedHeaders<'a> {
    /// Reads this archive.
    pub fn new(file: &'a File) -> Self {
        BoundedHeaders { file, left: Rc::new(Cell::new(HEADERS_MAX)) }
    }

    /// Begins another member.
    pub fn renew(&self) {
        self.left.set(HEADERS_MAX);
    }
}

impl Read for BoundedHeaders<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let max = usize::try_from(self.left.get()).unwrap_or(usize::MAX).min(buffer.len());
        if max == 0 && !buffer.is_empty() {
            return Err(io::Error::other(format!(
                "a name, an extended header or a map of a sparse file is longer than {HEADERS_MAX} bytes"
            )));
        }
        let count = (&mut &*self.file).read(&mut buffer[..max])?;
        self.left.set(self.left.get() - count as u64);
        Ok(count)
    }
}

impl Seek for BoundedHeaders<'_> {
    fn seek(&mut self, position: SeekFrom) -> io::Result<u64> {
        (&mut &*self.file).seek(position)
    }
}
