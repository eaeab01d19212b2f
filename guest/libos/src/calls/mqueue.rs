// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls on POSIX message queues.

use alloc::vec::Vec;

use pando_rt::clock;
use pando_rt::hypercall::NO_DEADLINE;
use pando_rt::user;

use crate::credentials::Owner;
use crate::credentials::{READ, WRITE};
use crate::errno::Errno;
use crate::files::OpenFile;
use crate::files::mqueue::{COOKIE, MessageQueue, MessageQueueId, NotificationReason, NotifyMethod, NotifyTarget};
use crate::signals::Signal;
use crate::signals::info::SigInfo;
use crate::system::System;
use crate::uapi::{
    CAP_SYS_RESOURCE, O_ACCMODE, O_CREAT, O_EXCL, O_NONBLOCK, O_RDONLY, O_RDWR, O_WRONLY, SI_MESGQ, SIGEV_NONE, SIGEV_SIGNAL, SIGEV_THREAD,
};
use crate::user::{path, set_word32, set_words, timespec, words};
use crate::wait::Channel;

/// Default number and size of a queue's messages, and the most without root.
const COUNT: u64 = 10;
const BYTES: u64 = 8192;
/// The same limits for root.
const COUNT_MAX: u64 = 65_536;
const BYTES_MAX: u64 = 16 << 20;
/// Priorities are below this.
const PRIORITIES: u64 = 32_768;
/// Most bytes of a name.
const NAME_MAX: usize = 255;

/// A queue's name, which is in no directory.
fn name(address: u64) -> Result<Vec<u8>, Errno> {
    let name = path(address)?.to_vec();
    match name[..] {
        [] => Err(Errno::ENOENT),
        _ if name.len() > NAME_MAX => Err(Errno::ENAMETOOLONG),
        _ if name.contains(&b'/') || name == b"." || name == b".." => Err(Errno::EACCES),
        _ => Ok(name),
    }
}

/// `mq_open(name, flags, mode, attributes)`.
pub fn mq_open(system: &mut System, [address, flags, mode, attributes, ..]: [u64; 6]) -> Result<u64, Errno> {
    let new_attributes = if flags & O_CREAT != 0 && attributes != 0 { Some(words::<4>(attributes)?) } else { None };
    let name = name(address)?;
    let credentials = &system.files.current.credentials;
    let id = match system.files.queues.named(&name) {
        Some(_) if flags & (O_CREAT | O_EXCL) == O_CREAT | O_EXCL => return Err(Errno::EEXIST),
        Some(id) => {
            let wanted = match flags & O_ACCMODE {
                O_RDONLY => READ,
                O_WRONLY => WRITE,
                O_RDWR => READ | WRITE,
                _ => return Err(Errno::EINVAL),
            };
            if !credentials.may(system.files.queues.get(id)?.owner, false, wanted) {
                return Err(Errno::EACCES);
            }
            id
        }
        None if flags & O_CREAT == 0 => return Err(Errno::ENOENT),
        None => {
            let (count, bytes) = new_attributes.map_or((COUNT, BYTES), |[_, count, bytes, _]| (count, bytes));
            let (count_max, bytes_max) = if credentials.is_capable(CAP_SYS_RESOURCE) { (COUNT_MAX, BYTES_MAX) } else { (COUNT, BYTES) };
            if !(1..=count_max).contains(&count) || !(1..=bytes_max).contains(&bytes) {
                return Err(Errno::EINVAL);
            }
            let permissions = (mode & !system.files.current.umask & 0o777) as u16;
            let owner = Owner { uid: credentials.user.effective, gid: credentials.group.effective, permissions };
            system.files.queues.create(name, MessageQueue::new(owner, count, bytes))?
        }
    };
    system.files.queues.open(id);
    system.files.insert(OpenFile::new(id, flags & (O_ACCMODE | O_NONBLOCK)), true)
}

/// `mq_unlink(name)`.
pub fn mq_unlink(system: &mut System, [address, ..]: [u64; 6]) -> Result<u64, Errno> {
    let name = name(address)?;
    let id = system.files.queues.named(&name).ok_or(Errno::ENOENT)?;
    if !system.files.current.credentials.owns(system.files.queues.get(id)?.owner) {
        return Err(Errno::EPERM);
    }
    system.files.queues.unlink(&name);
    Ok(0)
}

/// The deadline of a timeout, which is a time of the wall clock.
fn deadline(timeout: u64) -> Result<u64, Errno> {
    if timeout == 0 {
        return Ok(NO_DEADLINE);
    }
    Ok(clock::now().saturating_add(timespec(timeout)?.saturating_sub(clock::wall())))
}

/// Attempts an operation on a queue until it need not wait.
fn attempt<T>(
    system: &mut System,
    id: MessageQueueId,
    on: Channel,
    waits: bool,
    deadline: u64,
    mut what: impl FnMut(&mut MessageQueue) -> Result<T, Errno>,
) -> Result<T, Errno> {
    let mut ready = |system: &mut System| match system.files.queues.get_mut(id).and_then(&mut what) {
        Err(Errno::EAGAIN) => None,
        result => Some(result),
    };
    if !waits {
        return ready(system).unwrap_or(Err(Errno::EAGAIN));
    }
    system.wait(&[on], deadline, ready)?.unwrap_or(Err(Errno::ETIMEDOUT))
}

/// `mq_timedsend(fd, message, size, priority, timeout)`.
pub fn mq_timedsend(system: &mut System, [fd, address, bytes, priority, timeout, _]: [u64; 6]) -> Result<u64, Errno> {
    let deadline = deadline(timeout)?;
    let priority = u64::from(priority as u32);
    if priority >= PRIORITIES {
        return Err(Errno::EINVAL);
    }
    let id = system.files.message_queue(fd)?;
    let file = system.files.raw_file(fd)?;
    let waits = file.waits();
    if !file.writable() {
        return Err(Errno::EBADF);
    }
    let queue = system.files.queues.get(id)?;
    if bytes > queue.bytes_max {
        return Err(Errno::EMSGSIZE);
    }
    let mut message = alloc::vec![0; bytes as usize];
    user::read(address, &mut message)?;
    attempt(system, id, Channel::Messages(id.number()), waits, deadline, |queue| queue.send(message.clone(), priority as u32))?;
    let is_awaited = !system.waiters_on(Channel::Receivers(id.number())).is_empty();
    let queue = system.files.queues.get_mut(id)?;
    // A waiting receiver takes the message, and no notification is sent.
    let notify_target = if queue.count() == 1 && !is_awaited { queue.notify_target.take() } else { None };
    match notify_target {
        Some(NotifyTarget { process, notice: NotifyMethod::Signal(signal, value) }) => {
            let info = SigInfo::sent(signal, SI_MESGQ, system.process.number, system.user()).with_value(value);
            // A signal is lost if too many are pending, as on Linux.
            let _ = system.send(process, info);
        }
        Some(NotifyTarget { notice: NotifyMethod::Socket(socket, cookie), .. }) => {
            system.files.notify_by_socket(socket, cookie, NotificationReason::Message)
        }
        _ => {}
    }
    wake_all(system, id);
    Ok(0)
}

/// Wakes all threads that wait for a queue.
fn wake_all(system: &mut System, id: MessageQueueId) {
    system.wake(Channel::Messages(id.number()));
    system.wake(Channel::Receivers(id.number()));
}

/// `mq_timedreceive(fd, message, size, priority, timeout)`.
pub fn mq_timedreceive(system: &mut System, [fd, address, room, priority, timeout, _]: [u64; 6]) -> Result<u64, Errno> {
    let deadline = deadline(timeout)?;
    let id = system.files.message_queue(fd)?;
    let file = system.files.raw_file(fd)?;
    let waits = file.waits();
    if !file.readable() {
        return Err(Errno::EBADF);
    }
    if room < system.files.queues.get(id)?.bytes_max {
        return Err(Errno::EMSGSIZE);
    }
    let (found, message) = attempt(system, id, Channel::Receivers(id.number()), waits, deadline, MessageQueue::receive)?;
    wake_all(system, id);
    // If the priority cannot be written, the message is lost, as on Linux.
    if priority != 0 {
        set_word32(priority, found)?;
    }
    user::write(address, &message)?;
    Ok(message.len() as u64)
}

/// `mq_notify(fd, event)`.
pub fn mq_notify(system: &mut System, [fd, event, ..]: [u64; 6]) -> Result<u64, Errno> {
    let wanted = if event == 0 {
        None
    } else {
        let [value, kind] = words(event)?;
        match (kind >> 32) as u32 {
            // Signal number 0: none is sent.
            SIGEV_SIGNAL if kind as u32 == 0 => Some(NotifyMethod::Nothing),
            SIGEV_SIGNAL => Some(NotifyMethod::Signal(Signal::from_number(u64::from(kind as u32))?, value)),
            SIGEV_NONE => Some(NotifyMethod::Nothing),
            SIGEV_THREAD => {
                let mut cookie = [0; COOKIE];
                user::read(value, &mut cookie)?;
                Some(NotifyMethod::Socket(system.files.notice_socket(u64::from(kind as u32))?, cookie))
            }
            _ => return Err(Errno::EINVAL),
        }
    };
    let process = system.process.number;
    let id = system.files.message_queue(fd)?;
    let queue = system.files.queues.get_mut(id)?;
    match wanted {
        None => system.files.stop_listening(id, process),
        Some(_) if queue.notify_target.is_some() => return Err(Errno::EBUSY),
        Some(notice) => queue.notify_target = Some(NotifyTarget { process, notice }),
    }
    Ok(0)
}

/// `mq_getsetattr(fd, new, old)`.
pub fn mq_getsetattr(system: &mut System, [fd, new, old, ..]: [u64; 6]) -> Result<u64, Errno> {
    let new_attributes = if new == 0 { None } else { Some(words::<4>(new)?) };
    if new_attributes.is_some_and(|[flags, ..]| flags & !O_NONBLOCK != 0) {
        return Err(Errno::EINVAL);
    }
    let id = system.files.message_queue(fd)?;
    let queue = system.files.queues.get(id)?;
    let flags = system.files.raw_file(fd)?.flags & O_NONBLOCK;
    let attributes = [flags, queue.count_max, queue.bytes_max, queue.count(), 0, 0, 0, 0];
    if let Some([flags, ..]) = new_attributes {
        let file = system.files.file(fd)?;
        file.flags = file.flags & !O_NONBLOCK | flags;
    }
    if old != 0 {
        set_words(old, &attributes)?;
    }
    Ok(0)
}
