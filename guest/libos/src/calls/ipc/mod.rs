// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls on System V shared memory, semaphores and message queues.

pub mod memory;
pub mod messages;
pub mod semaphores;

use pando_rt::clock;

use crate::errno::Errno;
use crate::ipc::objects::Object;
use crate::system::System;
use crate::user::{NANOSECONDS, words};

/// The error of a call that finds no object; `EIDRM` for one that has waited for it.
fn missing_object_error(system: &System, error: Errno) -> Errno {
    if system.thread.call.is_restarted { Errno::EIDRM } else { error }
}

/// Seconds since 1970.
fn now() -> u64 {
    clock::wall() / NANOSECONDS
}

/// Converts to the words of a `struct ipc64_perm`.
fn words_of<T>(object: &Object<T>, flags: u32) -> [u64; 6] {
    let Object { key, owner: [user, group], maker: [maker, makers_group], permissions, .. } = object;
    let two = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
    [two(key.cast_unsigned(), *user), two(*group, *maker), two(*makers_group, permissions | flags), object.sequence().into(), 0, 0]
}

/// Sets an object's owner and permissions from the program's structure.
fn set_owner<T>(object: &mut Object<T>, address: u64) -> Result<(), Errno> {
    let [user, group, mode] = words(address)?;
    let (user, group, mode) = ((user >> 32) as u32, group as u32, (mode >> 32) as u32);
    if user == u32::MAX || group == u32::MAX {
        return Err(Errno::EINVAL);
    }
    (object.owner, object.permissions, object.changed) = ([user, group], mode & 0o777, now());
    Ok(())
}
