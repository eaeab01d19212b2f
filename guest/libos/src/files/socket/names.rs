// SPDX-License-Identifier: MIT OR Apache-2.0
//! The names and ports by which sockets are found.

use alloc::boxed::Box;
use alloc::format;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use super::address::{Address, in_family, plain};
use super::{Family, SockType, Socket, SocketId, Sockets, State};
use crate::errno::Errno;
use crate::files::tree::node::NodeId;

/// Lower ports are reserved for privileged processes.
const PRIVILEGED: u16 = 1024;
/// The ephemeral ports.
pub(super) const EPHEMERAL_PORTS: core::ops::RangeInclusive<u16> = 32768..=60999;
/// The interface index of loopback.
pub const LOOPBACK: u32 = 1;
/// The interface index of the network card.
pub const CARD: u32 = 2;
/// The number of automatic abstract names.
const NUMBERED_NAMES: u32 = 1 << 20;

/// The key of a bound Unix socket.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum UnixName {
    /// A file.
    Node(NodeId),
    /// An abstract name, separate for each socket type.
    Abstract(SockType, Box<[u8]>),
}

/// A port of TCP or UDP, or the identifier of a ping socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Port {
    socket_type: SockType,
    is_echo: bool,
    number: u16,
}

impl Port {
    /// The port of a number for a socket's protocol.
    fn of(socket: &Socket, number: u16) -> Port {
        Port { socket_type: socket.socket_type, is_echo: socket.is_echo(), number }
    }
}

impl Sockets {
    /// Binds a Unix socket to the node of its path, with the address that the program gave.
    ///
    /// # Errors
    /// `EINVAL`: it is bound already.
    pub fn bind_file(&mut self, id: SocketId, node: NodeId, address: Address) -> Result<(), Errno> {
        self.set_name(id, UnixName::Node(node), address)
    }

    /// Binds a Unix socket to an abstract name.
    ///
    /// # Errors
    /// `EADDRINUSE`; `EINVAL`: it is bound already.
    pub fn bind_abstract(&mut self, id: SocketId, name: &[u8]) -> Result<(), Errno> {
        self.check_nameless(id)?;
        let key = UnixName::Abstract(self.get(id)?.socket_type, name.into());
        if self.names.contains_key(&key) {
            return Err(Errno::EADDRINUSE);
        }
        self.set_name(id, key, Address::Abstract(name.into()))
    }

    /// Binds an unbound Unix socket to an automatic abstract name (autobind).
    ///
    /// # Errors
    /// `ENOSPC`: all are in use.
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

    /// Checks that a socket is unbound.
    ///
    /// # Errors
    /// `EINVAL`.
    pub fn check_nameless(&self, id: SocketId) -> Result<(), Errno> {
        // An accepted socket has its listener's address, though it is not found by it.
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

    /// The socket with a name.
    ///
    /// # Errors
    /// `ECONNREFUSED`: there is none; `EPROTOTYPE`: its type differs.
    pub fn named(&self, name: &UnixName, socket_type: SockType) -> Result<SocketId, Errno> {
        let id = *self.names.get(name).ok_or(Errno::ECONNREFUSED)?;
        if self.get(id)?.socket_type == socket_type { Ok(id) } else { Err(Errno::EPROTOTYPE) }
    }

    /// Binds a TCP or UDP socket to an address; port 0: an ephemeral port.
    ///
    /// # Errors
    /// `EINVAL`: it is bound already; `EACCES`: the port is privileged; `EADDRNOTAVAIL`: the address is not the cell's; `EADDRINUSE`.
    pub fn bind_port(&mut self, id: SocketId, address: SocketAddr, may_be_low: bool) -> Result<(), Errno> {
        let socket = self.get(id)?;
        if !self.inet.is_own(address.ip()) && !plain(address).ip().is_unspecified() {
            return Err(Errno::EADDRNOTAVAIL);
        }
        if socket.is_raw() {
            // A raw socket's port is its protocol, regardless of the request.
            let bound = SocketAddr::new(in_family(socket.family, address).ip(), socket.protocol as u16);
            self.get_mut(id)?.local = Address::Inet(bound);
            return Ok(());
        }
        if (1..PRIVILEGED).contains(&address.port()) && !may_be_low && !socket.is_echo() {
            return Err(Errno::EACCES);
        }
        let is_over = matches!(socket.state, State::Closed);
        match socket.state {
            State::Idle if socket.port.is_none() => {}
            // A closed connection has released its ephemeral port.
            State::Closed if !socket.chose_port => self.unbind(id)?,
            _ => return Err(Errno::EINVAL),
        }
        let requested = address.port();
        let port = if requested == 0 { self.free_port(id)? } else { requested };
        let address = SocketAddr::new(address.ip(), port);
        if self.conflicts(id, address)? {
            return Err(Errno::EADDRINUSE);
        }
        self.claim_port(id, address)?;
        // A port that a closed connection gets now is kept.
        self.get_mut(id)?.chose_port = requested != 0 || is_over;
        Ok(())
    }

    /// Binds an unbound TCP or UDP socket to an ephemeral port.
    ///
    /// # Errors
    /// `EAGAIN`: all are in use.
    pub fn bind_any_port(&mut self, id: SocketId) -> Result<(), Errno> {
        let socket = self.get(id)?;
        let (is_bound, local) = (socket.port.is_some() || socket.is_raw(), socket.local.internet().ok_or(Errno::EINVAL)?);
        if is_bound {
            return Ok(());
        }
        let port = self.free_port(id).map_err(|_| Errno::EAGAIN)?;
        self.claim_port(id, SocketAddr::new(local.ip(), port))
    }

    fn claim_port(&mut self, id: SocketId, address: SocketAddr) -> Result<(), Errno> {
        let socket = self.get_mut(id)?;
        let port = Port::of(socket, address.port());
        socket.local = Address::Inet(in_family(socket.family, address));
        socket.port = Some(port);
        self.ports.entry(port).or_default().push(id);
        Ok(())
    }

    pub(super) fn release_port(&mut self, port: Port, id: SocketId) {
        if let Some(members) = self.ports.get_mut(&port) {
            members.retain(|member| *member != id);
            if members.is_empty() {
                self.ports.remove(&port);
            }
        }
    }

    /// Unbinds a socket from its port.
    pub(super) fn unbind(&mut self, id: SocketId) -> Result<(), Errno> {
        let socket = self.get_mut(id)?;
        socket.local = socket.unnamed();
        if let Some(port) = socket.port.take() {
            self.release_port(port, id);
        }
        Ok(())
    }

    fn free_port(&mut self, id: SocketId) -> Result<u16, Errno> {
        for _ in EPHEMERAL_PORTS {
            self.next_port = if EPHEMERAL_PORTS.contains(&self.next_port) && self.next_port != *EPHEMERAL_PORTS.end() {
                self.next_port + 1
            } else {
                *EPHEMERAL_PORTS.start()
            };
            // Only unused ports: shared ports are requested by number.
            let socket = self.get(id)?;
            if !self.ports.contains_key(&Port::of(socket, self.next_port)) && !self.is_in_time_wait(socket, self.next_port) {
                return Ok(self.next_port);
            }
        }
        Err(Errno::EADDRINUSE)
    }

    /// Whether another socket's binding, an accepted or a closed connection excludes this binding.
    fn conflicts(&self, id: SocketId, address: SocketAddr) -> Result<bool, Errno> {
        let socket = self.get(id)?;
        let members = self.ports.get(&Port::of(socket, address.port()));
        let excludes = |other: &Socket| {
            let Some(theirs) = other.local.internet() else { return false };
            let both_reuse = socket.options.reuses_address && other.options.reuses_address && !other.listens();
            let both_share = socket.options.shares_port && other.options.shares_port && socket.credentials.user == other.credentials.user;
            let hosts_overlap = overlap((address.ip(), socket.options.is_v6_only), (theirs.ip(), other.options.is_v6_only));
            !both_reuse && !both_share && hosts_overlap
        };
        let is_bound = |other: &SocketId| *other != id && self.get(*other).is_ok_and(excludes);
        // Accepted sockets hold their listener's port, and are not in the table of ports.
        let is_accepted = |other: &&Socket| {
            let holds_port = other.port.is_none() && other.local.internet().is_some_and(|local| local.port() == address.port());
            other.is_tcp() && other.remote_end.is_none() && other.peer().is_some() && holds_port
        };
        Ok(members.is_some_and(|members| members.iter().any(is_bound))
            || socket.is_tcp() && self.all().filter(is_accepted).any(excludes)
            || self.time_wait_excludes(socket, address))
    }

    /// Whether another socket at a socket's port is connected between two addresses.
    pub(super) fn is_connected(&self, id: SocketId, from: SocketAddr, to: SocketAddr) -> Result<bool, Errno> {
        let is_between = |other: &SocketId| {
            let Ok(socket) = self.get(*other) else { return false };
            let has =
                |address: Option<&Address>, wanted| address.and_then(Address::internet).is_some_and(|bound| plain(bound) == plain(wanted));
            let is_open = matches!(socket.state, State::Connected(_) | State::Connecting(_));
            *other != id && is_open && has(Some(&socket.local), from) && has(socket.remote.as_ref(), to)
        };
        let members = self.ports.get(&Port::of(self.get(id)?, from.port()));
        Ok(members.is_some_and(|members| members.iter().any(is_between)))
    }

    /// Checks that no binding excludes a socket that is going to listen.
    ///
    /// # Errors
    /// `EADDRINUSE`.
    pub(super) fn check_listening(&self, id: SocketId) -> Result<(), Errno> {
        let address = self.get(id)?.local.internet().ok_or(Errno::EINVAL)?;
        if self.conflicts(id, address)? { Err(Errno::EADDRINUSE) } else { Ok(()) }
    }

    /// The sockets bound to a port.
    fn at_port(&self, socket_type: SockType, number: u16) -> impl Iterator<Item = SocketId> {
        self.ports.get(&Port { socket_type, is_echo: false, number }).into_iter().flatten().copied()
    }

    /// The socket that receives packets to an address from another: the one with the most specific binding. `by`: the interface on which
    /// they arrive.
    #[must_use]
    pub fn at_address(&self, socket_type: SockType, by: u32, to: SocketAddr, from: Option<SocketAddr>) -> Option<SocketId> {
        let to = plain(to);
        let precision = |id: &SocketId| {
            let socket = self.get(*id).ok().filter(|socket| socket.options.interface.is_none_or(|only| only == by))?;
            let local = socket.local.internet()?;
            let host = plain(local).ip();
            let is_any = host.is_unspecified();
            let takes = if is_any { covers(host, socket.options.is_v6_only, to.ip()) } else { host == to.ip() };
            let is_remote = match (socket_type, socket.remote.as_ref().and_then(Address::internet)) {
                (SockType::Datagram, Some(remote)) if Some(plain(remote)) != from.map(plain) => return None,
                (SockType::Datagram, remote) => remote.is_some(),
                _ if !socket.listens() => return None,
                _ => false,
            };
            let is_same_family = to.is_ipv6() == (socket.family == Family::Inet6);
            takes.then_some((is_remote, !is_any, is_same_family))
        };
        let found: Vec<_> = self.at_port(socket_type, to.port()).filter_map(|id| precision(&id).map(|precision| (precision, id))).collect();
        let (best, last) = *found.iter().max_by_key(|(precision, _)| *precision)?;
        let equals: Vec<SocketId> = found.into_iter().filter(|(precision, _)| *precision == best).map(|(_, id)| id).collect();
        let share = |id: &SocketId| self.get(*id).is_ok_and(|socket| socket.options.shares_port);
        match from {
            // Sockets that share a port (`SO_REUSEPORT`) split its peers by a hash.
            Some(from) if equals.len() > 1 && equals.iter().all(share) => {
                equals.get((spread(to, plain(from)) % equals.len() as u64) as usize).copied()
            }
            // Otherwise the last one, which may have space.
            _ => Some(last),
        }
    }
}

/// A hash of the two ends of a connection.
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

/// Whether an unspecified address, possibly of IPv6 only, covers a host.
fn covers(any: IpAddr, is_v6_only: bool, host: IpAddr) -> bool {
    let host = host.to_canonical();
    any.is_unspecified() && if any.is_ipv4() { host.is_ipv4() } else { host.is_ipv6() || !is_v6_only }
}

/// Whether two bound addresses overlap; each comes with whether it excludes IPv4.
pub(super) fn overlap((one, is_one_v6_only): (IpAddr, bool), (other, is_other_v6_only): (IpAddr, bool)) -> bool {
    let (one, other) = (one.to_canonical(), other.to_canonical());
    match (one.is_unspecified(), other.is_unspecified()) {
        (true, true) => one.is_ipv4() == other.is_ipv4() || !is_one_v6_only && !is_other_v6_only,
        (true, false) => covers(one, is_one_v6_only, other),
        (false, true) => covers(other, is_other_v6_only, one),
        (false, false) => one == other,
    }
}
