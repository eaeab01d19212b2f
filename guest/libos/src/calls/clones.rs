// SPDX-License-Identifier: MIT OR Apache-2.0
//! `/dev/pando`: how a program says that it is ready to be cloned, and what each clone was given.

use pando_rt::memory;
use pando_rt::user::{self, UserRange};

use crate::errno::Errno;
use crate::system::System;

/// What is written to freeze the cell.
const READY: &[u8] = b"ready";

/// Takes what is written: `ready` freezes the cell where the operator wants a template of it, and then the call returns in each clone. Returns how many bytes were taken: all.
///
/// # Errors
/// `EINVAL`: it is another word. `EFAULT`.
pub fn write(system: &mut System, ranges: &[UserRange]) -> Result<u64, Errno> {
    let mut word = [0; READY.len() + 1];
    let mut length = 0;
    for range in ranges {
        let room = word.get_mut(length..length + range.length() as usize).ok_or(Errno::EINVAL)?;
        user::read(range.start(), room)?;
        length += room.len();
    }
    if word[..length].trim_ascii_end() != READY {
        return Err(Errno::EINVAL);
    }
    system.freeze();
    Ok(length as u64)
}

/// The arguments and the environment that this clone was given, each ended by a zero byte.
#[must_use]
pub fn given() -> (&'static [u8], &'static [u8]) {
    let memory::Arguments { header, strings } = memory::arguments();
    // The program's path and its directory come first.
    let (_, rest) = split(strings, 2);
    let (arguments, rest) = split(rest, header.arguments);
    let (environment, _) = split(rest, header.environment);
    (arguments, environment)
}

/// The first so many strings, and the rest.
fn split(strings: &[u8], count: u32) -> (&[u8], &[u8]) {
    let ends = strings.iter().enumerate().filter(|(_, byte)| **byte == 0).map(|(at, _)| at + 1);
    strings.split_at(ends.take(count as usize).last().unwrap_or_default())
}
