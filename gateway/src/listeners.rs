// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ports of the host at which forwards listen.

use crate::{Forward, Protocol, sockets};
use rustix::io::Errno;
use rustix::net::getsockname;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

/// A forward cannot listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BindError {
    /// Another forward does.
    #[error("port {} of {} is given twice: one port leads to one place", .0.port(), .0.ip())]
    Twice(SocketAddr),
    /// Somebody else does.
    #[error("port {} of {} is taken: end the program that listens there, or choose another port", .0.port(), .0.ip())]
    Taken(SocketAddr),
    /// It may not.
    #[error("port {} is for privileged users: choose one from 1024 on, or allow it with `sysctl net.ipv4.ip_unprivileged_port_start={}`", .0.port(), .0.port())]
    Privileged(SocketAddr),
    /// The host has no such address.
    #[error("this host has no address {}: 127.0.0.1 is for its own programs, 0.0.0.0 for everybody", .0.ip())]
    NotHere(SocketAddr),
    /// The host says no.
    #[error("the host cannot listen at {0}: {1}")]
    Refused(SocketAddr, Errno),
    /// The host has nothing to wait with.
    #[error("the gateway cannot be made: {0}")]
    Host(Errno),
}

/// A forward that listens.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) socket: OwnedFd,
    /// Where, with the port that the host chose if the choice was its own.
    pub(crate) address: SocketAddr,
    /// The port of the cell.
    pub(crate) cell: u16,
    pub(crate) protocol: Protocol,
}

/// Finds a forward that begins where another does.
pub(crate) fn twice(forwards: &[Forward]) -> Option<BindError> {
    let meet = |one: &Forward, other: &Forward| {
        let (a, b) = (one.host.ip(), other.host.ip());
        let is_same = a == b || a.is_ipv4() == b.is_ipv4() && (a.is_unspecified() || b.is_unspecified());
        one.protocol == other.protocol && one.host.port() == other.host.port() && one.host.port() != 0 && is_same
    };
    let mut later = forwards.iter().enumerate().filter(|(at, forward)| forwards[..*at].iter().any(|before| meet(before, forward)));
    later.next().map(|(_, forward)| BindError::Twice(forward.host))
}

impl Listener {
    pub(crate) fn bind(forward: &Forward) -> Result<Listener, BindError> {
        let at = forward.host;
        let bound = match forward.protocol {
            Protocol::Tcp => sockets::listener(at),
            Protocol::Udp => sockets::datagrams_at(at),
        };
        let named = bound.and_then(|socket| Ok((SocketAddr::try_from(getsockname(&socket)?)?, socket)));
        let (address, socket) = named.map_err(|errno| match errno {
            Errno::ADDRINUSE => BindError::Taken(at),
            Errno::ACCESS => BindError::Privileged(at),
            Errno::ADDRNOTAVAIL => BindError::NotHere(at),
            errno => BindError::Refused(at, errno),
        })?;
        Ok(Listener { socket, address, cell: forward.cell, protocol: forward.protocol })
    }
}
