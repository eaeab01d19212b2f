// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sending and receiving messages through sockets, with their control messages.

use alloc::boxed::Box;
use alloc::vec::Vec;

use pando_rt::user::{self as memory, UserRange};

use super::ancillary::{self, ControlBuffer};
use super::file_operations::{CallOperations, IoRequest};
use super::sockets::{self, address_bytes, deadline, with_sockets, write_address};
use crate::errno::Errno;
use crate::files::socket::address::{Address, is_unspecified};
use crate::files::socket::cursor::BufferCursor;
use crate::files::socket::queue::{ControlMessage, ReceiveResult};
use crate::files::socket::transfer::{Destination, ReceiveRequest, SendRequest};
use crate::files::socket::{Family, PeerCredentials, SockType, SocketId};
use crate::system::System;
use crate::uapi::{
    MSG_CMSG_CLOEXEC, MSG_DONTWAIT, MSG_ERRQUEUE, MSG_MORE, MSG_NOSIGNAL, MSG_OOB, MSG_PEEK, MSG_TRUNC, MSG_WAITALL, MSG_WAITFORONE,
};
use crate::user::{buffer, set_word32, set_words, timespec, vectors, words};

/// Most messages that one call sends or receives.
const MESSAGES_MAX: u64 = 1024;

/// A `struct msghdr`.
#[derive(Clone, Debug)]
struct Header {
    at: u64,
    name: u64,
    name_length: u32,
    ranges: Vec<UserRange>,
    /// Its control messages.
    control: ControlBuffer,
}

impl Header {
    /// Bytes that it takes.
    const SIZE: u64 = 56;

    fn read(at: u64) -> Result<Header, Errno> {
        let [name, name_length, vector, count, control, control_length] = words(at)?;
        if count > 1024 {
            return Err(Errno::EMSGSIZE);
        }
        let name_length = name_length as u32;
        if name != 0 && name_length.cast_signed() < 0 {
            return Err(Errno::EINVAL);
        }
        let ranges = vectors(vector, count)?;
        Ok(Header {
            at,
            name,
            name_length,
            ranges,
            control: ControlBuffer { start: control, length: if control == 0 { 0 } else { control_length } },
        })
    }
}

/// A message to send.
struct OutgoingMessage<'a> {
    ranges: &'a [UserRange],
    flags: u32,
    name: Vec<u8>,
    control: ControlMessage,
}

/// The credentials of the sending process.
fn sender_credentials(system: &System) -> PeerCredentials {
    let credentials = &system.files.current.credentials;
    PeerCredentials { process: system.process.number, user: credentials.user.real, group: credentials.group.real }
}

/// The destination of a message.
fn destination(system: &mut System, id: SocketId, name: &[u8]) -> Result<Destination, Errno> {
    if name.is_empty() {
        return Ok(Destination::Connected);
    }
    let socket = system.files.sockets.get(id)?;
    let (family, socket_type) = (socket.family, socket.socket_type);
    // Connections have their destination.
    if socket_type == SockType::SeqPacket || family.is_internet() && socket_type == SockType::Stream {
        return Ok(Destination::Connected);
    }
    let mut name = name;
    let as_internet;
    if family == Family::Inet && is_unspecified(name) {
        as_internet = [&family.number().to_le_bytes()[..], &name[2..]].concat();
        name = &as_internet;
    }
    // IPv6 sockets also send to IPv4 addresses.
    let decoded = match family {
        Family::Inet6 if name.first_chunk() == Some(&Family::Inet.number().to_le_bytes()) => Address::decode(Family::Inet, name)?,
        _ => Address::decode(family, name)?,
    };
    match decoded {
        Address::Inet(to) => Ok(Destination::Inet(to)),
        Address::Link(to) => Ok(Destination::Link(to)),
        Address::Netlink(_) => Ok(Destination::Connected),
        address if socket_type == SockType::Datagram => Ok(Destination::Unix(system.files.find_socket(&address, socket_type)?)),
        // An error, for any address.
        _ => Ok(Destination::Unix(id)),
    }
}

/// Sends a message. A stream sends all of it, if it may wait.
fn send(system: &mut System, fd: u64, outgoing: OutgoingMessage<'_>) -> Result<u64, Errno> {
    let OutgoingMessage { ranges, flags, name, control } = outgoing;
    let id = system.files.socket(fd)?;
    let waits = system.files.raw_file(fd)?.waits() && flags & MSG_DONTWAIT == 0;
    let socket = system.files.sockets.get(id)?;
    let (urgent, more) = (flags & MSG_OOB != 0, flags & MSG_MORE != 0);
    if urgent && !socket.is_tcp() {
        return Err(Errno::EOPNOTSUPP);
    }
    let (family, socket_type, passes) = (socket.family, socket.socket_type, socket.options.passes_credentials);
    let until = deadline(socket.options.send_timeout);
    let length = BufferCursor::length(ranges);
    if family == Family::Netlink {
        return super::rtnetlink::send(system, id, ranges);
    }
    if family == Family::Unix && passes {
        system.files.sockets.bind_any(id)?;
    }
    let mut to = destination(system, id, &name)?;
    // Bytes that were sent before the call had to wait stay sent.
    let mut done = system.thread.call.done as usize;
    loop {
        let sent = with_sockets(system, waits, until, |system| {
            let files = &mut system.files;
            let mut cursor = BufferCursor::new(ranges, done as u64);
            let passed = if done == 0 { control.files.clone() } else { Vec::new() };
            // Messages carry credentials only if one of the sockets asks for them.
            let credentials = if control.has_credentials || files.sockets.passes_credentials(id, &to) {
                control.credentials
            } else {
                PeerCredentials::NOBODY
            };
            let control =
                ControlMessage { files: passed.clone(), credentials, has_credentials: control.has_credentials, packet: control.packet };
            let mut give = |room: &mut [u8]| cursor.fill(room);
            let sent = files.sockets.send(id, &to, SendRequest { length: length - done, control, urgent, more, give: &mut give })?;
            if family == Family::Unix && (sent > 0 || socket_type != SockType::Stream) {
                files.hold(&passed);
            }
            Ok(sent)
        });
        match sent {
            Ok(bytes) => {
                done += bytes;
                system.wake_noted();
            }
            Err(Errno::WAITS) => {
                system.thread.call.done = done as u64;
                return Err(Errno::WAITS);
            }
            // The other end of a datagram socket is gone, but somebody else may have its name by now.
            Err(Errno::ECONNREFUSED) if done == 0 && matches!(to, Destination::Unix(_)) => {
                let again = destination(system, id, &name)?;
                if again == to {
                    return Err(Errno::ECONNREFUSED);
                }
                to = again;
                continue;
            }
            Err(_) if done > 0 => return Ok(done as u64),
            Err(Errno::EPIPE) if socket_type == SockType::Stream && flags & MSG_NOSIGNAL == 0 => return Err(system.broken_pipe()),
            Err(error) => return Err(error),
        }
        if done >= length || socket_type != SockType::Stream || !waits {
            return Ok(done as u64);
        }
    }
}

/// Receives a message. A stream receives the bytes that are there, or as many as the socket or the call asks for.
fn receive(system: &mut System, fd: u64, ranges: &[UserRange], flags: u32) -> Result<ReceiveResult, Errno> {
    let id = system.files.socket(fd)?;
    let waits = system.files.raw_file(fd)?.waits() && flags & MSG_DONTWAIT == 0;
    let socket = system.files.sockets.get(id)?;
    let (socket_type, is_tcp, is_udp) = (socket.socket_type, socket.is_tcp(), socket.is_udp());
    let until = deadline(socket.options.receive_timeout);
    let peeks = flags & MSG_PEEK != 0;
    let room = BufferCursor::length(ranges);
    if flags & MSG_ERRQUEUE != 0 {
        let error = system.files.sockets.get_mut(id)?.take_queued_error().ok_or(Errno::EAGAIN)?;
        let (whole, bytes) = (error.bytes.len(), error.bytes.len().min(room));
        if BufferCursor::new(ranges, 0).put(&error.bytes[..bytes]) < bytes {
            return Err(Errno::EFAULT);
        }
        return Ok(ReceiveResult {
            bytes,
            whole,
            from: Some(error.to.clone()),
            queued_error: Some(Box::new(error)),
            ..ReceiveResult::default()
        });
    }
    if flags & MSG_OOB != 0 && !is_udp {
        let mut cursor = BufferCursor::new(ranges, 0);
        return system.files.sockets.receive_urgent(id, ReceiveRequest { room, peeks, waits, take: &mut |piece| cursor.put(piece) });
    }
    let enough = if flags & MSG_WAITALL != 0 { room } else { room.min(socket.options.low_mark as usize) };
    // Discarded bytes are not copied.
    let discards = is_tcp && flags & MSG_TRUNC != 0;
    // Bytes that were received before the call had to wait stay received.
    let before = system.thread.call.done as usize;
    let mut received = ReceiveResult { bytes: before, whole: before, ..ReceiveResult::default() };
    loop {
        let done = received.bytes;
        let found = with_sockets(system, waits, until, |system| {
            let mut cursor = BufferCursor::new(ranges, done as u64);
            let mut take = |piece: &[u8]| if discards { piece.len() } else { cursor.put(piece) };
            system.files.sockets.receive(id, ReceiveRequest { room: room - done, peeks, waits, take: &mut take })
        });
        match found {
            Ok(next) if done == 0 => received = next,
            Ok(next) => {
                received.bytes += next.bytes;
                received.whole += next.bytes;
                received.files.extend(&next.files);
                if next.bytes == 0 {
                    return Ok(received);
                }
            }
            Err(Errno::WAITS) => {
                system.thread.call.done = done as u64;
                return Err(Errno::WAITS);
            }
            Err(_) if done > 0 => return Ok(received),
            Err(error) => return Err(error),
        }
        let is_end = received.bytes == done;
        let is_at_mark = system.files.sockets.get(id)?.queue.is_at_mark();
        if is_end
            || is_at_mark
            || socket_type != SockType::Stream
            || peeks
            || !waits
            || received.bytes >= enough
            || !received.files.is_empty()
        {
            return Ok(received);
        }
    }
}

impl CallOperations for SocketId {
    fn read(&self, system: &mut System, request: IoRequest<'_>) -> Result<u64, Errno> {
        request.check_stream_read(system)?;
        read(system, request.fd, request.ranges)
    }

    fn write(&self, system: &mut System, request: IoRequest<'_>) -> Result<u64, Errno> {
        request.check_stream_write(system)?;
        write(system, request.fd, request.ranges)
    }

    fn ioctl(&self, system: &mut System, _fd: u64, request: u32, argument: u64) -> Result<u64, Errno> {
        sockets::ioctl(system, *self, request, argument)
    }
}

/// Reads from a socket.
///
/// # Errors
/// Those of `recv`.
pub fn read(system: &mut System, fd: u64, ranges: &[UserRange]) -> Result<u64, Errno> {
    if BufferCursor::length(ranges) == 0 {
        return Ok(0);
    }
    let received = receive(system, fd, ranges, 0)?;
    // A read discards passed files.
    system.files.release_passed(&received.files);
    Ok(received.bytes as u64)
}

/// Writes to a socket.
///
/// # Errors
/// Those of `send`.
pub fn write(system: &mut System, fd: u64, ranges: &[UserRange]) -> Result<u64, Errno> {
    let control = ControlMessage { credentials: sender_credentials(system), ..ControlMessage::default() };
    send(system, fd, OutgoingMessage { ranges, flags: 0, name: Vec::new(), control })
}

/// `sendto(fd, buffer, length, flags, address, address_length)`.
pub fn sendto(system: &mut System, [fd, bytes, length, flags, name, name_length]: [u64; 6]) -> Result<u64, Errno> {
    system.files.socket(fd)?;
    let ranges = [buffer(bytes, length)?];
    let name = if name == 0 { Vec::new() } else { address_bytes(name, name_length)? };
    let control = ControlMessage { credentials: sender_credentials(system), ..ControlMessage::default() };
    send(system, fd, OutgoingMessage { ranges: &ranges, flags: flags as u32, name, control })
}

/// `recvfrom(fd, buffer, length, flags, address, address_length)`.
pub fn recvfrom(system: &mut System, [fd, bytes, length, flags, name, name_length]: [u64; 6]) -> Result<u64, Errno> {
    system.files.socket(fd)?;
    let ranges = [buffer(bytes, length)?];
    let flags = flags as u32;
    let received = receive(system, fd, &ranges, flags)?;
    system.files.release_passed(&received.files);
    if name != 0 {
        write_address(&sender(system, fd, &received)?, name, name_length)?;
    }
    returned_length(system, fd, &received, flags)
}

/// The sender's address as calls return it; TCP connections return none.
fn sender(system: &System, fd: u64, received: &ReceiveResult) -> Result<Vec<u8>, Errno> {
    let socket = system.files.sockets.get(system.files.socket(fd)?)?;
    Ok(match &received.from {
        Some(Address::Unnamed) | None if socket.socket_type != SockType::Stream => Vec::new(),
        Some(from) => from.encode(),
        None if socket.is_tcp() => Vec::new(),
        None => socket.remote.as_ref().filter(|remote| **remote != Address::Unnamed).map(Address::encode).unwrap_or_default(),
    })
}

/// Number of bytes that the call returns.
fn returned_length(system: &System, fd: u64, received: &ReceiveResult, flags: u32) -> Result<u64, Errno> {
    let is_stream = system.files.sockets.get(system.files.socket(fd)?)?.socket_type == SockType::Stream;
    let whole = flags & MSG_TRUNC != 0 && !is_stream;
    Ok(if whole { received.whole } else { received.bytes } as u64)
}

fn send_header(system: &mut System, fd: u64, at: u64, flags: u64) -> Result<u64, Errno> {
    let header = Header::read(at)?;
    let name = if header.name == 0 { Vec::new() } else { address_bytes(header.name, header.name_length.min(128).into())? };
    let id = system.files.socket(fd)?;
    let control = ancillary::read(system, id, header.control, sender_credentials(system))?;
    send(system, fd, OutgoingMessage { ranges: &header.ranges, flags: flags as u32, name, control })
}

fn receive_header(system: &mut System, fd: u64, at: u64, flags: u32) -> Result<u64, Errno> {
    let header = Header::read(at)?;
    let received = receive(system, fd, &header.ranges, flags)?;
    let id = system.files.socket(fd)?;
    if flags & MSG_PEEK != 0 {
        system.files.hold(&received.files);
    }
    let (control, mut result_flags) = ancillary::write(system, id, header.control, &received, flags & MSG_CMSG_CLOEXEC != 0)?;
    if received.bytes < received.whole {
        result_flags |= MSG_TRUNC;
    }
    if received.queued_error.is_some() {
        result_flags |= MSG_ERRQUEUE;
    }
    if header.name != 0 {
        let name = sender(system, fd, &received)?;
        memory::write(header.name, &name[..name.len().min(header.name_length as usize)])?;
        set_word32(header.at.wrapping_add(8), name.len() as u32)?;
    }
    set_words(header.at.wrapping_add(40), &[control])?;
    set_word32(header.at.wrapping_add(48), result_flags | flags & MSG_CMSG_CLOEXEC)?;
    returned_length(system, fd, &received, flags)
}

/// `sendmsg(fd, message, flags)`.
pub fn sendmsg(system: &mut System, [fd, message, flags, ..]: [u64; 6]) -> Result<u64, Errno> {
    system.files.socket(fd)?;
    send_header(system, fd, message, flags)
}

/// `recvmsg(fd, message, flags)`.
pub fn recvmsg(system: &mut System, [fd, message, flags, ..]: [u64; 6]) -> Result<u64, Errno> {
    system.files.socket(fd)?;
    receive_header(system, fd, message, flags as u32)
}

/// The low bits of a call's progress count bytes of its present message; those above count messages.
const BYTES_DONE: u32 = 40;

/// Handles messages in order, each at its address, starting after those that were handled before the call had to wait. Returns the
/// number of handled ones.
fn each_message(
    system: &mut System,
    messages: u64,
    count: u64,
    mut step: impl FnMut(&mut System, u64) -> Result<u64, Errno>,
    mut goes_on: impl FnMut() -> bool,
) -> Result<u64, Errno> {
    let mut done = system.thread.call.done >> BYTES_DONE;
    system.thread.call.done &= (1 << BYTES_DONE) - 1;
    while done < u64::from(count as u32).min(MESSAGES_MAX) {
        let at = messages.wrapping_add(done * (Header::SIZE + 8));
        match step(system, at).and_then(|bytes| set_word32(at.wrapping_add(Header::SIZE), bytes as u32)) {
            Ok(()) => done += 1,
            Err(Errno::WAITS) => {
                system.thread.call.done |= done << BYTES_DONE;
                return Err(Errno::WAITS);
            }
            Err(_) if done > 0 => break,
            Err(error) => return Err(error),
        }
        system.thread.call.done = 0;
        if !goes_on() {
            break;
        }
    }
    Ok(done)
}

/// `sendmmsg(fd, messages, count, flags)`.
pub fn sendmmsg(system: &mut System, [fd, messages, count, flags, ..]: [u64; 6]) -> Result<u64, Errno> {
    system.files.socket(fd)?;
    each_message(system, messages, count, |system, at| send_header(system, fd, at, flags), || true)
}

/// `recvmmsg(fd, messages, count, flags, timeout)`.
pub fn recvmmsg(system: &mut System, [fd, messages, count, flags, timeout, _]: [u64; 6]) -> Result<u64, Errno> {
    system.files.socket(fd)?;
    let until = if timeout == 0 { u64::MAX } else { pando_rt::clock::now().saturating_add(timespec(timeout)?) };
    let flags = flags as u32;
    let mut is_first = true;
    let step = |system: &mut System, at: u64| {
        let at_once = if flags & MSG_WAITFORONE != 0 && !is_first { MSG_DONTWAIT } else { 0 };
        let received = receive_header(system, fd, at, flags & !MSG_WAITFORONE | at_once);
        is_first = false;
        received
    };
    // The timeout is checked between messages only, as on Linux.
    each_message(system, messages, count, step, || pando_rt::clock::now() < until)
}
