// SPDX-License-Identifier: MIT OR Apache-2.0
//! The standard streams: reads and writes that wait for the operator's side and are interrupted by signals.

use alloc::vec::Vec;

use pando_rt::clock;
use pando_rt::console::{self, IoError, Stream};
use pando_rt::hypercall::NO_DEADLINE;
use pando_rt::user::{self, UserRange};

use crate::errno::Errno;
use crate::signals::Signal;
use crate::signals::info::SigInfo;
use crate::system::System;
use crate::terminal::input::{Effects, TYPED_MAX};
use crate::terminal::{PtyId, ReadTimeout, Terminal, TerminalName};
use crate::uapi::TOSTOP;
use crate::wait::Channel;

/// Nanoseconds in the unit (tenths of a second) of a terminal's timing settings.
const TENTH: u64 = 100_000_000;
/// Most bytes that are typed or written to a terminal at a time.
const PIECE: usize = 1024;

impl System {
    /// Reads available input into the ranges, one after the other. Waits for the first bytes if `waits`.
    ///
    /// # Errors
    /// `EAGAIN`, `EFAULT`; `ERESTART`: a signal came first.
    pub fn read_console(&mut self, ranges: &[UserRange], waits: bool) -> Result<u64, Errno> {
        if self.terminal.raw {
            return self.read_terminal(TerminalName::Operator, ranges, waits);
        }
        let mut done = 0;
        for range in ranges.iter().filter(|range| range.length() > 0) {
            // Only the first bytes are waited for.
            if (done > 0 || !waits) && !console::input_ready(0) {
                return if done > 0 { Ok(done) } else { Err(Errno::EAGAIN) };
            }
            match self.receive(*range) {
                Ok(bytes) => done += bytes,
                Err(error) => return if done > 0 { Ok(done) } else { Err(error) },
            }
        }
        Ok(done)
    }

    /// Whether a read of the console would return at once.
    pub fn input_ready(&mut self) -> bool {
        if !self.terminal.raw {
            return console::input_ready(0);
        }
        self.take_typed();
        self.terminal.is_ready()
    }

    /// Updates the state that files cannot know themselves, for calls that wait for them: pending signals, expired timers and, if
    /// `asks_input`, whether a read of the console would return at once.
    pub fn refresh_readiness(&mut self, asks_input: bool) {
        let sent = self.thread.signals.pending.sent.max(self.process.signals.pending.sent);
        self.files.note_signals(self.pending(), sent);
        self.files.note_time();
        if asks_input {
            let ready = self.input_ready();
            self.files.note_input(ready);
        }
    }

    /// Reads typed input if the keys go to the terminal: echoes it, and sends its signals.
    pub fn take_typed(&mut self) {
        if !self.terminal.raw {
            return;
        }
        let mut bytes = [0; PIECE];
        while !self.terminal.ended {
            let room = self.terminal.input.room(&self.terminal.settings).min(PIECE);
            if room == 0 {
                break;
            }
            match console::take(&mut bytes[..room]) {
                None => break,
                Some(0) => self.terminal.ended = true,
                Some(length) => {
                    let Effects { echo, signals } = self.terminal.process_input(&bytes[..length]);
                    if !self.terminal.input.stopped {
                        self.wake(Channel::Output);
                    }
                    if !echo.is_empty() {
                        // A lost echo harms nobody.
                        let _ = console::send_bytes(self.terminal.echo_stream(), &echo);
                    }
                    signals.into_iter().for_each(|signal| self.raise_in_foreground(signal));
                }
            }
        }
    }

    /// Reads typed input: a line, or as many characters as the terminal's settings require together (`VMIN`).
    ///
    /// # Errors
    /// `EAGAIN`, `EFAULT`; `EIO`: the terminal has hung up; `ERESTART`: a signal came first.
    pub fn read_terminal(&mut self, name: TerminalName, ranges: &[UserRange], waits: bool) -> Result<u64, Errno> {
        let room: u64 = ranges.iter().map(|range| range.length()).sum();
        if room == 0 {
            return Ok(0);
        }
        self.check_foreground(name, Signal::SIGTTIN)?;
        let channel = name.input();
        let mut left = ranges.to_vec();
        // Bytes that were read before the call had to wait stay read.
        let mut done = self.thread.call.done;
        skip(&mut left, done);
        loop {
            if name == TerminalName::Operator {
                self.take_typed();
            }
            let terminal = self.terminal_mut(name)?;
            let ReadTimeout { wanted, time } = terminal.timeout(room, done > 0);
            let typed = terminal.read((room - done).min(TYPED_MAX as u64) as usize);
            let is_end = typed.as_ref().is_some_and(Vec::is_empty);
            if typed.is_some() {
                self.after_terminal_read(name);
            }
            let piece = typed.unwrap_or_default();
            write_to(&left, &piece)?;
            skip(&mut left, piece.len() as u64);
            done += piece.len() as u64;
            if is_end || done >= wanted {
                return Ok(done);
            }
            if !piece.is_empty() {
                (self.thread.call.done, self.thread.call.deadline) = (done, None);
                continue;
            }
            if !waits {
                return if done > 0 { Ok(done) } else { Err(Errno::EAGAIN) };
            }
            let deadline = time.map_or(NO_DEADLINE, |tenths| clock::now().saturating_add(tenths * TENTH));
            match self.wait(&[channel], deadline, |system| system.terminal(name).is_ok_and(Terminal::is_ready_for_one).then_some(())) {
                Ok(Some(())) => {}
                Ok(None) => return Ok(done),
                Err(Errno::WAITS) => return Err(Errno::WAITS),
                Err(_) if done > 0 => return Ok(done),
                Err(error) => return Err(error),
            }
        }
    }

    /// Goes on after a terminal's input was read, dropped or got another mode: types the keys that waited for room, and wakes the
    /// waiting threads.
    pub fn after_terminal_read(&mut self, name: TerminalName) {
        if let TerminalName::Pseudo(id) = name {
            self.type_waiting(id);
        }
        self.wake(name.input());
    }

    /// Types the bytes that a master has written, as far as the terminal has room.
    pub fn type_waiting(&mut self, id: PtyId) {
        while let Ok(pty) = self.files.ptys.get_mut(id)
            && let Some(Effects { echo, signals }) = pty.type_waiting()
        {
            if !echo.is_empty() {
                pty.push_output(&echo);
            }
            signals.into_iter().for_each(|signal| self.raise_at(TerminalName::Pseudo(id), signal));
        }
    }

    /// Checks that the running process may use its terminal; stops its group if that is in the background.
    ///
    /// # Errors
    /// `ERESTART`: the signal was sent to the group. `EIO`: the group cannot be stopped.
    pub fn check_foreground(&mut self, name: TerminalName, signal: Signal) -> Result<(), Errno> {
        let group = self.process.group;
        let terminal = self.terminal(name)?;
        if terminal.session != self.process.session || terminal.foreground == 0 || group == terminal.foreground {
            return Ok(());
        }
        let is_ignored = self.thread.signals.mask().contains(signal) || self.process.signals.action(signal).is_ignoring();
        if is_ignored {
            // A process that ignores or blocks the signal may write, but not read.
            return if signal == Signal::SIGTTOU { Ok(()) } else { Err(Errno::EIO) };
        }
        if self.is_orphaned(group) {
            return Err(Errno::EIO);
        }
        self.send_to_group(group, SigInfo::kernel(signal));
        Err(Errno::ERESTART)
    }

    fn receive(&mut self, range: UserRange) -> Result<u64, Errno> {
        loop {
            if !self.is_alone() || self.has_deferred() {
                self.wait(&[Channel::Input], NO_DEADLINE, |_| console::input_ready(0).then_some(()))?;
            }
            // With no other thread to run, the bytes go straight into the caller's buffer.
            match console::receive_user(range) {
                Ok(bytes) => return Ok(bytes),
                Err(IoError::Event) => self.interruption()?,
                Err(IoError::Fault | IoError::NoReader) => return Err(Errno::EFAULT),
            }
        }
    }

    /// Writes the bytes of the ranges.
    ///
    /// # Errors
    /// `EFAULT`, `EPIPE`; `ERESTART`: a signal came first.
    pub fn write_console(&mut self, stream: Stream, ranges: &[UserRange]) -> Result<u64, Errno> {
        if self.terminal.shows(stream) {
            return self.write_terminal(stream, ranges);
        }
        let mut left: Vec<UserRange> = ranges.iter().copied().filter(|range| range.length() > 0).collect();
        let mut done = 0;
        while !left.is_empty() {
            let stopped = match console::send_user(stream, &left) {
                Ok(bytes) => {
                    done += bytes;
                    skip(&mut left, bytes);
                    Ok(())
                }
                Err(IoError::Event) => self.interruption(),
                Err(IoError::Fault) => Err(Errno::EFAULT),
                Err(IoError::NoReader) => Err(self.broken_pipe()),
            };
            if let Err(error) = stopped {
                return if done > 0 { Ok(done) } else { Err(error) };
            }
        }
        Ok(done)
    }

    /// Writes to the terminal as its settings require; waits while its output is stopped (`^S`).
    fn write_terminal(&mut self, stream: Stream, ranges: &[UserRange]) -> Result<u64, Errno> {
        if self.terminal.settings.has(TOSTOP) {
            self.check_foreground(TerminalName::Operator, Signal::SIGTTOU)?;
        }
        // Bytes that were written before the call had to wait stay written.
        let mut left = ranges.to_vec();
        let mut done = self.thread.call.done;
        skip(&mut left, done);
        for range in left {
            let mut here = 0;
            while here < range.length() {
                let part = range.part(here, PIECE as u64);
                match self.show(stream, part) {
                    Ok(()) => here += part.length(),
                    Err(Errno::WAITS) => {
                        self.thread.call.done = done + here;
                        return Err(Errno::WAITS);
                    }
                    Err(error) => return if done + here > 0 { Ok(done + here) } else { Err(error) },
                }
            }
            done += here;
        }
        Ok(done)
    }

    /// Shows at most [`PIECE`] bytes.
    fn show(&mut self, stream: Stream, part: UserRange) -> Result<(), Errno> {
        let mut bytes = [0; PIECE];
        let bytes = &mut bytes[..part.length() as usize];
        user::read(part.start(), bytes)?;
        self.wait(&[Channel::Output], NO_DEADLINE, |system| (!system.terminal.input.stopped).then_some(()))?;
        let output = self.terminal.process_output(bytes);
        let mut rest = &output[..];
        while !rest.is_empty() {
            match console::send_copy(stream, rest) {
                Ok(sent) => rest = &rest[sent..],
                // A piece that a signal interrupts has been shown in part. Its bytes cannot be counted, so it is shown to its end.
                Err(IoError::Event) if rest.len() < output.len() => self.process_events(),
                Err(IoError::Event) => self.interruption()?,
                Err(IoError::NoReader) => return Err(self.broken_pipe()),
                Err(IoError::Fault) => return Err(Errno::EFAULT),
            }
        }
        Ok(())
    }
}

/// Writes a piece into the ranges, which have room for it.
pub(crate) fn write_to(ranges: &[UserRange], mut piece: &[u8]) -> Result<(), Errno> {
    for range in ranges {
        let (now, later) = piece.split_at(piece.len().min(usize::try_from(range.length()).unwrap_or(usize::MAX)));
        user::write(range.start(), now)?;
        piece = later;
    }
    Ok(())
}

/// Takes so many bytes off the start of the ranges.
pub(crate) fn skip(ranges: &mut Vec<UserRange>, mut bytes: u64) {
    ranges.retain_mut(|range| {
        let here = bytes.min(range.length());
        bytes -= here;
        *range = range.part(here, u64::MAX);
        range.length() > 0
    });
}
