// SPDX-License-Identifier: MIT OR Apache-2.0
//! `/dev/pando`: a program's messages to the operator (ready for cloning, notes), and the arguments and environment of a clone.

use alloc::vec::Vec;

use pando_rt::console::{self, IoError, Stream};
use pando_rt::memory;
use pando_rt::user::{self, UserRange};

use crate::calls::file_operations::{CallOperations, IoRequest};
use crate::errno::Errno;
use crate::files::pando_file::PandoFile;
use crate::signals::Signal;
use crate::system::System;

/// Freezes the cell.
const READY: &[u8] = b"ready";
/// Makes `getpid` return another number from then on. Libraries that compare it to detect a fork then reseed from the system, as
/// OpenSSL does.
const CHILD: &[u8] = b"child";
/// Ends the effect of `child`.
const PARENT: &[u8] = b"parent";
/// Prefix of the number of the signal that the process gets in each clone; 0: none.
const SIGNAL: &[u8] = b"signal ";
/// Prefix of a note.
const NOTE: &[u8] = b"note ";
/// Most bytes of a message.
const MESSAGE_MAX: u64 = 64 << 10;

/// Handles a message. Returns the number of its bytes.
///
/// - `ready` freezes the cell if the operator wants a template of it; the call then returns in each clone.
/// - `note LINE` reports a line to the operator.
/// - `signal NUMBER` requests that signal in every clone that goes on from here.
/// - `child` makes `getpid` return another number, and `parent` ends that.
///
/// # Errors
/// `EINVAL`: it is another message, or more than a line. `EMSGSIZE`: it is longer than 64 KiB. `EFAULT`, `ENOMEM`, `EINTR`.
fn write(system: &mut System, ranges: &[UserRange]) -> Result<u64, Errno> {
    let message = read(ranges)?;
    let line = message.trim_ascii_end();
    match line {
        READY => system.ready(),
        CHILD => system.process.fakes_new_pid = true,
        PARENT => system.process.fakes_new_pid = false,
        line if line.starts_with(SIGNAL) => system.process.clone_signal = signal(&line[SIGNAL.len()..])?,
        line => send_note(line.strip_prefix(NOTE).ok_or(Errno::EINVAL)?)?,
    }
    Ok(message.len() as u64)
}

impl CallOperations for PandoFile {
    fn write(&self, system: &mut System, request: IoRequest<'_>) -> Result<u64, Errno> {
        request.check_stream_write(system)?;
        write(system, request.ranges)
    }
}

/// The signal of this number; `None`: 0.
fn signal(number: &[u8]) -> Result<Option<Signal>, Errno> {
    let number: u32 = core::str::from_utf8(number).ok().and_then(|number| number.parse().ok()).ok_or(Errno::EINVAL)?;
    if number == 0 { Ok(None) } else { Signal::from_number(number.into()).map(Some) }
}

/// The bytes of a message.
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

/// Reports a whole line to the operator. A line that fits a slot goes with the next exit; a longer one waits for the operator.
fn send_note(note: &[u8]) -> Result<(), Errno> {
    if note.contains(&b'\n') {
        return Err(Errno::EINVAL);
    }
    let mut line = Vec::new();
    line.try_reserve_exact(note.len() + 1).map_err(|_| Errno::ENOMEM)?;
    line.extend_from_slice(note);
    line.push(b'\n');
    let sent = if line.len() <= console::SLOT {
        console::send_copy(Stream::Notes, &line).map(|_| ())
    } else {
        console::send_bytes(Stream::Notes, &line).map(|_| ())
    };
    match sent {
        // A note without a reader is no error of the program.
        Ok(()) | Err(IoError::NoReader) => Ok(()),
        Err(IoError::Event) => Err(Errno::EINTR),
        Err(IoError::Fault) => Err(Errno::EFAULT),
    }
}

/// This clone's arguments and environment, each string with a zero byte at its end.
#[must_use]
pub fn clone_arguments() -> (&'static [u8], &'static [u8]) {
    let memory::Arguments { header, strings } = memory::arguments();
    // The program's path and its directory come first.
    let (_, rest) = split(strings, 2);
    let (arguments, rest) = split(rest, header.arguments);
    let (environment, _) = split(rest, header.environment);
    (arguments, environment)
}

/// Splits off the first `count` strings.
fn split(strings: &[u8], count: u32) -> (&[u8], &[u8]) {
    let ends = strings.iter().enumerate().filter(|(_, byte)| **byte == 0).map(|(at, _)| at + 1);
    strings.split_at(ends.take(count as usize).last().unwrap_or_default())
}
