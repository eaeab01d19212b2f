// SPDX-License-Identifier: MIT OR Apache-2.0
//! Output of the line discipline: bytes that a program writes, and the echo.

use alloc::vec::Vec;

use super::latin;
use super::settings::Settings;
use crate::uapi::{IUTF8, OCRNL, OLCUC, ONLCR, ONLRET, ONOCR, OPOST, TABDLY};

const TAB: usize = 8;

/// Whether a byte continues a UTF-8 character.
pub(super) fn continues(settings: &Settings, byte: u8) -> bool {
    settings.reads(IUTF8) && byte & 0xc0 == 0x80
}

/// Columns that a tab occupies at a column.
pub(super) fn tab(column: usize) -> usize {
    TAB - column % TAB
}

/// The cursor's position, as far as the line discipline can follow it.
#[derive(Clone, Copy, Debug, Default)]
pub struct ScreenCursor {
    /// Its column.
    pub column: usize,
    /// The column at which the line that is being typed began.
    pub start: usize,
}

impl ScreenCursor {
    /// Appends the output for a byte to `to`.
    pub fn write(&mut self, settings: &Settings, byte: u8, to: &mut Vec<u8>) {
        if !settings.writes(OPOST) {
            return to.push(byte);
        }
        match byte {
            b'\n' => {
                if settings.writes(ONLRET | ONLCR) {
                    self.column = 0;
                }
                self.start = self.column;
                if settings.writes(ONLCR) {
                    to.push(b'\r');
                }
                to.push(b'\n');
            }
            b'\r' if settings.writes(ONOCR) && self.column == 0 => {}
            b'\r' if settings.writes(OCRNL) => {
                if settings.writes(ONLRET) {
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
                if settings.output & TABDLY == TABDLY {
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
                let output_byte = if settings.writes(OLCUC) { latin::upper(byte) } else { byte };
                if !byte.is_ascii_control() && !continues(settings, byte) {
                    self.column += 1;
                }
                to.push(output_byte);
            }
        }
    }
}
