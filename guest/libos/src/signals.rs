// SPDX-License-Identifier: MIT OR Apache-2.0
//! Signals: what a program asked for is recorded; one that it sends itself has its default effect. Handlers do not run yet.

use pando_rt::user;

use crate::errno::Errno;
use crate::identity::PROCESS;
use crate::process::{Process, die};
use crate::user::{set_words, words};

/// How many signals there are, numbered from 1.
const SIGNALS: usize = 64;
/// Words of `struct sigaction` as the system call knows it: handler, flags, restorer, mask.
const ACTION_WORDS: usize = 4;
const SIG_DFL: u64 = 0;
const SIG_IGN: u64 = 1;
const SS_DISABLE: u64 = 2;
const SIZE_OF_SET: u64 = 8;

/// A signal's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signal(pub u8);

#[expect(missing_docs, reason = "the standard names")]
impl Signal {
    pub const ILL: Signal = Signal(4);
    pub const TRAP: Signal = Signal(5);
    pub const BUS: Signal = Signal(7);
    pub const FPE: Signal = Signal(8);
    pub const KILL: Signal = Signal(9);
    pub const SEGV: Signal = Signal(11);
    pub const TERM: Signal = Signal(15);
    pub const STOP: Signal = Signal(19);
}

impl Signal {
    /// The signal with this number.
    fn from_number(number: u64) -> Result<Signal, Errno> {
        if (1..=SIGNALS as u64).contains(&number) { Ok(Signal(number as u8)) } else { Err(Errno::EINVAL) }
    }

    /// Whether the default is to go on: `CHLD`, `CONT`, `URG`, `WINCH`; and the stopping ones, for nobody could continue the cell's only process.
    fn ignored_by_default(self) -> bool {
        matches!(self.0, 17..=23 | 28)
    }
}

/// What the program asked for.
#[derive(Debug)]
pub struct Signals {
    actions: [[u64; ACTION_WORDS]; SIGNALS],
    mask: u64,
    /// `stack_t`: pointer, flags, size.
    stack: [u64; 3],
}

impl Default for Signals {
    fn default() -> Signals {
        Signals { actions: [[SIG_DFL; ACTION_WORDS]; SIGNALS], mask: 0, stack: [0, SS_DISABLE, 0] }
    }
}

/// `rt_sigaction(signal, new, old, size)`.
pub fn rt_sigaction(process: &mut Process, [signal, new, old, size, ..]: [u64; 6]) -> Result<u64, Errno> {
    let signal = Signal::from_number(signal)?;
    if size != SIZE_OF_SET || new != 0 && matches!(signal, Signal::KILL | Signal::STOP) {
        return Err(Errno::EINVAL);
    }
    let action = if new == 0 { None } else { Some(words::<ACTION_WORDS>(new)?) };
    let recorded = &mut process.signals.actions[usize::from(signal.0) - 1];
    if old != 0 {
        set_words(old, recorded)?;
    }
    *recorded = action.unwrap_or(*recorded);
    Ok(0)
}

/// `rt_sigprocmask(how, new, old, size)`.
pub fn rt_sigprocmask(process: &mut Process, [how, new, old, size, ..]: [u64; 6]) -> Result<u64, Errno> {
    if size != SIZE_OF_SET {
        return Err(Errno::EINVAL);
    }
    let before = process.signals.mask;
    if new != 0 {
        let [set] = words(new)?;
        process.signals.mask = match how {
            0 => before | set,
            1 => before & !set,
            2 => set,
            _ => return Err(Errno::EINVAL),
        };
    }
    if old != 0 {
        set_words(old, &[before])?;
    }
    Ok(0)
}

/// `rt_sigpending(set, size)`.
pub fn rt_sigpending(_: &mut Process, [set, ..]: [u64; 6]) -> Result<u64, Errno> {
    set_words(set, &[0])?;
    Ok(0)
}

/// `sigaltstack(new, old)`.
pub fn sigaltstack(process: &mut Process, [new, old, ..]: [u64; 6]) -> Result<u64, Errno> {
    let stack = if new == 0 { None } else { Some(words::<3>(new)?) };
    if old != 0 {
        set_words(old, &process.signals.stack)?;
    }
    if let Some(stack) = stack {
        process.signals.stack = stack;
    }
    Ok(0)
}

/// `kill(process, signal)`: 0, -1 and the own number all mean this process.
pub fn kill(process: &mut Process, [target, signal, ..]: [u64; 6]) -> Result<u64, Errno> {
    match target as i32 {
        0 | -1 => send(process, signal),
        target if target.unsigned_abs() == PROCESS as u32 => send(process, signal),
        _ => Err(Errno::ESRCH),
    }
}

/// `tkill(thread, signal)`.
pub fn tkill(process: &mut Process, [thread, signal, ..]: [u64; 6]) -> Result<u64, Errno> {
    if thread == PROCESS { send(process, signal) } else { Err(Errno::ESRCH) }
}

/// `tgkill(process, thread, signal)`.
pub fn tgkill(process: &mut Process, [target, thread, signal, ..]: [u64; 6]) -> Result<u64, Errno> {
    if target == PROCESS && thread == PROCESS { send(process, signal) } else { Err(Errno::ESRCH) }
}

/// Sends a signal to the process itself.
fn send(process: &Process, number: u64) -> Result<u64, Errno> {
    if number == 0 {
        return Ok(0);
    }
    let signal = Signal::from_number(number)?;
    let [handler, ..] = process.signals.actions[usize::from(signal.0) - 1];
    if handler == SIG_IGN || handler == SIG_DFL && signal.ignored_by_default() {
        return Ok(0);
    }
    die(signal, 0, 0)
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
