// SPDX-License-Identifier: MIT OR Apache-2.0
//! The stack as a program finds it at its first instruction: argument count, arguments, environment, auxiliary vector, then the strings.

use alloc::vec::Vec;

/// What a program finds on its stack.
#[derive(Clone, Copy, Debug)]
pub struct Start<'a> {
    /// The arguments; the first is the program's name.
    pub arguments: &'a [&'a [u8]],
    /// The environment, `NAME=value`.
    pub environment: &'a [&'a [u8]],
    /// The program's path.
    pub path: &'a [u8],
    /// Random bytes for stack canaries and the like.
    pub random: [u8; 16],
    /// The auxiliary vector's entries that are numbers.
    pub auxiliary: &'a [(u64, u64)],
}

const AT_NULL: u64 = 0;
const AT_PLATFORM: u64 = 15;
const AT_RANDOM: u64 = 25;
const AT_EXECFN: u64 = 31;

const PLATFORM: &[u8] = b"x86_64";

/// Bytes that lie at the end of the stack, before its last word, which is zero.
struct Strings {
    /// In order of address, the last byte just below `end`.
    reversed: Vec<u8>,
    end: u64,
}

impl Strings {
    /// Puts bytes below what is there; returns their address.
    fn push(&mut self, bytes: impl DoubleEndedIterator<Item = u8>) -> u64 {
        self.reversed.extend(bytes.rev());
        self.end - self.reversed.len() as u64
    }

    fn string(&mut self, bytes: &[u8]) -> u64 {
        self.push(bytes.iter().copied().chain([0]))
    }
}

impl Start<'_> {
    /// The bytes that lie below `top`, an address that is a multiple of 16; the stack pointer points at the first. `None`: they are more than `limit`.
    #[must_use]
    pub fn bytes(&self, top: u64, limit: u64) -> Option<Vec<u8>> {
        let given = self.arguments.iter().chain(self.environment).map(|string| string.len() as u64 + 9).sum::<u64>();
        if given + self.path.len() as u64 + 1024 > limit {
            return None;
        }
        let mut strings = Strings { reversed: Vec::new(), end: top };
        strings.push([0; 8].into_iter());
        let path = strings.string(self.path);
        let mut environment: Vec<u64> = self.environment.iter().rev().map(|string| strings.string(string)).collect();
        let mut arguments: Vec<u64> = self.arguments.iter().rev().map(|string| strings.string(string)).collect();
        environment.reverse();
        arguments.reverse();
        let platform = strings.string(PLATFORM);
        let random = strings.push(self.random.into_iter());

        let mut words = Vec::new();
        words.push(arguments.len() as u64);
        words.extend(arguments.into_iter().chain([0]));
        words.extend(environment.into_iter().chain([0]));
        for (kind, value) in
            self.auxiliary.iter().copied().chain([(AT_RANDOM, random), (AT_EXECFN, path), (AT_PLATFORM, platform), (AT_NULL, 0)])
        {
            words.extend([kind, value]);
        }
        // The first word lies at a multiple of 16.
        let used = strings.reversed.len() + words.len() * 8;
        strings.push((0..used.next_multiple_of(16) - used).map(|_| 0));
        strings.reversed.reverse();
        Some(words.into_iter().flat_map(u64::to_le_bytes).chain(strings.reversed).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOP: u64 = 0x10_0000;

    /// The words from the stack pointer on, and what a pointer into the bytes leads to.
    struct Seen(Vec<u8>);

    impl Seen {
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
        let start = Start {
            arguments: &[b"echo", b"", b"two words"],
            environment: &[b"A=1", b"LONGER=value"],
            path: b"/bin/echo",
            random: [7; 16],
            auxiliary: &[(6, 4096), (9, 0x40_0000)],
        };
        let seen = Seen(start.bytes(TOP, 1 << 20).expect("it fits"));
        assert_eq!(seen.0.len() % 16, 0, "the stack pointer is aligned as the calling convention wants it");
        assert_eq!(seen.word(0), 3);
        let arguments: Vec<&[u8]> = (1..4).map(|index| seen.string(seen.word(index))).collect();
        assert_eq!(arguments, start.arguments);
        assert_eq!(seen.word(4), 0);
        let environment: Vec<&[u8]> = (5..7).map(|index| seen.string(seen.word(index))).collect();
        assert_eq!(environment, start.environment);
        assert_eq!(seen.word(7), 0);
        assert_eq!([seen.word(8), seen.word(9), seen.word(10), seen.word(11)], [6, 4096, 9, 0x40_0000]);
        assert_eq!(seen.word(12), AT_RANDOM);
        let random = seen.0.len() - (TOP - seen.word(13)) as usize;
        assert_eq!(seen.0[random..random + 16], [7; 16]);
        assert_eq!((seen.word(14), seen.string(seen.word(15))), (AT_EXECFN, b"/bin/echo".as_slice()));
        assert_eq!((seen.word(16), seen.string(seen.word(17))), (AT_PLATFORM, b"x86_64".as_slice()));
        assert_eq!((seen.word(18), seen.word(19)), (AT_NULL, 0));
        assert_eq!(seen.0[seen.0.len() - 8..], [0; 8]);
    }

    #[test]
    fn more_than_the_limit_is_refused() {
        let long = alloc::vec![b'x'; 5000];
        let start = Start { arguments: &[&long], environment: &[], path: b"/x", random: [0; 16], auxiliary: &[] };
        assert!(start.bytes(TOP, 4096).is_none());
        assert!(start.bytes(TOP, 8192).is_some());
    }
}
