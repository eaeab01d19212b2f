// SPDX-License-Identifier: MIT OR Apache-2.0
//! By what sockets are found: names of Unix sockets, ports of the Internet.

use alloc::boxed::Box;
use alloc::format;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use super::address::{Address, in_family, plain};
use super::{Family, Socket, SocketId, Sockets, State, Style};
use crate::errno::Errno;
use crate::files::tree::node::NodeId;

/// Ports below this are for who is privileged.
const PRIVILEGED: u16 = 1024;
/// Ports that are given to whoever asks for none.
pub(super) const GIVEN: core::ops::RangeInclusive<u16> = 32768..=60999;
/// The number of loopback among interfaces.
pub const LOOPBACK: u32 = 1;
/// The number of the card.
pub const CARD: u32 = 2;
/// How many names that are numbers there are.
const NUMBERED_NAMES: u32 = 1 << 20;

/// By what a Unix socket is found.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum UnixName {
    /// A file.
    Node(NodeId),
    /// A name of its own space, of which each style has one.
    Abstract(Style, Box<[u8]>),
}

/// A port of TCP or UDP, or the number of one who asks for echoes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Port {
    style: Style,
    is_echo: bool,
    number: u16,
}

impl Port {
    /// The port of a number that a socket has or could have.
    fn of(socket: &Socket, number: u16) -> Port {
        Port { style: socket.style, is_echo: socket.is_echo(), number }
    }
}

impl Sockets {
    /// Gives a Unix socket the name that a file was made for, with the address that it was asked for by.
    ///
    /// # Errors
    /// `EINVAL`: it has a name.
    pub fn bind_file(&mut self, id: SocketId, node: NodeId, address: Address) -> Result<(), Errno> {
        self.set_name(id, UnixName::Node(node), address)
    }

    /// Gives a Unix socket an abstract name.
    ///
    /// # Errors
    /// `EADDRINUSE`; `EINVAL`: it has a name.
    pub fn bind_abstract(&mut self, id: SocketId, name: &[u8]) -> Result<(), Errno> {
        self.check_nameless(id)?;
        let key = UnixName::Abstract(self.get(id)?.style, name.into());
        if self.names.contains_key(&key) {
            return Err(Errno::EADDRINUSE);
        }
        self.set_name(id, key, Address::Abstract(name.into()))
    }

    /// Gives a Unix socket an abstract name that is a number, if it has no name.
    ///
    /// # Errors
    /// `ENOSPC`: all are taken.
    pub fn bind_any(&mut self, id: SocketId) -> Result<(), Errno> {
        if self.check_nameless(id).is_err() {
            return Ok(());
        }
        for _ in 0..NUMBERED_NAMES {
            self.next_name = (self.next_name + 1) % NUMBERED_NAMES;
            let name = format!("{:05x}", self.next_name);
            match self.bind_abstract(id, name.as_bytes()) {
                Err(Errno::EADDRINUSE) => {}
                result => return result,
            }
        }
        Err(Errno::ENOSPC)
    }

    /// Checks that a socket has no name.
    ///
    /// # Errors
    /// `EINVAL`.
    pub fn check_nameless(&self, id: SocketId) -> Result<(), Errno> {
        // What was accepted has its listener's, though nobody finds it by that.
        if self.get(id)?.local == Address::Unnamed { Ok(()) } else { Err(Errno::EINVAL) }
    }

    fn set_name(&mut self, id: SocketId, name: UnixName, address: Address) -> Result<(), Errno> {
        self.check_nameless(id)?;
        let socket = self.get_mut(id)?;
        socket.local = address;
        socket.name = Some(name.clone());
        self.names.insert(name, id);
        Ok(())
    }

    /// The socket of a name.
    ///
    /// # Errors
    /// `ECONNREFUSED`: nobody has it; `EPROTOTYPE`: one of another style has it.
    pub fn named(&self, name: &UnixName, style: Style) -> Result<SocketId, Errno> {
        let id = *self.names.get(name).ok_or(Errno::ECONNREFUSED)?;
        if self.get(id)?.style == style { Ok(id) } else { Err(Errno::EPROTOTYPE) }
    }

    /// Gives a socket of the Internet an address; port 0: any that is free.
    ///
    /// # Errors
    /// `EINVAL`: it has one; `EACCES`: only who is privileged may have that port; `EADDRNOTAVAIL`: it is not the cell's; `EADDRINUSE`.
    pub fn bind_port(&mut self, id: SocketId, address: SocketAddr, may_be_low: bool) -> Result<(), Errno> {
        let socket = self.get(id)?;
        if !self.outside.is_own(address.ip()) && !plain(address).ip().is_unspecified() {
            return Err(Errno::EADDRNOTAVAIL);
        }
        if socket.is_raw() {
            // Its port is its protocol, whatever was asked.
            let bound = SocketAddr::new(in_family(socket.family, address).ip(), socket.protocol as u16);
            self.get_mut(id)?.local = Address::Internet(bound);
            return Ok(());
        }
        if (1..PRIVILEGED).contains(&address.port()) && !may_be_low && !socket.is_echo() {
            return Err(Errno::EACCES);
        }
        let is_over = matches!(socket.state, State::Closed);
        match socket.state {
            State::Idle if socket.port.is_none() => {}
            // A connection that is over has given back what it did not ask for.
            State::Closed if !socket.chose_port => self.unbind(id)?,
            _ => return Err(Errno::EINVAL),
        }
        let asked = address.port();
        let port = if asked == 0 { self.free_port(id)? } else { asked };
        let address = SocketAddr::new(address.ip(), port);
        if self.conflicts(id, address)? {
            return Err(Errno::EADDRINUSE);
        }
        self.take_port(id, address)?;
        // What a connection that is over gets now it keeps.
        self.get_mut(id)?.chose_port = asked != 0 || is_over;
        Ok(())
    }

    /// Gives a socket of the Internet any port, if it has none.
    ///
    /// # Errors
    /// `EAGAIN`: all are taken.
    pub fn bind_any_port(&mut self, id: SocketId) -> Result<(), Errno> {
        let socket = self.get(id)?;
        let (is_bound, local) = (socket.port.is_some() || socket.is_raw(), socket.local.internet().ok_or(Errno::EINVAL)?);
        if is_bound {
            return Ok(());
        }
        let port = self.free_port(id).map_err(|_| Errno::EAGAIN)?;
        self.take_port(id, SocketAddr::new(local.ip(), port))
    }

    fn take_port(&mut self, id: SocketId, address: SocketAddr) -> Result<(), Errno> {
        let socket = self.get_mut(id)?;
        let port = Port::of(socket, address.port());
        socket.local = Address::Internet(in_family(socket.family, address));
        socket.port = Some(port);
        self.ports.entry(port).or_default().push(id);
        Ok(())
    }

    pub(super) fn give_port_back(&mut self, port: Port, id: SocketId) {
        if let Some(members) = self.ports.get_mut(&port) {
            members.retain(|member| *member != id);
            if members.is_empty() {
                self.ports.remove(&port);
            }
        }
    }

    /// Takes a socket's port away.
    pub(super) fn unbind(&mut self, id: SocketId) -> Result<(), Errno> {
        let socket = self.get_mut(id)?;
        socket.local = socket.unnamed();
        if let Some(port) = socket.port.take() {
            self.give_port_back(port, id);
        }
        Ok(())
    }

    fn free_port(&mut self, id: SocketId) -> Result<u16, Errno> {
        for _ in GIVEN {
            self.next_port =
                if GIVEN.contains(&self.next_port) && self.next_port != *GIVEN.end() { self.next_port + 1 } else { *GIVEN.start() };
            // Only ports that nobody has: what shares one has asked for it by number.
            if !self.ports.contains_key(&Port::of(self.get(id)?, self.next_port)) {
                return Ok(self.next_port);
            }
        }
        Err(Errno::EADDRINUSE)
    }

    /// Whether somebody has a port in a way that excludes another.
    fn conflicts(&self, id: SocketId, address: SocketAddr) -> Result<bool, Errno> {
        let socket = self.get(id)?;
        let members = self.ports.get(&Port::of(socket, address.port()));
        let excludes = |other: &SocketId| {
            if *other == id {
                return false;
            }
            let Ok(other) = self.get(*other) else { return false };
            let Some(theirs) = other.local.internet() else { return false };
            let both_reuse = socket.options.reuses_address && other.options.reuses_address && !other.listens();
            let both_share = socket.options.shares_port && other.options.shares_port && socket.who.user == other.who.user;
            let hosts_overlap = overlap((address.ip(), socket.options.only6), (theirs.ip(), other.options.only6));
            !both_reuse && !both_share && hosts_overlap
        };
        Ok(members.is_some_and(|members| members.iter().any(excludes)))
    }

    /// Checks that a socket that is going to listen shares its port with nobody whom that excludes.
    ///
    /// # Errors
    /// `EADDRINUSE`.
    pub(super) fn check_listening(&self, id: SocketId) -> Result<(), Errno> {
        let address = self.get(id)?.local.internet().ok_or(Errno::EINVAL)?;
        if self.conflicts(id, address)? { Err(Errno::EADDRINUSE) } else { Ok(()) }
    }

    /// The sockets that have a port.
    fn at_port(&self, style: Style, number: u16) -> impl Iterator<Item = SocketId> {
        self.ports.get(&Port { style, is_echo: false, number }).into_iter().flatten().copied()
    }

    /// The socket that what is sent to an address from another goes to: the one that asks most precisely for it. `by`: the interface that it comes by.
    #[must_use]
    pub fn at_address(&self, style: Style, by: u32, to: SocketAddr, from: Option<SocketAddr>) -> Option<SocketId> {
        let to = plain(to);
        let precision = |id: &SocketId| {
            let socket = self.get(*id).ok().filter(|socket| socket.options.interface.is_none_or(|only| only == by))?;
            let local = socket.local.internet()?;
            let host = plain(local).ip();
            let is_any = host.is_unspecified();
            let takes = if is_any { covers(host, socket.options.only6, to.ip()) } else { host == to.ip() };
            let is_remote = match (style, socket.remote.as_ref().and_then(Address::internet)) {
                (Style::Datagram, Some(remote)) if Some(plain(remote)) != from.map(plain) => return None,
                (Style::Datagram, remote) => remote.is_some(),
                _ if !socket.listens() => return None,
                _ => false,
            };
            let is_same_family = to.is_ipv6() == (socket.family == Family::Internet6);
            takes.then_some((is_remote, !is_any, is_same_family))
        };
        let found: Vec<_> = self.at_port(style, to.port()).filter_map(|id| precision(&id).map(|precision| (precision, id))).collect();
        let (best, last) = *found.iter().max_by_key(|(precision, _)| *precision)?;
        let equals: Vec<SocketId> = found.into_iter().filter(|(precision, _)| *precision == best).map(|(_, id)| id).collect();
        let share = |id: &SocketId| self.get(*id).is_ok_and(|socket| socket.options.shares_port);
        match from {
            // Who shares a port gets a part of those who come to it, each always the same.
            Some(from) if equals.len() > 1 && equals.iter().all(share) => {
                equals.get((spread(to, plain(from)) % equals.len() as u64) as usize).copied()
            }
            // Of others the last, as the one that may have room.
            _ => Some(last),
        }
    }
}

/// A number of two ends that looks as if it were any.
fn spread(to: SocketAddr, from: SocketAddr) -> u64 {
    let bits = |address: SocketAddr| match address.ip() {
        IpAddr::V4(host) => u128::from(host.to_bits()),
        IpAddr::V6(host) => host.to_bits(),
    };
    let (to_bits, from_bits) = (bits(to), bits(from));
    let ports = u64::from(to.port()) << 16 | u64::from(from.port());
    [to_bits as u64, (to_bits >> 64) as u64, from_bits as u64, (from_bits >> 64) as u64, ports].into_iter().fold(0, |number, word| {
        // SplitMix64's mix.
        let mixed = (number ^ word).wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    })
}

/// Whether an address that stands for all, perhaps but for those of IPv4, stands for a host.
fn covers(any: IpAddr, only6: bool, host: IpAddr) -> bool {
    let host = host.to_canonical();
    any.is_unspecified() && if any.is_ipv4() { host.is_ipv4() } else { host.is_ipv6() || !only6 }
}

/// Whether two hosts, each with whether it excludes IPv4, have an address in common.
fn overlap((one, one_only6): (IpAddr, bool), (other, other_only6): (IpAddr, bool)) -> bool {
    let (one, other) = (one.to_canonical(), other.to_canonical());
    match (one.is_unspecified(), other.is_unspecified()) {
        (true, true) => one.is_ipv4() == other.is_ipv4() || !one_only6 && !other_only6,
        (true, false) => covers(one, one_only6, other),
        (false, true) => covers(other, other_only6, one),
        (false, false) => one == other,
    }
}
