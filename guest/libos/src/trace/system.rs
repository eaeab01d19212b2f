// SPDX-License-Identifier: MIT OR Apache-2.0
//! Structures about the process and the system.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use pando_abi::PAGE_SIZE;

use super::structures::{array, at, set, timeval, word32};
use super::text::{copy, words};

/// Formats two times of `utimes`.
pub(super) fn timevals(address: u64) -> String {
    at(address, |address| {
        words::<4>(address)?;
        Some(format!("[{}, {}]", timeval(address), timeval(address.wrapping_add(16))))
    })
}

/// Formats two times of `utime`.
pub(super) fn access_times(address: u64) -> String {
    at(address, |address| words(address).map(|[access, change]| format!("{{actime={access}, modtime={change}}}")))
}

pub(super) fn usage(address: u64) -> String {
    at(address, |address| {
        words::<4>(address)?;
        Some(format!("{{ru_utime={}, ru_stime={}, ...}}", timeval(address), timeval(address.wrapping_add(16))))
    })
}

pub(super) fn process_times(address: u64) -> String {
    at(address, |address| {
        words(address).map(|[user, system, user_of_children, system_of_children]| {
            format!("{{tms_utime={user}, tms_stime={system}, tms_cutime={user_of_children}, tms_cstime={system_of_children}}}")
        })
    })
}

pub(super) fn system(address: u64) -> String {
    at(address, |address| {
        let [uptime, one, five, fifteen, total, free, shared, buffers, swap, free_swap, processes, high, free_high, unit] = words(address)?;
        let memory =
            format!("totalram={total}, freeram={free}, sharedram={shared}, bufferram={buffers}, totalswap={swap}, freeswap={free_swap}");
        let rest = format!("procs={}, totalhigh={high}, freehigh={free_high}, mem_unit={}", processes as u16, unit as u32);
        Some(format!("{{uptime={uptime}, loads=[{one}, {five}, {fifteen}], {memory}, {rest}}}"))
    })
}

/// Formats a set of signals behind a pointer in another structure, as of `pselect6`.
pub(super) fn pointed_set(address: u64) -> String {
    at(address, |address| words(address).map(|[pointer, size]| format!("{{sigmask={}, sigsetsize={size}}}", set(pointer))))
}

/// Formats groups by number.
pub(super) fn groups(address: u64, count: u64) -> String {
    at(address, |address| array(count, |index| Some(format!("{}", word32(&copy(address.wrapping_add(index * 4), 4)?, 0)))))
}

/// Formats a set of processors of so many bytes.
pub(super) fn processors(address: u64, bytes: u64) -> String {
    at(address, |address| {
        let bytes = copy(address, bytes.min(PAGE_SIZE) as usize)?;
        let members = (0..bytes.len() * 8).filter(|bit| bytes[bit / 8] >> (bit % 8) & 1 != 0);
        Some(format!("[{}]", members.map(|bit| format!("{bit}")).collect::<Vec<_>>().join(" ")))
    })
}

/// Formats the version of the structures and the process.
pub(super) fn capability_header(address: u64) -> String {
    at(address, |address| {
        let bytes = copy(address, 8)?;
        let version = match word32(&bytes, 0) {
            0x1998_0330 => "_LINUX_CAPABILITY_VERSION_1".into(),
            0x2007_1026 => "_LINUX_CAPABILITY_VERSION_2".into(),
            0x2008_0522 => "_LINUX_CAPABILITY_VERSION_3".into(),
            other => format!("{other:#x} /* _LINUX_CAPABILITY_VERSION_??? */"),
        };
        Some(format!("{{version={version}, pid={}}}", word32(&bytes, 4).cast_signed()))
    })
}
