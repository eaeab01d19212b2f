// SPDX-License-Identifier: MIT OR Apache-2.0
//! Socket addresses, in the layouts of `struct sockaddr_un`, `sockaddr_in`, `sockaddr_in6`, `sockaddr_nl` and `sockaddr_ll`.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::Family;
use crate::errno::Errno;
use crate::uapi::AF_UNSPEC;

/// Bytes of the largest address: `struct sockaddr_storage`.
pub const ADDRESS_MAX: usize = 128;
/// Offset of the path in a Unix address.
const PATH_AT: usize = 2;
/// Size of a Unix address in bytes.
const UNIX_MAX: usize = PATH_AT + 108;
/// Size of an IPv4 address in bytes.
const INTERNET4: usize = 16;
/// Size of an IPv6 address in bytes without its optional scope.
const INTERNET6_MIN: usize = 24;
/// Size of a netlink address in bytes.
const NETLINK: usize = 12;
/// Size of a packet socket's address in bytes.
const LINK: usize = 20;

/// A socket address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// An unbound Unix socket's address.
    Unnamed,
    /// A path, without the terminating zero byte.
    Path(Box<[u8]>),
    /// An abstract name, without the zero byte before it.
    Abstract(Box<[u8]>),
    /// An IP address and a port. IPv4 addresses of IPv6 sockets are mapped.
    Inet(SocketAddr),
    /// The port ID of a netlink socket.
    Netlink(u32),
    /// An interface, and a link-layer address.
    Link(LinkAddress),
}

/// A link-layer address (`struct sockaddr_ll`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkAddress {
    /// The EtherType.
    pub protocol: u16,
    /// The interface index; 0: any.
    pub index: u32,
    /// The hardware type (`ARPHRD_*`).
    pub hardware: u16,
    /// The packet type: to the cell, broadcast, multicast.
    pub kind: u8,
    /// An Ethernet address.
    pub mac: Option<[u8; 6]>,
}

/// The unspecified IPv4 address with port 0.
pub const UNSPECIFIED4: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
/// The unspecified IPv6 address with port 0.
pub const UNSPECIFIED6: SocketAddr = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0);

/// The family of an encoded address; `None`: it is too short.
#[must_use]
pub fn family_of(bytes: &[u8]) -> Option<u16> {
    Some(u16::from_le_bytes([*bytes.first()?, *bytes.get(1)?]))
}

/// Whether the encoded address is `AF_UNSPEC`, which dissolves a connection.
#[must_use]
pub fn is_unspecified(bytes: &[u8]) -> bool {
    family_of(bytes) == Some(AF_UNSPEC)
}

impl Address {
    /// The address of an unbound socket of a family.
    #[must_use]
    pub fn none(family: Family) -> Address {
        match family {
            Family::Unix => Address::Unnamed,
            Family::Inet => Address::Inet(UNSPECIFIED4),
            Family::Inet6 => Address::Inet(UNSPECIFIED6),
            Family::Netlink => Address::Netlink(0),
            Family::Packet => Address::Link(LinkAddress::default()),
        }
    }

    /// Decodes an address of a family.
    ///
    /// # Errors
    /// `EINVAL`: too short, too long or, for a Unix socket, of another family; `EAFNOSUPPORT`: of another family.
    pub fn decode(family: Family, bytes: &[u8]) -> Result<Address, Errno> {
        let named = family_of(bytes);
        match family {
            Family::Unix => {
                if named != Some(family.number()) || bytes.len() > UNIX_MAX || bytes.len() <= PATH_AT {
                    return Err(Errno::EINVAL);
                }
                Ok(match bytes[PATH_AT..].split_first() {
                    Some((0, name)) => Address::Abstract(name.into()),
                    _ => {
                        let path = &bytes[PATH_AT..];
                        Address::Path(path[..path.iter().position(|byte| *byte == 0).unwrap_or(path.len())].into())
                    }
                })
            }
            Family::Inet => {
                let bytes: &[u8; INTERNET4] = bytes.first_chunk().ok_or(Errno::EINVAL)?;
                if named != Some(family.number()) {
                    return Err(Errno::EAFNOSUPPORT);
                }
                let [_, _, high, low, a, b, c, d, ..] = *bytes;
                Ok(Address::Inet(SocketAddr::new(Ipv4Addr::new(a, b, c, d).into(), u16::from_be_bytes([high, low]))))
            }
            Family::Inet6 => {
                let bytes: &[u8; INTERNET6_MIN] = bytes.first_chunk().ok_or(Errno::EINVAL)?;
                if named != Some(family.number()) {
                    return Err(Errno::EAFNOSUPPORT);
                }
                let mut host = [0; 16];
                host.copy_from_slice(&bytes[8..]);
                Ok(Address::Inet(SocketAddr::new(Ipv6Addr::from(host).into(), u16::from_be_bytes([bytes[2], bytes[3]]))))
            }
            Family::Netlink => {
                let bytes: &[u8; NETLINK] = bytes.first_chunk().ok_or(Errno::EINVAL)?;
                if named != Some(family.number()) {
                    return Err(Errno::EINVAL);
                }
                Ok(Address::Netlink(u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]])))
            }
            Family::Packet => {
                let bytes: &[u8; LINK] = bytes.first_chunk().ok_or(Errno::EINVAL)?;
                if named != Some(family.number()) {
                    return Err(Errno::EINVAL);
                }
                let [_, _, high, low, a, b, c, d, hardware_low, hardware_high, kind, length, m0, m1, m2, m3, m4, m5, ..] = *bytes;
                Ok(Address::Link(LinkAddress {
                    protocol: u16::from_be_bytes([high, low]),
                    index: u32::from_le_bytes([a, b, c, d]),
                    hardware: u16::from_le_bytes([hardware_low, hardware_high]),
                    kind,
                    mac: (length == 6).then_some([m0, m1, m2, m3, m4, m5]),
                }))
            }
        }
    }

    /// The encoded address.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let start = |family: Family| family.number().to_le_bytes();
        match self {
            Address::Unnamed => start(Family::Unix).to_vec(),
            Address::Path(path) => [&start(Family::Unix)[..], path, &[0]].concat(),
            Address::Abstract(name) => [&start(Family::Unix)[..], &[0], name].concat(),
            Address::Inet(SocketAddr::V4(address)) => {
                [&start(Family::Inet)[..], &address.port().to_be_bytes(), &address.ip().octets(), &[0; 8]].concat()
            }
            Address::Inet(SocketAddr::V6(address)) => {
                let port = address.port().to_be_bytes();
                [&start(Family::Inet6)[..], &port, &[0; 4], &address.ip().octets(), &[0; 4]].concat()
            }
            Address::Link(LinkAddress { protocol, index, hardware, kind, mac }) => {
                let length = if mac.is_some() { 6 } else { 0 };
                let start = [&start(Family::Packet)[..], &protocol.to_be_bytes(), &index.to_le_bytes(), &hardware.to_le_bytes()].concat();
                [&start[..], &[*kind, length], &mac.unwrap_or_default(), &[0; 2]].concat()
            }
            Address::Netlink(number) => [&start(Family::Netlink)[..], &[0; 2], &number.to_le_bytes(), &[0; 4]].concat(),
        }
    }

    /// The IP address and port, if it has them.
    #[must_use]
    pub fn internet(&self) -> Option<SocketAddr> {
        if let Address::Inet(address) = self { Some(*address) } else { None }
    }
}

/// The same address in the form of a family: IPv4 addresses of IPv6 sockets are mapped.
#[must_use]
pub fn in_family(family: Family, address: SocketAddr) -> SocketAddr {
    match (family, address) {
        (Family::Inet6, SocketAddr::V4(four)) => SocketAddr::new(four.ip().to_ipv6_mapped().into(), four.port()),
        _ => address,
    }
}

/// The same address, with a mapped IPv4 address converted to plain IPv4.
#[must_use]
pub fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Whether a host address is a loopback address.
#[must_use]
pub fn is_loopback(host: IpAddr) -> bool {
    host.to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::{Address, Family, UNSPECIFIED6};
    use crate::errno::Errno;

    #[test]
    fn addresses_come_back_as_they_were_given() {
        let path = Address::decode(Family::Unix, b"\x01\x00/a/b\0rest").expect("it is sound");
        assert_eq!((&path, &path.encode()[..]), (&Address::Path(b"/a/b"[..].into()), &b"\x01\x00/a/b\0"[..]));
        let name = b"\x01\x00\0na\0me";
        assert_eq!(Address::decode(Family::Unix, name).expect("it is sound").encode(), name);
        let four = [2, 0, 0x1f, 0x90, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(Address::decode(Family::Inet, &four).expect("it is sound").encode(), four);
        assert_eq!(Address::decode(Family::Inet6, &four), Err(Errno::EINVAL));
        assert_eq!(Address::Inet(UNSPECIFIED6).encode().len(), 28);
        assert_eq!(Address::decode(Family::Unix, b"\x01\x00"), Err(Errno::EINVAL));
    }
}
