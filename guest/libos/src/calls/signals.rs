// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls on signals: what a program asks for is recorded; a signal that it sends itself has its default effect.

use pando_rt::user;

use crate::errno::Errno;
use crate::process::{self, Process, die};
use crate::signals::{self, ACTION_WORDS, Signal};
use crate::user::{set_words, set_words_unless_null, words};

const SIZE_OF_SET: u64 = 8;

/// `rt_sigaction(signal, new, old, size)`.
pub fn rt_sigaction(process: &mut Process, [signal, new, old, size, ..]: [u64; 6]) -> Result<u64, Errno> {
    let signal = Signal::from_number(signal)?;
    if size != SIZE_OF_SET || new != 0 && matches!(signal, Signal::KILL | Signal::STOP) {
        return Err(Errno::EINVAL);
    }
    let action = if new == 0 { None } else { Some(words::<ACTION_WORDS>(new)?) };
    let recorded = process.signals.action(signal);
    set_words_unless_null(old, recorded)?;
    *recorded = action.unwrap_or(*recorded);
    Ok(0)
}

/// `rt_sigprocmask(how, new, old, size)`.
pub fn rt_sigprocmask(process: &mut Process, [how, new, old, size, ..]: [u64; 6]) -> Result<u64, Errno> {
    if size != SIZE_OF_SET {
        return Err(Errno::EINVAL);
    }
    let before = process.signals.mask();
    let mask = if new == 0 {
        before
    } else {
        let [set] = words(new)?;
        match how {
            0 => before | set,
            1 => before & !set,
            2 => set,
            _ => return Err(Errno::EINVAL),
        }
    };
    if let Some(signal) = process.signals.set_mask(mask) {
        die(signal, 0, 0);
    }
    set_words_unless_null(old, &[before])?;
    Ok(0)
}

/// `rt_sigpending(set, size)`.
pub fn rt_sigpending(process: &mut Process, [set, ..]: [u64; 6]) -> Result<u64, Errno> {
    set_words(set, &[process.signals.pending()])?;
    Ok(0)
}

/// `sigaltstack(new, old)`.
pub fn sigaltstack(process: &mut Process, [new, old, ..]: [u64; 6]) -> Result<u64, Errno> {
    let stack = if new == 0 { None } else { Some(signals::alternate_stack(words(new)?)?) };
    set_words_unless_null(old, &process.signals.stack)?;
    process.signals.stack = stack.unwrap_or(process.signals.stack);
    Ok(0)
}

/// `kill(process, signal)`: 0, -1 and the own number all mean this process.
pub fn kill(process: &mut Process, [target, signal, ..]: [u64; 6]) -> Result<u64, Errno> {
    match target as i32 {
        0 | -1 => send(process, signal),
        target if target.unsigned_abs() == process::NUMBER as u32 => send(process, signal),
        _ => Err(Errno::ESRCH),
    }
}

/// `tkill(thread, signal)`.
pub fn tkill(process: &mut Process, [thread, signal, ..]: [u64; 6]) -> Result<u64, Errno> {
    if thread == process::NUMBER { send(process, signal) } else { Err(Errno::ESRCH) }
}

/// `tgkill(process, thread, signal)`.
pub fn tgkill(process: &mut Process, [target, thread, signal, ..]: [u64; 6]) -> Result<u64, Errno> {
    if target == process::NUMBER && thread == process::NUMBER { send(process, signal) } else { Err(Errno::ESRCH) }
}

/// Sends a signal to the process itself.
fn send(process: &mut Process, number: u64) -> Result<u64, Errno> {
    if number == 0 {
        return Ok(0);
    }
    let signal = Signal::from_number(number)?;
    if process.signals.takes(signal) { die(signal, 0, 0) } else { Ok(0) }
}

/// `pause()`: nothing but the end of the cell ends it.
pub fn pause(_: &mut Process, _: [u64; 6]) -> Result<u64, Errno> {
    loop {
        pando_rt::events::wait(pando_rt::hypercall::NO_DEADLINE);
    }
}

/// `rt_sigsuspend(set, size)`: as `pause`.
pub fn rt_sigsuspend(process: &mut Process, [set, ..]: [u64; 6]) -> Result<u64, Errno> {
    user::read(set, &mut [0; SIZE_OF_SET as usize])?;
    pause(process, [0; 6])
}
