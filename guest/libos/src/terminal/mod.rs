// SPDX-License-Identifier: MIT OR Apache-2.0
//! The operator's terminal: its size and, if the operator forwards every key, its line discipline.
//!
//! Where the operator's terminal keeps a line discipline of its own, its settings are those of a fresh one and cannot be changed.

pub mod input;
mod latin;
pub mod output;
pub mod settings;

use alloc::vec::Vec;

use pando_rt::console::Stream;

use crate::process::FIRST;
use crate::uapi::{ICANON, IUTF8};
use crate::wait::Channel;
use input::{Effects, Input};
use settings::{Character, Settings};

/// Rows and columns of a terminal of unknown size.
const USUAL_SIZE: [u16; 2] = [24, 80];

/// How long a read waits (`VMIN` and `VTIME`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadTimeout {
    /// The bytes that it waits for.
    pub wanted: u64,
    /// Tenths of a second that it waits for the next byte; `None`: no limit.
    pub time: Option<u64>,
}

/// The terminal.
#[derive(Debug, Default)]
pub struct Terminal {
    /// The standard streams that are terminals, a bit each.
    streams: u32,
    /// The line discipline is here: the operator forwards every key as it is typed.
    pub raw: bool,
    /// The session whose controlling terminal it is; 0: none.
    pub session: u32,
    /// The foreground process group.
    pub foreground: u32,
    /// Its settings.
    pub settings: Settings,
    /// Its input.
    pub input: Input,
    /// There will be no further input.
    pub ended: bool,
    /// Rows, columns, and the same in pixels.
    pub size: [u16; 4],
}

/// A pseudo terminal, by the number in its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PtyId(pub u32);

/// The name of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TerminalName {
    /// The operator's terminal.
    Operator,
    /// A pseudo terminal.
    Pseudo(PtyId),
}

impl TerminalName {
    /// The channel that is woken when there is input.
    #[must_use]
    pub fn input(self) -> Channel {
        if let TerminalName::Pseudo(id) = self { Channel::Terminal(id.0) } else { Channel::Input }
    }

    /// The channel that is woken when output is resumed.
    #[must_use]
    pub fn output(self) -> Channel {
        if let TerminalName::Pseudo(id) = self { Channel::Terminal(id.0) } else { Channel::Output }
    }
}

impl Terminal {
    /// A pseudo terminal of unknown size.
    #[must_use]
    pub fn pseudo() -> Terminal {
        let mut settings = Settings::default();
        settings.input &= !IUTF8;
        Terminal { raw: true, settings, ..Terminal::default() }
    }

    /// The terminal behind these streams, a bit each. A size of 0 is unknown.
    #[must_use]
    pub fn new(streams: u32, raw: bool, size: [u16; 2]) -> Terminal {
        let mut terminal = Terminal { streams, raw: raw && streams & 1 != 0, session: FIRST, foreground: FIRST, ..Terminal::default() };
        terminal.resize(size);
        terminal
    }

    /// Whether there is a terminal.
    #[must_use]
    pub fn is_there(&self) -> bool {
        self.streams != 0
    }

    /// Whether output to a stream goes through the output settings.
    #[must_use]
    pub fn shows(&self, stream: Stream) -> bool {
        let bit = match stream {
            Stream::Stdout => 1,
            Stream::Stderr => 2,
            Stream::Notes => return false,
        };
        self.raw && self.streams >> bit & 1 != 0
    }

    /// The stream that echoes typed input.
    #[must_use]
    pub fn echo_stream(&self) -> Stream {
        if self.shows(Stream::Stdout) || !self.shows(Stream::Stderr) { Stream::Stdout } else { Stream::Stderr }
    }

    /// Processes typed bytes.
    pub fn process_input(&mut self, bytes: &[u8]) -> Effects {
        let mut effects = Effects::default();
        self.input.process_input(&self.settings, bytes, &mut effects);
        effects
    }

    /// Processes written bytes for display.
    pub fn process_output(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut output = Vec::with_capacity(bytes.len());
        for &byte in bytes {
            self.input.cursor.write(&self.settings, byte, &mut output);
        }
        output
    }

    /// How many bytes a read into `room` bytes waits for, and how long; `has_some`: it has some already.
    #[must_use]
    pub fn timeout(&self, room: u64, has_some: bool) -> ReadTimeout {
        if self.settings.has(ICANON) {
            return ReadTimeout { wanted: 1, time: None };
        }
        let (least, time) = (self.settings.value(Character::Minimum), self.settings.value(Character::Time));
        match (least, time) {
            (0, time) => ReadTimeout { wanted: 1, time: Some(time.into()) },
            (least, 0) => ReadTimeout { wanted: room.min(least.into()), time: None },
            // The time between two characters.
            (least, time) => ReadTimeout { wanted: room.min(least.into()), time: has_some.then_some(time.into()) },
        }
    }

    /// Takes at most `room` bytes of input; none is the end of the file. `None`: there is nothing to read yet.
    pub fn read(&mut self, room: usize) -> Option<Vec<u8>> {
        self.is_ready_for_one().then(|| self.input.read(&self.settings, room))
    }

    /// Whether there is input that can be read, or the end of the file.
    #[must_use]
    pub fn is_ready_for_one(&self) -> bool {
        self.input.is_readable(&self.settings) || self.ended
    }

    /// Whether a read returns at once.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        // With a time limit one byte is enough, because it starts the timer.
        let ReadTimeout { wanted, time } = self.timeout(u64::MAX, true);
        let wanted = if time.is_some() { 1 } else { wanted };
        self.is_ready_for_one() && (self.ended || self.settings.has(ICANON) || self.input.readable(&self.settings) as u64 >= wanted)
    }

    /// Sets the rows and columns; 0 is unknown. Returns whether they have changed.
    pub fn resize(&mut self, [rows, columns]: [u16; 2]) -> bool {
        let [usual_rows, usual_columns] = USUAL_SIZE;
        let or_usual = |value, usual| if value == 0 { usual } else { value };
        self.set_size([or_usual(rows, usual_rows), or_usual(columns, usual_columns), 0, 0])
    }

    /// Sets the size. Returns whether it has changed.
    pub fn set_size(&mut self, size: [u16; 4]) -> bool {
        core::mem::replace(&mut self.size, size) != size
    }

    /// Changes the settings, if the line discipline is here.
    pub fn set(&mut self, settings: Settings) {
        if self.raw {
            self.input.change(&self.settings, &settings);
            self.settings = settings;
        }
    }
}
