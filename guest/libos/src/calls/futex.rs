// SPDX-License-Identifier: MIT OR Apache-2.0
//! Futexes: waiting on [words of memory](crate::system::futex), and waking (`man 2 futex`).

use pando_rt::clock;
use pando_rt::hypercall::NO_DEADLINE;

use crate::errno::Errno;
use crate::system::System;
use crate::uapi::{
    FUTEX_BITSET_MATCH_ANY, FUTEX_CLOCK_REALTIME, FUTEX_CMD_MASK, FUTEX_CMP_REQUEUE, FUTEX_CMP_REQUEUE_PI, FUTEX_LOCK_PI, FUTEX_LOCK_PI2,
    FUTEX_OP_ADD, FUTEX_OP_ANDN, FUTEX_OP_CMP_EQ, FUTEX_OP_CMP_GE, FUTEX_OP_CMP_GT, FUTEX_OP_CMP_LE, FUTEX_OP_CMP_LT, FUTEX_OP_CMP_NE,
    FUTEX_OP_OPARG_SHIFT, FUTEX_OP_OR, FUTEX_OP_SET, FUTEX_OP_XOR, FUTEX_OWNER_DIED, FUTEX_REQUEUE, FUTEX_TID_MASK, FUTEX_TRYLOCK_PI,
    FUTEX_UNLOCK_PI, FUTEX_WAIT, FUTEX_WAIT_BITSET, FUTEX_WAIT_REQUEUE_PI, FUTEX_WAITERS, FUTEX_WAKE, FUTEX_WAKE_BITSET, FUTEX_WAKE_OP,
};
use crate::user::{set_word32, timespec, word32};
use crate::wait::Tid;

/// `futex(word, operation, value, timeout, second, bits)`.
pub fn futex(system: &mut System, [word, operation, value, timeout, second, third]: [u64; 6]) -> Result<u64, Errno> {
    if !word.is_multiple_of(4) {
        return Err(Errno::EINVAL);
    }
    system.thread.futex_lock = None;
    let (operation, count) = (u64::from(operation as u32), value as u32);
    let command = operation & FUTEX_CMD_MASK;
    let has_second = matches!(command, FUTEX_REQUEUE | FUTEX_CMP_REQUEUE | FUTEX_WAKE_OP | FUTEX_WAIT_REQUEUE_PI | FUTEX_CMP_REQUEUE_PI);
    if has_second && !second.is_multiple_of(4) {
        return Err(Errno::EINVAL);
    }
    let moves = matches!(command, FUTEX_REQUEUE | FUTEX_CMP_REQUEUE | FUTEX_CMP_REQUEUE_PI);
    if moves && (count.cast_signed() < 0 || (timeout as u32).cast_signed() < 0) {
        return Err(Errno::EINVAL);
    }
    let realtime = operation & FUTEX_CLOCK_REALTIME != 0;
    match command {
        FUTEX_WAIT => wait(system, word, count, FUTEX_BITSET_MATCH_ANY, relative(timeout)?),
        FUTEX_WAIT_BITSET if third as u32 == 0 => Err(Errno::EINVAL),
        FUTEX_WAIT_BITSET => wait(system, word, count, third as u32, absolute(timeout, realtime)?),
        FUTEX_WAKE => {
            word32(word)?;
            Ok(system.wake_word(word, count.max(1), FUTEX_BITSET_MATCH_ANY))
        }
        FUTEX_WAKE_BITSET if third as u32 == 0 => Err(Errno::EINVAL),
        FUTEX_WAKE_BITSET => Ok(system.wake_word(word, count, third as u32)),
        FUTEX_REQUEUE => Ok(requeue(system, word, second, count, timeout as u32)),
        FUTEX_CMP_REQUEUE_PI if count != 1 || word == second => Err(Errno::EINVAL),
        FUTEX_CMP_REQUEUE | FUTEX_CMP_REQUEUE_PI if word32(word)? != third as u32 => Err(Errno::EAGAIN),
        FUTEX_CMP_REQUEUE => {
            let moved = requeue(system, word, second, count, timeout as u32);
            Ok(moved)
        }
        FUTEX_WAKE_OP => wake_operation(system, [word, second], [count, timeout as u32], third as u32),
        FUTEX_LOCK_PI => lock(system, word, absolute(timeout, true)?),
        FUTEX_LOCK_PI2 => lock(system, word, absolute(timeout, realtime)?),
        FUTEX_TRYLOCK_PI => try_lock(system, word).and_then(|locked| if locked { Ok(0) } else { Err(Errno::EAGAIN) }),
        FUTEX_UNLOCK_PI => unlock(system, word),
        FUTEX_WAIT_REQUEUE_PI if word == second => Err(Errno::EINVAL),
        FUTEX_WAIT_REQUEUE_PI => wait_for_lock(system, word, count, second, absolute(timeout, realtime)?),
        FUTEX_CMP_REQUEUE_PI => requeue_to_lock(system, word, second, timeout as u32),
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
    if system.thread.call.is_restarted && clock::now() >= deadline {
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
    wait(system, word, value, FUTEX_BITSET_MATCH_ANY, deadline)
}

/// Gives a free lock to the longest waiter of a word, and requeues others, at most `moved`, to the lock. Returns how many threads
/// that were.
fn requeue_to_lock(system: &mut System, word: u64, lock_word: u64, moved: u32) -> Result<u64, Errno> {
    let (from, to) = (system.word(word), system.word(lock_word));
    let waiting = system.waiters_on(from);
    let moving = &waiting[..waiting.len().min((moved as usize).saturating_add(1))];
    let is_for_lock = |number: &Tid| system.thread_of(*number).is_some_and(|thread| thread.futex_lock == Some(lock_word));
    if !moving.iter().all(is_for_lock) {
        return Err(Errno::EINVAL);
    }
    for number in moving {
        let value = word32(lock_word)?;
        if value & FUTEX_TID_MASK == 0 {
            let contended = if system.waiters_on(to).is_empty() { 0 } else { FUTEX_WAITERS };
            set_word32(lock_word, number | value & FUTEX_OWNER_DIED | contended)?;
            system.finish_call(*number, Ok(0));
            continue;
        }
        set_word32(lock_word, value | FUTEX_WAITERS)?;
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
    let done = system.wake_word(word, woken, FUTEX_BITSET_MATCH_ANY);
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
    let extended = |bits: u32| ((bits << 20).cast_signed() >> 20) as u32;
    let (operation, comparison) = (coded >> 28, coded >> 24 & 15);
    let (mut argument, expected) = (extended(coded >> 12 & 0xfff), extended(coded & 0xfff));
    if operation & FUTEX_OP_OPARG_SHIFT != 0 {
        argument = 1u32.wrapping_shl(argument);
    }
    let before = word32(second)?;
    let after = match operation & !FUTEX_OP_OPARG_SHIFT {
        FUTEX_OP_SET => argument,
        FUTEX_OP_ADD => before.wrapping_add(argument),
        FUTEX_OP_OR => before | argument,
        FUTEX_OP_ANDN => before & !argument,
        FUTEX_OP_XOR => before ^ argument,
        _ => return Err(Errno::ENOSYS),
    };
    let (signed, expected) = (before.cast_signed(), expected.cast_signed());
    let holds = match comparison {
        FUTEX_OP_CMP_EQ => signed == expected,
        FUTEX_OP_CMP_NE => signed != expected,
        FUTEX_OP_CMP_LT => signed < expected,
        FUTEX_OP_CMP_LE => signed <= expected,
        FUTEX_OP_CMP_GT => signed > expected,
        FUTEX_OP_CMP_GE => signed >= expected,
        _ => return Err(Errno::ENOSYS),
    };
    set_word32(second, after)?;
    let woken = system.wake_word(first, count, FUTEX_BITSET_MATCH_ANY);
    Ok(woken + if holds { system.wake_word(second, second_count, FUTEX_BITSET_MATCH_ANY) } else { 0 })
}

/// Takes a lock that is free, or that its holder's end has freed. Returns whether it did.
fn try_lock(system: &mut System, word: u64) -> Result<bool, Errno> {
    let value = word32(word)?;
    let thread = system.thread.number;
    match value & FUTEX_TID_MASK {
        0 => {
            set_word32(word, thread | value & (FUTEX_OWNER_DIED | FUTEX_WAITERS))?;
            Ok(true)
        }
        holder if holder == thread => Err(Errno::EDEADLK),
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
    set_word32(word, word32(word)? | FUTEX_WAITERS)?;
    system.thread.futex_bits = FUTEX_BITSET_MATCH_ANY;
    let on = system.word(word);
    match system.wait(&[on], deadline, |_| None::<()>)? {
        Some(()) => Ok(0),
        None => Err(Errno::ETIMEDOUT),
    }
}

/// Gives the lock to the longest waiter.
fn unlock(system: &mut System, word: u64) -> Result<u64, Errno> {
    if word32(word)? & FUTEX_TID_MASK != system.thread.number {
        return Err(Errno::EPERM);
    }
    let on = system.word(word);
    let waiting = system.waiters_on(on);
    let next = waiting.first().copied();
    let contended = if waiting.len() > 1 { FUTEX_WAITERS } else { 0 };
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
    let is_other_users = system.files.of(process).is_some_and(|other| !system.files.current.credentials.may_inspect(&other.credentials));
    if process != system.process.number && is_other_users {
        return Err(Errno::EPERM);
    }
    crate::user::set_words(size, &[SIZE])?;
    crate::user::set_words(list, &[head])?;
    Ok(0)
}
