// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records of the holdings of a cell, as `state_read` and `state_write` copy them: one for each place of its table, in order.

use crate::HoldingName;

/// Words of a record.
pub const HOLDING_WORDS: usize = 8;
/// Records that one call may write at most: each may make a cell.
pub const MAX_HOLDINGS_WRITTEN: usize = 32;

/// A child in the table of holdings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChildRecord {
    /// Pages that it may use.
    pub quota: u64,
    /// Descendants that it may have.
    pub cells: u32,
    /// Its CPU weight among its siblings.
    pub weight: u64,
    /// Its CPU time in thousandths of a CPU; 0: no limit of its own.
    pub cpu_limit: u64,
    /// The events that halt it.
    pub mask: u64,
    /// Its parent has halted it, and has not resumed it. Not written.
    pub is_halted_by_parent: bool,
    /// Its control channel is open. Not written.
    pub has_control: bool,
}

/// The content of a place in the table of holdings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldingContent {
    /// Nothing at present. The name is that of the next holding there.
    Nothing,
    /// A child.
    Child(ChildRecord),
    /// The root.
    Root,
    /// Another holding, such as a port, a reference, a call or a view. Such a record cannot be written.
    Other,
}

/// A place in the table of holdings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldingRecord {
    /// The name of its holding, or of the next one.
    pub name: HoldingName,
    /// The holding.
    pub content: HoldingContent,
}

impl HoldingRecord {
    /// The words that are copied.
    #[must_use]
    pub const fn to_words(self) -> [u64; HOLDING_WORDS] {
        let name = self.name.bits();
        match self.content {
            HoldingContent::Nothing => [name, 0, 0, 0, 0, 0, 0, 0],
            HoldingContent::Child(child) => {
                let ChildRecord { quota, cells, weight, cpu_limit, mask, is_halted_by_parent, has_control } = child;
                [name, 1, quota, cells as u64, weight, cpu_limit, mask, is_halted_by_parent as u64 | (has_control as u64) << 1]
            }
            HoldingContent::Root => [name, 2, 0, 0, 0, 0, 0, 0],
            HoldingContent::Other => [name, 3, 0, 0, 0, 0, 0, 0],
        }
    }

    /// Decodes the words. `None`: no record has them.
    #[must_use]
    pub fn from_words(words: [u64; HOLDING_WORDS]) -> Option<HoldingRecord> {
        let content = match words {
            [_, 0, 0, 0, 0, 0, 0, 0] => HoldingContent::Nothing,
            [_, 1, quota, cells @ 0..=0xffff_ffff, weight, cpu_limit, mask, flags @ 0..=3] => HoldingContent::Child(ChildRecord {
                quota,
                cells: cells as u32,
                weight,
                cpu_limit,
                mask,
                is_halted_by_parent: flags & 1 != 0,
                has_control: flags & 2 != 0,
            }),
            [_, 2, 0, 0, 0, 0, 0, 0] => HoldingContent::Root,
            [_, 3, 0, 0, 0, 0, 0, 0] => HoldingContent::Other,
            _ => return None,
        };
        HoldingName::from_bits(words[0]).map(|name| HoldingRecord { name, content })
    }
}

#[cfg(test)]
mod tests {
    use super::{ChildRecord, HOLDING_WORDS, HoldingContent, HoldingRecord};
    use crate::HoldingName;

    #[test]
    fn records_decode_to_the_encoded_ones() {
        let child = ChildRecord { quota: 5, cells: 6, weight: 7, cpu_limit: 8, mask: 9, is_halted_by_parent: true, has_control: false };
        for content in [HoldingContent::Nothing, HoldingContent::Child(child), HoldingContent::Root, HoldingContent::Other] {
            let record = HoldingRecord { name: HoldingName::new(3, 4), content };
            assert_eq!(HoldingRecord::from_words(record.to_words()), Some(record));
        }
        let name = HoldingName::ROOT.bits();
        for words in [[0; HOLDING_WORDS], [name, 4, 0, 0, 0, 0, 0, 0], [name, 2, 1, 0, 0, 0, 0, 0], [name, 1, 0, 1 << 32, 0, 0, 0, 0]] {
            assert_eq!(HoldingRecord::from_words(words), None, "{words:?}");
        }
    }
}
