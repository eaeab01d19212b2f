// SPDX-License-Identifier: MIT OR Apache-2.0
//! Network interfaces by `ioctl`, as netdevice(7) describes.

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};

use pando_rt::registers;
use pando_rt::user as memory;
use pando_stack::mask;

use super::interface_change::InterfaceChange;
use super::interfaces::{TX_QUEUE_LENGTH, interfaces, name_of_number};
use crate::errno::Errno;
use crate::files::socket::inet::InetState;
use crate::system::System;
use crate::uapi::{
    AF_INET, CAP_NET_ADMIN, IFF_UP, IFNAMSIZ, SIOCADDRT, SIOCDELRT, SIOCGIFADDR, SIOCGIFBRDADDR, SIOCGIFCONF, SIOCGIFDSTADDR, SIOCGIFFLAGS,
    SIOCGIFHWADDR, SIOCGIFINDEX, SIOCGIFMETRIC, SIOCGIFMTU, SIOCGIFNAME, SIOCGIFNETMASK, SIOCGIFTXQLEN, SIOCSIFADDR, SIOCSIFBRDADDR,
    SIOCSIFDSTADDR, SIOCSIFFLAGS, SIOCSIFHWADDR, SIOCSIFLINK, SIOCSIFMETRIC, SIOCSIFMTU, SIOCSIFNETMASK,
};
use crate::user::{set_word32, word32, words};

/// Bytes of a `struct ifreq`.
const IFREQ_SIZE: usize = 40;
/// Bytes of a `struct sockaddr`.
const SOCKADDR_SIZE: usize = 16;

/// An `ioctl` about interfaces. `None`: it is about something else.
///
/// # Errors
/// `ENODEV`: there is no such interface. `EPERM`: the card cannot have it. `EADDRNOTAVAIL`: it has no such address. `EFAULT`,
/// `EINVAL`.
pub fn ioctl(system: &mut System, request: u32, argument: u64) -> Option<Result<u64, Errno>> {
    let is_permitted = system.files.current.credentials.is_capable(CAP_NET_ADMIN);
    let inet = &mut system.files.sockets.inet;
    /// Requests that change an interface.
    const CHANGES: [u32; 10] = [
        SIOCADDRT,
        SIOCDELRT,
        SIOCSIFFLAGS,
        SIOCSIFADDR,
        SIOCSIFDSTADDR,
        SIOCSIFBRDADDR,
        SIOCSIFNETMASK,
        SIOCSIFMETRIC,
        SIOCSIFMTU,
        SIOCSIFHWADDR,
    ];
    match request {
        SIOCGIFCONF => Some(configuration(argument, inet)),
        SIOCGIFNAME => Some(name_of(argument)),
        _ if CHANGES.contains(&request) && !is_permitted => Some(Err(Errno::EPERM)),
        _ if CHANGES.contains(&request) => Some(change(request, argument, inet)),
        SIOCSIFLINK..=SIOCGIFTXQLEN => Some(query(request, argument, inet)).filter(|result| *result != Err(Errno::ENOTTY)),
        _ => None,
    }
}

/// An address as a `struct sockaddr`.
fn socket_address(address: Ipv4Addr) -> [u8; 16] {
    let [a, b, c, d] = address.octets();
    [AF_INET as u8, 0, 0, 0, a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0]
}

fn configuration(argument: u64, inet: &InetState) -> Result<u64, Errno> {
    let room = word32(argument)?.cast_signed();
    let [list] = words(argument.wrapping_add(8))?;
    let mut entries = Vec::new();
    for interface in interfaces(inet) {
        let Some((address, _)) = interface.host4() else { continue };
        let mut entry = [0; IFREQ_SIZE];
        entry[..interface.name.len()].copy_from_slice(interface.name);
        entry[IFNAMSIZ..IFNAMSIZ + 16].copy_from_slice(&socket_address(address));
        entries.extend(entry);
    }
    if list != 0 {
        entries.truncate(usize::try_from(room).unwrap_or_default() / IFREQ_SIZE * IFREQ_SIZE);
        memory::write(list, &entries)?;
    }
    set_word32(argument, entries.len() as u32).map(|()| 0)
}

fn name_of(argument: u64) -> Result<u64, Errno> {
    let index = word32(argument.wrapping_add(IFNAMSIZ as u64))?;
    let name = name_of_number(index).ok_or(Errno::ENODEV)?;
    Ok(memory::write(argument, name).map(|()| 0)?)
}

/// An `ioctl` that reads a property of a named interface.
fn query(request: u32, argument: u64, inet: &InetState) -> Result<u64, Errno> {
    let mut name = [0; IFNAMSIZ];
    memory::read(argument, &mut name)?;
    let interface = interfaces(inet).into_iter().find(|interface| name.starts_with(interface.name)).ok_or(Errno::ENODEV)?;
    // Requests for its address fail if it has none.
    let host4 = interface.host4().ok_or(Errno::EADDRNOTAVAIL);
    let mut bytes = [0; 16];
    match request {
        // The lower 16 bits of its flags.
        SIOCGIFFLAGS => bytes[..2].copy_from_slice(&(interface.flags as u16).to_le_bytes()),
        SIOCGIFADDR | SIOCGIFDSTADDR => bytes = socket_address(host4?.0),
        SIOCGIFBRDADDR => bytes = socket_address(interface.broadcast().unwrap_or(Ipv4Addr::UNSPECIFIED)),
        SIOCGIFNETMASK => bytes = socket_address(mask(host4?.1)),
        SIOCGIFMETRIC => {}
        SIOCGIFMTU => bytes[..4].copy_from_slice(&interface.mtu.to_le_bytes()),
        SIOCGIFHWADDR => {
            bytes[..2].copy_from_slice(&interface.hardware.to_le_bytes());
            bytes[2..8].copy_from_slice(&interface.mac);
        }
        SIOCGIFINDEX => bytes[..4].copy_from_slice(&interface.index.to_le_bytes()),
        SIOCGIFTXQLEN => bytes[..4].copy_from_slice(&TX_QUEUE_LENGTH.to_le_bytes()),
        _ => return Err(Errno::ENOTTY),
    }
    memory::write(argument.wrapping_add(IFNAMSIZ as u64), &bytes)?;
    Ok(0)
}

/// An `ioctl` that changes an interface or route.
///
/// # Errors
/// `ENODEV`: there is no such interface. `EPERM`: the card cannot have it. `EFAULT`.
fn change(request: u32, argument: u64, inet: &mut InetState) -> Result<u64, Errno> {
    if matches!(request, SIOCADDRT | SIOCDELRT) {
        return rtentry(argument, request == SIOCADDRT)?.apply(inet).map(|()| 0);
    }
    let mut name = [0; IFNAMSIZ];
    memory::read(argument, &mut name)?;
    let is_card = name.starts_with(b"eth0\0") && inet.card.is_some();
    if !is_card && !name.starts_with(b"lo\0") {
        return Err(Errno::ENODEV);
    }
    let at = argument.wrapping_add(IFNAMSIZ as u64);
    let host = inet.hosts.iter().find(|host| host.address.is_ipv4()).copied().filter(|_| is_card);
    let (loopback, bits) = (Ipv4Addr::LOCALHOST, 8);
    let (address, prefix) =
        host.map_or((loopback, bits), |host| (if let IpAddr::V4(address) = host.address { address } else { loopback }, host.prefix));
    let all = Ipv4Addr::from_bits(address.to_bits() | !mask(prefix).to_bits());
    let is_current = match request {
        SIOCSIFFLAGS => word32(at)? & IFF_UP != 0,
        SIOCSIFADDR if is_card => {
            let wanted = address4(at)?;
            // The unspecified address removes the present one.
            let change = if wanted.is_unspecified() {
                InterfaceChange::Address(address.into(), prefix, false)
            } else {
                InterfaceChange::Address(wanted.into(), prefix, true)
            };
            return change.apply(inet).map(|()| 0);
        }
        SIOCSIFADDR => address4(at)? == address,
        SIOCSIFBRDADDR => address4(at)? == all || address4(at)?.is_unspecified(),
        SIOCSIFNETMASK => address4(at)? == mask(prefix),
        SIOCSIFMTU => u64::from(word32(at)?) == if is_card { registers::card().mtu } else { 65_536 },
        _ => false,
    };
    if is_current { Ok(0) } else { Err(Errno::EPERM) }
}

/// The IPv4 address of a `struct sockaddr` in a request.
fn address4(at: u64) -> Result<Ipv4Addr, Errno> {
    let mut bytes = [0; SOCKADDR_SIZE];
    memory::read(at, &mut bytes)?;
    Ok(Ipv4Addr::new(bytes[4], bytes[5], bytes[6], bytes[7]))
}

/// The route of a `struct rtentry`.
fn rtentry(argument: u64, sets: bool) -> Result<InterfaceChange, Errno> {
    const DESTINATION: u64 = 8;
    const ROUTER: u64 = 24;
    const MASK: u64 = 40;
    let [destination, router, bits] = [DESTINATION, ROUTER, MASK].map(|at| address4(argument.wrapping_add(at)));
    let (destination, router, bits) = (destination?, router?, bits?);
    let named = Some(router).filter(|router| !router.is_unspecified()).map(IpAddr::V4);
    let is_everywhere = destination.is_unspecified() && bits.is_unspecified() && (named.is_some() || !sets);
    Ok(if is_everywhere { InterfaceChange::Route(named, true, sets) } else { InterfaceChange::Other })
}
