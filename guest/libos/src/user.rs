// SPDX-License-Identifier: MIT OR Apache-2.0
//! Values in application memory: words, strings, vectors. All are little-endian and copied before use.

use alloc::vec::Vec;

use pando_abi::PAGE_SIZE;
use pando_rt::user::{self, UserRange};

use crate::errno::Errno;
use crate::string_list::{StringList, WORD_MAX};

/// Most bytes of a path with its zero byte.
pub const PATH_MAX: usize = 4096;
/// Most bytes of arguments, or of an environment, that are read.
const STRINGS_MAX: usize = 6 << 20;
/// Paths of up to this many bytes are stored inline.
const SHORT: usize = 128;
/// Elements that one `readv` or `writev` may have.
const IOV_MAX: u64 = 1024;
/// Bytes that one call reads or writes at most.
pub const RW_MAX: u64 = 0x7fff_f000;
/// Nanoseconds of a second.
pub const NANOSECONDS: u64 = 1_000_000_000;
/// Ticks in a second (`USER_HZ`).
pub const TICKS: u64 = 100;

/// Reads `N` words of 64 bits.
///
/// # Errors
/// `EFAULT`.
pub fn words<const N: usize>(address: u64) -> Result<[u64; N], Errno> {
    let mut words = [0; N];
    for (index, word) in words.iter_mut().enumerate() {
        let mut bytes = [0; 8];
        user::read(address.wrapping_add(index as u64 * 8), &mut bytes)?;
        *word = u64::from_le_bytes(bytes);
    }
    Ok(words)
}

/// Reads a word of 32 bits.
///
/// # Errors
/// `EFAULT`.
pub fn word32(address: u64) -> Result<u32, Errno> {
    let mut bytes = [0; 4];
    user::read(address, &mut bytes)?;
    Ok(u32::from_le_bytes(bytes))
}

/// Converts nanoseconds to ticks.
#[must_use]
pub const fn ticks(nanoseconds: u64) -> u64 {
    nanoseconds / (NANOSECONDS / TICKS)
}

/// Nanoseconds of a `struct timespec`.
///
/// # Errors
/// `EFAULT`; `EINVAL`: it is negative, or its nanoseconds are a second or more.
pub fn timespec(address: u64) -> Result<u64, Errno> {
    let [seconds, nanoseconds] = words(address)?;
    if seconds.cast_signed() < 0 || nanoseconds >= NANOSECONDS {
        return Err(Errno::EINVAL);
    }
    Ok(seconds.saturating_mul(NANOSECONDS).saturating_add(nanoseconds))
}

/// Writes words of 64 bits.
///
/// # Errors
/// `EFAULT`.
pub fn set_words(address: u64, words: &[u64]) -> Result<(), Errno> {
    for (index, word) in words.iter().enumerate() {
        user::write(address.wrapping_add(index as u64 * 8), &word.to_le_bytes())?;
    }
    Ok(())
}

/// Writes a word of 32 bits.
///
/// # Errors
/// `EFAULT`.
pub fn set_word32(address: u64, word: u32) -> Result<(), Errno> {
    Ok(user::write(address, &word.to_le_bytes())?)
}

/// Writes words of 64 bits unless the address is null.
///
/// # Errors
/// `EFAULT`.
pub fn set_words_unless_null(address: u64, words: &[u64]) -> Result<(), Errno> {
    if address == 0 { Ok(()) } else { set_words(address, words) }
}

/// A path that the application passed, without its zero byte. Short paths, which most are, need no allocation.
#[derive(Clone, Debug)]
pub struct Path {
    short: [u8; SHORT],
    /// Bytes of the inline path; more than [`SHORT`]: the path is in `long`.
    length: usize,
    long: Vec<u8>,
}

impl core::ops::Deref for Path {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.short.get(..self.length).unwrap_or(&self.long)
    }
}

/// Reads a path. Never touches a page behind the path's end.
///
/// # Errors
/// `EFAULT`, `ENAMETOOLONG`.
pub fn path(address: u64) -> Result<Path, Errno> {
    let mut path = Path { short: [0; SHORT], length: 0, long: Vec::new() };
    while path.length < SHORT {
        let read = string_piece(address.wrapping_add(path.length as u64), &mut path.short[path.length..])?;
        let end = path.short[path.length..path.length + read].iter().position(|byte| *byte == 0);
        path.length += end.unwrap_or(read);
        if end.is_some() {
            return Ok(path);
        }
    }
    path.long.extend_from_slice(&path.short);
    path.length = usize::MAX;
    while path.long.len() < PATH_MAX {
        let mut piece = [0; SHORT];
        let from = address.wrapping_add(path.long.len() as u64);
        let room = (PATH_MAX - path.long.len()).min(SHORT);
        let read = string_piece(from, &mut piece[..room])?;
        let end = piece[..read].iter().position(|byte| *byte == 0);
        path.long.extend_from_slice(&piece[..end.unwrap_or(read)]);
        if end.is_some() {
            return Ok(path);
        }
    }
    Err(Errno::ENAMETOOLONG)
}

/// Reads an array of string pointers that ends with a null pointer, and the strings.
///
/// # Errors
/// `EFAULT`; `E2BIG`: they are too many or too long.
pub fn strings(mut address: u64) -> Result<StringList, Errno> {
    let mut strings = StringList::default();
    while address != 0 {
        let [start] = words(address)?;
        if start == 0 {
            break;
        }
        strings.push(&string(start)?)?;
        if strings.bytes().len() >= STRINGS_MAX {
            return Err(Errno::E2BIG);
        }
        address = address.wrapping_add(8);
    }
    Ok(strings)
}

/// Reads a string of at most the length of an argument.
fn string(address: u64) -> Result<Vec<u8>, Errno> {
    let mut string = Vec::new();
    while string.len() < WORD_MAX {
        let mut piece = [0; SHORT];
        let read = string_piece(address.wrapping_add(string.len() as u64), &mut piece)?;
        let end = piece[..read].iter().position(|byte| *byte == 0);
        string.extend_from_slice(&piece[..end.unwrap_or(read)]);
        if end.is_some() {
            return Ok(string);
        }
    }
    Err(Errno::E2BIG)
}

/// Reads the bytes from an address to the end of its page, as far as there is room. Returns their number.
fn string_piece(from: u64, buffer: &mut [u8]) -> Result<usize, Errno> {
    let bytes = buffer.len().min((PAGE_SIZE - from % PAGE_SIZE) as usize);
    user::read(from, &mut buffer[..bytes])?;
    Ok(bytes)
}

/// A buffer as `read` and `write` name it, cut to [`RW_MAX`].
///
/// # Errors
/// `EFAULT`: it is outside the addresses of applications.
pub fn buffer(address: u64, length: u64) -> Result<UserRange, Errno> {
    Ok(UserRange::new(address, length.min(RW_MAX))?)
}

/// Buffers as `readv` and `writev` name them.
///
/// # Errors
/// `EFAULT`, `EINVAL`.
pub fn vectors(address: u64, count: u64) -> Result<Vec<UserRange>, Errno> {
    if count > IOV_MAX {
        return Err(Errno::EINVAL);
    }
    let mut ranges = Vec::with_capacity(count as usize);
    let mut total = 0u64;
    for index in 0..count {
        let [start, length] = words(address.wrapping_add(index * 16))?;
        let left = RW_MAX - total;
        if length.cast_signed() < 0 {
            return Err(Errno::EINVAL);
        }
        let range = UserRange::new(start, length)?.part(0, left);
        total += range.length();
        ranges.push(range);
    }
    Ok(ranges)
}
