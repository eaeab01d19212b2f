// SPDX-License-Identifier: MIT OR Apache-2.0
//! Output of the line discipline: bytes that a program writes, and the echo.

use alloc::vec::Vec;

use super::latin;
use super::settings::{Settings, input, output};

const TAB: usize = 8;

/// Whether a byte continues a UTF-8 character.
pub(super) fn continues(settings: &Settings, byte: u8) -> bool {
    settings.reads(input::UTF8) && byte & 0xc0 == 0x80
}

/// Columns that a tab occupies at a column.
pub(super) fn tab(column: usize) -> usize {
    TAB - column % TAB
}

/// The cursor's position, as far as the line discipline can follow it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cursor {
    /// Its column.
    pub column: usize,
    /// The column at which the line that is being typed began.
    pub start: usize,
}

impl Cursor {
    /// Appends the output for a byte to `to`.
    pub fn write(&mut self, settings: &Settings, byte: u8, to: &mut Vec<u8>) {
        if !settings.writes(output::PROCESS) {
            return to.push(byte);
        }
        match byte {
            b'\n' => {
                if settings.writes(output::NEWLINE_IS_RETURN | output::NEWLINE_RETURNS) {
                    self.column = 0;
                }
                self.start = self.column;
                if settings.writes(output::NEWLINE_RETURNS) {
                    to.push(b'\r');
                }
                to.push(b'\n');
            }
            b'\r' if settings.writes(output::NO_RETURN_AT_START) && self.column == 0 => {}
            b'\r' if settings.writes(output::RETURN_TO_NEWLINE) => {
                if settings.writes(output::NEWLINE_IS_RETURN) {
                    (self.column, self.start) = (0, 0);
                }
                to.push(b'\n');
            }
            b'\r' => {
                (self.column, self.start) = (0, 0);
                to.push(b'\r');
            }
            b'\t' => {
                let columns = tab(self.column);
                self.column += columns;
                if settings.output & output::TABS == output::TABS {
                    to.resize(to.len() + columns, b' ');
                } else {
                    to.push(b'\t');
                }
            }
            8 => {
                self.column = self.column.saturating_sub(1);
                to.push(8);
            }
            _ => {
                let shown = if settings.writes(output::UPPER) { latin::upper(byte) } else { byte };
                if !byte.is_ascii_control() && !continues(settings, byte) {
                    self.column += 1;
                }
                to.push(shown);
            }
        }
    }
}
