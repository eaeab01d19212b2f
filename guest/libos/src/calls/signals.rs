// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls on signals.

use pando_rt::clock;
use pando_rt::hypercall::NO_DEADLINE;
use pando_rt::user;

use crate::errno::Errno;
use crate::process::{self, Process};
use crate::signals::action::{ACTION_WORDS, Action};
use crate::signals::info::{Info, code};
use crate::signals::{Set, Signal};
use crate::user::{set_words, set_words_unless_null, timespec, words};

const SIZE_OF_SET: u64 = 8;

/// Reads a set whose size the program has said.
///
/// # Errors
/// `EINVAL`: another size. `EFAULT`.
pub fn set(address: u64, size: u64) -> Result<Set, Errno> {
    if size != SIZE_OF_SET {
        return Err(Errno::EINVAL);
    }
    let [set] = words(address)?;
    Ok(Set(set))
}

/// `rt_sigaction(signal, new, old, size)`.
pub fn rt_sigaction(process: &mut Process, [signal, new, old, size, ..]: [u64; 6]) -> Result<u64, Errno> {
    if size != SIZE_OF_SET {
        return Err(Errno::EINVAL);
    }
    let action = if new == 0 { None } else { Some(Action::from_words(words::<ACTION_WORDS>(new)?)) };
    let signal = Signal::from_number(signal)?;
    let recorded = process.signals.action(signal);
    if let Some(action) = action {
        if matches!(signal, Signal::KILL | Signal::STOP) {
            return Err(Errno::EINVAL);
        }
        process.signals.set_action(signal, action);
    }
    set_words_unless_null(old, &recorded.to_words())?;
    Ok(0)
}

/// `rt_sigprocmask(how, new, old, size)`.
pub fn rt_sigprocmask(process: &mut Process, [how, new, old, size, ..]: [u64; 6]) -> Result<u64, Errno> {
    if size != SIZE_OF_SET {
        return Err(Errno::EINVAL);
    }
    let before = process.signals.mask();
    if new != 0 {
        let Set(given) = set(new, size)?;
        process.signals.set_mask(match how as u32 {
            0 => Set(before.0 | given),
            1 => Set(before.0 & !given),
            2 => Set(given),
            _ => return Err(Errno::EINVAL),
        });
    }
    set_words_unless_null(old, &[before.0])?;
    Ok(0)
}

/// `rt_sigpending(set, size)`.
pub fn rt_sigpending(process: &mut Process, [set, size, ..]: [u64; 6]) -> Result<u64, Errno> {
    if size > SIZE_OF_SET {
        return Err(Errno::EINVAL);
    }
    let waiting = process.signals.pending().0 & process.signals.mask().0;
    user::write(set, &waiting.to_le_bytes()[..size as usize])?;
    Ok(0)
}

/// `sigaltstack(new, old)`.
pub fn sigaltstack(process: &mut Process, [new, old, ..]: [u64; 6]) -> Result<u64, Errno> {
    let pointer = process.signals.stack_pointer;
    let before = process.signals.stack;
    if new != 0 {
        process.signals.stack = before.replaced(words(new)?, pointer)?;
    }
    let [start, state, size] = before.told(pointer);
    if old != 0 {
        set_words(old, &[start])?;
        // What follows the 32-bit field is padding, which stays as it is.
        user::write(old.wrapping_add(8), &(state as u32).to_le_bytes())?;
        set_words(old.wrapping_add(16), &[size])?;
    }
    Ok(0)
}

/// `rt_sigreturn()`: what it does is done when the call is over, to the context that it came from.
pub fn rt_sigreturn(process: &mut Process, _: [u64; 6]) -> Result<u64, Errno> {
    process.signals.returns = true;
    Ok(0)
}

/// `kill(process, signal)`: the process's number, its group's negated, and 0 mean it; -1 means everybody else, and there is nobody.
pub fn kill(process: &mut Process, [target, signal, ..]: [u64; 6]) -> Result<u64, Errno> {
    match target as i32 {
        0 => send(process, signal, code::USER),
        -1 => Err(Errno::ESRCH),
        target if u64::from(target.unsigned_abs()) == process::NUMBER => send(process, signal, code::USER),
        _ => Err(Errno::ESRCH),
    }
}

/// `tkill(thread, signal)`.
pub fn tkill(process: &mut Process, [thread, signal, ..]: [u64; 6]) -> Result<u64, Errno> {
    tgkill(process, [process::NUMBER, thread, signal, 0, 0, 0])
}

/// `tgkill(process, thread, signal)`.
pub fn tgkill(process: &mut Process, [target, thread, signal, ..]: [u64; 6]) -> Result<u64, Errno> {
    if target as i32 <= 0 || thread as i32 <= 0 {
        return Err(Errno::EINVAL);
    }
    if u64::from(target as u32) != process::NUMBER || u64::from(thread as u32) != process::NUMBER {
        return Err(Errno::ESRCH);
    }
    send(process, signal, code::THREAD)
}

/// Sends a signal to the process itself.
fn send(process: &mut Process, number: u64, code: i32) -> Result<u64, Errno> {
    if number as u32 != 0 {
        let signal = Signal::from_number(number)?;
        process.signals.send(Info::sent(signal, code, process::NUMBER as u32, process.user()))?;
    }
    Ok(0)
}

/// `rt_sigqueueinfo(process, signal, information)`.
pub fn rt_sigqueueinfo(process: &mut Process, [target, signal, information, ..]: [u64; 6]) -> Result<u64, Errno> {
    let mut bytes = [0; Info::SIZE];
    user::read(information, &mut bytes)?;
    if u64::from(target as u32) != process::NUMBER {
        return Err(Errno::ESRCH);
    }
    if signal as u32 != 0 {
        process.signals.send(Info::given(Signal::from_number(signal)?, bytes))?;
    }
    Ok(0)
}

/// `rt_tgsigqueueinfo(process, thread, signal, information)`.
pub fn rt_tgsigqueueinfo(process: &mut Process, [target, thread, signal, information, ..]: [u64; 6]) -> Result<u64, Errno> {
    if target as i32 <= 0 || thread as i32 <= 0 {
        return Err(Errno::EINVAL);
    }
    if u64::from(thread as u32) != process::NUMBER {
        return Err(Errno::ESRCH);
    }
    rt_sigqueueinfo(process, [target, signal, information, 0, 0, 0])
}

/// `rt_sigtimedwait(set, information, timeout, size)`.
pub fn rt_sigtimedwait(process: &mut Process, [wanted, information, timeout, size, ..]: [u64; 6]) -> Result<u64, Errno> {
    let wanted = set(wanted, size)?.without(Set::UNSTOPPABLE);
    let deadline = if timeout == 0 { NO_DEADLINE } else { clock::now().saturating_add(timespec(timeout)?) };
    let taken = process.wait(deadline, |process| process.signals.take(wanted));
    let info = match taken {
        Ok(info) => info.ok_or(Errno::EAGAIN)?,
        Err(_) => return Err(Errno::EINTR),
    };
    let info = process.seen(info);
    if information != 0 {
        user::write(information, info.bytes())?;
    }
    Ok(info.signal().0.into())
}

/// `pause()`.
pub fn pause(process: &mut Process, _: [u64; 6]) -> Result<u64, Errno> {
    process.wait(NO_DEADLINE, |_| None::<()>).and(Ok(0)).map_err(Errno::without_restart)
}

/// `rt_sigsuspend(set, size)`.
pub fn rt_sigsuspend(process: &mut Process, [mask, size, ..]: [u64; 6]) -> Result<u64, Errno> {
    let mask = set(mask, size)?;
    process.signals.set_mask_for_call(mask);
    pause(process, [0; 6])
}
