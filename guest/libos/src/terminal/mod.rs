// SPDX-License-Identifier: MIT OR Apache-2.0
//! The terminal: the line discipline of the operator's terminal, where the operator passes every key on, and its size.
//!
//! Where the terminal keeps a line discipline of its own, its settings are those of a fresh one and cannot be changed.

pub mod input;
mod latin;
pub mod output;
pub mod settings;

use alloc::vec::Vec;

use pando_rt::console::Stream;

use crate::process::FIRST;
use crate::wait::Channel;
use input::{Effects, Input};
use settings::{Character, Settings, local};

/// Rows and columns of a terminal whose size nobody knows.
const USUAL_SIZE: [u16; 2] = [24, 80];

/// How patient a reader is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// How many bytes it wants.
    pub wanted: u64,
    /// How many tenths of a second it waits for the next; `None`: as long as it takes.
    pub time: Option<u64>,
}

/// The terminal.
#[derive(Debug, Default)]
pub struct Terminal {
    /// Which standard streams are terminals, a bit each.
    streams: u32,
    /// Every key comes as it was typed, and the line discipline is here.
    pub raw: bool,
    /// The session that it controls; 0: none.
    pub session: u32,
    /// The group of processes in the foreground.
    pub foreground: u32,
    /// Its settings.
    pub settings: Settings,
    /// What was typed.
    pub input: Input,
    /// Nothing more will be typed.
    pub ended: bool,
    /// Rows, columns, and the same in pixels.
    pub size: [u16; 4],
}

/// Which pseudo terminal: the number of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PtyId(pub u32);

/// Which terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TerminalName {
    /// The operator's.
    Operator,
    /// A pseudo terminal.
    Pseudo(PtyId),
}

impl TerminalName {
    /// What is woken when there is something to read.
    #[must_use]
    pub fn input(self) -> Channel {
        if let TerminalName::Pseudo(id) = self { Channel::Terminal(id.0) } else { Channel::Input }
    }

    /// What is woken when output is let go on.
    #[must_use]
    pub fn output(self) -> Channel {
        if let TerminalName::Pseudo(id) = self { Channel::Terminal(id.0) } else { Channel::Output }
    }
}

impl Terminal {
    /// A pseudo terminal, whose size nobody has said.
    #[must_use]
    pub fn pseudo() -> Terminal {
        let mut settings = Settings::default();
        settings.input &= !settings::input::UTF8;
        Terminal { raw: true, settings, ..Terminal::default() }
    }

    /// The terminal behind these streams, a bit each, of a size of which 0 means that nobody knows.
    #[must_use]
    pub fn new(streams: u32, raw: bool, size: [u16; 2]) -> Terminal {
        let mut terminal = Terminal { streams, raw: raw && streams & 1 != 0, session: FIRST, foreground: FIRST, ..Terminal::default() };
        terminal.resize(size);
        terminal
    }

    /// Whether there is one.
    #[must_use]
    pub fn is_there(&self) -> bool {
        self.streams != 0
    }

    /// Whether what is written to a stream is shown as the settings want it.
    #[must_use]
    pub fn shows(&self, stream: Stream) -> bool {
        let bit = match stream {
            Stream::Output => 1,
            Stream::Errors => 2,
            Stream::Notes => return false,
        };
        self.raw && self.streams >> bit & 1 != 0
    }

    /// The stream by which the person sees what was typed.
    #[must_use]
    pub fn screen(&self) -> Stream {
        if self.shows(Stream::Output) || !self.shows(Stream::Errors) { Stream::Output } else { Stream::Errors }
    }

    /// Takes bytes as they were typed.
    pub fn typed(&mut self, bytes: &[u8]) -> Effects {
        let mut effects = Effects::default();
        self.input.typed(&self.settings, bytes, &mut effects);
        effects
    }

    /// Bytes as they are to be shown.
    pub fn written(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut shown = Vec::with_capacity(bytes.len());
        for &byte in bytes {
            self.input.cursor.write(&self.settings, byte, &mut shown);
        }
        shown
    }

    /// How long a reader of so many bytes waits for how many, having some or none.
    #[must_use]
    pub fn patience(&self, room: u64, has_some: bool) -> Patience {
        if self.settings.has(local::LINES) {
            return Patience { wanted: 1, time: None };
        }
        let (least, time) = (self.settings.value(Character::Minimum), self.settings.value(Character::Time));
        match (least, time) {
            (0, time) => Patience { wanted: 1, time: Some(time.into()) },
            (least, 0) => Patience { wanted: room.min(least.into()), time: None },
            // The time is that between two characters.
            (least, time) => Patience { wanted: room.min(least.into()), time: has_some.then_some(time.into()) },
        }
    }

    /// Takes what was typed, at most so many bytes; nothing is the end. `None`: one has to wait.
    pub fn read(&mut self, room: usize) -> Option<Vec<u8>> {
        self.is_ready_for_one().then(|| self.input.read(&self.settings, room))
    }

    /// Whether something was typed that can be read, or nothing will be any more.
    #[must_use]
    pub fn is_ready_for_one(&self) -> bool {
        self.input.is_readable(&self.settings) || self.ended
    }

    /// Whether a reader would not wait.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        // Where a time is set one byte is enough, for it is what starts the time.
        let Patience { wanted, time } = self.patience(u64::MAX, true);
        let wanted = if time.is_some() { 1 } else { wanted };
        self.is_ready_for_one() && (self.ended || self.settings.has(local::LINES) || self.input.readable(&self.settings) as u64 >= wanted)
    }

    /// Sets the rows and columns, of which 0 means that nobody knows. Says whether they are others.
    pub fn resize(&mut self, [rows, columns]: [u16; 2]) -> bool {
        let [usual_rows, usual_columns] = USUAL_SIZE;
        let known = |given, usual| if given == 0 { usual } else { given };
        self.set_size([known(rows, usual_rows), known(columns, usual_columns), 0, 0])
    }

    /// Sets another size. Says whether it is another.
    pub fn set_size(&mut self, size: [u16; 4]) -> bool {
        core::mem::replace(&mut self.size, size) != size
    }

    /// Changes the settings, if they are this terminal's to change.
    pub fn set(&mut self, settings: Settings) {
        if self.raw {
            self.input.change(&self.settings, &settings);
            self.settings = settings;
        }
    }
}
