// SPDX-License-Identifier: MIT OR Apache-2.0
//! Input of the line discipline: line editing, signals and the echo of typed bytes.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::latin;
use super::output::{ScreenCursor, continues, tab};
use super::settings::{Character, Settings};
use crate::signals::Signal;
use crate::uapi::{
    ECHO, ECHOCTL, ECHOE, ECHOK, ECHOKE, ECHONL, ICANON, ICRNL, IEXTEN, IGNCR, INLCR, ISIG, ISTRIP, IUCLC, IXANY, IXON, NOFLSH,
};

/// Most bytes that can be typed ahead of a reader.
pub const TYPED_MAX: usize = 4096;
const BACKSPACE: u8 = 8;
/// A byte that Linux echoes untreated, because it is a marker in the echo's buffer.
const UNTOUCHED: u8 = 0xff;

/// A typed byte, and whether a line ends with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InputByte {
    /// A byte within a line.
    Plain(u8),
    /// The last byte of a line.
    Last(u8),
    /// The end of a line without a character (`^D`).
    End,
}

impl InputByte {
    fn byte(self) -> u8 {
        match self {
            InputByte::Plain(byte) | InputByte::Last(byte) => byte,
            InputByte::End => 0,
        }
    }
}

/// Effects of typing besides input for readers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// The echo.
    pub echo: Vec<u8>,
    /// Signals that were typed.
    pub signals: Vec<Signal>,
}

/// Bytes that were typed and not yet read.
#[derive(Debug, Default)]
pub struct Input {
    typed: VecDeque<InputByte>,
    /// How many of them are in finished lines.
    finished: usize,
    /// The next character is taken literally (`^V`).
    literal: bool,
    /// Output is stopped (`^S`).
    pub stopped: bool,
    /// The cursor's position.
    pub cursor: ScreenCursor,
    /// Its position before the latest keys.
    previous_cursor: ScreenCursor,
}

impl Input {
    /// Processes typed bytes.
    pub fn process_input(&mut self, settings: &Settings, bytes: &[u8], effects: &mut Effects) {
        self.previous_cursor = self.cursor;
        for &byte in bytes {
            self.key(settings, byte, effects);
        }
    }

    fn key(&mut self, settings: &Settings, byte: u8, effects: &mut Effects) {
        let mut byte = if settings.reads(ISTRIP) { byte & 0x7f } else { byte };
        if settings.reads(IUCLC) && settings.has(IEXTEN) {
            byte = latin::lower(byte);
        }
        if core::mem::take(&mut self.literal) {
            return self.append(settings, byte, effects);
        }
        if settings.reads(IXON) {
            if settings.means(byte, Character::Start) || settings.means(byte, Character::Stop) {
                self.stopped = !settings.means(byte, Character::Start);
                return;
            }
            if settings.reads(IXANY) {
                self.stopped = false;
            }
        }
        if settings.has(ISIG) {
            let signals =
                [(Character::Interrupt, Signal::SIGINT), (Character::Quit, Signal::SIGQUIT), (Character::Suspend, Signal::SIGTSTP)];
            if let Some((_, signal)) = signals.into_iter().find(|(character, _)| settings.means(byte, *character)) {
                return self.signal(settings, byte, signal, effects);
            }
        }
        let typed = byte;
        match byte {
            b'\r' if settings.reads(IGNCR) => return,
            b'\r' if settings.reads(ICRNL) => byte = b'\n',
            b'\n' if settings.reads(INLCR) => byte = b'\r',
            _ => {}
        }
        if settings.has(ICANON) && self.edits(settings, byte, effects) {
            return;
        }
        if settings.has(ECHO) && byte == b'\n' && byte != typed {
            // A byte that was only converted to a newline is echoed as one.
            self.show_raw(settings, byte, effects);
            self.add(InputByte::Plain(byte));
        } else {
            self.append(settings, byte, effects);
        }
    }

    fn signal(&mut self, settings: &Settings, byte: u8, signal: Signal, effects: &mut Effects) {
        if !settings.has(NOFLSH) {
            self.flush();
            // A signal also drops the echo that was not shown yet.
            effects.echo.clear();
            self.cursor = self.previous_cursor;
        }
        if settings.reads(IXON) {
            self.stopped = false;
        }
        if settings.has(ECHO) {
            self.show(settings, byte, effects);
        }
        effects.signals.push(signal);
    }

    /// Applies a byte to the line that is being typed. Returns whether the byte has an editing function.
    fn edits(&mut self, settings: &Settings, byte: u8, effects: &mut Effects) -> bool {
        let extended = settings.has(IEXTEN);
        let means = |character| settings.means(byte, character);
        if means(Character::Erase) {
            self.erase(settings, effects);
        } else if means(Character::WordErase) && extended {
            self.erase_word(settings, effects);
        } else if means(Character::Kill) {
            self.kill(settings, effects);
        } else if means(Character::LiteralNext) && extended {
            self.literal = true;
            if settings.has(ECHO) && settings.has(ECHOCTL) {
                self.show_raw(settings, b'^', effects);
                self.show_raw(settings, BACKSPACE, effects);
            }
        } else if means(Character::Reprint) && extended && settings.has(ECHO) {
            self.show(settings, byte, effects);
            self.show_raw(settings, b'\n', effects);
            for index in self.finished..self.typed.len() {
                self.show(settings, self.typed[index].byte(), effects);
            }
        } else if byte == b'\n' {
            if settings.has(ECHO | ECHONL) {
                self.show_raw(settings, b'\n', effects);
            }
            self.finish(InputByte::Last(byte));
        } else if means(Character::EndOfFile) {
            self.finish(InputByte::End);
        } else if means(Character::EndOfLine) || means(Character::EndOfLine2) && extended {
            if settings.has(ECHO) {
                self.show(settings, byte, effects);
            }
            self.finish(InputByte::Last(byte));
        } else {
            return false;
        }
        true
    }

    /// Ends the line.
    fn finish(&mut self, last: InputByte) {
        self.add(last);
        self.finished = self.typed.len();
    }

    fn add(&mut self, typed: InputByte) {
        self.make_room();
        if self.typed.len() < TYPED_MAX {
            self.typed.push_back(typed);
        }
    }

    /// Drops the last character of a line that is too long, so that it can be ended.
    fn make_room(&mut self) {
        if self.typed.len() >= TYPED_MAX && self.typed.len() > self.finished {
            self.typed.pop_back();
        }
    }

    fn append(&mut self, settings: &Settings, byte: u8, effects: &mut Effects) {
        if settings.has(ECHO) {
            if self.finished == self.typed.len() {
                self.cursor.start = self.cursor.column;
            }
            self.show(settings, byte, effects);
        }
        self.add(InputByte::Plain(byte));
    }

    /// Position and first byte of the last character of the line that is being typed. `None`: there is none.
    fn last(&self, settings: &Settings) -> Option<(usize, u8)> {
        let indices = (self.finished..self.typed.len()).rev();
        indices.map(|index| (index, self.typed[index].byte())).find(|(_, byte)| !continues(settings, *byte))
    }

    /// Removes the last character of the line that is being typed. Returns its first byte.
    fn pop(&mut self, settings: &Settings) -> Option<u8> {
        let (index, byte) = self.last(settings)?;
        self.typed.truncate(index);
        Some(byte)
    }

    fn erase(&mut self, settings: &Settings, effects: &mut Effects) {
        let Some(byte) = self.pop(settings) else { return };
        if settings.has(ECHO) {
            if settings.has(ECHOE) {
                self.erase_echo(settings, byte, effects);
            } else {
                self.show(settings, settings.value(Character::Erase), effects);
            }
        }
    }

    fn erase_word(&mut self, settings: &Settings, effects: &mut Effects) {
        let mut in_word = false;
        while let Some((index, byte)) = self.last(settings) {
            if latin::is_alphanumeric(byte) || byte == b'_' {
                in_word = true;
            } else if in_word {
                return;
            }
            self.typed.truncate(index);
            if settings.has(ECHO) {
                self.erase_echo(settings, byte, effects);
            }
        }
    }

    fn kill(&mut self, settings: &Settings, effects: &mut Effects) {
        if self.typed.len() == self.finished {
            return;
        }
        let all = ECHOK | ECHOKE | ECHOE;
        if settings.has(ECHO) && settings.local & all == all {
            while let Some(byte) = self.pop(settings) {
                self.erase_echo(settings, byte, effects);
            }
        }
        self.typed.truncate(self.finished);
        if settings.has(ECHO) && settings.local & all != all {
            self.show(settings, settings.value(Character::Kill), effects);
            if settings.has(ECHOK) {
                self.show_raw(settings, b'\n', effects);
            }
        }
    }

    /// Echoes a character, with a caret if it is a control character.
    fn show(&mut self, settings: &Settings, byte: u8, effects: &mut Effects) {
        if settings.has(ECHOCTL) && byte.is_ascii_control() && byte != b'\t' {
            effects.echo.extend([b'^', byte ^ 0x40]);
            self.cursor.column += 2;
        } else {
            self.show_raw(settings, byte, effects);
        }
    }

    fn show_raw(&mut self, settings: &Settings, byte: u8, effects: &mut Effects) {
        if byte == UNTOUCHED {
            self.cursor.column += 1;
            return effects.echo.push(byte);
        }
        self.cursor.write(settings, byte, &mut effects.echo);
    }

    /// Erases a character from the screen that was just removed from the line.
    fn erase_echo(&mut self, settings: &Settings, byte: u8, effects: &mut Effects) {
        let control = byte.is_ascii_control();
        let columns = match byte {
            b'\t' => return self.erase_tab(settings, effects),
            _ if control && settings.has(ECHOCTL) => 2,
            _ if control => 0,
            _ => 1,
        };
        for _ in 0..columns {
            for byte in [BACKSPACE, b' ', BACKSPACE] {
                self.show_raw(settings, byte, effects);
            }
        }
    }

    /// Moves the cursor back to the start of a tab: counted from the previous tab, or from the start of the line.
    fn erase_tab(&mut self, settings: &Settings, effects: &mut Effects) {
        let line = self.typed.range(self.finished..).map(|typed| typed.byte());
        let after_tab = line.clone().any(|byte| byte == b'\t');
        let columns: usize = line.rev().take_while(|byte| *byte != b'\t').map(|byte| self.columns(settings, byte)).sum();
        let back = tab(if after_tab { columns } else { self.cursor.start + columns });
        effects.echo.resize(effects.echo.len() + back, BACKSPACE);
        self.cursor.column = self.cursor.column.saturating_sub(back);
    }

    /// Columns that a byte of the line occupies.
    fn columns(&self, settings: &Settings, byte: u8) -> usize {
        match byte {
            _ if byte.is_ascii_control() => 2 * usize::from(settings.has(ECHOCTL)),
            _ if continues(settings, byte) => 0,
            _ => 1,
        }
    }

    /// Drops unread input.
    pub fn flush(&mut self) {
        self.typed.clear();
        self.finished = 0;
        self.literal = false;
    }

    /// Adapts the unread input when canonical mode is switched on or off.
    pub fn change(&mut self, before: &Settings, after: &Settings) {
        if (before.local ^ after.local) & ICANON == 0 {
            return;
        }
        self.literal = false;
        for typed in &mut self.typed {
            *typed = InputByte::Plain(typed.byte());
        }
        self.finished = 0;
        // The present input becomes a line, though nothing has ended it.
        if let Some(last) = self.typed.back_mut().filter(|_| after.has(ICANON)) {
            *last = if last.byte() == 0 { InputByte::End } else { InputByte::Last(last.byte()) };
            self.finished = self.typed.len();
        }
    }

    /// Whether a read returns at once, perhaps with the end of the file.
    #[must_use]
    pub fn is_readable(&self, settings: &Settings) -> bool {
        if settings.has(ICANON) { self.finished > 0 } else { !self.typed.is_empty() }
    }

    /// Number of bytes that can be read.
    #[must_use]
    pub fn readable(&self, settings: &Settings) -> usize {
        let reach = if settings.has(ICANON) { self.finished } else { self.typed.len() };
        self.typed.range(..reach).filter(|typed| **typed != InputByte::End).count()
    }

    /// Number of bytes that can be typed now. Without a finished line it is at least one: a line that is too long loses its last
    /// character. With one, further input waits.
    #[must_use]
    pub fn room(&self, settings: &Settings) -> usize {
        match TYPED_MAX.saturating_sub(self.typed.len()) {
            0 if settings.has(ICANON) && self.finished == 0 => 1,
            room => room,
        }
    }

    /// Takes at most `room` bytes; in canonical mode, of one line.
    pub fn read(&mut self, settings: &Settings, room: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        if !settings.has(ICANON) {
            bytes.extend(self.typed.drain(..room.min(self.typed.len())).map(InputByte::byte));
            return bytes;
        }
        while self.finished > 0 && bytes.len() < room {
            let Some(typed) = self.typed.pop_front() else { break };
            self.finished -= 1;
            match typed {
                InputByte::Plain(byte) => bytes.push(byte),
                InputByte::Last(byte) => {
                    bytes.push(byte);
                    return bytes;
                }
                InputByte::End => return bytes,
            }
        }
        // The following `^D` belongs to these bytes.
        if bytes.len() == room && self.finished > 0 && self.typed.front() == Some(&InputByte::End) {
            self.typed.pop_front();
            self.finished -= 1;
        }
        bytes
    }
}

#[cfg(test)]
mod tests;
