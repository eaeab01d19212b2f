// SPDX-License-Identifier: MIT OR Apache-2.0
//! The bytes of a difference: numbers of variable length, and the steps that lead from the base to the cell's memory.
//!
//! A record never leaves this kernel: entries in it name this kernel's disks. It is checked all the same when it is read.

use pando_abi::Permissions;
use pando_abi::cell_image::TreeOrigin;

/// Bytes of a line, the unit in which pages are compared.
pub(super) const LINE: usize = 64;

/// A record that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the record of a sleeping cell is damaged")]
pub(crate) struct BadRecord;

/// A step from a base tree to a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DifferenceOperation {
    /// The tree is complete.
    End,
    /// Replace pages by a non-present entry, given as it is stored.
    Replace { first: u64, count: u64, entry: u64 },
    /// Set the permissions of mapped pages.
    Protect { first: u64, count: u64, permissions: Permissions },
    /// Overwrite the lines of a page that are set in a mask. Their bytes follow.
    Page { page: u64, mask: u64 },
}

const END: u8 = 0;
const REPLACE: u8 = 1;
const PROTECT: u8 = 2;
const PAGE: u8 = 3;

/// A record that is written.
#[derive(Debug, Default)]
pub(super) struct RecordWriter {
    pub(super) bytes: Vec<u8>,
}

impl RecordWriter {
    /// Appends a number.
    pub(super) fn number(&mut self, mut number: u64) {
        while number >= 1 << 7 {
            self.bytes.push(number as u8 | 1 << 7);
            number >>= 7;
        }
        self.bytes.push(number as u8);
    }

    /// Appends the origin of a tree.
    pub(super) fn origin(&mut self, origin: TreeOrigin) {
        let (kind, index) = match origin {
            TreeOrigin::Nothing => (0, 0),
            TreeOrigin::Base(index) => (1, index),
            TreeOrigin::Own(index) => (2, index),
        };
        self.number(u64::from(index) << 2 | kind);
    }

    /// Appends a step.
    pub(super) fn push_operation(&mut self, operation: &DifferenceOperation) {
        match *operation {
            DifferenceOperation::End => self.bytes.push(END),
            DifferenceOperation::Replace { first, count, entry } => {
                self.bytes.push(REPLACE);
                self.number(first);
                self.number(count);
                self.bytes.extend(entry.to_le_bytes());
            }
            DifferenceOperation::Protect { first, count, permissions } => {
                self.bytes.push(PROTECT);
                self.number(first);
                self.number(count);
                self.number(permissions.bits());
            }
            DifferenceOperation::Page { page, mask } => {
                self.bytes.push(PAGE);
                self.number(page);
                self.bytes.extend(mask.to_le_bytes());
            }
        }
    }
}

/// A record that is read.
#[derive(Debug)]
pub(super) struct RecordReader<'a> {
    bytes: &'a [u8],
}

impl<'a> RecordReader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> RecordReader<'a> {
        RecordReader { bytes }
    }

    /// Number of bytes that were not read.
    pub(super) fn left(&self) -> usize {
        self.bytes.len()
    }

    /// The next bytes.
    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8], BadRecord> {
        let (taken, rest) = self.bytes.split_at_checked(count).ok_or(BadRecord)?;
        self.bytes = rest;
        Ok(taken)
    }

    fn word(&mut self) -> Result<u64, BadRecord> {
        self.take(8)?.try_into().map(u64::from_le_bytes).map_err(|_| BadRecord)
    }

    /// A number.
    pub(super) fn number(&mut self) -> Result<u64, BadRecord> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1)?[0];
            let part = u64::from(byte & 0x7f);
            if part << shift >> shift != part {
                return Err(BadRecord);
            }
            number |= part << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(BadRecord)
    }

    /// The origin of a tree.
    pub(super) fn origin(&mut self) -> Result<TreeOrigin, BadRecord> {
        let number = self.number()?;
        let index = u32::try_from(number >> 2).map_err(|_| BadRecord)?;
        match number & 3 {
            0 => Ok(TreeOrigin::Nothing),
            1 => Ok(TreeOrigin::Base(index)),
            2 => Ok(TreeOrigin::Own(index)),
            _ => Err(BadRecord),
        }
    }

    /// A step. The pages that it names are within a tree of `pages` pages.
    pub(super) fn read_operation(&mut self, pages: u64) -> Result<DifferenceOperation, BadRecord> {
        let check = |first: u64, count: u64| {
            let is_within = count > 0 && first.checked_add(count).is_some_and(|end| end <= pages);
            if is_within { Ok(()) } else { Err(BadRecord) }
        };
        match self.take(1)?[0] {
            END => Ok(DifferenceOperation::End),
            REPLACE => {
                let (first, count, entry) = (self.number()?, self.number()?, self.word()?);
                check(first, count)?;
                Ok(DifferenceOperation::Replace { first, count, entry })
            }
            PROTECT => {
                let (first, count, bits) = (self.number()?, self.number()?, self.number()?);
                check(first, count)?;
                Ok(DifferenceOperation::Protect { first, count, permissions: Permissions::from_bits(bits).ok_or(BadRecord)? })
            }
            PAGE => {
                let (page, mask) = (self.number()?, self.word()?);
                check(page, 1)?;
                Ok(DifferenceOperation::Page { page, mask })
            }
            _ => Err(BadRecord),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{BadRecord, DifferenceOperation, RecordReader, RecordWriter, TreeOrigin};
    use pando_abi::Permissions;

    const PAGES: u64 = 1 << 27;

    #[test]
    fn a_record_reads_as_it_was_written() {
        let operations = [
            DifferenceOperation::Replace { first: 0, count: PAGES, entry: u64::MAX },
            DifferenceOperation::Protect { first: 5, count: 7, permissions: Permissions::READ },
            DifferenceOperation::Page { page: PAGES - 1, mask: 1 << 63 },
            DifferenceOperation::End,
        ];
        let numbers = [0, 1, 127, 128, 1 << 40, u64::MAX];
        let origins = [TreeOrigin::Nothing, TreeOrigin::Base(3), TreeOrigin::Own(1 << 20)];
        let mut writer = RecordWriter::default();
        operations.iter().for_each(|operation| writer.push_operation(operation));
        numbers.into_iter().for_each(|number| writer.number(number));
        origins.into_iter().for_each(|origin| writer.origin(origin));
        let mut reader = RecordReader::new(&writer.bytes);
        operations.iter().for_each(|operation| assert_eq!(reader.read_operation(PAGES).as_ref(), Ok(operation)));
        numbers.into_iter().for_each(|number| assert_eq!(reader.number(), Ok(number)));
        origins.into_iter().for_each(|origin| assert_eq!(reader.origin(), Ok(origin)));
        assert_eq!((reader.left(), reader.number()), (0, Err(BadRecord)));
    }

    #[test]
    fn a_step_beyond_its_tree_is_refused() {
        for operation in [
            DifferenceOperation::Replace { first: PAGES, count: 1, entry: 0 },
            DifferenceOperation::Replace { first: 1, count: u64::MAX, entry: 0 },
            DifferenceOperation::Replace { first: 1, count: 0, entry: 0 },
            DifferenceOperation::Page { page: PAGES, mask: 0 },
        ] {
            let mut writer = RecordWriter::default();
            writer.push_operation(&operation);
            assert_eq!(RecordReader::new(&writer.bytes).read_operation(PAGES), Err(BadRecord), "{operation:?}");
        }
    }
}
