// SPDX-License-Identifier: MIT OR Apache-2.0
//! Valid headers, and the ways in which headers can be invalid.

use std::vec;
use std::vec::Vec;

use pando_abi::{PAGE_SIZE, Permissions};
use proptest::prelude::*;

use super::{ElfError, Executable};

const FILE_SIZE: u64 = 0x3000;
const HEADER: usize = 64;
const ENTRY: usize = 56;

/// A program header: type, flags, offset, address, bytes in the file, bytes in memory.
type Header = [u64; 6];

const TEXT: Header = [1, 5, 0, 0x40_0000, 0x1234, 0x1234];
const DATA: Header = [1, 6, 0x1f00, 0x40_2f00, 0x200, 0x5000];

/// A file with these program headers.
fn file(kind: u16, headers: &[Header]) -> Vec<u8> {
    let mut bytes = vec![0; FILE_SIZE as usize];
    bytes[..7].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1, 1]);
    bytes[16..18].copy_from_slice(&kind.to_le_bytes());
    bytes[18..20].copy_from_slice(&62u16.to_le_bytes());
    bytes[24..32].copy_from_slice(&0x40_1000u64.to_le_bytes());
    bytes[32..40].copy_from_slice(&(HEADER as u64).to_le_bytes());
    bytes[54..56].copy_from_slice(&(ENTRY as u16).to_le_bytes());
    bytes[56..58].copy_from_slice(&(headers.len() as u16).to_le_bytes());
    for (room, [kind, flags, offset, address, file_bytes, bytes]) in bytes[HEADER..].chunks_exact_mut(ENTRY).zip(headers) {
        room[..4].copy_from_slice(&(*kind as u32).to_le_bytes());
        room[4..8].copy_from_slice(&(*flags as u32).to_le_bytes());
        let words = [*offset, *address, *address, *file_bytes, *bytes, PAGE_SIZE];
        for (room, word) in room[8..].chunks_exact_mut(8).zip(words) {
            room.copy_from_slice(&word.to_le_bytes());
        }
    }
    bytes
}

fn parse(bytes: &[u8]) -> Result<Executable, ElfError> {
    Executable::parse(bytes.len() as u64, |offset, buffer| {
        let rest = usize::try_from(offset).ok().and_then(|offset| bytes.get(offset..)).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        count
    })
}

#[test]
fn a_program_is_understood() {
    let executable = parse(&file(2, &[TEXT, DATA])).expect("a proper program");
    assert_eq!((executable.entry, executable.load_alignment, executable.load_bias, &executable.interpreter), (0x40_1000, None, 0, &None));
    assert_eq!((executable.headers, executable.header_count), (Some(0x40_0040), 2));
    assert_eq!(executable.stack_permissions, Permissions::READ_WRITE);
    let [text, data] = executable.segments[..] else { panic!("two segments") };
    assert_eq!((text.pages.start(), text.pages.end(), text.permissions), (0x40_0000, 0x40_2000, Permissions::READ_EXECUTE));
    assert_eq!((data.pages.start(), data.pages.end(), data.permissions), (0x40_2000, 0x40_8000, Permissions::READ_WRITE));
    assert_eq!((data.address, data.offset, data.file_bytes), (0x40_2f00, 0x1f00, 0x200));
    assert_eq!(executable.end(), 0x40_8000);
}

#[test]
fn a_position_independent_program_is_placed() {
    let moved = |header: Header| [header[0], header[1], header[2], header[3] - 0x40_0000, header[4], header[5]];
    let executable = parse(&file(3, &[moved(TEXT), moved(DATA)])).expect("a proper program");
    assert_eq!((executable.load_alignment, executable.bytes()), (Some(PAGE_SIZE), 0x8000));
    let placed = executable.clone().at(0x1234_5000).expect("there is room");
    assert_eq!((placed.segments[0].pages.start(), placed.segments[1].address), (0x1234_5000, 0x1234_7f00));
    assert_eq!((placed.entry, placed.headers, placed.load_bias), (0x40_1000 + 0x1234_5000, Some(0x1234_5040), 0x1234_5000));
    assert!(executable.clone().at(u64::MAX - 0xfff).is_none() && executable.at(0x7f00_0000_0000).is_none());
    let high =
        |header: Header| [header[0], header[1], header[2], header[3].wrapping_sub(0x40_0000).wrapping_add(1 << 63), header[4], header[5]];
    let executable = parse(&file(3, &[high(TEXT), high(DATA)])).expect("it may say that it lies anywhere");
    assert_eq!(executable.segments[0].pages.start(), 0);
    let placed = executable.at(0x1000).expect("there is room");
    assert_eq!(placed.load_bias, 0x1000u64.wrapping_sub(1 << 63), "the address of the file's address 0");
}

#[test]
fn a_program_names_its_interpreter() {
    let with = |path: &[u8], header: Header| {
        let mut bytes = file(3, &[TEXT, header]);
        bytes[0x100..][..path.len()].copy_from_slice(path);
        parse(&bytes).map(|executable| executable.interpreter)
    };
    let at = |bytes| [3, 4, 0x100, 0x40_0100, bytes, bytes];
    assert_eq!(with(b"/lib/ld.so\0", at(11)), Ok(Some(b"/lib/ld.so".to_vec())));
    assert_eq!(with(b"/lib\0ld.so\0", at(12)), Ok(Some(b"/lib".to_vec())));
    for bytes in [0, 1, 10, 4097, u64::MAX] {
        assert!(matches!(with(b"/lib/ld.so\0", at(bytes)), Err(ElfError::Malformed(_))), "{bytes}");
    }
    assert_eq!(with(b"", [3, 4, FILE_SIZE - 4, 0x40_0100, 11, 11]), Err(ElfError::Truncated));
    assert_eq!(with(b"", [3, 4, u64::MAX, 0x40_0100, 11, 11]), Err(ElfError::Truncated));
}

#[test]
fn an_executable_stack_is_given_where_it_is_asked_for() {
    let executable = parse(&file(2, &[TEXT, [0x6474_e551, 7, 0, 0, 0, 0]])).expect("a proper program");
    assert_eq!(executable.stack_permissions, Permissions::ALL);
}

#[test]
fn malformed_programs_are_refused() {
    let with = |change: fn(&mut Vec<u8>)| {
        let mut bytes = file(2, &[TEXT, DATA]);
        change(&mut bytes);
        parse(&bytes).expect_err("it is no program")
    };
    assert_eq!(with(|bytes| bytes.clear()), ElfError::NotElf);
    assert_eq!(with(|bytes| bytes.truncate(5)), ElfError::Truncated);
    assert_eq!(with(|bytes| bytes.truncate(63)), ElfError::Truncated);
    assert_eq!(with(|bytes| bytes.truncate(100)), ElfError::Truncated);
    assert_eq!(with(|bytes| bytes.truncate(0x2000)), ElfError::Truncated);
    assert_eq!(with(|bytes| bytes[4] = 1), ElfError::WrongMachine);
    assert_eq!(with(|bytes| bytes[18] = 183), ElfError::WrongMachine);
    assert_eq!(with(|bytes| bytes[16] = 1), ElfError::NotAProgram);
    assert!(matches!(with(|bytes| bytes[54] = 55), ElfError::Malformed(_)));
    assert!(matches!(with(|bytes| bytes[56] = 0), ElfError::Malformed(_)));
}

#[test]
fn segments_that_cannot_be_are_refused() {
    let refused = |headers: &[Header]| parse(&file(2, headers)).expect_err("it cannot be loaded");
    let malformed = |headers: &[Header]| assert!(matches!(refused(headers), ElfError::Malformed(_)), "{headers:x?}");
    malformed(&[[2, 5, 0, 0x40_0000, 1, 1]]);
    malformed(&[TEXT, [1, 6, 0x1f00, 0x40_1f00, 0x200, 0x200]]);
    malformed(&[TEXT, TEXT]);
    malformed(&[[1, 5, 0x10, 0x40_0000, 1, 1]]);
    malformed(&[[1, 5, 0, 0x40_0000, 2, 1]]);
    malformed(&[[1, 5, 0, 0, 0x1000, 0x1000]]);
    malformed(&[[1, 5, 0, 0x7f00_0000_0000, 0x1000, 0x1000]]);
    malformed(&[[1, 5, 0, 0xffff_ffff_ffff_f000, 0x1000, 0x1000]]);
    malformed(&[[1, 5, 0, 0x40_0000, 0x1000, u64::MAX]]);
    assert_eq!(refused(&[[1, 5, 0x2000, 0x40_0000, 0x1001, 0x2000]]), ElfError::Truncated);
    assert_eq!(refused(&[[1, 5, 0xffff_ffff_ffff_f000, 0x40_0000, 0x1000, 0x2000]]), ElfError::Truncated);
}

proptest! {
    #[test]
    fn any_change_of_bytes_gives_an_answer(changes in prop::collection::vec((0..200usize, any::<u8>()), 0..12), kind in 2..4u16) {
        let mut bytes = file(kind, &[TEXT, DATA]);
        for (at, byte) in changes {
            bytes[at] = byte;
        }
        if let Ok(executable) = parse(&bytes) {
            for segment in &executable.segments {
                prop_assert!(segment.offset + segment.file_bytes <= FILE_SIZE);
                prop_assert!(segment.address >= segment.pages.start() && segment.address + segment.file_bytes <= segment.pages.end());
            }
            prop_assert!(executable.segments.windows(2).all(|pair| pair[0].pages.end() <= pair[1].pages.start()));
        }
    }
}
