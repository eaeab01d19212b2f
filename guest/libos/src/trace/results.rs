// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kinds of results: the word after a signature has a function that formats the result register.

use alloc::format;
use alloc::string::String;

use super::flags::OPEN;
use super::text::{hexadecimal, octal};
use super::{choices, structures};
use crate::uapi::{F_GETFD, F_GETFL};

/// Formats the result of a call with these arguments.
type Show = fn(&[u64; 6], u64) -> String;

/// The kinds by name.
const RESULTS: &[(&str, Show)] = &[
    ("", |_, value| number(value)),
    ("pointer", |_, value| hexadecimal(value)),
    ("mode", |_, value| octal(value)),
    ("signal", |_, value| format!("{} ({})", number(value), choices::signal_number(value))),
    ("policy", |_, value| format!("{} ({})", number(value), choices::policy(value as u32))),
    ("control", control),
    ("polls", |arguments, value| ready(value, || structures::answers(arguments[0], arguments[1]))),
    ("timed-polls", |arguments, value| {
        ready(value, || structures::answers(arguments[0], arguments[1]) + &left(arguments[2], structures::timespec))
    }),
    ("sets", |arguments, value| ready(value, || sets(arguments) + &left(arguments[4], structures::timeval))),
    ("timed-sets", |arguments, value| ready(value, || sets(arguments) + &left(arguments[4], structures::timespec))),
];

/// The function that formats a result of this kind.
pub(super) fn find(kind: &str) -> Option<Show> {
    RESULTS.iter().find(|(name, _)| *name == kind).map(|(_, show)| *show)
}

pub(super) fn number(value: u64) -> String {
    format!("{}", value.cast_signed())
}

/// Formats the result of `fcntl`, which is flags for some commands.
fn control(arguments: &[u64; 6], value: u64) -> String {
    match u64::from(arguments[1] as u32) {
        F_GETFD if value == 1 => "0x1 (flags FD_CLOEXEC)".into(),
        F_GETFL => format!("{} (flags {})", hexadecimal(value), OPEN.show(value)),
        _ => number(value),
    }
}

/// Formats how many descriptors are ready, and which.
fn ready(count: u64, which: impl FnOnce() -> String) -> String {
    if count == 0 { "0 (Timeout)".into() } else { format!("{} ({})", number(count), which()) }
}

/// Formats the descriptors that `select` found ready.
fn sets(arguments: &[u64; 6]) -> String {
    let names = ["in", "out", "except"].into_iter().zip(&arguments[1..4]);
    let sets = names.filter(|(_, address)| **address != 0).filter_map(|(name, address)| {
        let set = structures::descriptor_set(*address, u64::from(arguments[0] as u32));
        (set != "[]").then(|| format!("{name} {set}"))
    });
    sets.collect::<alloc::vec::Vec<_>>().join(", ")
}

/// Formats the time that was left, if there was any.
fn left(address: u64, show: fn(u64) -> String) -> String {
    if address == 0 { String::new() } else { format!(", left {}", show(address)) }
}
