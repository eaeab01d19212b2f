// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls on signals.

use alloc::vec::Vec;

use pando_rt::clock;
use pando_rt::hypercall::NO_DEADLINE;
use pando_rt::user;

use crate::errno::Errno;
use crate::process::{FIRST, Pid};
use crate::signals::action::{ACTION_WORDS, Action, Disposition};
use crate::signals::info::SigInfo;
use crate::signals::{Signal, SignalSet};
use crate::system::{Effect, System};
use crate::uapi::{CAP_KILL, SI_TKILL, SI_USER};
use crate::user::{set_words, set_words_unless_null, timespec, words};
use crate::wait::Channel;

const SIZE_OF_SET: u64 = 8;

/// Reads a set with the size that the program passed.
///
/// # Errors
/// `EINVAL`: another size. `EFAULT`.
pub fn set(address: u64, size: u64) -> Result<SignalSet, Errno> {
    if size != SIZE_OF_SET {
        return Err(Errno::EINVAL);
    }
    let [set] = words(address)?;
    Ok(SignalSet(set))
}

/// `rt_sigaction(signal, new, old, size)`.
pub fn rt_sigaction(system: &mut System, [signal, new, old, size, ..]: [u64; 6]) -> Result<u64, Errno> {
    if size != SIZE_OF_SET {
        return Err(Errno::EINVAL);
    }
    let action = if new == 0 { None } else { Some(Action::from_words(words::<ACTION_WORDS>(new)?)) };
    let signal = Signal::from_number(signal)?;
    let recorded = system.process.signals.action(signal);
    if let Some(action) = action {
        if matches!(signal, Signal::SIGKILL | Signal::SIGSTOP) {
            return Err(Errno::EINVAL);
        }
        system.process.signals.set_action(signal, action);
        if action.disposition(signal) == Disposition::Ignore {
            system.drop_ignored(signal);
        }
    }
    set_words_unless_null(old, &recorded.to_words())?;
    Ok(0)
}

/// `rt_sigprocmask(how, new, old, size)`.
pub fn rt_sigprocmask(system: &mut System, [how, new, old, size, ..]: [u64; 6]) -> Result<u64, Errno> {
    if size != SIZE_OF_SET {
        return Err(Errno::EINVAL);
    }
    let before = system.thread.signals.mask();
    if new != 0 {
        let SignalSet(mask) = set(new, size)?;
        system.thread.signals.set_mask(match how as u32 {
            0 => SignalSet(before.0 | mask),
            1 => SignalSet(before.0 & !mask),
            2 => SignalSet(mask),
            _ => return Err(Errno::EINVAL),
        });
    }
    set_words_unless_null(old, &[before.0])?;
    Ok(0)
}

/// `rt_sigpending(set, size)`.
pub fn rt_sigpending(system: &mut System, [set, size, ..]: [u64; 6]) -> Result<u64, Errno> {
    if size > SIZE_OF_SET {
        return Err(Errno::EINVAL);
    }
    let waiting = system.pending().0 & system.thread.signals.mask().0;
    user::write(set, &waiting.to_le_bytes()[..size as usize])?;
    Ok(0)
}

/// `sigaltstack(new, old)`.
pub fn sigaltstack(system: &mut System, [new, old, ..]: [u64; 6]) -> Result<u64, Errno> {
    let pointer = system.thread.signals.stack_pointer;
    let before = system.thread.signals.stack;
    if new != 0 {
        system.thread.signals.stack = before.replaced(words(new)?, pointer)?;
    }
    let [start, state, size] = before.sigaltstack_words(pointer);
    if old != 0 {
        set_words(old, &[start])?;
        // The 32-bit field is followed by padding, which stays as it is.
        user::write(old.wrapping_add(8), &(state as u32).to_le_bytes())?;
        set_words(old.wrapping_add(16), &[size])?;
    }
    Ok(0)
}

/// `rt_sigreturn()`: the context is restored when the call is over.
pub fn rt_sigreturn(system: &mut System, _: [u64; 6]) -> Result<u64, Errno> {
    system.effect = Some(Effect::Return);
    Ok(0)
}

/// Whether the running process may send this signal to another.
pub(super) fn may_send(system: &System, to: Pid, signal: u64) -> bool {
    let credentials = &system.files.current.credentials;
    let Some(other) = system.files.of(to) else { return true };
    let same_session = || system.process_of(to).is_some_and(|process| process.session == system.process.session);
    credentials.is_capable(CAP_KILL)
        || [credentials.user.real, credentials.user.effective]
            .iter()
            .any(|user| [other.credentials.user.real, other.credentials.user.saved].contains(user))
        || signal as u32 == u32::from(Signal::SIGCONT.0) && same_session()
}

/// `kill(process, signal)`: to a process, to its own group (0), to all others (-1), or to the group whose number is negated.
pub fn kill(system: &mut System, [target, signal, ..]: [u64; 6]) -> Result<u64, Errno> {
    let caller = system.process.number;
    let targets = match target as i32 {
        0 => system.processes_where(|process| process.group == system.process.group),
        -1 => system.processes_where(|process| process.number != caller && process.number != FIRST),
        target if target < 0 => system.processes_where(|process| process.group == target.unsigned_abs()),
        target => system.process_named(target.unsigned_abs()).into_iter().collect(),
    };
    if targets.is_empty() {
        return Err(Errno::ESRCH);
    }
    if signal as u32 != 0 {
        Signal::from_number(signal)?;
    }
    let allowed: Vec<Pid> = targets.into_iter().filter(|to| may_send(system, *to, signal)).collect();
    if allowed.is_empty() {
        return Err(Errno::EPERM);
    }
    if signal as u32 != 0 {
        let info = SigInfo::sent(Signal::from_number(signal)?, SI_USER, caller, system.user());
        for to in allowed {
            system.send(to, info)?;
        }
    }
    Ok(0)
}

/// `tkill(thread, signal)`.
pub fn tkill(system: &mut System, [thread, signal, ..]: [u64; 6]) -> Result<u64, Errno> {
    if thread as i32 <= 0 {
        return Err(Errno::EINVAL);
    }
    let process = system.thread_of(thread as u32).ok_or(Errno::ESRCH)?.process;
    tgkill(system, [process.into(), thread, signal, 0, 0, 0])
}

/// `tgkill(process, thread, signal)`.
pub fn tgkill(system: &mut System, [target, thread, signal, ..]: [u64; 6]) -> Result<u64, Errno> {
    if target as i32 <= 0 || thread as i32 <= 0 {
        return Err(Errno::EINVAL);
    }
    check_thread(system, target, thread, signal)?;
    if signal as u32 != 0 {
        let signal = Signal::from_number(signal)?;
        system.send_to_thread(thread as u32, SigInfo::sent(signal, SI_TKILL, system.process.number, system.user()))?;
    }
    Ok(0)
}

/// Checks that a thread is one of a process, and may be sent a signal.
fn check_thread(system: &System, process: u64, thread: u64, signal: u64) -> Result<(), Errno> {
    let process = process as u32;
    system.thread_of(thread as u32).filter(|thread| thread.process == process).ok_or(Errno::ESRCH)?;
    if may_send(system, process, signal) { Ok(()) } else { Err(Errno::EPERM) }
}

/// A `siginfo_t` from a program. A program may use the codes of the system and of `kill` only for itself.
pub(super) fn info_from_program(system: &System, to: Pid, signal: u64, information: u64) -> Result<Option<SigInfo>, Errno> {
    let mut bytes = [0; SigInfo::SIZE];
    user::read(information, &mut bytes)?;
    if signal as u32 == 0 {
        return Ok(None);
    }
    let info = SigInfo::from_program(Signal::from_number(signal)?, bytes);
    if (info.code() >= 0 || info.code() == SI_TKILL) && to != system.process.number {
        return Err(Errno::EPERM);
    }
    Ok(Some(info))
}

/// `rt_sigqueueinfo(process, signal, information)`.
pub fn rt_sigqueueinfo(system: &mut System, [target, signal, information, ..]: [u64; 6]) -> Result<u64, Errno> {
    let named = system.process_named(target as u32);
    let info = info_from_program(system, named.unwrap_or(target as u32), signal, information)?;
    let to = named.ok_or(Errno::ESRCH)?;
    if !may_send(system, to, signal) {
        return Err(Errno::EPERM);
    }
    info.map_or(Ok(()), |info| system.send(to, info))?;
    Ok(0)
}

/// `rt_tgsigqueueinfo(process, thread, signal, information)`.
pub fn rt_tgsigqueueinfo(system: &mut System, [target, thread, signal, information, ..]: [u64; 6]) -> Result<u64, Errno> {
    if target as i32 <= 0 || thread as i32 <= 0 {
        return Err(Errno::EINVAL);
    }
    let info = info_from_program(system, target as u32, signal, information)?;
    check_thread(system, target, thread, signal)?;
    info.map_or(Ok(()), |info| system.send_to_thread(thread as u32, info))?;
    Ok(0)
}

/// `rt_sigtimedwait(set, information, timeout, size)`.
pub fn rt_sigtimedwait(system: &mut System, [wanted, information, timeout, size, ..]: [u64; 6]) -> Result<u64, Errno> {
    let wanted = set(wanted, size)?.without(SignalSet::UNSTOPPABLE);
    let deadline = if timeout == 0 { NO_DEADLINE } else { clock::now().saturating_add(timespec(timeout)?) };
    let channel = Channel::Signal(system.process.number);
    let pending = system.wait(&[channel], deadline, |system| system.take_signal(wanted)).map_err(Errno::without_restart)?;
    let info = pending.ok_or(Errno::EAGAIN)?;
    let info = system.delivered_info(info);
    if information != 0 {
        user::write(information, info.bytes())?;
    }
    Ok(info.signal().0.into())
}

/// `pause()`.
pub fn pause(system: &mut System, _: [u64; 6]) -> Result<u64, Errno> {
    system.wait(&[], NO_DEADLINE, |_| None::<()>).and(Ok(0)).map_err(Errno::without_restart)
}

/// `rt_sigsuspend(set, size)`.
pub fn rt_sigsuspend(system: &mut System, [mask, size, ..]: [u64; 6]) -> Result<u64, Errno> {
    let mask = set(mask, size)?;
    system.thread.signals.set_mask_for_call(mask);
    pause(system, [0; 6])
}
