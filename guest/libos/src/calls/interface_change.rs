// SPDX-License-Identifier: MIT OR Apache-2.0
//! Changes to network interfaces, as DHCP clients make them by rtnetlink and by `ioctl`. Only the card's own addresses and the routes by
//! its router can be set and removed, because the network lets a cell send from its own addresses only.

use core::net::IpAddr;

use crate::errno::Errno;
use crate::files::socket::inet::{InetState, InterfaceAddress};

/// A requested change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InterfaceChange {
    /// Sets or removes an address with its prefix length.
    Address(IpAddr, u8, bool),
    /// Sets or removes the default route by a router; without a router, that by any.
    Route(Option<IpAddr>, bool, bool),
    /// Sets an interface up or down.
    Up(bool),
    /// Another change.
    Other,
}

impl InterfaceChange {
    /// Makes the change.
    ///
    /// # Errors
    /// `EPERM`: the card cannot have it. `EADDRNOTAVAIL`, `ESRCH`: it is not there to be removed.
    pub(super) fn apply(self, inet: &mut InetState) -> Result<(), Errno> {
        match self {
            InterfaceChange::Address(address, prefix, sets) => {
                let is_meant = |host: &&mut InterfaceAddress| host.address == address && host.prefix == prefix;
                let host = inet.hosts.iter_mut().find(is_meant);
                let host = host.ok_or(if sets { Errno::EPERM } else { Errno::EADDRNOTAVAIL })?;
                if !sets && !host.is_set {
                    return Err(Errno::EADDRNOTAVAIL);
                }
                host.is_set = sets;
                // A route needs the address that it starts from.
                host.is_routed &= sets;
            }
            InterfaceChange::Route(router, is_ipv4, sets) => {
                let is_meant =
                    |host: &&mut InterfaceAddress| host.address.is_ipv4() == is_ipv4 && (router.is_none() || host.router == router);
                let host = inet.hosts.iter_mut().filter(|host| host.is_set && host.router.is_some()).find(is_meant);
                let host = host.ok_or(if sets { Errno::EPERM } else { Errno::ESRCH })?;
                if !sets && !host.is_routed {
                    return Err(Errno::ESRCH);
                }
                host.is_routed = sets;
            }
            InterfaceChange::Up(true) => {}
            InterfaceChange::Up(false) | InterfaceChange::Other => return Err(Errno::EPERM),
        }
        Ok(())
    }
}
