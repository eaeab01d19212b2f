// SPDX-License-Identifier: MIT OR Apache-2.0
//! `struct termios`: a terminal's settings for input and output.

/// Bytes of the structure that `TCGETS` fills.
pub const SIZE: usize = 36;
/// Bytes of the structure that `TCGETS2` fills: with the two speeds.
pub const SIZE_WITH_SPEEDS: usize = SIZE + 8;
/// Number of special characters.
const CHARACTERS: usize = 19;
/// Disables a special character.
const DISABLED: u8 = 0;

/// Bits of the input flags.
pub mod input {
    /// `ISTRIP`: input is stripped to seven bits.
    pub const STRIP: u32 = 0o40;
    /// `INLCR`: a newline is read as a carriage return.
    pub const NEWLINE_TO_RETURN: u32 = 0o100;
    /// `IGNCR`: carriage returns are dropped.
    pub const NO_RETURN: u32 = 0o200;
    /// `ICRNL`: a carriage return is read as a newline.
    pub const RETURN_TO_NEWLINE: u32 = 0o400;
    /// `IUCLC`: upper case is read as lower case.
    pub const LOWER: u32 = 0o1000;
    /// `IXON`: output can be stopped and started.
    pub const FLOW: u32 = 0o2000;
    /// `IXANY`: any character starts it.
    pub const FLOW_ANY: u32 = 0o4000;
    /// `IUTF8`: characters are UTF-8.
    pub const UTF8: u32 = 0o40000;
}

/// Bits of the output flags.
pub mod output {
    /// `OPOST`: the other output flags apply.
    pub const PROCESS: u32 = 0o1;
    /// `OLCUC`: lower case is written as upper case.
    pub const UPPER: u32 = 0o2;
    /// `ONLCR`: a newline is written with a carriage return.
    pub const NEWLINE_RETURNS: u32 = 0o4;
    /// `OCRNL`: a carriage return is written as a newline.
    pub const RETURN_TO_NEWLINE: u32 = 0o10;
    /// `ONOCR`: no carriage return at the start of a line.
    pub const NO_RETURN_AT_START: u32 = 0o20;
    /// `ONLRET`: a newline also returns to the start of the line.
    pub const NEWLINE_IS_RETURN: u32 = 0o40;
    /// `TABDLY`, and its value by which tabs are written as spaces.
    pub const TABS: u32 = 0o14000;
}

/// Bits of the local flags.
pub mod local {
    /// `ISIG`: special characters send signals.
    pub const SIGNALS: u32 = 0o1;
    /// `ICANON`: canonical mode, input in edited lines.
    pub const LINES: u32 = 0o2;
    /// `ECHO`: input is echoed.
    pub const ECHO: u32 = 0o10;
    /// `ECHOE`: erased characters disappear.
    pub const ECHO_ERASE: u32 = 0o20;
    /// `ECHOK`: killing a line begins another.
    pub const ECHO_KILL: u32 = 0o40;
    /// `ECHONL`: a newline is echoed even if nothing else is.
    pub const ECHO_NEWLINE: u32 = 0o100;
    /// `NOFLSH`: a signal drops no input.
    pub const NO_FLUSH: u32 = 0o200;
    /// `ECHOCTL`: control characters are echoed with a caret.
    pub const ECHO_CONTROL: u32 = 0o1000;
    /// `ECHOKE`: a killed line disappears.
    pub const ECHO_KILL_ERASE: u32 = 0o4000;
    /// `TOSTOP`: background processes may not write.
    pub const STOP_BACKGROUND: u32 = 0o400;
    /// `IEXTEN`: the special characters that are not in POSIX apply.
    pub const EXTENDED: u32 = 0o100_000;
}

/// The special characters, by index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the standard names")]
#[repr(u8)]
pub enum Character {
    Interrupt = 0,
    Quit = 1,
    Erase = 2,
    Kill = 3,
    EndOfFile = 4,
    Time = 5,
    Minimum = 6,
    Start = 8,
    Stop = 9,
    Suspend = 10,
    EndOfLine = 11,
    Reprint = 12,
    WordErase = 14,
    LiteralNext = 15,
    EndOfLine2 = 16,
}

/// The settings of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Bits of [`input`].
    pub input: u32,
    /// Bits of [`output`].
    pub output: u32,
    control: u32,
    /// Bits of [`local`].
    pub local: u32,
    discipline: u8,
    characters: [u8; CHARACTERS],
    speeds: [u32; 2],
}

impl Default for Settings {
    /// The settings of a fresh Linux terminal in UTF-8 mode.
    fn default() -> Settings {
        Settings {
            input: input::RETURN_TO_NEWLINE | input::FLOW | input::UTF8,
            output: output::PROCESS | output::NEWLINE_RETURNS,
            // 38400 baud, 8 bits, receiving.
            control: 0o277,
            local: 0o105_073,
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

    /// Whether a flag of [`input`] is set.
    #[must_use]
    pub const fn reads(&self, flag: u32) -> bool {
        self.input & flag != 0
    }

    /// Whether a flag of [`output`] is set.
    #[must_use]
    pub const fn writes(&self, flag: u32) -> bool {
        self.output & flag != 0
    }

    /// Whether a flag of [`local`] is set.
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
