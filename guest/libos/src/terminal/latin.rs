// SPDX-License-Identifier: MIT OR Apache-2.0
//! Letters as Linux's terminals classify single bytes: those of Latin-1, even if the bytes are parts of UTF-8 characters.

/// Difference between a lower case letter and its upper case.
const CASE: u8 = 0x20;

/// Whether it is an upper case letter.
fn is_upper(byte: u8) -> bool {
    matches!(byte, b'A'..=b'Z' | 0xc0..=0xd6 | 0xd8..=0xde)
}

/// Whether it is a lower case letter. Two of them have no upper case in Latin-1, and get the byte in its place.
fn is_lower(byte: u8) -> bool {
    matches!(byte, b'a'..=b'z' | 0xdf..=0xf6 | 0xf8..=0xff)
}

/// Whether it is part of a word.
pub(super) fn is_alphanumeric(byte: u8) -> bool {
    byte.is_ascii_digit() || is_upper(byte) || is_lower(byte)
}

/// Its upper case.
pub(super) fn upper(byte: u8) -> u8 {
    if is_lower(byte) { byte - CASE } else { byte }
}

/// Its lower case.
pub(super) fn lower(byte: u8) -> u8 {
    if is_upper(byte) { byte + CASE } else { byte }
}
