// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arguments and environments: consecutive strings, in the layout of the program's stack.

use alloc::vec::Vec;

use crate::errno::Errno;

/// Upper limit on one string in bytes, with its zero byte, as on Linux.
pub const WORD_MAX: usize = 128 << 10;

/// Strings, each ended by a zero byte.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StringList {
    bytes: Vec<u8>,
    count: usize,
}

impl StringList {
    /// Adds a string, which holds no zero byte.
    ///
    /// # Errors
    /// `E2BIG`: it is too long.
    pub fn push(&mut self, word: &[u8]) -> Result<(), Errno> {
        if word.len() >= WORD_MAX {
            return Err(Errno::E2BIG);
        }
        self.bytes.extend_from_slice(word);
        self.bytes.push(0);
        self.count += 1;
        Ok(())
    }

    /// Replaces the first string, if there is one, by other strings.
    ///
    /// # Errors
    /// `E2BIG`: one of them is too long.
    pub fn replace_first<'a>(&mut self, words: impl IntoIterator<Item = &'a [u8]>) -> Result<(), Errno> {
        let first = self.iter().next().map_or(0, |word| word.len() + 1);
        let mut replaced = StringList::default();
        for word in words {
            replaced.push(word)?;
        }
        replaced.bytes.extend_from_slice(&self.bytes[first..]);
        replaced.count += self.count.saturating_sub(1);
        *self = replaced;
        Ok(())
    }

    /// The number of strings.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// All strings with their zero bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The strings without their zero bytes.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.bytes.split(|byte| *byte == 0).take(self.count)
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::{Errno, StringList, WORD_MAX};

    #[test]
    fn strings_come_out_as_they_went_in() {
        let mut words = StringList::default();
        assert_eq!((words.iter().count(), words.replace_first([])), (0, Ok(())));
        for word in [&b"name"[..], b"", b"two words"] {
            words.push(word).expect("it is short");
        }
        assert_eq!((words.count(), words.bytes()), (3, &b"name\0\0two words\0"[..]));
        words.replace_first([&b"/bin/sh"[..], b"-e", b"script"]).expect("they are short");
        assert_eq!(words.iter().collect::<Vec<_>>(), [&b"/bin/sh"[..], b"-e", b"script", b"", b"two words"]);
        assert_eq!(words.push(&[b'x'; WORD_MAX]), Err(Errno::E2BIG));
        assert_eq!(words.push(&[b'x'; WORD_MAX - 1]), Ok(()));
    }
}
