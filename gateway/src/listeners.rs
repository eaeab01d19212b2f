// SPDX-License-Identifier: MIT OR Apache-2.0
//! Listening sockets of port forwards.

use crate::{PortForward, Protocol, sockets};
use rustix::io::Errno;
use rustix::net::getsockname;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

/// A forward cannot listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BindError {
    /// Another forward uses the same port.
    #[error("port {} of {} is published twice: choose another port for one of them", .0.port(), .0.ip())]
    Duplicate(SocketAddr),
    /// Another program listens there.
    #[error("port {} of {} is taken: end the program that listens there, or choose another port", .0.port(), .0.ip())]
    AddressInUse(SocketAddr),
    /// The port needs a privilege.
    #[error("port {} is for privileged users: choose one from 1024 on, or allow it with `sysctl net.ipv4.ip_unprivileged_port_start={}`", .0.port(), .0.port())]
    Privileged(SocketAddr),
    /// The host has no such address.
    #[error("this host has no address {}: use 127.0.0.1 for its own programs, 0.0.0.0 for all interfaces", .0.ip())]
    AddressNotAvailable(SocketAddr),
    /// The host refuses.
    #[error("cannot listen at {0}: {1}")]
    ListenFailed(SocketAddr, Errno),
    /// The host cannot create the eventfd that wakes the gateway.
    #[error("cannot create the event that wakes the gateway (eventfd): {0}")]
    Host(Errno),
}

impl BindError {
    /// The error for an address at which the host does not listen.
    pub(crate) fn of(errno: Errno, at: SocketAddr) -> BindError {
        match errno {
            Errno::ADDRINUSE => BindError::AddressInUse(at),
            Errno::ACCESS => BindError::Privileged(at),
            Errno::ADDRNOTAVAIL => BindError::AddressNotAvailable(at),
            errno => BindError::ListenFailed(at, errno),
        }
    }
}

/// A listening forward.
#[derive(Debug)]
pub(crate) struct HostListener {
    pub(crate) socket: OwnedFd,
    /// Its address, with the port that the host chose if it was 0.
    pub(crate) address: SocketAddr,
    /// The port of the cell.
    pub(crate) cell: u16,
    pub(crate) protocol: Protocol,
}

/// Finds a forward that uses the port of another.
pub(crate) fn find_duplicate(forwards: &[PortForward]) -> Option<BindError> {
    let meet = |one: &PortForward, other: &PortForward| {
        let (a, b) = (one.host.ip(), other.host.ip());
        let is_same = a == b || a.is_ipv4() == b.is_ipv4() && (a.is_unspecified() || b.is_unspecified());
        one.protocol == other.protocol && one.host.port() == other.host.port() && one.host.port() != 0 && is_same
    };
    let mut later = forwards.iter().enumerate().filter(|(at, forward)| forwards[..*at].iter().any(|before| meet(before, forward)));
    later.next().map(|(_, forward)| BindError::Duplicate(forward.host))
}

impl HostListener {
    pub(crate) fn bind(forward: &PortForward) -> Result<HostListener, BindError> {
        let at = forward.host;
        let bound = match forward.protocol {
            Protocol::Tcp => sockets::listener(at),
            Protocol::Udp => sockets::udp_socket_at(at),
        };
        let named = bound.and_then(|socket| Ok((SocketAddr::try_from(getsockname(&socket)?)?, socket)));
        let (address, socket) = named.map_err(|errno| BindError::of(errno, at))?;
        Ok(HostListener { socket, address, cell: forward.cell, protocol: forward.protocol })
    }

    pub(crate) fn duplicate(&self) -> std::io::Result<HostListener> {
        Ok(HostListener { socket: self.socket.try_clone()?, ..*self })
    }
}
