// SPDX-License-Identifier: MIT OR Apache-2.0
//! Futexes: waiting on [words of memory](crate::system::messages), and waking (`man 2 futex`).

use pando_rt::clock;
use pando_rt::hypercall::NO_DEADLINE;

use crate::errno::Errno;
use crate::system::System;
use crate::system::messages::{ANY, CONTENDED, HOLDER, ORPHANED};
use crate::user::{set_word32, timespec, word32};
use crate::wait::ThreadNumber;

const WAIT: u64 = 0;
const WAKE: u64 = 1;
const REQUEUE: u64 = 3;
const COMPARE_REQUEUE: u64 = 4;
const WAKE_OPERATION: u64 = 5;
const LOCK: u64 = 6;
const UNLOCK: u64 = 7;
const TRY_LOCK: u64 = 8;
const WAIT_BITS: u64 = 9;
const WAKE_BITS: u64 = 10;
const WAIT_REQUEUE: u64 = 11;
const COMPARE_REQUEUE_LOCK: u64 = 12;
const LOCK_REALTIME: u64 = 13;
const OPERATION: u64 = 0x7f;
const REALTIME: u64 = 0x100;

/// `futex(word, operation, value, timeout, second, bits)`.
pub fn futex(system: &mut System, [word, operation, value, timeout, second, third]: [u64; 6]) -> Result<u64, Errno> {
    if !word.is_multiple_of(4) {
        return Err(Errno::EINVAL);
    }
    system.thread.futex_lock = None;
    let count = value as u32;
    let command = operation & OPERATION;
    let has_second = matches!(command, REQUEUE | COMPARE_REQUEUE | WAKE_OPERATION | WAIT_REQUEUE | COMPARE_REQUEUE_LOCK);
    if has_second && !second.is_multiple_of(4) {
        return Err(Errno::EINVAL);
    }
    let moves = matches!(command, REQUEUE | COMPARE_REQUEUE | COMPARE_REQUEUE_LOCK);
    if moves && (count.cast_signed() < 0 || (timeout as u32).cast_signed() < 0) {
        return Err(Errno::EINVAL);
    }
    let realtime = operation & REALTIME != 0;
    match command {
        WAIT => wait(system, word, count, ANY, relative(timeout)?),
        WAIT_BITS if third as u32 == 0 => Err(Errno::EINVAL),
        WAIT_BITS => wait(system, word, count, third as u32, absolute(timeout, realtime)?),
        WAKE => {
            word32(word)?;
            Ok(system.wake_word(word, count.max(1), ANY))
        }
        WAKE_BITS if third as u32 == 0 => Err(Errno::EINVAL),
        WAKE_BITS => Ok(system.wake_word(word, count, third as u32)),
        REQUEUE => Ok(requeue(system, word, second, count, timeout as u32)),
        COMPARE_REQUEUE_LOCK if count != 1 || word == second => Err(Errno::EINVAL),
        COMPARE_REQUEUE | COMPARE_REQUEUE_LOCK if word32(word)? != third as u32 => Err(Errno::EAGAIN),
        COMPARE_REQUEUE => {
            let moved = requeue(system, word, second, count, timeout as u32);
            Ok(moved)
        }
        WAKE_OPERATION => wake_operation(system, [word, second], [count, timeout as u32], third as u32),
        LOCK => lock(system, word, absolute(timeout, true)?),
        LOCK_REALTIME => lock(system, word, absolute(timeout, realtime)?),
        TRY_LOCK => try_lock(system, word).and_then(|locked| if locked { Ok(0) } else { Err(Errno::EAGAIN) }),
        UNLOCK => unlock(system, word),
        WAIT_REQUEUE if word == second => Err(Errno::EINVAL),
        WAIT_REQUEUE => wait_for_lock(system, word, count, second, absolute(timeout, realtime)?),
        COMPARE_REQUEUE_LOCK => requeue_to_lock(system, word, second, timeout as u32),
        _ => Err(Errno::ENOSYS),
    }
}

/// A relative timeout.
fn relative(timeout: u64) -> Result<u64, Errno> {
    if timeout == 0 { Ok(NO_DEADLINE) } else { Ok(clock::now().saturating_add(timespec(timeout)?)) }
}

/// An absolute timeout, of the wall clock or the monotonic one.
fn absolute(timeout: u64, wall: bool) -> Result<u64, Errno> {
    match timeout {
        0 => Ok(NO_DEADLINE),
        _ if wall => Ok(clock::now().saturating_add(timespec(timeout)?.saturating_sub(clock::wall()))),
        _ => timespec(timeout),
    }
}

/// Waits until the word is woken, if it holds the value.
fn wait(system: &mut System, word: u64, value: u32, bits: u32, deadline: u64) -> Result<u64, Errno> {
    let deadline = system.deadline(deadline);
    if system.thread.call.again && clock::now() >= deadline {
        return Err(Errno::ETIMEDOUT);
    }
    if word32(word)? != value {
        return Err(Errno::EAGAIN);
    }
    system.thread.futex_bits = bits;
    let on = system.word(word);
    match system.wait(&[on], deadline, |_| None::<()>) {
        Ok(_) => Err(Errno::ETIMEDOUT),
        // A restarted call would wait for the whole time again.
        Err(error) if deadline != NO_DEADLINE => Err(error.without_restart()),
        Err(error) => Err(error),
    }
}

/// Waits until the word is woken and the lock acquired, or the thread is requeued to the lock.
fn wait_for_lock(system: &mut System, word: u64, value: u32, lock_word: u64, deadline: u64) -> Result<u64, Errno> {
    let deadline = system.deadline(deadline);
    if system.thread.call.done != 0 {
        return lock(system, lock_word, deadline);
    }
    system.thread.futex_lock = Some(lock_word);
    wait(system, word, value, ANY, deadline)
}

/// Gives a free lock to the longest waiter of a word, and requeues others, at most `moved`, to the lock. Returns how many threads
/// that were.
fn requeue_to_lock(system: &mut System, word: u64, lock_word: u64, moved: u32) -> Result<u64, Errno> {
    let (from, to) = (system.word(word), system.word(lock_word));
    let waiting = system.waiters_on(from);
    let moving = &waiting[..waiting.len().min((moved as usize).saturating_add(1))];
    let is_for_lock = |number: &ThreadNumber| system.thread_of(*number).is_some_and(|thread| thread.futex_lock == Some(lock_word));
    if !moving.iter().all(is_for_lock) {
        return Err(Errno::EINVAL);
    }
    for number in moving {
        let value = word32(lock_word)?;
        if value & HOLDER == 0 {
            let contended = if system.waiters_on(to).is_empty() { 0 } else { CONTENDED };
            set_word32(lock_word, number | value & ORPHANED | contended)?;
            system.finish_call(*number, Ok(0));
            continue;
        }
        set_word32(lock_word, value | CONTENDED)?;
        if let Some(thread) = system.thread_of_mut(*number) {
            // If it is interrupted, its call waits for the lock again.
            thread.call.done = 1;
        }
        system.requeue(*number, to);
    }
    Ok(moving.len() as u64)
}

/// Wakes waiters of a word and requeues others to another word. Returns how many threads that were.
fn requeue(system: &mut System, word: u64, other: u64, woken: u32, moved: u32) -> u64 {
    let done = system.wake_word(word, woken, ANY);
    let (from, to) = (system.word(word), system.word(other));
    let waiting = system.waiters_on(from);
    let moving = &waiting[..waiting.len().min(moved as usize)];
    for thread in moving {
        system.requeue(*thread, to);
    }
    done + moving.len() as u64
}

/// `FUTEX_WAKE_OP`: changes the second word, wakes waiters of the first and, if the second word's old value meets the condition, of
/// the second.
fn wake_operation(system: &mut System, [first, second]: [u64; 2], [count, second_count]: [u32; 2], coded: u32) -> Result<u64, Errno> {
    const SHIFT: u32 = 8;
    let extended = |bits: u32| ((bits << 20).cast_signed() >> 20) as u32;
    let (operation, comparison) = (coded >> 28, coded >> 24 & 15);
    let (mut argument, expected) = (extended(coded >> 12 & 0xfff), extended(coded & 0xfff));
    if operation & SHIFT != 0 {
        argument = 1u32.wrapping_shl(argument);
    }
    let before = word32(second)?;
    let after = match operation & !SHIFT {
        0 => argument,
        1 => before.wrapping_add(argument),
        2 => before | argument,
        3 => before & !argument,
        4 => before ^ argument,
        _ => return Err(Errno::ENOSYS),
    };
    let (signed, expected) = (before.cast_signed(), expected.cast_signed());
    let holds = match comparison {
        0 => signed == expected,
        1 => signed != expected,
        2 => signed < expected,
        3 => signed <= expected,
        4 => signed > expected,
        5 => signed >= expected,
        _ => return Err(Errno::ENOSYS),
    };
    set_word32(second, after)?;
    let woken = system.wake_word(first, count, ANY);
    Ok(woken + if holds { system.wake_word(second, second_count, ANY) } else { 0 })
}

/// Takes a lock that is free, or that its holder's end has freed. Returns whether it did.
fn try_lock(system: &mut System, word: u64) -> Result<bool, Errno> {
    let value = word32(word)?;
    let own = system.thread.number;
    match value & HOLDER {
        0 => {
            set_word32(word, own | value & (ORPHANED | CONTENDED))?;
            Ok(true)
        }
        holder if holder == own => Err(Errno::EDEADLK),
        holder if system.thread_of(holder).is_none() => Err(Errno::ESRCH),
        _ => Ok(false),
    }
}

/// Takes a lock, waiting for it. Waiters get it in order of arrival: with one thread running at a time there is no priority
/// inversion.
fn lock(system: &mut System, word: u64, deadline: u64) -> Result<u64, Errno> {
    if try_lock(system, word)? {
        return Ok(0);
    }
    set_word32(word, word32(word)? | CONTENDED)?;
    system.thread.futex_bits = ANY;
    let on = system.word(word);
    match system.wait(&[on], deadline, |_| None::<()>)? {
        Some(()) => Ok(0),
        None => Err(Errno::ETIMEDOUT),
    }
}

/// Gives the lock to the longest waiter.
fn unlock(system: &mut System, word: u64) -> Result<u64, Errno> {
    if word32(word)? & HOLDER != system.thread.number {
        return Err(Errno::EPERM);
    }
    let on = system.word(word);
    let waiting = system.waiters_on(on);
    let next = waiting.first().copied();
    let contended = if waiting.len() > 1 { CONTENDED } else { 0 };
    set_word32(word, next.map_or(0, |next| next | contended))?;
    if let Some(next) = next {
        system.finish_call(next, Ok(0));
    }
    Ok(0)
}

/// `set_robust_list(list, size)`.
pub fn set_robust_list(system: &mut System, [list, size, ..]: [u64; 6]) -> Result<u64, Errno> {
    const SIZE: u64 = 24;
    if size != SIZE {
        return Err(Errno::EINVAL);
    }
    system.thread.robust_list = list;
    Ok(0)
}

/// `get_robust_list(thread, list, size)`.
pub fn get_robust_list(system: &mut System, [thread, list, size, ..]: [u64; 6]) -> Result<u64, Errno> {
    const SIZE: u64 = 24;
    let number = if thread as u32 == 0 { system.thread.number } else { thread as u32 };
    let thread = system.thread_of(number).ok_or(Errno::ESRCH)?;
    let (process, head) = (thread.process, thread.robust_list);
    let is_other_users = system.files.of(process).is_some_and(|other| !system.files.own.who.may_inspect(&other.who));
    if process != system.process.number && is_other_users {
        return Err(Errno::EPERM);
    }
    crate::user::set_words(size, &[SIZE])?;
    crate::user::set_words(list, &[head])?;
    Ok(0)
}
