// SPDX-License-Identifier: MIT OR Apache-2.0
//! `/dev/pando`: how a program says that it is ready to be cloned, what each clone was given, and what programs say to the operator beside their streams.

use alloc::vec::Vec;

use pando_rt::console::{self, Stop, Stream};
use pando_rt::memory;
use pando_rt::user::{self, UserRange};

use crate::errno::Errno;
use crate::signals::Signal;
use crate::system::System;

/// What is written to freeze the cell.
const READY: &[u8] = b"ready";
/// What is written to be told another number by `getpid` from then on: libraries that ask for it, to find out whether they are in a child, draw anew from the system then, as OpenSSL does.
const CHILD: &[u8] = b"child";
/// What ends that.
const PARENT: &[u8] = b"parent";
/// What begins the number of the signal that tells the process, in a clone, that it is in one; 0: none.
const SIGNAL: &[u8] = b"signal ";
/// What begins a note.
const NOTE: &[u8] = b"note ";
/// Bytes of the longest message.
const MESSAGE_MAX: u64 = 64 << 10;

/// Takes what is written: `ready` freezes the cell where the operator wants a template of it, and then the call returns in each clone; `note LINE` says a line to the operator; `signal NUMBER`
/// asks for that signal in every clone that goes on from here; `child` makes the process pass for a child of itself, and `parent` ends that. Returns how many bytes were taken: all.
///
/// # Errors
/// `EINVAL`: it is something else, or more than a line. `EMSGSIZE`: it is longer than 64 KiB. `EFAULT`, `ENOMEM`, `EINTR`.
pub fn write(system: &mut System, ranges: &[UserRange]) -> Result<u64, Errno> {
    let message = read(ranges)?;
    let line = message.trim_ascii_end();
    match line {
        READY => system.ready(),
        CHILD => system.process.passes_for_child = true,
        PARENT => system.process.passes_for_child = false,
        line if line.starts_with(SIGNAL) => system.process.clone_signal = signal(&line[SIGNAL.len()..])?,
        line => say(line.strip_prefix(NOTE).ok_or(Errno::EINVAL)?)?,
    }
    Ok(message.len() as u64)
}

/// The signal of this number; `None`: 0.
fn signal(number: &[u8]) -> Result<Option<Signal>, Errno> {
    let number: u32 = core::str::from_utf8(number).ok().and_then(|number| number.parse().ok()).ok_or(Errno::EINVAL)?;
    if number == 0 { Ok(None) } else { Signal::from_number(number.into()).map(Some) }
}

/// A message as it was written.
fn read(ranges: &[UserRange]) -> Result<Vec<u8>, Errno> {
    let length = ranges.iter().fold(0_u64, |sum, range| sum.saturating_add(range.length()));
    if length > MESSAGE_MAX {
        return Err(Errno::EMSGSIZE);
    }
    let mut message = Vec::new();
    message.try_reserve_exact(length as usize + 1).map_err(|_| Errno::ENOMEM)?;
    for range in ranges {
        let start = message.len();
        message.resize(start + range.length() as usize, 0);
        user::read(range.start(), &mut message[start..])?;
    }
    Ok(message)
}

/// Says a line to the operator, whole: one that fits a slot goes with the next exit, a longer one is waited for.
fn say(note: &[u8]) -> Result<(), Errno> {
    if note.contains(&b'\n') {
        return Err(Errno::EINVAL);
    }
    let mut line = Vec::new();
    line.try_reserve_exact(note.len() + 1).map_err(|_| Errno::ENOMEM)?;
    line.extend_from_slice(note);
    line.push(b'\n');
    let said = if line.len() <= console::SLOT {
        console::send_copy(Stream::Notes, &line).map(|_| ())
    } else {
        console::send_bytes(Stream::Notes, &line).map(|_| ())
    };
    match said {
        // Nobody listens, which is no fault of the program's.
        Ok(()) | Err(Stop::Unread) => Ok(()),
        Err(Stop::Event) => Err(Errno::EINTR),
        Err(Stop::Fault) => Err(Errno::EFAULT),
    }
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
