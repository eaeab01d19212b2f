// SPDX-License-Identifier: MIT OR Apache-2.0
//! Structures of calls that wait and lock, as far as strace prints them.

use alloc::format;
use alloc::string::String;

use super::choices::{LOCK_KIND, WHENCE};
use super::flags::EPOLL;
use super::structures::{array, at, word32};
use super::text::copy;

/// Bytes of a `struct epoll_event`.
const EVENT: u64 = 12;

/// Formats a `struct flock`.
pub(super) fn lock(address: u64) -> String {
    const SIZE: usize = 24;
    at(address, |address| {
        let bytes = copy(address, SIZE)?;
        let word = |at: usize| (u64::from(word32(&bytes, at + 4)) << 32 | u64::from(word32(&bytes, at))).cast_signed();
        let (kind, whence) = (word32(&bytes, 0) & 0xffff, word32(&bytes, 0) >> 16);
        let (kind, whence) = (LOCK_KIND.show(kind.into()), WHENCE.show(whence.into()));
        Some(format!("{{l_type={kind}, l_whence={whence}, l_start={}, l_len={}}}", word(8), word(16)))
    })
}

/// Formats a `struct epoll_event`.
pub(super) fn event(address: u64) -> String {
    at(address, one_event)
}

/// Formats so many of them.
pub(super) fn events(address: u64, count: u64) -> String {
    at(address, |address| array(count, |index| one_event(address.wrapping_add(index * EVENT))))
}

fn one_event(address: u64) -> Option<String> {
    let bytes = copy(address, EVENT as usize)?;
    let [events, low, high] = [0, 4, 8].map(|offset| word32(&bytes, offset));
    let data = u64::from(high) << 32 | u64::from(low);
    Some(format!("{{events={}, data={{u32={low}, u64={data}}}}}", EPOLL.show(events.into())))
}
