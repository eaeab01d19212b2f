// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copies between files and the application's memory, which may fault.

use alloc::vec::Vec;

use pando_rt::user::{self, UserRange};

use super::tree::volume::ImageFile;
use crate::errno::Errno;

/// Copies a piece of a file to the application, up to the first fault.
///
/// # Errors
/// `EFAULT`: no byte, because of the application's memory. `EIO`: no byte, because of the file.
pub fn deliver(to: UserRange, piece: &[u8]) -> Result<usize, Errno> {
    let done = user::write_some(to.start(), piece);
    if done > 0 || piece.is_empty() {
        return Ok(done);
    }
    // The routine does not report which side failed: if the application's memory is writable, it was the file.
    Err(if user::zero(to.part(0, 1)).is_ok() { Errno::EIO } else { Errno::EFAULT })
}

/// Copies a piece of a file from the application, up to the first fault.
pub(super) fn collect(from: UserRange, piece: &mut [u8]) -> Result<usize, Errno> {
    let done = user::read_some(from.start(), piece);
    if done > 0 || piece.is_empty() { Ok(done) } else { Err(Errno::EFAULT) }
}

/// Copies a volume's file from `offset` on to the application. Returns how many bytes.
///
/// # Errors
/// `EFAULT`, `EIO`.
pub fn copy_out(file: &ImageFile, offset: u64, to: UserRange) -> Result<u64, Errno> {
    let mut done = 0;
    while done < to.length() {
        let piece = file.piece(offset.saturating_add(done), to.length() - done);
        if piece.is_empty() {
            break;
        }
        match deliver(to.part(done, piece.len() as u64), piece) {
            Ok(copied) => {
                done += copied as u64;
                if copied < piece.len() {
                    break;
                }
            }
            Err(_) if done > 0 => break,
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// Runs `step` on each range until one is incomplete. Returns the total number of bytes.
pub(super) fn each(ranges: &[UserRange], mut step: impl FnMut(UserRange, u64) -> Result<u64, Errno>) -> Result<u64, Errno> {
    let mut done = 0;
    for range in ranges.iter().filter(|range| range.length() > 0) {
        match step(*range, done) {
            Ok(bytes) => {
                done += bytes;
                // The next part of a stream would block, but there are bytes to return.
                if bytes < range.length() {
                    break;
                }
            }
            Err(_) if done > 0 => break,
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// The content of several ranges, up to so many bytes.
pub(super) fn gather(ranges: &[UserRange], max: usize) -> Result<Vec<u8>, Errno> {
    let mut bytes = Vec::new();
    for range in ranges {
        let (start, length) = (bytes.len(), (range.length() as usize).min(max - bytes.len()));
        bytes.try_reserve(length).map_err(|_| Errno::ENOMEM)?;
        bytes.resize(start + length, 0);
        user::read(range.start(), &mut bytes[start..])?;
    }
    Ok(bytes)
}

/// The address for reading or writing a count of 64 bits.
///
/// # Errors
/// `EINVAL`: the ranges are too short.
pub(super) fn address_of_count(ranges: &[UserRange]) -> Result<u64, Errno> {
    let first = ranges.iter().find(|range| range.length() > 0);
    first.filter(|range| range.length() >= 8).map(|range| range.start()).ok_or(Errno::EINVAL)
}

/// Writes a count from `take` to the application. Returns its size in bytes.
pub(super) fn read_count(ranges: &[UserRange], take: impl FnOnce() -> Result<u64, Errno>) -> Result<u64, Errno> {
    let address = address_of_count(ranges)?;
    user::write(address, &take()?.to_le_bytes())?;
    Ok(8)
}

/// Copies a text from `start` on to the application.
pub(super) fn read_text(text: &[u8], start: u64, ranges: &[UserRange]) -> Result<u64, Errno> {
    each(ranges, |range, done| {
        let rest = text.get(usize::try_from(start.saturating_add(done)).unwrap_or(usize::MAX)..).unwrap_or_default();
        let piece = &rest[..rest.len().min(usize::try_from(range.length()).unwrap_or(usize::MAX))];
        deliver(range, piece).map(|bytes| bytes as u64)
    })
}
