// SPDX-License-Identifier: MIT OR Apache-2.0
//! The processes of a cell, as its libOS describes them: a claim, of which nothing is trusted.

use crate::watched_cell::WatchedCell;
use pando_abi::thread_table::{MAX_THREADS, PROCESS_WORDS, ProcessHead};
use std::io::{Error, Result};

/// Words of the longest list that is read.
const LIST_WORDS: u64 = 128 << 10;
/// Bytes of a path that are used.
const PATH_MAX: u64 = 4096;

/// A process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ProcessDescription {
    pub(super) number: u64,
    /// The path of its program.
    pub(super) path: Vec<u8>,
    /// Its auxiliary vector.
    pub(super) auxiliary: Vec<u8>,
}

/// Reads a list of so many words at an address of a cell.
///
/// # Errors
/// It cannot be read, or lists no process.
pub(super) fn read(cell: &dyn WatchedCell, list: u64, words: u64) -> Result<Vec<ProcessDescription>> {
    let mut bytes = vec![0; (words.min(LIST_WORDS) * 8) as usize];
    let count = cell.read(None, list, &mut bytes)?;
    let processes = parse(&bytes[..count]);
    if processes.is_empty() { Err(Error::other("the cell's list of processes is damaged")) } else { Ok(processes) }
}

/// The processes of a list, as far as it is complete, in the order of their numbers.
fn parse(mut bytes: &[u8]) -> Vec<ProcessDescription> {
    let mut processes = Vec::new();
    while processes.len() < MAX_THREADS
        && let Some((process, rest)) = parse_one(bytes)
    {
        processes.push(process);
        bytes = rest;
    }
    processes.sort_by_key(|process| process.number);
    processes
}

fn parse_one(bytes: &[u8]) -> Option<(ProcessDescription, &[u8])> {
    let (head, rest) = bytes.split_at_checked(PROCESS_WORDS * 8)?;
    let (words, _) = head.as_chunks::<8>();
    let ProcessHead { number, auxiliary, path } = ProcessHead::from_words(std::array::from_fn(|index| u64::from_le_bytes(words[index])));
    let (auxiliary, rest) = rest.split_at_checked(usize::try_from(auxiliary.checked_mul(8)?).ok()?)?;
    let length = usize::try_from(path).ok().filter(|_| path <= PATH_MAX)?;
    let (path, rest) = rest.split_at_checked(length.next_multiple_of(8))?;
    Some((ProcessDescription { number, path: path[..length].to_vec(), auxiliary: auxiliary.to_vec() }, rest))
}

#[cfg(test)]
mod tests {
    use super::{ProcessDescription, parse};

    fn bytes(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn a_list_is_read_as_far_as_it_is_complete() {
        let path = u64::from_le_bytes(*b"/bin/sh\0");
        let list = bytes(&[7, 2, 7, 9, 8, path, 1, 0, 0, 5, u64::MAX, 0]);
        let shell = ProcessDescription { number: 7, path: b"/bin/sh".to_vec(), auxiliary: bytes(&[9, 8]) };
        assert_eq!(parse(&list), [ProcessDescription { number: 1, ..ProcessDescription::default() }, shell.clone()]);
        assert_eq!(parse(&list[..48]), [shell]);
        assert_eq!(parse(&list[..47]), []);
        for wrong in [[1, u64::MAX / 8, 0, 0], [1, 1 << 61, 0, 0], [1, 0, u64::MAX, 0], [1, 0, 4097, 0], [1, 0, 9, 0]] {
            assert_eq!(parse(&bytes(&wrong)), [], "{wrong:?}");
        }
    }
}
