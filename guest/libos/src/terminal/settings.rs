// SPDX-License-Identifier: MIT OR Apache-2.0
//! `struct termios`: a terminal's settings for input and output.

use crate::uapi::{
    B38400, CREAD, CS8, ECHO, ECHOCTL, ECHOE, ECHOK, ECHOKE, ICANON, ICRNL, IEXTEN, ISIG, IUTF8, IXON, ONLCR, OPOST, VEOF, VEOL, VEOL2,
    VERASE, VINTR, VKILL, VLNEXT, VMIN, VQUIT, VREPRINT, VSTART, VSTOP, VSUSP, VTIME, VWERASE,
};

/// Bytes of the structure that `TCGETS` fills.
pub const SIZE: usize = 36;
/// Bytes of the structure that `TCGETS2` fills: with the two speeds.
pub const SIZE_WITH_SPEEDS: usize = SIZE + 8;
/// Number of special characters.
const CHARACTERS: usize = 19;
/// Disables a special character.
const DISABLED: u8 = 0;

/// The special characters, by index (`c_cc`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the standard names")]
#[repr(u8)]
pub enum Character {
    Interrupt = VINTR,
    Quit = VQUIT,
    Erase = VERASE,
    Kill = VKILL,
    EndOfFile = VEOF,
    Time = VTIME,
    Minimum = VMIN,
    Start = VSTART,
    Stop = VSTOP,
    Suspend = VSUSP,
    EndOfLine = VEOL,
    Reprint = VREPRINT,
    WordErase = VWERASE,
    LiteralNext = VLNEXT,
    EndOfLine2 = VEOL2,
}

/// The settings of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Input modes (`c_iflag`).
    pub input: u32,
    /// Output modes (`c_oflag`).
    pub output: u32,
    /// Control modes (`c_cflag`).
    control: u32,
    /// Local modes (`c_lflag`).
    pub local: u32,
    discipline: u8,
    characters: [u8; CHARACTERS],
    speeds: [u32; 2],
}

impl Default for Settings {
    /// The settings of a fresh Linux terminal in UTF-8 mode.
    fn default() -> Settings {
        Settings {
            input: ICRNL | IXON | IUTF8,
            output: OPOST | ONLCR,
            control: B38400 | CS8 | CREAD,
            local: ISIG | ICANON | ECHO | ECHOE | ECHOK | ECHOCTL | ECHOKE | IEXTEN,
            discipline: 0,
            characters: [3, 28, 127, 21, 4, 0, 1, 0, 17, 19, 26, 0, 18, 15, 23, 22, 0, 0, 0],
            speeds: [38400; 2],
        }
    }
}

impl Settings {
    /// The structure's bytes, with the speeds; the shorter structure is its start.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; SIZE_WITH_SPEEDS] {
        let mut bytes = [0; SIZE_WITH_SPEEDS];
        for (room, word) in bytes.chunks_exact_mut(4).zip([self.input, self.output, self.control, self.local]) {
            room.copy_from_slice(&word.to_le_bytes());
        }
        bytes[16] = self.discipline;
        bytes[17..][..CHARACTERS].copy_from_slice(&self.characters);
        for (room, word) in bytes[SIZE..].chunks_exact_mut(4).zip(self.speeds) {
            room.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// These settings, overwritten with the bytes of a structure; fields that a shorter one lacks stay.
    #[must_use]
    pub fn with_bytes(&self, bytes: &[u8]) -> Settings {
        let mut all = self.to_bytes();
        let length = bytes.len().min(all.len());
        all[..length].copy_from_slice(&bytes[..length]);
        let word = |index: usize| {
            let at = index * 4;
            u32::from_le_bytes([all[at], all[at + 1], all[at + 2], all[at + 3]])
        };
        let mut characters = [0; CHARACTERS];
        characters.copy_from_slice(&all[17..][..CHARACTERS]);
        Settings {
            input: word(0),
            output: word(1),
            control: word(2),
            local: word(3),
            // There is no other line discipline.
            discipline: self.discipline,
            characters,
            speeds: [word(SIZE / 4), word(SIZE / 4 + 1)],
        }
    }

    /// Whether an input mode is set.
    #[must_use]
    pub const fn reads(&self, flag: u32) -> bool {
        self.input & flag != 0
    }

    /// Whether an output mode is set.
    #[must_use]
    pub const fn writes(&self, flag: u32) -> bool {
        self.output & flag != 0
    }

    /// Whether a local mode is set.
    #[must_use]
    pub const fn has(&self, flag: u32) -> bool {
        self.local & flag != 0
    }

    /// The value of a special character, such as [`Character::Minimum`].
    #[must_use]
    pub const fn value(&self, character: Character) -> u8 {
        self.characters[character as usize]
    }

    /// Whether a byte is this special character.
    #[must_use]
    pub fn means(&self, byte: u8, character: Character) -> bool {
        byte == self.value(character) && byte != DISABLED
    }
}
