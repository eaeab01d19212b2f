// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records of the descendants of a cell, as `state_read` copies them: parents before their children.

use crate::holding::ChildState;
use crate::limits::HOST_NAME_BYTES;

/// Words before the name.
const WORDS: usize = 4;

/// A living cell below another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DescendantRecord {
    /// Number of levels below the cell whose descendants are listed: 1 for a child.
    pub depth: u32,
    /// Its state.
    pub state: ChildState,
    /// Pages that it and its own descendants use.
    pub pages: u64,
    /// Its CPU time in nanoseconds, without that of its descendants.
    pub cpu: u64,
    /// Bytes of its host name.
    name_length: u32,
    /// Its host name, and zeros.
    name: [u8; HOST_NAME_BYTES],
}

impl DescendantRecord {
    /// Bytes of a record.
    pub const SIZE: usize = WORDS * 8 + HOST_NAME_BYTES;

    /// A record. A longer name is truncated.
    #[must_use]
    pub fn new(depth: u32, state: ChildState, (pages, cpu): (u64, u64), host_name: &[u8]) -> DescendantRecord {
        let length = host_name.len().min(HOST_NAME_BYTES);
        let mut name = [0; HOST_NAME_BYTES];
        name[..length].copy_from_slice(&host_name[..length]);
        DescendantRecord { depth, state, pages, cpu, name_length: length as u32, name }
    }

    /// Its host name.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        self.name.get(..self.name_length as usize).unwrap_or_default()
    }

    /// The bytes that `state_read` copies.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; DescendantRecord::SIZE] {
        let words = [u64::from(self.depth) | u64::from(self.name_length) << 32, self.state.bits(), self.pages, self.cpu];
        let mut bytes = [0; DescendantRecord::SIZE];
        let (head, name) = bytes.split_at_mut(WORDS * 8);
        for (room, word) in head.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *room = word.to_le_bytes();
        }
        name.copy_from_slice(&self.name);
        bytes
    }

    /// Decodes bytes. `None`: no record has these.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; DescendantRecord::SIZE]) -> Option<DescendantRecord> {
        let (head, name) = bytes.split_at(WORDS * 8);
        let [sizes, state, pages, cpu] = *head.as_chunks::<8>().0 else { return None };
        let (sizes, state) = (u64::from_le_bytes(sizes), ChildState::from_bits(u64::from_le_bytes(state))?);
        let record = DescendantRecord {
            depth: sizes as u32,
            state,
            pages: u64::from_le_bytes(pages),
            cpu: u64::from_le_bytes(cpu),
            name_length: (sizes >> 32) as u32,
            name: name.try_into().ok()?,
        };
        (record.name_length as usize <= HOST_NAME_BYTES).then_some(record)
    }
}

#[cfg(test)]
mod tests {
    use super::DescendantRecord;
    use crate::holding::ChildState;

    #[test]
    fn a_record_survives_its_encoding() {
        let record = DescendantRecord::new(3, ChildState::Started { wants_input: true }, (7, u64::MAX), b"agent-1");
        assert_eq!(DescendantRecord::from_bytes(&record.to_bytes()), Some(record));
        assert_eq!(record.name(), b"agent-1");
        assert_eq!(DescendantRecord::new(1, ChildState::New, (0, 0), &[b'x'; 100]).name().len(), 64);
        let mut bytes = record.to_bytes();
        bytes[4] = 65;
        assert_eq!(DescendantRecord::from_bytes(&bytes), None, "the name is too long");
    }
}
