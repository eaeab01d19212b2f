// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls that create, bind and connect sockets, and set their options.

use alloc::vec;
use alloc::vec::Vec;

use pando_rt::hypercall::NO_DEADLINE;
use pando_rt::{clock, user as memory};

use super::blocking::with_timeout;
use super::interfaces::{name_of_number, number_of};
use super::netdevice;
use crate::errno::Errno;
use crate::files::socket::address::{ADDRESS_MAX, Address, is_unspecified};
use crate::files::socket::bpf::{INSTRUCTION, PacketFilter};
use crate::files::socket::options::Value;
use crate::files::socket::{Family, PeerCredentials, SockType, Socket, SocketId};
use crate::files::status::time;
use crate::system::System;
use crate::uapi::{
    AF_INET, AF_INET6, AF_NETLINK, AF_PACKET, AF_UNIX, CAP_NET_ADMIN, CAP_NET_BIND_SERVICE, CAP_NET_RAW, FIONREAD, ICMP_FILTER, IFNAMSIZ,
    IP_ADD_MEMBERSHIP, IP_DROP_MEMBERSHIP, IP_MULTICAST_IF, IP_OPTIONS, IPPROTO_ICMP, IPPROTO_ICMPV6, IPPROTO_RAW, IPPROTO_TCP,
    IPPROTO_UDP, IPPROTO_UDPLITE, IPV6_ADD_MEMBERSHIP, IPV6_DROP_MEMBERSHIP, NETLINK_ADD_MEMBERSHIP, O_CLOEXEC, O_NONBLOCK,
    PACKET_ADD_MEMBERSHIP, SIOCATMARK, SO_ATTACH_FILTER, SO_BINDTODEVICE, SO_DETACH_FILTER, SO_LOCK_FILTER, SO_RCVTIMEO_OLD,
    SO_SNDTIMEO_OLD, SOCK_DGRAM, SOCK_PACKET, SOCK_RAW, SOCK_SEQPACKET, SOCK_STREAM, SOCK_TYPE_MASK, SOL_IP, SOL_IPV6, SOL_NETLINK,
    SOL_PACKET, SOL_SOCKET, SOL_TCP, SOL_UDP, TCP_CONGESTION, TCP_ULP, TIOCOUTQ, UDP_CORK,
};
use crate::user::{NANOSECONDS, set_word32, set_words, word32, words};
use crate::wait::Channel;

/// Flags of a type.
const FLAGS: u64 = O_NONBLOCK | O_CLOEXEC;

/// The process's credentials, for the other end of a connection.
fn peer_credentials(system: &System) -> PeerCredentials {
    let credentials = &system.files.current.credentials;
    PeerCredentials { process: system.process.number, user: credentials.user.effective, group: credentials.group.effective }
}

/// Decodes the family, type and protocol of a new socket.
fn wanted(family: u64, socket_type: u64, protocol: u64) -> Result<(Family, SockType, u32), Errno> {
    let socket_type = socket_type & u64::from(u32::MAX);
    if socket_type & !(SOCK_TYPE_MASK | FLAGS) != 0 || socket_type & SOCK_TYPE_MASK > u64::from(SOCK_PACKET) {
        return Err(Errno::EINVAL);
    }
    let socket_type = (socket_type & SOCK_TYPE_MASK) as u32;
    let protocol = protocol as u32;
    let named = match socket_type {
        SOCK_STREAM => Some(SockType::Stream),
        SOCK_DGRAM => Some(SockType::Datagram),
        SOCK_SEQPACKET => Some(SockType::SeqPacket),
        _ => None,
    };
    let family = u16::try_from(family as u32).map_err(|_| Errno::EAFNOSUPPORT)?;
    match (family, named, protocol) {
        (AF_UNIX, _, 2..) => Err(Errno::EPROTONOSUPPORT),
        (AF_UNIX, Some(socket_type), protocol) => Ok((Family::Unix, socket_type, protocol)),
        // `SOCK_RAW` of this family means datagrams, as on Linux.
        (AF_UNIX, None, protocol) if socket_type == SOCK_RAW => Ok((Family::Unix, SockType::Datagram, protocol)),
        (AF_INET, Some(SockType::Datagram), IPPROTO_ICMP) => Ok((Family::Inet, SockType::Datagram, protocol)),
        (AF_INET6, Some(SockType::Datagram), IPPROTO_ICMPV6) => Ok((Family::Inet6, SockType::Datagram, protocol)),
        (AF_INET, None, IPPROTO_ICMP) if socket_type == SOCK_RAW => Ok((Family::Inet, SockType::Raw, protocol)),
        // Programs use such a socket only for requests about interfaces.
        (AF_INET, None, IPPROTO_RAW) if socket_type == SOCK_RAW => Ok((Family::Inet, SockType::Raw, protocol)),
        (AF_INET6, None, IPPROTO_ICMPV6) if socket_type == SOCK_RAW => Ok((Family::Inet6, SockType::Raw, protocol)),
        (AF_INET | AF_INET6, Some(socket_type @ (SockType::Stream | SockType::Datagram)), protocol) => {
            let usual = if socket_type == SockType::Stream { IPPROTO_TCP } else { IPPROTO_UDP };
            let family = if family == AF_INET { Family::Inet } else { Family::Inet6 };
            match protocol {
                0 => Ok((family, socket_type, usual)),
                _ if protocol == usual || socket_type == SockType::Datagram && protocol == IPPROTO_UDPLITE => {
                    Ok((family, socket_type, protocol))
                }
                _ => Err(Errno::EPROTONOSUPPORT),
            }
        }
        // Other raw sockets do not exist: only those of ICMP.
        (AF_INET | AF_INET6, None, _) if socket_type == SOCK_RAW => Err(Errno::EPROTONOSUPPORT),
        (AF_PACKET, None, kind) if socket_type == SOCK_RAW => Ok((Family::Packet, SockType::Raw, (kind as u16).swap_bytes().into())),
        (AF_PACKET, Some(SockType::Datagram), kind) => Ok((Family::Packet, SockType::Datagram, (kind as u16).swap_bytes().into())),
        (AF_UNIX | AF_INET | AF_INET6, ..) => Err(Errno::ESOCKTNOSUPPORT),
        (AF_NETLINK, _, protocol) if socket_type == SOCK_RAW || socket_type == SOCK_DGRAM => {
            if protocol == 0 {
                Ok((Family::Netlink, SockType::Datagram, protocol))
            } else {
                Err(Errno::EPROTONOSUPPORT)
            }
        }
        _ => Err(Errno::EAFNOSUPPORT),
    }
}

/// `socket(family, type, protocol)`.
pub fn socket(system: &mut System, [family, socket_type, protocol, ..]: [u64; 6]) -> Result<u64, Errno> {
    let (family, shape, protocol) = wanted(family, socket_type, protocol)?;
    let credentials = &system.files.current.credentials;
    let is_raw = family.is_internet() && shape == SockType::Raw || family == Family::Packet;
    if is_raw && !credentials.is_capable(CAP_NET_RAW) {
        return Err(Errno::EPERM);
    }
    let asks_echoes = shape == SockType::Datagram && family.is_internet() && matches!(protocol, IPPROTO_ICMP | IPPROTO_ICMPV6);
    // The usual setting of distributions for `net.ipv4.ping_group_range`.
    if asks_echoes && credentials.group.effective > i32::MAX as u32 {
        return Err(Errno::EACCES);
    }
    let credentials = peer_credentials(system);
    let id = system.files.sockets.open(family, shape, protocol, credentials)?;
    system.files.insert_socket(id, socket_type)
}

/// `socketpair(family, type, protocol, pair)`.
pub fn socketpair(system: &mut System, [family, socket_type, protocol, pair, ..]: [u64; 6]) -> Result<u64, Errno> {
    let (family, shape, protocol) = wanted(family, socket_type, protocol)?;
    if family != Family::Unix {
        return Err(Errno::EOPNOTSUPP);
    }
    let credentials = peer_credentials(system);
    let files = &mut system.files;
    let [first, second] = files.sockets.pair(shape, protocol, credentials)?;
    let one = files.insert_socket(first, socket_type).inspect_err(|_| {
        files.sockets.close(second);
    })?;
    let other = files.insert_socket(second, socket_type);
    let written = other.and_then(|other| set_words(pair, &[one | other << 32]));
    if written.is_err() {
        files.close(one)?;
        if let Ok(other) = other {
            files.close(other)?;
        }
    }
    written.map(|()| 0)
}

/// Reads the bytes of an address.
pub(super) fn address_bytes(address: u64, length: u64) -> Result<Vec<u8>, Errno> {
    let length = length as u32 as usize;
    if length > ADDRESS_MAX {
        return Err(Errno::EINVAL);
    }
    let mut bytes = vec![0; length];
    memory::read(address, &mut bytes)?;
    Ok(bytes)
}

/// Writes an address, truncated to the application's buffer, and its whole length.
pub(super) fn write_address(bytes: &[u8], address: u64, length: u64) -> Result<(), Errno> {
    let room = word32(length)?.cast_signed();
    let room = usize::try_from(room).map_err(|_| Errno::EINVAL)?;
    memory::write(address, &bytes[..bytes.len().min(room)])?;
    set_word32(length, bytes.len() as u32)
}

/// `bind(fd, address, length)`.
pub fn bind(system: &mut System, [fd, address, length, ..]: [u64; 6]) -> Result<u64, Errno> {
    const UNIX_AUTO: usize = 2;
    let id = system.files.socket(fd)?;
    let bytes = address_bytes(address, length)?;
    let files = &mut system.files;
    let socket = files.sockets.get(id)?;
    let family = socket.family;
    if family == Family::Unix && bytes.len() == UNIX_AUTO && bytes == family.number().to_le_bytes() {
        return files.sockets.bind_any(id).map(|()| 0);
    }
    // The unspecified IPv4 address is accepted without a family.
    let mut bytes = bytes;
    if family == Family::Inet && is_unspecified(&bytes) && bytes.get(4..8) == Some(&[0; 4]) {
        bytes[..2].copy_from_slice(&family.number().to_le_bytes());
    }
    match Address::decode(family, &bytes)? {
        Address::Inet(address) => {
            let may_be_low = files.current.credentials.is_capable(CAP_NET_BIND_SERVICE);
            files.sockets.bind_port(id, address, may_be_low)?;
        }
        Address::Link(link) => files.sockets.bind_link(id, link)?,
        Address::Netlink(number) => {
            let number = if number == 0 { system.process.number } else { number };
            files.sockets.get_mut(id)?.local = Address::Netlink(number);
        }
        address => files.bind_socket(id, address, time(clock::wall()))?,
    }
    Ok(0)
}

/// `listen(fd, backlog)`.
pub fn listen(system: &mut System, [fd, backlog, ..]: [u64; 6]) -> Result<u64, Errno> {
    let id = system.files.socket(fd)?;
    let credentials = peer_credentials(system);
    system.files.changed.push(Channel::Sockets);
    system.files.sockets.listen(id, backlog as u32, credentials).map(|()| 0)
}

/// The deadline of a wait of at most `timeout` nanoseconds; 0: none.
pub(super) fn deadline(timeout: u64) -> u64 {
    if timeout == 0 { NO_DEADLINE } else { clock::now().saturating_add(timeout) }
}

/// Makes an attempt, and repeats it on `EAGAIN` if the call may wait, until the deadline or a signal.
pub(super) fn with_sockets<T>(
    system: &mut System,
    waits: bool,
    deadline: u64,
    mut attempt: impl FnMut(&mut System) -> Result<T, Errno>,
) -> Result<T, Errno> {
    with_timeout(
        system,
        |_| vec![Channel::Sockets],
        waits.then_some(deadline),
        |system| {
            let result = attempt(system);
            // A failed attempt may also have changed a connection: begun or ended it.
            if !matches!(result, Err(Errno::EAGAIN)) {
                system.files.changed.push(Channel::Sockets);
            }
            result
        },
    )
}

/// `accept(fd, address, length)`.
pub fn accept(system: &mut System, [fd, address, length, ..]: [u64; 6]) -> Result<u64, Errno> {
    accept4(system, [fd, address, length, 0, 0, 0])
}

/// `accept4(fd, address, length, flags)`.
pub fn accept4(system: &mut System, [fd, address, length, flags, ..]: [u64; 6]) -> Result<u64, Errno> {
    if flags & u64::from(u32::MAX) & !FLAGS != 0 {
        return Err(Errno::EINVAL);
    }
    let listener = system.files.socket(fd)?;
    let waits = system.files.raw_file(fd)?.waits();
    let until = deadline(system.files.sockets.get(listener)?.options.receive_timeout);
    let id = with_sockets(system, waits, until, |system| system.files.sockets.accept(listener, waits))?;
    let files = &mut system.files;
    let socket = files.sockets.get_mut(id)?;
    let remote = socket.remote.as_ref().map(Address::encode).unwrap_or_default();
    let accepted = files.insert_socket(id, flags)?;
    if address != 0
        && let Err(error) = write_address(&remote, address, length)
    {
        files.close(accepted)?;
        return Err(error);
    }
    Ok(accepted)
}

/// `connect(fd, address, length)`.
pub fn connect(system: &mut System, [fd, address, length, ..]: [u64; 6]) -> Result<u64, Errno> {
    let id = system.files.socket(fd)?;
    let waits = system.files.raw_file(fd)?.waits();
    let bytes = address_bytes(address, length)?;
    let socket = system.files.sockets.get(id)?;
    let (family, socket_type) = (socket.family, socket.socket_type);
    let until = deadline(socket.options.send_timeout);
    if is_unspecified(&bytes) && (family.is_internet() || socket_type == SockType::Datagram) {
        let lost = system.files.sockets.disconnect(id)?;
        system.files.changed.push(Channel::Sockets);
        system.files.release_passed(&lost);
        return Ok(0);
    }
    // Datagram sockets of IPv6 may also connect to IPv4 addresses.
    let by4 = family == Family::Inet6 && socket_type == SockType::Datagram && bytes.starts_with(&Family::Inet.number().to_le_bytes());
    if by4 && socket.options.is_v6_only {
        return Err(Errno::EAFNOSUPPORT);
    }
    match Address::decode(if by4 { Family::Inet } else { family }, &bytes)? {
        Address::Inet(to) => {
            let connected = with_sockets(system, waits, until, |system| system.files.sockets.connect_port(id, to, waits));
            connected.map_err(|error| if error == Errno::EAGAIN { Errno::EINPROGRESS } else { error })?;
        }
        Address::Netlink(_) => {}
        Address::Link(_) => return Err(Errno::EOPNOTSUPP),
        address => {
            if system.files.sockets.get(id)?.options.passes_credentials {
                system.files.sockets.bind_any(id)?;
            }
            let credentials = peer_credentials(system);
            with_sockets(system, waits, until, |system| {
                let target = system.files.find_socket(&address, socket_type)?;
                system.files.sockets.connect_unix(id, target, address.clone(), credentials)
            })?;
        }
    }
    Ok(0)
}

/// `shutdown(fd, how)`.
pub fn shutdown(system: &mut System, [fd, how, ..]: [u64; 6]) -> Result<u64, Errno> {
    let id = system.files.socket(fd)?;
    system.files.changed.push(Channel::Sockets);
    system.files.shut_socket(id, u64::from(how as u32)).map(|()| 0)
}

/// `getsockname(fd, address, length)`.
pub fn getsockname(system: &mut System, [fd, address, length, ..]: [u64; 6]) -> Result<u64, Errno> {
    let id = system.files.socket(fd)?;
    let bytes = system.files.sockets.get(id)?.local.encode();
    write_address(&bytes, address, length).map(|()| 0)
}

/// `getpeername(fd, address, length)`.
pub fn getpeername(system: &mut System, [fd, address, length, ..]: [u64; 6]) -> Result<u64, Errno> {
    let id = system.files.socket(fd)?;
    let socket = system.files.sockets.get(id)?;
    let remote = socket.peer().and(socket.remote.as_ref()).ok_or(Errno::ENOTCONN)?;
    write_address(&remote.encode(), address, length).map(|()| 0)
}

/// The old filter, overwritten with the given bytes.
fn filter(old: [u32; 8], value: u64, length: usize) -> Result<[u32; 8], Errno> {
    let mut bytes = [0; 32];
    for (word, room) in old.iter().zip(bytes.chunks_exact_mut(4)) {
        room.copy_from_slice(&word.to_le_bytes());
    }
    let length = length.min(bytes.len());
    memory::read(value, &mut bytes[..length])?;
    let mut words = [0; 8];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(4)) {
        *word = bytes.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte));
    }
    Ok(words)
}

/// Sets an option that filters received packets. Returns whether it is one.
fn set_filter(socket: &mut Socket, [of, name]: [u32; 2], value: u64, length: usize) -> Result<bool, Errno> {
    let is_packet = socket.family == Family::Packet && of == SOL_SOCKET;
    match name {
        ICMP_FILTER if socket.has_filter(of) => socket.filter = filter(socket.filter, value, length)?,
        SO_ATTACH_FILTER if is_packet => {
            let [count, at] = words(value)?;
            let mut program = vec![0; usize::from(count as u16) * INSTRUCTION];
            memory::read(at, &mut program)?;
            socket.program = Some(PacketFilter::new(&program)?);
        }
        SO_DETACH_FILTER if is_packet => drop(socket.program.take().ok_or(Errno::ENOENT)?),
        _ => return Ok(false),
    }
    Ok(true)
}

/// `setsockopt(fd, level, option, value, length)`.
pub fn setsockopt(system: &mut System, [fd, of, name, value, length, _]: [u64; 6]) -> Result<u64, Errno> {
    let id = system.files.socket(fd)?;
    let (of, name, length) = (of as u32, name as u32, (length as u32).cast_signed());
    if length < 0 {
        return Err(Errno::EINVAL);
    }
    let may_force = system.files.current.credentials.is_capable(CAP_NET_ADMIN);
    let socket = system.files.sockets.get_mut(id)?;
    if set_filter(socket, [of, name], value, length as usize)? {
        return Ok(0);
    }
    // Names and structures of options that have no effect.
    const FREE_FORM: [(u32, u32); 13] = [
        (SOL_SOCKET, SO_ATTACH_FILTER),
        (SOL_SOCKET, SO_DETACH_FILTER),
        (SOL_TCP, TCP_CONGESTION),
        (SOL_TCP, TCP_ULP),
        (SOL_IP, IP_OPTIONS),
        (SOL_IP, IP_MULTICAST_IF),
        (SOL_IP, IP_ADD_MEMBERSHIP),
        (SOL_IP, IP_DROP_MEMBERSHIP),
        (SOL_IPV6, IPV6_ADD_MEMBERSHIP),
        (SOL_IPV6, IPV6_DROP_MEMBERSHIP),
        (SOL_NETLINK, NETLINK_ADD_MEMBERSHIP),
        // Multicast groups of the card, and filters that stay.
        (SOL_PACKET, PACKET_ADD_MEMBERSHIP),
        (SOL_SOCKET, SO_LOCK_FILTER),
    ];
    if FREE_FORM.contains(&(of, name)) && (socket.family.is_internet() || of != SOL_TCP) {
        return Ok(0);
    }
    if of == SOL_SOCKET && matches!(name, SO_RCVTIMEO_OLD | SO_SNDTIMEO_OLD) {
        if length < 16 {
            return Err(Errno::EINVAL);
        }
        let [seconds, microseconds] = words(value)?;
        if microseconds >= 1_000_000 {
            return Err(Errno::EDOM);
        }
        // Negative timeouts end at once.
        let timeout = if seconds.cast_signed() < 0 { 1 } else { seconds.saturating_mul(NANOSECONDS).saturating_add(microseconds * 1000) };
        let field = if name == SO_RCVTIMEO_OLD { &mut socket.options.receive_timeout } else { &mut socket.options.send_timeout };
        *field = timeout;
        return Ok(0);
    }
    if (of, name) == (SOL_SOCKET, SO_BINDTODEVICE) {
        let mut bytes = [0; IFNAMSIZ];
        let length = (length as usize).min(IFNAMSIZ - 1);
        memory::read(value, &mut bytes[..length])?;
        // An empty name means all interfaces.
        socket.options.interface = if bytes[0] == 0 { None } else { Some(number_of(&bytes)?) };
        return Ok(0);
    }
    // Some options of IPv4 may be bytes.
    let number = match length {
        1..=3 if of == SOL_IP => {
            let mut byte = [0];
            memory::read(value, &mut byte)?;
            u32::from(byte[0])
        }
        4.. => word32(value)?,
        _ => return Err(Errno::EINVAL),
    };
    let more = if length >= 8 { Some(word32(value.wrapping_add(4))?) } else { None };
    socket.set_option(of, name, number, more, may_force)?;
    if (of, name, number) == (SOL_UDP, UDP_CORK, 0) {
        system.files.sockets.uncork(id)?;
    }
    Ok(0)
}

/// `getsockopt(fd, level, option, value, length)`.
pub fn getsockopt(system: &mut System, [fd, of, name, value, length, _]: [u64; 6]) -> Result<u64, Errno> {
    let id = system.files.socket(fd)?;
    let (of, name) = (of as u32, name as u32);
    let room = word32(length)?.cast_signed();
    let room = usize::try_from(room).map_err(|_| Errno::EINVAL)?;
    let socket = system.files.sockets.get_mut(id)?;
    let bytes = match (of, name) {
        (SOL_SOCKET, SO_RCVTIMEO_OLD | SO_SNDTIMEO_OLD) => {
            let options = &socket.options;
            let timeout = if name == SO_RCVTIMEO_OLD { options.receive_timeout } else { options.send_timeout };
            [timeout / NANOSECONDS, timeout % NANOSECONDS / 1000].map(u64::to_le_bytes).concat()
        }
        (SOL_SOCKET, SO_BINDTODEVICE) => {
            let bound = socket.options.interface;
            if bound.is_some() && room < IFNAMSIZ {
                return Err(Errno::EINVAL);
            }
            bound.and_then(name_of_number).unwrap_or_default().to_vec()
        }
        _ if name == ICMP_FILTER && socket.has_filter(of) => {
            let words = if socket.family == Family::Inet { 1 } else { socket.filter.len() };
            socket.filter[..words].iter().flat_map(|word| word.to_le_bytes()).collect()
        }
        _ => match socket.option(of, name)? {
            Value::Number(number) => number.to_le_bytes().to_vec(),
            Value::Bytes(bytes) => bytes,
        },
    };
    let returned = bytes.len().min(room);
    memory::write(value, &bytes[..returned])?;
    set_word32(length, returned as u32)?;
    Ok(0)
}

/// `ioctl` of a socket.
///
/// # Errors
/// `ENOTTY`: there is no such request. `EFAULT`, `EINVAL`.
pub fn ioctl(system: &mut System, id: SocketId, request: u32, argument: u64) -> Result<u64, Errno> {
    if let Some(result) = netdevice::ioctl(system, request, argument) {
        return result;
    }
    let sockets = &system.files.sockets;
    let socket = sockets.get(id)?;
    let answer = match request {
        FIONREAD if socket.listens() => return Err(Errno::EINVAL),
        FIONREAD => socket.queue.length(!matches!(socket.socket_type, SockType::Datagram | SockType::Raw)),
        TIOCOUTQ if socket.listens() => return Err(Errno::EINVAL),
        TIOCOUTQ if socket.family == Family::Unix => {
            socket.peer().and_then(|peer| sockets.get(peer).ok()).map_or(0, |peer| peer.queue.used())
        }
        // Sent data counts as arrived.
        TIOCOUTQ => 0,
        SIOCATMARK => socket.queue.is_at_mark().into(),
        _ => return Err(Errno::ENOTTY),
    };
    set_word32(argument, answer as u32)?;
    Ok(0)
}
