// SPDX-License-Identifier: MIT OR Apache-2.0
//! Control messages (`cmsg`): passed files, credentials of senders, and properties of packets.

use alloc::vec::Vec;
use core::net::IpAddr;

use pando_rt::{clock, user as memory};

use crate::errno::Errno;
use crate::files::socket::error_queue::{SocketError, host_address};
use crate::files::socket::queue::{ControlMessage, Packet, ReceiveResult};
use crate::files::socket::{Family, PeerCredentials, Socket, SocketId};
use crate::system::System;
use crate::uapi::{
    CAP_SETGID, CAP_SETUID, CAP_SYS_ADMIN, IP_PKTINFO, IP_RECVERR, IP_RECVTOS, IP_RECVTTL, IP_TOS, IP_TTL, IPV6_2292HOPLIMIT,
    IPV6_HOPLIMIT, IPV6_PKTINFO, IPV6_RECVERR, IPV6_RECVHOPLIMIT, IPV6_RECVPKTINFO, IPV6_RECVTCLASS, IPV6_TCLASS, MSG_CTRUNC,
    PACKET_AUXDATA, SCM_CREDENTIALS, SCM_RIGHTS, SO_TIMESTAMP_OLD, SO_TIMESTAMPNS_OLD, SOL_IP, SOL_IPV6, SOL_PACKET, SOL_SOCKET,
    TP_STATUS_CSUMNOTREADY, TP_STATUS_USER,
};
use crate::user::{NANOSECONDS, set_words, word32, words};

/// Most open files that one message carries.
const FILES_MAX: usize = 253;
/// Most bytes of control messages.
const CONTROL_MAX: u64 = 20480;
/// Bytes of a `struct cmsghdr`: length, level and type.
const HEADER: usize = 16;
/// Bytes of a `struct ucred`.
const UCRED_SIZE: usize = 12;

/// An application's buffer for control messages.
#[derive(Clone, Copy, Debug)]
pub(super) struct ControlBuffer {
    /// Its address.
    pub start: u64,
    /// Its bytes.
    pub length: u64,
}

/// Reads the control messages of a message that this process sends.
///
/// # Errors
/// `EINVAL`: they are invalid. `EBADF`: no such file. `EPERM`: the credentials are not the process's. `ENOBUFS`, `EFAULT`.
pub(super) fn read(system: &System, id: SocketId, from: ControlBuffer, sender: PeerCredentials) -> Result<ControlMessage, Errno> {
    let mut control = ControlMessage { credentials: sender, ..ControlMessage::default() };
    if from.length > CONTROL_MAX {
        return Err(Errno::ENOBUFS);
    }
    let family = system.files.sockets.get(id)?.family;
    let mut at = 0;
    while at + HEADER as u64 <= from.length {
        let address = from.start.wrapping_add(at);
        let [length, kind] = words(address)?;
        if length < HEADER as u64 || length > from.length - at {
            return Err(Errno::EINVAL);
        }
        let (of, kind) = (kind as u32, (kind >> 32) as u32);
        let payload = ControlBuffer { start: address.wrapping_add(HEADER as u64), length: length - HEADER as u64 };
        match (family, of, kind) {
            (Family::Unix, SOL_SOCKET, SCM_RIGHTS) => pass(system, &mut control, payload)?,
            (Family::Unix, SOL_SOCKET, SCM_CREDENTIALS) if payload.length == UCRED_SIZE as u64 => {
                (control.credentials, control.has_credentials) = (sent_credentials(system, payload)?, true);
            }
            (Family::Unix, SOL_SOCKET, _) => return Err(Errno::EINVAL),
            (Family::Inet6, SOL_IPV6, IPV6_HOPLIMIT) | (Family::Inet, SOL_IP, IP_TTL) => {
                control.packet.hops = Some(number(payload, -1, 255)?);
            }
            (Family::Inet6, SOL_IPV6, IPV6_TCLASS) => control.packet.class = Some(number(payload, -1, 255)?),
            (Family::Inet, SOL_IP, IP_TOS) if payload.length == 4 => control.packet.class = Some(number(payload, 0, 255)?),
            _ => {}
        }
        at += length.next_multiple_of(8);
    }
    Ok(control)
}

/// A number within bounds; -1 means the default.
fn number(payload: ControlBuffer, min: i32, max: i32) -> Result<i32, Errno> {
    if payload.length != 4 {
        return Err(Errno::EINVAL);
    }
    Some(word32(payload.start)?.cast_signed()).filter(|number| (min..=max).contains(number)).ok_or(Errno::EINVAL)
}

/// Adds the passed files.
fn pass(system: &System, control: &mut ControlMessage, payload: ControlBuffer) -> Result<(), Errno> {
    let count = payload.length / 4;
    if control.files.len() + count as usize > FILES_MAX {
        return Err(Errno::EINVAL);
    }
    for index in 0..count {
        let passed = word32(payload.start.wrapping_add(index * 4))?;
        control.files.push(system.files.to_pass(passed.into())?);
    }
    Ok(())
}

/// The credentials that a process sends: its own, unless its capabilities permit others.
fn sent_credentials(system: &System, payload: ControlBuffer) -> Result<PeerCredentials, Errno> {
    let [number, user, group] = [0, 4, 8].map(|offset| word32(payload.start.wrapping_add(offset)));
    let sent = PeerCredentials { process: number?, user: user?, group: group? };
    let credentials = &system.files.current.credentials;
    let may = |is_true: bool, capability| is_true || credentials.is_capable(capability);
    let all = may(sent.process == system.process.number, CAP_SYS_ADMIN)
        && may(credentials.user.has(sent.user), CAP_SETUID)
        && may(credentials.group.has(sent.group), CAP_SETGID);
    if all { Ok(sent) } else { Err(Errno::EPERM) }
}

/// Writes control messages, as far as there is room.
struct Writer {
    room: ControlBuffer,
    /// Bytes that were written.
    at: u64,
    /// Something did not fit.
    cut: bool,
}

impl Writer {
    fn left(&self) -> u64 {
        self.room.length - self.at
    }

    fn put(&mut self, of: u32, kind: u32, payload: &[u8]) -> Result<(), Errno> {
        let (whole, left) = ((HEADER + payload.len()) as u64, self.left());
        let length = whole.min(left);
        self.cut |= length < whole;
        if left < HEADER as u64 {
            return Ok(());
        }
        let address = self.room.start.wrapping_add(self.at);
        set_words(address, &[length, u64::from(of) | u64::from(kind) << 32])?;
        memory::write(address.wrapping_add(HEADER as u64), &payload[..length as usize - HEADER])?;
        self.at += whole.next_multiple_of(8).min(left);
        Ok(())
    }
}

/// Writes a message's control messages, as far as there is room. Returns their bytes, and [`MSG_CTRUNC`] if they did not fit.
///
/// # Errors
/// `EFAULT`.
pub(super) fn write(
    system: &mut System,
    id: SocketId,
    room: ControlBuffer,
    received: &ReceiveResult,
    close_on_exec: bool,
) -> Result<(u64, u32), Errno> {
    let mut writer = Writer { room, at: 0, cut: false };
    let socket = system.files.sockets.get(id)?;
    if socket.family == Family::Unix && socket.options.passes_credentials {
        // The sender of a message from before the option was set is unknown.
        let PeerCredentials { process, user, group } = received.credentials.unwrap_or_default();
        writer.put(SOL_SOCKET, SCM_CREDENTIALS, &[process, user, group].map(u32::to_le_bytes).concat())?;
    }
    if socket.family.is_internet() && !socket.is_tcp() {
        match &received.queued_error {
            Some(error) => write_queued_error(&mut writer, socket, error)?,
            None => write_packet(&mut writer, socket, &received.packet)?,
        }
    }
    if socket.family == Family::Packet {
        write_time(&mut writer, socket, received.packet.time)?;
        if socket.stored_option(SOL_PACKET, PACKET_AUXDATA).is_some_and(|value| value != 0) {
            // Cells compute no checksums for each other, so received packets may have none.
            let [whole, bytes] = [received.whole, received.bytes].map(|length| (length as u32).to_le_bytes());
            writer.put(
                SOL_PACKET,
                PACKET_AUXDATA,
                &[&(TP_STATUS_USER | TP_STATUS_CSUMNOTREADY).to_le_bytes()[..], &whole, &bytes, &[0; 8]].concat(),
            )?;
        }
    }
    if !received.files.is_empty() {
        let most = (writer.left().saturating_sub(HEADER as u64) / 4) as usize;
        let mut numbers = Vec::new();
        let mut left = &received.files[..];
        while let Some((file, rest)) = left.split_first().filter(|_| numbers.len() / 4 < most) {
            let Ok(fd) = system.files.receive_passed(*file, close_on_exec) else { break };
            numbers.extend((fd as u32).to_le_bytes());
            left = rest;
        }
        writer.cut |= !left.is_empty();
        system.files.release_passed(left);
        if !numbers.is_empty() {
            writer.put(SOL_SOCKET, SCM_RIGHTS, &numbers)?;
        }
    }
    Ok((writer.at, if writer.cut { MSG_CTRUNC } else { 0 }))
}

/// Writes a queued error: `struct sock_extended_err` and the offender's address.
fn write_queued_error(writer: &mut Writer, socket: &Socket, queued: &SocketError) -> Result<(), Errno> {
    let SocketError { error, origin, kind, code, mtu, offender, .. } = queued;
    let of = if socket.family == Family::Inet6 { (SOL_IPV6, IPV6_RECVERR) } else { (SOL_IP, IP_RECVERR) };
    let error = [&(*error as u32).to_le_bytes()[..], &[*origin, *kind, *code, 0], &mtu.to_le_bytes(), &[0; 4]];
    writer.put(of.0, of.1, &[&error.concat()[..], &host_address(socket.family, *offender).encode()].concat())
}

/// Writes the time at which a packet arrived, if the socket asks for it. Packets from before it asked get the present time.
fn write_time(writer: &mut Writer, socket: &Socket, time: Option<u64>) -> Result<(), Errno> {
    let is_set = |option: u32| socket.stored_option(SOL_SOCKET, option).is_some_and(|value| value != 0);
    let time = time.unwrap_or_else(clock::wall);
    let (seconds, rest) = (time / NANOSECONDS, time % NANOSECONDS);
    if is_set(SO_TIMESTAMPNS_OLD) {
        writer.put(SOL_SOCKET, SO_TIMESTAMPNS_OLD, &[seconds, rest].map(u64::to_le_bytes).concat())
    } else if is_set(SO_TIMESTAMP_OLD) {
        writer.put(SOL_SOCKET, SO_TIMESTAMP_OLD, &[seconds, rest / 1000].map(u64::to_le_bytes).concat())
    } else {
        Ok(())
    }
}

/// Writes the properties of a packet that the socket asks for.
fn write_packet(writer: &mut Writer, socket: &Socket, packet: &Packet) -> Result<(), Errno> {
    write_time(writer, socket, packet.time)?;
    let is_set = |of: u32, option: u32| socket.stored_option(of, option).is_some_and(|value| value != 0);
    let [hops, class] = [packet.hops.unwrap_or_default(), packet.class.unwrap_or_default()];
    let index = packet.by.to_le_bytes();
    match (socket.family, packet.to) {
        (Family::Inet, Some(IpAddr::V4(to))) => {
            if is_set(SOL_IP, IP_PKTINFO) {
                writer.put(SOL_IP, IP_PKTINFO, &[index, to.octets(), to.octets()].concat())?;
            }
            if is_set(SOL_IP, IP_RECVTTL) {
                writer.put(SOL_IP, IP_TTL, &hops.to_le_bytes())?;
            }
            if is_set(SOL_IP, IP_RECVTOS) {
                writer.put(SOL_IP, IP_TOS, &[class as u8])?;
            }
        }
        (Family::Inet6, Some(to)) => {
            if is_set(SOL_IPV6, IPV6_RECVPKTINFO) {
                let to = match to {
                    IpAddr::V4(to) => to.to_ipv6_mapped(),
                    IpAddr::V6(to) => to,
                };
                writer.put(SOL_IPV6, IPV6_PKTINFO, &[&to.octets()[..], &index].concat())?;
            }
            if is_set(SOL_IPV6, IPV6_RECVHOPLIMIT) {
                writer.put(SOL_IPV6, IPV6_HOPLIMIT, &hops.to_le_bytes())?;
            }
            if is_set(SOL_IPV6, IPV6_2292HOPLIMIT) {
                writer.put(SOL_IPV6, IPV6_2292HOPLIMIT, &hops.to_le_bytes())?;
            }
            if is_set(SOL_IPV6, IPV6_RECVTCLASS) {
                writer.put(SOL_IPV6, IPV6_TCLASS, &class.to_le_bytes())?;
            }
        }
        _ => {}
    }
    Ok(())
}
