// SPDX-License-Identifier: MIT OR Apache-2.0
//! The initial stack of a program: argument count, arguments, environment, auxiliary vector, then the strings.

use alloc::vec::Vec;

use crate::memory::stack::Strings;
use crate::string_list::StringList;
use crate::uapi::{AT_EXECFN, AT_NULL, AT_PLATFORM, AT_RANDOM};

/// The content of a program's initial stack.
#[derive(Clone, Copy, Debug)]
pub struct Start<'a> {
    /// The arguments; the first is the program's name.
    pub arguments: &'a StringList,
    /// The environment, `NAME=value`.
    pub environment: &'a StringList,
    /// The program's path.
    pub path: &'a [u8],
    /// Random bytes for stack canaries and the like.
    pub random: [u8; 16],
    /// Bytes left out between the strings and the pointers to them.
    pub skip: u64,
    /// The numeric entries of the auxiliary vector.
    pub auxiliary: &'a [(u64, u64)],
}

const PLATFORM: &[u8] = b"x86_64\0";

/// Addresses of consecutive strings from `start` on.
fn addresses(words: &StringList, start: u64) -> impl Iterator<Item = u64> {
    words.iter().scan(start, |next, word| {
        let address = *next;
        *next += word.len() as u64 + 1;
        Some(address)
    })
}

impl Start<'_> {
    /// The addresses of arguments and environment below `top`: from there down, a word of zeros, the path, the environment, the
    /// arguments.
    #[must_use]
    pub fn strings(&self, top: u64) -> Strings {
        let path = top - 8 - (self.path.len() as u64 + 1);
        let environment = path - self.environment.bytes().len() as u64;
        let arguments = environment - self.arguments.bytes().len() as u64;
        Strings { arguments: arguments..environment, environment: environment..path }
    }

    /// The bytes below `top`, a multiple of 16; the stack pointer points at the first.
    #[must_use]
    pub fn bytes(&self, top: u64) -> Vec<u8> {
        // Below the strings: the gap, then the data that the vector points to.
        let strings = self.strings(top);
        let (arguments, environment, path) = (strings.arguments.start, strings.environment.start, strings.environment.end);
        let platform = arguments - self.skip - PLATFORM.len() as u64;
        let random = platform - self.random.len() as u64;

        let mut words = Vec::new();
        words.push(self.arguments.count() as u64);
        words.extend(addresses(self.arguments, arguments).chain([0]));
        words.extend(addresses(self.environment, environment).chain([0]));
        let entries = [(AT_RANDOM, random), (AT_EXECFN, path), (AT_PLATFORM, platform), (AT_NULL, 0)];
        words.extend(self.auxiliary.iter().copied().chain(entries).flat_map(<[u64; 2]>::from));
        // The first word lies at a multiple of 16.
        let start = (random - words.len() as u64 * 8) / 16 * 16;
        let mut bytes = Vec::with_capacity((top - start) as usize);
        bytes.extend(words.into_iter().flat_map(u64::to_le_bytes));
        bytes.resize((random - start) as usize, 0);
        bytes.extend_from_slice(&self.random);
        bytes.extend_from_slice(PLATFORM);
        bytes.resize((arguments - start) as usize, 0);
        for strings in [self.arguments.bytes(), self.environment.bytes(), self.path] {
            bytes.extend_from_slice(strings);
        }
        bytes.resize((top - start) as usize, 0);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOP: u64 = 0x10_0000;

    /// The words from the stack pointer on, and the data at a pointer.
    struct StackContents(Vec<u8>);

    impl StackContents {
        fn word(&self, index: usize) -> u64 {
            u64::from_le_bytes(self.0[index * 8..][..8].try_into().expect("eight bytes"))
        }

        fn string(&self, address: u64) -> &[u8] {
            let start = self.0.len() - (TOP - address) as usize;
            self.0[start..].split(|byte| *byte == 0).next().expect("split yields one part at least")
        }
    }

    #[test]
    fn a_program_finds_arguments_environment_and_vector() {
        let strings = |strings: &[&[u8]]| {
            let mut words = StringList::default();
            strings.iter().try_for_each(|string| words.push(string)).expect("they are short");
            words
        };
        let argv: [&[u8]; 3] = [b"echo", b"", b"two words"];
        let set: [&[u8]; 2] = [b"A=1", b"LONGER=value"];
        let start = Start {
            arguments: &strings(&argv),
            environment: &strings(&set),
            path: b"/bin/echo",
            random: [7; 16],
            skip: 48,
            auxiliary: &[(6, 4096), (9, 0x40_0000)],
        };
        let contents = StackContents(start.bytes(TOP));
        assert_eq!(contents.0.len() % 16, 0, "the stack pointer is aligned as the calling convention wants it");
        assert_eq!(contents.word(0), 3);
        let arguments: Vec<&[u8]> = (1..4).map(|index| contents.string(contents.word(index))).collect();
        assert_eq!(arguments, argv);
        assert_eq!(contents.word(4), 0);
        let environment: Vec<&[u8]> = (5..7).map(|index| contents.string(contents.word(index))).collect();
        assert_eq!(environment, set);
        assert_eq!(contents.word(7), 0);
        assert_eq!([contents.word(8), contents.word(9), contents.word(10), contents.word(11)], [6, 4096, 9, 0x40_0000]);
        assert_eq!(contents.word(12), AT_RANDOM);
        let random = contents.0.len() - (TOP - contents.word(13)) as usize;
        assert_eq!(contents.0[random..random + 16], [7; 16]);
        assert_eq!((contents.word(14), contents.string(contents.word(15))), (AT_EXECFN, b"/bin/echo".as_slice()));
        assert_eq!((contents.word(16), contents.string(contents.word(17))), (AT_PLATFORM, b"x86_64".as_slice()));
        assert_eq!((contents.word(18), contents.word(19)), (AT_NULL, 0));
        assert_eq!(contents.0[contents.0.len() - 8..], [0; 8]);
    }
}
