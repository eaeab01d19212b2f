// SPDX-License-Identifier: MIT OR Apache-2.0
//! Terminals: what a program may ask where the operator has one. Settings are accepted and change nothing: the line discipline is the host's.

use pando_rt::user::write;

use crate::errno::Errno;
use crate::process;
use crate::user::set_word32;

const TCGETS: u32 = 0x5401;
const TCSETS: u32 = 0x5402;
const TCSETSF: u32 = 0x5404;
const TIOCGPGRP: u32 = 0x540f;
const TIOCSPGRP: u32 = 0x5410;
const TIOCGWINSZ: u32 = 0x5413;
const FIONREAD: u32 = 0x541b;

/// `c_iflag` (ICRNL, IXON), `c_oflag` (OPOST, ONLCR), `c_cflag` (38400, CS8, CREAD), `c_lflag` (ISIG to ECHOKE, IEXTEN): those of a fresh Linux terminal.
const MODES: [u32; 4] = [0x500, 0x5, 0xbf, 0x8a3b];
/// The line discipline, then the control characters.
const CHARACTERS: [u8; 20] = [0, 3, 28, 127, 21, 4, 0, 1, 0, 17, 19, 26, 0, 18, 15, 23, 22, 0, 0, 0];
/// Rows and columns of a terminal whose size nobody knows.
const SIZE: [u16; 4] = [24, 80, 0, 0];

/// `ioctl` on a terminal.
///
/// # Errors
/// `ENOTTY` for what terminals here do not have, `EFAULT`.
pub fn ioctl(request: u32, argument: u64) -> Result<u64, Errno> {
    match request {
        TCGETS => {
            let mut bytes = [0; 36];
            for (room, word) in bytes.chunks_exact_mut(4).zip(MODES) {
                room.copy_from_slice(&word.to_le_bytes());
            }
            bytes[16..].copy_from_slice(&CHARACTERS);
            write(argument, &bytes)?;
        }
        TCSETS..=TCSETSF | TIOCSPGRP => {}
        TIOCGPGRP => set_word32(argument, process::NUMBER as u32)?,
        TIOCGWINSZ => {
            let mut bytes = [0; 8];
            for (room, word) in bytes.chunks_exact_mut(2).zip(SIZE) {
                room.copy_from_slice(&word.to_le_bytes());
            }
            write(argument, &bytes)?;
        }
        FIONREAD => set_word32(argument, 0)?,
        _ => return Err(Errno::ENOTTY),
    }
    Ok(0)
}
