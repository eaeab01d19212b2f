// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls on System V semaphores.
//!
//! A thread that changes a set completes the calls that wait for it, in order of arrival. So no later caller overtakes an earlier
//! one.

use alloc::vec::Vec;

use pando_rt::clock;
use pando_rt::hypercall::NO_DEADLINE;
use pando_rt::user;

use super::{missing_object_error, now, set_owner, words_of};
use crate::errno::Errno;
use crate::ipc::SETS_MAX;
use crate::ipc::objects::{Object, READ, WRITE};
use crate::ipc::semaphores::{Attempt, SEMAPHORES_MAX, SemaphoreOperation, Semaphores, VALUE_MAX};
use crate::pid::Pid;
use crate::system::System;
use crate::uapi::{
    GETALL, GETNCNT, GETPID, GETVAL, GETZCNT, IPC_INFO, IPC_RMID, IPC_SET, IPC_STAT, SEM_INFO, SEM_STAT, SEM_STAT_ANY, SETALL, SETVAL,
};
use crate::user::{set_words, timespec, words};
use crate::wait::{Channel, Tid};

/// Most operations of one call.
const OPERATIONS_MAX: u64 = 500;
/// Reported to `ipcs` for limits that do not exist.
const MANY: u32 = 1_024_000_000;

/// `semget(key, count, flags)`.
pub fn semget(system: &mut System, [key, count, flags, ..]: [u64; 6]) -> Result<u64, Errno> {
    let (key, count) = (key as i32, count as i32);
    let count = usize::try_from(count).ok().filter(|count| *count <= SEMAPHORES_MAX).ok_or(Errno::EINVAL)?;
    if let Some(number) = system.ipc.semaphores.find(&system.files.current.credentials, key, flags, |set| count <= set.all.len())? {
        return Ok(number);
    }
    if count == 0 {
        return Err(Errno::EINVAL);
    }
    let number = system.ipc.semaphores.next_number(SETS_MAX)?;
    system.ipc.semaphores.add(number, key, flags, &system.files.current.credentials, now(), Semaphores::new(count));
    Ok(number.into())
}

/// `semop(set, operations, count)`.
pub fn semop(system: &mut System, [number, operations, count, ..]: [u64; 6]) -> Result<u64, Errno> {
    semtimedop(system, [number, operations, count, 0, 0, 0])
}

/// `semtimedop(set, operations, count, timeout)`.
pub fn semtimedop(system: &mut System, [number, address, count, timeout, ..]: [u64; 6]) -> Result<u64, Errno> {
    if count > u64::from(u32::MAX) || count as u32 as u64 > OPERATIONS_MAX {
        return Err(Errno::E2BIG);
    }
    let operations =
        (0..count).map(|index| operation(address.wrapping_add(index * 6))).collect::<Result<Vec<SemaphoreOperation>, Errno>>()?;
    if operations.is_empty() || (number as i32) < 0 {
        return Err(Errno::EINVAL);
    }
    let deadline = if timeout == 0 { NO_DEADLINE } else { clock::now().saturating_add(timespec(timeout)?) };
    let object = system.ipc.semaphores.get(number).map_err(|error| missing_object_error(system, error))?;
    if operations.iter().any(|operation| usize::from(operation.index) >= object.data.all.len()) {
        return Err(Errno::EFBIG);
    }
    let changes = operations.iter().any(|operation| operation.change != 0);
    object.check(&system.files.current.credentials, if changes { WRITE } else { READ })?;
    let (number, thread) = (object.number, system.thread.number);
    system.thread.operations = operations;
    let done = system.wait(&[Channel::Semaphores(number)], deadline, |system| {
        let result = system.attempt(number, thread)?;
        system.serve_semaphores(number);
        Some(result)
    });
    match done {
        Ok(Some(result)) => result,
        Ok(None) => Err(Errno::EAGAIN),
        Err(error) => Err(error.without_restart()),
    }
}

fn operation(address: u64) -> Result<SemaphoreOperation, Errno> {
    let mut bytes = [0; 6];
    user::read(address, &mut bytes)?;
    let word = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
    Ok(SemaphoreOperation { index: word(0), change: word(2).cast_signed(), flags: word(4).cast_signed() })
}

impl System {
    /// Attempts the pending operations of a thread. `None`: it has to wait.
    fn attempt(&mut self, number: u32, thread: Tid) -> Option<Result<u64, Errno>> {
        let thread = self.thread_of_mut(thread)?;
        let (process, operations) = (thread.process, core::mem::take(&mut thread.operations));
        let thread = thread.number;
        let set = &mut self.ipc.semaphores.get_mut(number.into()).ok()?.data;
        match set.attempt(&operations, process) {
            Ok(Attempt::Done) => {
                set.operated = now();
                Some(Ok(0))
            }
            Ok(Attempt::Waits(_)) => {
                self.thread_of_mut(thread)?.operations = operations;
                None
            }
            Err(error) => Some(Err(error)),
        }
    }

    /// Completes the waiting calls that a change of a set permits.
    fn serve_semaphores(&mut self, number: u32) {
        let on = Channel::Semaphores(number);
        // One thread's operations may let an earlier one continue.
        while let Some((thread, result)) = self.waiters_on(on).into_iter().find_map(|thread| Some((thread, self.attempt(number, thread)?)))
        {
            self.finish_call(thread, result);
        }
    }

    /// Applies the undo values of the running process, which ends (`SEM_UNDO`).
    pub(crate) fn undo_semaphores(&mut self) {
        let process = self.process.number;
        let undone = self.ipc.semaphores.all_mut().filter_map(|object| object.data.undo(process).then_some(object.number));
        for number in undone.collect::<Vec<u32>>() {
            self.serve_semaphores(number);
        }
    }

    /// Number of threads that wait for a semaphore to become zero, or to grow.
    fn waiting_for(&mut self, number: u32, index: u64, zero: bool) -> u64 {
        let mut count = 0;
        for thread in self.waiters_on(Channel::Semaphores(number)) {
            let Some((process, operations)) = self.thread_of(thread).map(|thread| (thread.process, thread.operations.clone())) else {
                continue;
            };
            let Ok(object) = self.ipc.semaphores.get_mut(number.into()) else { continue };
            // It waits, so the attempt changes nothing.
            if let Ok(Attempt::Waits(first)) = object.data.attempt(&operations, process) {
                count += u64::from(u64::from(first.index) == index && (first.change == 0) == zero);
            }
        }
        count
    }
}

/// `semctl(set, index, command, argument)`.
pub fn semctl(system: &mut System, [number, index, wanted, argument, ..]: [u64; 6]) -> Result<u64, Errno> {
    if (number as i32) < 0 {
        return Err(Errno::EINVAL);
    }
    let index = u64::from(index as u32);
    match u64::from(wanted as u32) {
        wanted @ (IPC_INFO | SEM_INFO) => write_limits(system, wanted == SEM_INFO, argument),
        wanted @ (IPC_STAT | SEM_STAT | SEM_STAT_ANY) => {
            let object = if wanted == IPC_STAT { system.ipc.semaphores.get(number) } else { system.ipc.semaphores.at(number) }?;
            if wanted != SEM_STAT_ANY {
                object.check(&system.files.current.credentials, READ)?;
            }
            set_words(argument, &status(object))?;
            Ok(if wanted == IPC_STAT { 0 } else { object.number.into() })
        }
        IPC_SET => {
            words::<13>(argument)?;
            let object = system.ipc.semaphores.get_mut(number)?;
            object.check_owner(&system.files.current.credentials)?;
            set_owner(object, argument).map(|()| 0)
        }
        IPC_RMID => {
            let object = system.ipc.semaphores.get(number)?;
            object.check_owner(&system.files.current.credentials)?;
            let number = object.number;
            system.ipc.semaphores.remove(number);
            system.finish_calls_on(Channel::Semaphores(number), Err(Errno::EIDRM));
            Ok(0)
        }
        SETVAL => {
            let value = Some(argument as i32).filter(|value| (0..=VALUE_MAX).contains(value)).ok_or(Errno::ERANGE)?;
            let object = system.ipc.semaphores.get(number)?;
            let index = index_of(object, index)?;
            object.check(&system.files.current.credentials, WRITE)?;
            set_values(system, number, index, &[value])
        }
        SETALL => {
            let object = system.ipc.semaphores.get(number)?;
            object.check(&system.files.current.credentials, WRITE)?;
            let values = values_at(argument, object.data.all.len())?;
            set_values(system, number, 0, &values)
        }
        wanted @ (GETPID | GETVAL | GETALL | GETNCNT | GETZCNT) => {
            let object = system.ipc.semaphores.get(number)?;
            object.check(&system.files.current.credentials, READ)?;
            if wanted == GETALL {
                let bytes = object.data.all.iter().flat_map(|semaphore| (semaphore.value as u16).to_le_bytes()).collect::<Vec<u8>>();
                return Ok(user::write(argument, &bytes).map(|()| 0)?);
            }
            let (semaphore, number) = (object.data.all[index_of(object, index)?], object.number);
            Ok(match wanted {
                GETPID => semaphore.changed_by.into(),
                GETVAL => semaphore.value as u64,
                _ => system.waiting_for(number, index, wanted == GETZCNT),
            })
        }
        _ => Err(Errno::EINVAL),
    }
}

/// The words of a `struct semid_ds`.
fn status(object: &Object<Semaphores>) -> [u64; 13] {
    let mut words = [0; 13];
    words[..6].copy_from_slice(&words_of(object, 0));
    (words[6], words[8], words[10]) = (object.data.operated, object.changed, object.data.all.len() as u64);
    words
}

/// The index of a semaphore in its set.
fn index_of(object: &Object<Semaphores>, index: u64) -> Result<usize, Errno> {
    if index < object.data.all.len() as u64 { Ok(index as usize) } else { Err(Errno::EINVAL) }
}

/// Reads `count` values from the program's memory.
fn values_at(address: u64, count: usize) -> Result<Vec<i32>, Errno> {
    let mut bytes = alloc::vec![0; 2 * count];
    user::read(address, &mut bytes)?;
    let values: Vec<i32> = bytes.chunks_exact(2).map(|pair| i32::from(u16::from_le_bytes([pair[0], pair[1]]))).collect();
    if values.iter().all(|value| *value <= VALUE_MAX) { Ok(values) } else { Err(Errno::ERANGE) }
}

fn set_values(system: &mut System, number: u64, first: usize, values: &[i32]) -> Result<u64, Errno> {
    let process: Pid = system.process.number;
    let object = system.ipc.semaphores.get_mut(number)?;
    object.data.set(first, values, process);
    object.changed = now();
    let number = object.number;
    system.serve_semaphores(number);
    Ok(0)
}

/// Writes a `struct seminfo`: the limits, or the present usage.
fn write_limits(system: &System, used: bool, address: u64) -> Result<u64, Errno> {
    const BYTES_OF_UNDOING: u32 = 20;
    let all = &system.ipc.semaphores;
    let (sets, count) = (all.all().count() as u32, all.all().map(|object| object.data.all.len() as u32).sum());
    let last = if used { [sets, VALUE_MAX as u32, count] } else { [BYTES_OF_UNDOING, VALUE_MAX as u32, VALUE_MAX as u32] };
    let operations = OPERATIONS_MAX as u32;
    let numbers = [MANY, SETS_MAX as u32, MANY, MANY, SEMAPHORES_MAX as u32, operations, operations, last[0], last[1], last[2]];
    user::write(address, &numbers.map(u32::to_le_bytes).concat())?;
    Ok(all.last_index())
}
