// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls on System V message queues.

use alloc::vec::Vec;

use pando_rt::hypercall::NO_DEADLINE;
use pando_rt::user;

use super::{missing_object_error, now, set_owner, words_of};
use crate::errno::Errno;
use crate::ipc::QUEUES_MAX;
use crate::ipc::objects::{READ, WRITE};
use crate::ipc::queue::{MESSAGE_MAX, Message, MessageSelector, QUEUE_BYTES, Queue};
use crate::system::System;
use crate::uapi::{
    CAP_SYS_RESOURCE, IPC_INFO, IPC_NOWAIT, IPC_RMID, IPC_SET, IPC_STAT, MSG_COPY, MSG_EXCEPT, MSG_INFO, MSG_NOERROR, MSG_STAT,
    MSG_STAT_ANY,
};
use crate::user::{set_words, words};
use crate::wait::Channel;

/// Bytes of a message's type, before its text.
const KIND: u64 = 8;

/// `msgget(key, flags)`.
pub fn msgget(system: &mut System, [key, flags, ..]: [u64; 6]) -> Result<u64, Errno> {
    let key = key as i32;
    if let Some(number) = system.ipc.queues.find(&system.files.current.credentials, key, flags, |_| true)? {
        return Ok(number);
    }
    let number = system.ipc.queues.next_number(QUEUES_MAX)?;
    system.ipc.queues.add(number, key, flags, &system.files.current.credentials, now(), Queue::default());
    Ok(number.into())
}

/// `msgsnd(queue, message, size, flags)`.
pub fn msgsnd(system: &mut System, [number, address, bytes, flags, ..]: [u64; 6]) -> Result<u64, Errno> {
    let [kind] = words(address)?;
    let kind = kind.cast_signed();
    if bytes > MESSAGE_MAX || (number as i32) < 0 || kind < 1 {
        return Err(Errno::EINVAL);
    }
    let mut content = alloc::vec![0; bytes as usize];
    user::read(address.wrapping_add(KIND), &mut content)?;
    let object = system.ipc.queues.get(number).map_err(|error| missing_object_error(system, error))?;
    object.check(&system.files.current.credentials, WRITE)?;
    let (number, process) = (object.number, system.process.number);
    let message = Message { kind, bytes: content };
    let send = |system: &mut System| {
        let queue = &mut system.ipc.queues.get_mut(number.into()).ok()?.data;
        queue.fits(bytes).then(|| queue.send(message, process, now()))
    };
    let on = Channel::Queue(number);
    let sent =
        if flags & IPC_NOWAIT != 0 { send(system) } else { system.wait(&[on], NO_DEADLINE, send).map_err(Errno::without_restart)? };
    sent.ok_or(Errno::EAGAIN)?;
    system.wake(on);
    Ok(0)
}

/// `msgrcv(queue, message, size, type, flags)`.
pub fn msgrcv(system: &mut System, [number, address, room, kind, flags, _]: [u64; 6]) -> Result<u64, Errno> {
    if (number as i32) < 0 || room.cast_signed() < 0 || flags & MSG_COPY != 0 && (flags & MSG_EXCEPT != 0 || flags & IPC_NOWAIT == 0) {
        return Err(Errno::EINVAL);
    }
    let wanted = match kind.cast_signed() {
        index if flags & MSG_COPY != 0 => MessageSelector::Copy(index),
        0 => MessageSelector::Any,
        kind if kind < 0 => MessageSelector::UpTo(kind.checked_neg().unwrap_or(i64::MAX)),
        kind if flags & MSG_EXCEPT != 0 => MessageSelector::Not(kind),
        kind => MessageSelector::Kind(kind),
    };
    let object = system.ipc.queues.get(number).map_err(|error| missing_object_error(system, error))?;
    object.check(&system.files.current.credentials, READ)?;
    let (number, process) = (object.number, system.process.number);
    let receive = |system: &mut System| {
        let queue = &mut system.ipc.queues.get_mut(number.into()).ok()?.data;
        queue.receive(wanted, room, flags & MSG_NOERROR != 0, process, now()).transpose()
    };
    let on = Channel::Queue(number);
    let received =
        if flags & IPC_NOWAIT != 0 { receive(system) } else { system.wait(&[on], NO_DEADLINE, receive).map_err(Errno::without_restart)? };
    let Message { kind, bytes } = received.ok_or(Errno::ENOMSG)??;
    system.wake(on);
    // If the buffer cannot be written, the message is lost, as on Linux.
    set_words(address, &[kind.cast_unsigned()])?;
    let text = &bytes[..bytes.len().min(room as usize)];
    user::write(address.wrapping_add(KIND), text)?;
    Ok(text.len() as u64)
}

/// `msgctl(queue, command, buffer)`.
pub fn msgctl(system: &mut System, [number, wanted, buffer, ..]: [u64; 6]) -> Result<u64, Errno> {
    if (number as i32) < 0 {
        return Err(Errno::EINVAL);
    }
    match u64::from(wanted as u32) {
        wanted @ (IPC_INFO | MSG_INFO) => write_limits(system, wanted == MSG_INFO, buffer),
        wanted @ (IPC_STAT | MSG_STAT | MSG_STAT_ANY) => {
            let object = if wanted == IPC_STAT { system.ipc.queues.get(number) } else { system.ipc.queues.at(number) }?;
            if wanted != MSG_STAT_ANY {
                object.check(&system.files.current.credentials, READ)?;
            }
            let queue = &object.data;
            let [sender, receiver] = queue.processes;
            let mut words = [0; 15];
            words[..6].copy_from_slice(&words_of(object, 0));
            let rest = [queue.times[0], queue.times[1], object.changed, queue.used, queue.count(), queue.room];
            words[6..12].copy_from_slice(&rest);
            words[12] = u64::from(sender) | u64::from(receiver) << 32;
            set_words(buffer, &words)?;
            Ok(if wanted == IPC_STAT { 0 } else { object.number.into() })
        }
        IPC_SET => {
            const ROOM: usize = 11;
            let room = words::<15>(buffer)?[ROOM];
            let object = system.ipc.queues.get_mut(number)?;
            object.check_owner(&system.files.current.credentials)?;
            if room > QUEUE_BYTES && !system.files.current.credentials.is_capable(CAP_SYS_RESOURCE) {
                return Err(Errno::EPERM);
            }
            set_owner(object, buffer)?;
            object.data.room = room;
            let number = object.number;
            system.wake(Channel::Queue(number));
            Ok(0)
        }
        IPC_RMID => {
            let object = system.ipc.queues.get(number)?;
            object.check_owner(&system.files.current.credentials)?;
            let number = object.number;
            system.ipc.queues.remove(number);
            system.finish_calls_on(Channel::Queue(number), Err(Errno::EIDRM));
            Ok(0)
        }
        _ => Err(Errno::EINVAL),
    }
}

/// Writes a `struct msginfo`: the limits, or the present usage.
fn write_limits(system: &System, used: bool, address: u64) -> Result<u64, Errno> {
    const SEGMENT_BYTES: u32 = 16;
    const SEGMENTS: u32 = 0xffff;
    let all = &system.ipc.queues;
    let (queues, room, most) = (QUEUES_MAX as u32, QUEUE_BYTES as u32, MESSAGE_MAX as u32);
    let sum = |each: fn(&Queue) -> u64| all.all().map(|object| each(&object.data)).sum::<u64>() as u32;
    let [pool, map, last] =
        if used { [all.all().count() as u32, sum(Queue::count), sum(|queue| queue.used)] } else { [queues / 1024 * room, room, room] };
    let numbers = [pool, map, most, room, queues, SEGMENT_BYTES, last, SEGMENTS];
    user::write(address, &numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>())?;
    Ok(all.last_index())
}
