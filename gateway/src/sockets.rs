// SPDX-License-Identifier: MIT OR Apache-2.0
//! Non-blocking sockets of the host.

use crate::limits::{BACKLOG, KEEPALIVE_IDLE, KEEPALIVE_INTERVAL, KEEPALIVE_PROBES};
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

/// The flags of every descriptor of the gateway.
pub(crate) const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

fn socket(address: SocketAddr, kind: SocketType) -> Result<OwnedFd> {
    socket_with(family(address.ip()), kind, FLAGS, None)
}

fn family(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 }
}

/// Starts to connect to a destination; [`Ready::OUT`](crate::poll::Ready) reports success or failure.
pub(crate) fn connect_stream(to: SocketAddr) -> Result<OwnedFd> {
    let socket = socket(to, SocketType::STREAM)?;
    prepare(&socket)?;
    match connect(&socket, &to) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(error) => Err(error),
    }
}

/// Sets the options of every TCP connection of the host.
pub(crate) fn prepare(socket: &OwnedFd) -> Result<()> {
    // The sender has decided already which bytes go together.
    set_tcp_nodelay(socket, true)?;
    // The cell's own keepalive probes end at the gateway.
    set_tcp_keepidle(socket, KEEPALIVE_IDLE)?;
    set_tcp_keepintvl(socket, KEEPALIVE_INTERVAL)?;
    set_tcp_keepcnt(socket, KEEPALIVE_PROBES)?;
    set_socket_keepalive(socket, true)
}

/// A UDP socket that is connected to one destination.
pub(crate) fn udp_socket_to(to: SocketAddr) -> Result<OwnedFd> {
    let socket = socket(to, SocketType::DGRAM)?;
    connect(&socket, &to)?;
    Ok(socket)
}

/// An ICMP echo socket with an identifier of its own. [`Errno::ACCESS`] if the host does not allow this user to ping.
pub(crate) fn echo_socket(to: IpAddr) -> Result<OwnedFd> {
    let protocol = if to.is_ipv4() { ipproto::ICMP } else { ipproto::ICMPV6 };
    socket_with(family(to), SocketType::DGRAM, FLAGS, Some(protocol))
}

/// The same, connected to one destination. Also fails if the host refuses only this destination.
pub(crate) fn echo_socket_to(to: IpAddr) -> Result<OwnedFd> {
    let socket = echo_socket(to)?;
    connect(&socket, &SocketAddr::new(to, 0))?;
    Ok(socket)
}

/// A UDP socket that receives datagrams from anywhere.
pub(crate) fn udp_socket_at(address: SocketAddr) -> Result<OwnedFd> {
    let socket = socket(address, SocketType::DGRAM)?;
    set_v6_only(&socket, address)?;
    bind(&socket, &address)?;
    Ok(socket)
}

/// A listening TCP socket.
pub(crate) fn listener(address: SocketAddr) -> Result<OwnedFd> {
    let socket = socket(address, SocketType::STREAM)?;
    set_v6_only(&socket, address)?;
    // Earlier connections of this port may still be closing.
    set_socket_reuseaddr(&socket, true)?;
    bind(&socket, &address)?;
    listen(&socket, BACKLOG)?;
    Ok(socket)
}

fn set_v6_only(socket: &OwnedFd, address: SocketAddr) -> Result<()> {
    if address.is_ipv6() { set_ipv6_v6only(socket, true) } else { Ok(()) }
}

/// Closes a connection with a reset.
pub(crate) fn reset(socket: OwnedFd) {
    // If this fails, it is closed normally.
    let _ = set_socket_linger(&socket, Some(Duration::ZERO));
}
