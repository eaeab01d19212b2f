// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sockets of the host: none of them ever blocks.

use crate::limits::{BACKLOG, SILENCE, SILENCE_ASKED, SILENCE_QUESTIONS};
use rustix::io::Errno;
use rustix::net::sockopt::{
    set_ipv6_v6only, set_socket_keepalive, set_socket_linger, set_socket_reuseaddr, set_tcp_keepcnt, set_tcp_keepidle, set_tcp_keepintvl,
    set_tcp_nodelay,
};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, ipproto, listen, socket_with};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::Duration;

type Result<T> = std::result::Result<T, Errno>;

/// The flags that every descriptor of the gateway has.
pub(crate) const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

fn socket(address: SocketAddr, kind: SocketType) -> Result<OwnedFd> {
    socket_with(family(address.ip()), kind, FLAGS, None)
}

fn family(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 }
}

/// Starts to connect to a destination; [`Ready::OUT`](crate::poll::Ready) tells that it is done, or failed.
pub(crate) fn call(to: SocketAddr) -> Result<OwnedFd> {
    let socket = socket(to, SocketType::STREAM)?;
    prepare(&socket)?;
    match connect(&socket, &to) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(error) => Err(error),
    }
}

/// Sets what every connection to the host has.
pub(crate) fn prepare(socket: &OwnedFd) -> Result<()> {
    // Who sent these bytes to the gateway has decided already which go together.
    set_tcp_nodelay(socket, true)?;
    // The cell cannot ask by itself: its questions end at the gateway.
    set_tcp_keepidle(socket, SILENCE)?;
    set_tcp_keepintvl(socket, SILENCE_ASKED)?;
    set_tcp_keepcnt(socket, SILENCE_QUESTIONS)?;
    set_socket_keepalive(socket, true)
}

/// A socket that hears and speaks to one destination by datagrams.
pub(crate) fn datagrams_with(to: SocketAddr) -> Result<OwnedFd> {
    let socket = socket(to, SocketType::DGRAM)?;
    connect(&socket, &to)?;
    Ok(socket)
}

/// A socket that will ask a destination for echoes, under a number of its own, and hear all answers with that. Refused ([`Errno::ACCESS`]) where the host lets this user ask nobody.
pub(crate) fn echoes(to: IpAddr) -> Result<OwnedFd> {
    let protocol = if to.is_ipv4() { ipproto::ICMP } else { ipproto::ICMPV6 };
    socket_with(family(to), SocketType::DGRAM, FLAGS, Some(protocol))
}

/// The same, bound to that one destination. Refused as well where the host lets nobody ask just that one.
pub(crate) fn echoes_of(to: IpAddr) -> Result<OwnedFd> {
    let socket = echoes(to)?;
    connect(&socket, &SocketAddr::new(to, 0))?;
    Ok(socket)
}

/// A socket that hears everybody who sends datagrams to it.
pub(crate) fn datagrams_at(address: SocketAddr) -> Result<OwnedFd> {
    let socket = socket(address, SocketType::DGRAM)?;
    only_its_family(&socket, address)?;
    bind(&socket, &address)?;
    Ok(socket)
}

/// A socket at which connections arrive.
pub(crate) fn listener(address: SocketAddr) -> Result<OwnedFd> {
    let socket = socket(address, SocketType::STREAM)?;
    only_its_family(&socket, address)?;
    // Connections of one that was here before may still be ending.
    set_socket_reuseaddr(&socket, true)?;
    bind(&socket, &address)?;
    listen(&socket, BACKLOG)?;
    Ok(socket)
}

fn only_its_family(socket: &OwnedFd, address: SocketAddr) -> Result<()> {
    if address.is_ipv6() { set_ipv6_v6only(socket, true) } else { Ok(()) }
}

/// Closes a connection so that the other side learns that it broke.
pub(crate) fn reset(socket: OwnedFd) {
    // One that cannot be told is closed all the same.
    let _ = set_socket_linger(&socket, Some(Duration::ZERO));
}
