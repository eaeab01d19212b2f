// SPDX-License-Identifier: MIT OR Apache-2.0
//! The standard streams: what is read and written there waits for the operator's side, and makes way for signals.

use alloc::vec::Vec;

use pando_rt::clock;
use pando_rt::console::{self, Stop, Stream};
use pando_rt::hypercall::NO_DEADLINE;
use pando_rt::user::{self, UserRange};

use crate::errno::Errno;
use crate::signals::Signal;
use crate::signals::info::Info;
use crate::system::System;
use crate::terminal::input::{Effects, TYPED_MAX};
use crate::terminal::settings::local;
use crate::terminal::{Patience, PtyId, Terminal, TerminalName};
use crate::wait::Channel;

/// Nanoseconds of the unit in which a terminal's settings give times.
const TENTH: u64 = 100_000_000;
/// Bytes that are typed or written to a terminal at a time.
const PIECE: usize = 1024;

impl System {
    /// Reads into the ranges, one after the other, what is there; waits for something if it may.
    ///
    /// # Errors
    /// `EAGAIN`, `EFAULT`; `ERESTART`: a signal came first.
    pub fn read_console(&mut self, ranges: &[UserRange], waits: bool) -> Result<u64, Errno> {
        if self.terminal.raw {
            return self.read_terminal(TerminalName::Operator, ranges, waits);
        }
        let mut done = 0;
        for range in ranges.iter().filter(|range| range.length() > 0) {
            // What waits is for the first bytes only.
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

    /// Whether reading the console would not wait.
    pub fn input_ready(&mut self) -> bool {
        if !self.terminal.raw {
            return console::input_ready(0);
        }
        self.take_typed();
        self.terminal.is_ready()
    }

    /// Takes note of what files cannot know themselves, for those who wait for them: which signals wait, which timers have run out and, if that is asked, whether
    /// reading the console would not wait.
    pub fn look_around(&mut self, asks_input: bool) {
        let sent = self.thread.signals.pending.sent.max(self.process.signals.pending.sent);
        self.files.saw_signals(self.pending(), sent);
        self.files.saw_time();
        if asks_input {
            let ready = self.input_ready();
            self.files.saw_input(ready);
        }
    }

    /// Takes what was typed, if the keys come here: it is shown, and signals in it are sent.
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
                    let Effects { echo, signals } = self.terminal.typed(&bytes[..length]);
                    if !self.terminal.input.stopped {
                        self.wake(Channel::Output);
                    }
                    if !echo.is_empty() {
                        // An echo that nobody sees is missed by nobody.
                        let _ = console::send_bytes(self.terminal.screen(), &echo);
                    }
                    signals.into_iter().for_each(|signal| self.raise_in_foreground(signal));
                }
            }
        }
    }

    /// Reads what was typed: a line, or as many characters as the terminal's settings want together.
    ///
    /// # Errors
    /// `EAGAIN`, `EFAULT`; `EIO`: it is gone; `ERESTART`: a signal came first.
    pub fn read_terminal(&mut self, name: TerminalName, ranges: &[UserRange], waits: bool) -> Result<u64, Errno> {
        let room: u64 = ranges.iter().map(|range| range.length()).sum();
        if room == 0 {
            return Ok(0);
        }
        self.check_foreground(name, Signal::TTIN)?;
        let channel = name.input();
        let mut left = ranges.to_vec();
        // What was read before it had to wait stays read.
        let mut done = self.thread.call.done;
        skip(&mut left, done);
        loop {
            if name == TerminalName::Operator {
                self.take_typed();
            }
            let terminal = self.terminal_mut(name)?;
            let Patience { wanted, time } = terminal.patience(room, done > 0);
            let typed = terminal.read((room - done).min(TYPED_MAX as u64) as usize);
            let is_end = typed.as_ref().is_some_and(Vec::is_empty);
            if typed.is_some() {
                self.has_read_terminal(name);
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

    /// Goes on after a terminal's input was read, dropped, or is to be read otherwise: keys that waited for room are typed, and whoever waits looks again.
    pub fn has_read_terminal(&mut self, name: TerminalName) {
        if let TerminalName::Pseudo(id) = name {
            self.type_waiting(id);
        }
        self.wake(name.input());
    }

    /// Types what a master has written, as far as the terminal has room.
    pub fn type_waiting(&mut self, id: PtyId) {
        while let Ok(pty) = self.files.ptys.get_mut(id)
            && let Some(Effects { echo, signals }) = pty.type_waiting()
        {
            if !echo.is_empty() {
                pty.show(&echo);
            }
            signals.into_iter().for_each(|signal| self.raise_at(TerminalName::Pseudo(id), signal));
        }
    }

    /// Makes sure that the running process may use its terminal: those in the background are stopped.
    ///
    /// # Errors
    /// `ERESTART`: it was sent the signal. `EIO`: it cannot be stopped.
    pub fn check_foreground(&mut self, name: TerminalName, signal: Signal) -> Result<(), Errno> {
        let group = self.process.group;
        let terminal = self.terminal(name)?;
        if terminal.session != self.process.session || terminal.foreground == 0 || group == terminal.foreground {
            return Ok(());
        }
        let held = self.thread.signals.mask().contains(signal) || self.process.signals.action(signal).is_ignoring();
        if held {
            // Who does not hear it may write, but not read.
            return if signal == Signal::TTOU { Ok(()) } else { Err(Errno::EIO) };
        }
        if self.is_orphaned(group) {
            return Err(Errno::EIO);
        }
        self.send_to_group(group, Info::kernel(signal));
        Err(Errno::ERESTART)
    }

    fn receive(&mut self, range: UserRange) -> Result<u64, Errno> {
        loop {
            if !self.is_alone() || self.has_deferred() {
                self.wait(&[Channel::Input], NO_DEADLINE, |_| console::input_ready(0).then_some(()))?;
            }
            // With nobody else to run, the bytes may as well come straight to where they are wanted.
            match console::receive_user(range) {
                Ok(bytes) => return Ok(bytes),
                Err(Stop::Event) => self.interruption()?,
                Err(Stop::Fault | Stop::Unread) => return Err(Errno::EFAULT),
            }
        }
    }

    /// Writes what the ranges hold.
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
                Err(Stop::Event) => self.interruption(),
                Err(Stop::Fault) => Err(Errno::EFAULT),
                Err(Stop::Unread) => Err(self.broken_pipe()),
            };
            if let Err(error) = stopped {
                return if done > 0 { Ok(done) } else { Err(error) };
            }
        }
        Ok(done)
    }

    /// Writes to the terminal, as its settings want it; not while somebody holds it back.
    fn write_terminal(&mut self, stream: Stream, ranges: &[UserRange]) -> Result<u64, Errno> {
        if self.terminal.settings.has(local::STOP_BACKGROUND) {
            self.check_foreground(TerminalName::Operator, Signal::TTOU)?;
        }
        // What was written before it had to wait stays written.
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

    /// Shows at most a piece.
    fn show(&mut self, stream: Stream, part: UserRange) -> Result<(), Errno> {
        let mut bytes = [0; PIECE];
        let bytes = &mut bytes[..part.length() as usize];
        user::read(part.start(), bytes)?;
        self.wait(&[Channel::Output], NO_DEADLINE, |system| (!system.terminal.input.stopped).then_some(()))?;
        let shown = self.terminal.written(bytes);
        let mut left = &shown[..];
        while !left.is_empty() {
            match console::send_copy(stream, left) {
                Ok(sent) => left = &left[sent..],
                // What a signal interrupts has been shown in part, and cannot be told so byte by byte: it is shown to its end.
                Err(Stop::Event) if left.len() < shown.len() => self.notice(),
                Err(Stop::Event) => self.interruption()?,
                Err(Stop::Unread) => return Err(self.broken_pipe()),
                Err(Stop::Fault) => return Err(Errno::EFAULT),
            }
        }
        Ok(())
    }
}

/// Writes a piece into the ranges, which have the room.
pub(crate) fn write_to(ranges: &[UserRange], mut piece: &[u8]) -> Result<(), Errno> {
    for range in ranges {
        let (now, later) = piece.split_at(piece.len().min(usize::try_from(range.length()).unwrap_or(usize::MAX)));
        user::write(range.start(), now)?;
        piece = later;
    }
    Ok(())
}

/// Takes so many bytes off the start.
pub(crate) fn skip(ranges: &mut Vec<UserRange>, mut bytes: u64) {
    ranges.retain_mut(|range| {
        let here = bytes.min(range.length());
        bytes -= here;
        *range = range.part(here, u64::MAX);
        range.length() > 0
    });
}
