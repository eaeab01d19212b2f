// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sockets: Unix ones, and those of TCP and UDP over the cell's own loopback.
//!
//! There is no protocol stack. A connection is two sockets that know each other; what one sends stands in the other's [queue](queue) at once. What TCP
//! tells its ends over time (that the other end is closed, or gone) is said when it happens. Nothing here waits, and nothing here knows who has a socket
//! open: where something would wait it is `EAGAIN`. Names and ports are in [`names`], making and ending connections in [`connect`], what goes through
//! them in [`transfer`].

pub mod address;
pub mod bpf;
pub mod connect;
pub mod cursor;
pub mod icmp;
pub mod names;
pub mod notices;
pub mod options;
pub mod outside;
pub mod packets;
pub mod queue;
pub mod ready;
pub mod transfer;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::net::SocketAddr;

use super::pulse::Pulse;
use crate::errno::Errno;
use address::Address;
use bpf::Program;
use names::{Port, UnixName};
use notices::Told;
use options::Options;
use outside::{Far, Outside};
use queue::Queue;
use transfer::Corked;

/// Which socket: its place in the table, and its inode number, which is given once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SocketId {
    index: usize,
    number: u64,
}

/// What addresses of a socket look like, and what is behind them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Within the system, by paths and names.
    Unix,
    /// The Internet, version 4.
    Internet4,
    /// The Internet, version 6, and version 4 as a part of it.
    Internet6,
    /// Questions about interfaces.
    Netlink,
    /// Frames of interfaces.
    Packet,
}

impl Family {
    /// Linux's number.
    #[must_use]
    pub const fn number(self) -> u16 {
        match self {
            Family::Unix => 1,
            Family::Internet4 => 2,
            Family::Internet6 => 10,
            Family::Netlink => 16,
            Family::Packet => 17,
        }
    }

    /// Whether it is of the Internet.
    #[must_use]
    pub const fn is_internet(self) -> bool {
        matches!(self, Family::Internet4 | Family::Internet6)
    }
}

/// How bytes go through a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Style {
    /// As a stream.
    Stream,
    /// In pieces that arrive whole, from anybody.
    Datagram,
    /// In pieces that arrive whole, through a connection.
    Packets,
    /// In packets as they are.
    Raw,
}

impl Style {
    /// Linux's number.
    #[must_use]
    pub const fn number(self) -> u32 {
        match self {
            Style::Stream => 1,
            Style::Datagram => 2,
            Style::Raw => 3,
            Style::Packets => 5,
        }
    }
}

/// A process, as the other end of its socket is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Who {
    /// Its number.
    pub process: u32,
    /// Its user.
    pub user: u32,
    /// Its group.
    pub group: u32,
}

impl Who {
    /// Nobody that a receiver is told of: Linux's numbers for a process and a user that it does not know.
    pub const NOBODY: Who = Who { process: 0, user: 65_534, group: 65_534 };
}

/// What a socket is connected to.
#[derive(Debug)]
pub enum State {
    /// Nothing.
    Idle,
    /// Whoever connects to it.
    Listening {
        /// How many may wait to be accepted, less one.
        backlog: usize,
        /// Those that wait: their ends here.
        waiting: VecDeque<SocketId>,
        /// Those that wait for room to wait.
        outside: VecDeque<SocketId>,
    },
    /// A listener that has no room yet, or somebody outside who has not answered yet.
    Connecting(SocketId),
    /// This socket, which may be gone by now.
    Connected(SocketId),
    /// A connection that is over.
    Closed,
}

/// A socket.
#[derive(Debug)]
pub struct Socket {
    /// Its addresses.
    pub family: Family,
    /// How bytes go through it.
    pub style: Style,
    /// The protocol, by Linux's number.
    pub protocol: u32,
    /// Its inode number.
    pub number: u64,
    /// What it is connected to.
    pub state: State,
    /// Its address.
    pub local: Address,
    /// The address of what it is connected to.
    pub remote: Option<Address>,
    /// What it is told to do.
    pub options: Options,
    /// What went wrong, until somebody asks.
    pub error: Option<Errno>,
    /// What others said of what it sent and did not arrive.
    pub notices: VecDeque<Told>,
    /// The kinds of ICMP's messages that it does not hear: a bit for each.
    pub filter: [u32; 8],
    /// What says which packets it hears.
    pub program: Option<Program>,
    /// What has arrived.
    pub queue: Queue,
    /// Nothing more is read.
    pub reads_ended: bool,
    /// Nothing more is sent.
    pub sends_ended: bool,
    /// The other end has said that it sends nothing more.
    pub finished: bool,
    /// It is connected, or will not be, and whoever asked for that was not told.
    pub untold: bool,
    /// When it last became ready.
    pub pulse: Pulse,
    /// Who made it.
    pub who: Who,
    /// Who is at the other end.
    pub other: Option<Who>,
    /// It stands for somebody outside.
    pub far: Option<Far>,
    /// It is the end of a connection that nobody has accepted yet.
    is_unaccepted: bool,
    /// What is to be sent in one datagram with what comes next.
    corked: Option<Corked>,
    /// The name by which it is found.
    name: Option<UnixName>,
    /// The port by which it is found.
    port: Option<Port>,
    /// It asked for that port.
    chose_port: bool,
}

impl Socket {
    /// Whether it is one of TCP.
    #[must_use]
    pub fn is_tcp(&self) -> bool {
        self.family.is_internet() && self.style == Style::Stream
    }

    /// Whether it is one of UDP.
    #[must_use]
    pub fn is_udp(&self) -> bool {
        self.family.is_internet() && self.style == Style::Datagram && !self.is_echo()
    }

    /// Whether it sends and receives by way of a connection only.
    #[must_use]
    pub fn needs_connection(&self) -> bool {
        matches!(self.style, Style::Stream | Style::Packets)
    }

    /// The address that it has before it gets one: of raw sockets it tells the protocol.
    fn unnamed(&self) -> Address {
        match packets::unbound(self.family, self.protocol) {
            Address::Internet(none) if self.is_raw() => Address::Internet(SocketAddr::new(none.ip(), self.protocol as u16)),
            none => none,
        }
    }

    /// What it is connected to.
    #[must_use]
    pub fn peer(&self) -> Option<SocketId> {
        if let State::Connected(peer) = self.state { Some(peer) } else { None }
    }

    /// Whether it listens.
    #[must_use]
    pub fn listens(&self) -> bool {
        matches!(self.state, State::Listening { .. })
    }

    /// What went wrong; asked once, it is forgotten.
    ///
    /// # Errors
    /// That.
    pub fn take_error(&mut self) -> Result<(), Errno> {
        self.error.take().map_or(Ok(()), Err)
    }

    /// Ends both directions.
    fn end_both(&mut self) {
        self.reads_ended = true;
        self.sends_ended = true;
        self.pulse.other();
    }

    /// Notes what went wrong, for whoever asks.
    fn fail(&mut self, error: Errno) {
        self.error = Some(error);
        self.pulse.other();
    }

    /// Ends the connection, with what is to be told of it.
    fn reset(&mut self, error: Errno) {
        self.fail(error);
        self.end_both();
        self.state = State::Closed;
    }
}

/// All sockets.
#[derive(Debug, Default)]
pub struct Sockets {
    sockets: Vec<Option<Socket>>,
    free: Vec<usize>,
    made: u64,
    names: BTreeMap<UnixName, SocketId>,
    ports: BTreeMap<Port, Vec<SocketId>>,
    /// Sockets that hear messages of ICMP.
    icmp: Vec<SocketId>,
    /// Sockets that hear frames.
    packets: Vec<SocketId>,
    /// Where outside is.
    pub outside: Outside,
    /// What says when something has arrived: nanoseconds of the wall clock.
    pub clock: Option<fn() -> u64>,
    /// What a name or port that nobody chose begins with.
    next_name: u32,
    next_port: u16,
}

impl Sockets {
    /// Makes a socket.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn open(&mut self, family: Family, style: Style, protocol: u32, who: Who) -> Result<SocketId, Errno> {
        let index = if let Some(index) = self.free.pop() {
            index
        } else {
            self.sockets.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
            self.sockets.push(None);
            self.sockets.len() - 1
        };
        self.made += 1;
        let number = self.made;
        self.sockets[index] = Some(Socket {
            family,
            style,
            protocol,
            number,
            state: State::Idle,
            local: Address::none(family),
            remote: None,
            options: Options::new(family, style),
            error: None,
            notices: VecDeque::new(),
            filter: [0; 8],
            program: None,
            queue: Queue::default(),
            reads_ended: false,
            sends_ended: false,
            finished: false,
            untold: false,
            pulse: Pulse::default(),
            who,
            other: None,
            far: None,
            is_unaccepted: false,
            corked: None,
            name: None,
            port: None,
            chose_port: false,
        });
        let id = SocketId { index, number };
        let socket = self.get_mut(id)?;
        socket.local = socket.unnamed();
        if socket.is_echo() || socket.is_raw() {
            self.icmp.push(id);
        }
        if family == Family::Packet {
            self.packets.push(id);
        }
        Ok(id)
    }

    /// What the wall clock shows, if there is one.
    pub(crate) fn time(&self) -> Option<u64> {
        self.clock.map(|clock| clock())
    }

    /// Makes two Unix sockets that are connected to each other.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn pair(&mut self, style: Style, protocol: u32, who: Who) -> Result<[SocketId; 2], Errno> {
        let first = self.open(Family::Unix, style, protocol, who)?;
        let second = match self.open(Family::Unix, style, protocol, who) {
            Ok(second) => second,
            Err(error) => {
                self.remove(first);
                return Err(error);
            }
        };
        for (socket, peer) in [(first, second), (second, first)] {
            let socket = self.get_mut(socket)?;
            socket.state = State::Connected(peer);
            socket.remote = Some(Address::Unnamed);
            socket.other = Some(who);
        }
        Ok([first, second])
    }

    /// A socket.
    ///
    /// # Errors
    /// `EBADF`: it is gone.
    pub fn get(&self, id: SocketId) -> Result<&Socket, Errno> {
        let socket = self.sockets.get(id.index).and_then(Option::as_ref);
        socket.filter(|socket| socket.number == id.number).ok_or(Errno::EBADF)
    }

    /// A socket, to be changed.
    ///
    /// # Errors
    /// `EBADF`: it is gone.
    pub fn get_mut(&mut self, id: SocketId) -> Result<&mut Socket, Errno> {
        let socket = self.sockets.get_mut(id.index).and_then(Option::as_mut);
        let socket = socket.filter(|socket| socket.number == id.number).ok_or(Errno::EBADF)?;
        self.outside.note(id, socket);
        Ok(socket)
    }

    /// Takes a socket out of the table, and from where it is found.
    fn remove(&mut self, id: SocketId) -> Option<Socket> {
        self.get(id).ok()?;
        let socket = self.sockets.get_mut(id.index)?.take()?;
        self.free.push(id.index);
        self.icmp.retain(|other| *other != id);
        self.packets.retain(|other| *other != id);
        if let Some(name) = &socket.name {
            self.names.remove(name);
        }
        if let Some(port) = socket.port {
            self.give_port_back(port, id);
        }
        Some(socket)
    }
}
