// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sockets of the libOS and of the host with the same history of operations.

use crate::operation::{Kind, Operation, SOCKETS};
use core::net::{Ipv4Addr, SocketAddr};
use pando_libos::errno::Errno;
use pando_libos::files::socket::address::Address;
use pando_libos::files::socket::names::UnixName;
use pando_libos::files::socket::options::Value;
use pando_libos::files::socket::queue::ControlMessage;
use pando_libos::files::socket::transfer::{Destination, ReceiveRequest, SendRequest};
use pando_libos::files::socket::{Family, PeerCredentials, SockType, SocketId, Sockets};
use pando_libos::uapi::{POLLERR, POLLHUP, POLLIN, POLLOUT, POLLRDHUP, SO_ERROR, SOL_SOCKET};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};

/// The result of an operation: bytes or a number, or an error number.
type Answer = Result<Vec<u8>, i32>;

const WHO: PeerCredentials = PeerCredentials { process: 1, user: 0, group: 0 };
/// The poll events that are queried.
const ASKED: u16 = POLLIN | POLLOUT | POLLERR | POLLHUP | POLLRDHUP;

/// A socket on either side, and its address there.
#[derive(Debug)]
struct Twin {
    kind: Kind,
    ours: SocketId,
    theirs: OwnedFd,
    /// A unique name.
    name: Option<String>,
}

#[derive(Debug, Default)]
pub(crate) struct ComparedSockets {
    sockets: Sockets,
    places: [Option<Twin>; SOCKETS],
}

/// A name that no socket of the host has.
fn fresh_name() -> String {
    static MADE: AtomicU64 = AtomicU64::new(0);
    format!("pando-{}-{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed))
}

fn bytes(count: usize) -> Vec<u8> {
    static SEED: AtomicU64 = AtomicU64::new(0);
    let seed = SEED.fetch_add(1, Ordering::Relaxed);
    (0..count).map(|index| (index as u64 * 31 + seed * 7) as u8).collect()
}

fn shape(socket_type: SockType) -> SocketType {
    match socket_type {
        SockType::Stream => SocketType::STREAM,
        SockType::Datagram => SocketType::DGRAM,
        SockType::SeqPacket => SocketType::SEQPACKET,
        SockType::Raw => SocketType::RAW,
    }
}

impl Kind {
    fn ours(self) -> (Family, SockType) {
        match self {
            Kind::Unix(socket_type) => (Family::Unix, socket_type),
            Kind::Tcp => (Family::Inet, SockType::Stream),
            Kind::Udp => (Family::Inet, SockType::Datagram),
        }
    }
}

fn ours<T>(result: Result<T, Errno>, show: impl FnOnce(T) -> Vec<u8>) -> Answer {
    result.map(show).map_err(|error| error as i32)
}

fn theirs<T>(result: rustix::io::Result<T>, show: impl FnOnce(T) -> Vec<u8>) -> Answer {
    result.map(show).map_err(rustix::io::Errno::raw_os_error)
}

fn nothing<T>(_: T) -> Vec<u8> {
    Vec::new()
}

/// Waits until the host's socket has received what ours has: loopback may be slower.
fn settle(fd: &OwnedFd, answer: &Answer, events: PollFlags) {
    if *answer != Err(Errno::EAGAIN as i32) {
        let timeout = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
        let _ = poll(&mut [PollFd::new(fd, events)], Some(&timeout));
    }
}

impl ComparedSockets {
    fn close(&mut self, place: usize) {
        if let Some(twin) = self.places[place].take() {
            self.sockets.close(twin.ours);
        }
    }

    fn put(&mut self, place: usize, kind: Kind, ours: SocketId, theirs: OwnedFd) {
        self.close(place);
        self.places[place] = Some(Twin { kind, ours, theirs, name: None });
    }

    /// Performs an operation on both. Returns the answers; an operation on an empty slot answers with nothing.
    pub(crate) fn perform(&mut self, operation: &Operation) -> (Answer, Answer) {
        let nobody = (Ok(Vec::new()), Ok(Vec::new()));
        match *operation {
            Operation::Pair(one, other, _) if one == other => nobody,
            Operation::Pair(one, other, socket_type) => {
                let [first, second] = self.sockets.pair(socket_type, 0, WHO).expect("there is memory");
                let (third, fourth) =
                    net::socketpair(AddressFamily::UNIX, shape(socket_type), SocketFlags::NONBLOCK, None).expect("the host has sockets");
                self.put(one, Kind::Unix(socket_type), first, third);
                self.put(other, Kind::Unix(socket_type), second, fourth);
                nobody
            }
            Operation::Open(place, kind) => {
                let (family, socket_type) = kind.ours();
                let ours = self.sockets.open(family, socket_type, 0, WHO).expect("there is memory");
                let domain = if family == Family::Unix { AddressFamily::UNIX } else { AddressFamily::INET };
                let theirs = net::socket_with(domain, shape(socket_type), SocketFlags::NONBLOCK, None).expect("the host has sockets");
                self.put(place, kind, ours, theirs);
                nobody
            }
            Operation::Close(place) => {
                self.close(place);
                nobody
            }
            Operation::Bind(place) => self.bind(place).unwrap_or(nobody),
            Operation::Connect(place, target) => self.connect(place, target).unwrap_or(nobody),
            Operation::Accept(place, to) => self.accept(place, to).unwrap_or(nobody),
            Operation::SendTo(place, target, count) => self.send_to(place, target, &bytes(count)).unwrap_or(nobody),
            _ => self.ask(operation).unwrap_or(nobody),
        }
    }

    fn bind(&mut self, place: usize) -> Option<(Answer, Answer)> {
        let twin = self.places[place].as_mut()?;
        if let Kind::Unix(_) = twin.kind {
            let name = fresh_name();
            let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).expect("it is short");
            let bound = ours(self.sockets.bind_abstract(twin.ours, name.as_bytes()), nothing);
            if bound.is_ok() {
                twin.name = Some(name);
            }
            return Some((bound, theirs(net::bind(&twin.theirs, &address), nothing)));
        }
        let any = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
        Some((ours(self.sockets.bind_port(twin.ours, any, true), nothing), theirs(net::bind(&twin.theirs, &any), nothing)))
    }

    /// The addresses of a socket on our side and on the host, if its family is the same.
    fn addresses(&self, kind: Kind, target: usize) -> Option<((SocketId, Address), net::SocketAddrAny)> {
        let target = self.places[target].as_ref()?;
        match (kind, target.kind) {
            (Kind::Unix(_), Kind::Unix(_)) => {
                let name = target.name.as_ref()?;
                let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).expect("it is short");
                Some(((target.ours, Address::Abstract(name.as_bytes().into())), address.into()))
            }
            (Kind::Tcp, Kind::Tcp) | (Kind::Udp, Kind::Udp) => {
                let local = self.sockets.get(target.ours).ok()?.local.clone();
                let address = net::getsockname(&target.theirs).ok()?;
                local.internet().filter(|local| local.port() != 0)?;
                Some(((target.ours, local), address))
            }
            _ => None,
        }
    }

    fn connect(&mut self, place: usize, target: usize) -> Option<(Answer, Answer)> {
        let twin = self.places[place].as_ref()?;
        // Linux lets a TCP socket connect to itself, which is seldom intended.
        if place == target && twin.kind == Kind::Tcp {
            return None;
        }
        let ((_, address), there) = self.addresses(twin.kind, target)?;
        let result = match (&address, twin.kind) {
            (Address::Inet(to), _) => self.sockets.connect_port(twin.ours, *to, false),
            (Address::Abstract(name), Kind::Unix(socket_type)) => {
                let found = self.sockets.named(&UnixName::Abstract(socket_type, name.clone()), socket_type);
                found.and_then(|found| self.sockets.connect_unix(twin.ours, found, address, WHO))
            }
            _ => return None,
        };
        let answer = ours(result, nothing);
        let told = theirs(net::connect(&twin.theirs, &there), nothing);
        if answer == Err(Errno::EINPROGRESS as i32) {
            settle(&twin.theirs, &answer, PollFlags::OUT);
        }
        Some((answer, told))
    }

    fn accept(&mut self, place: usize, to: usize) -> Option<(Answer, Answer)> {
        let twin = self.places[place].as_ref()?;
        let kind = twin.kind;
        let accepted = self.sockets.accept(twin.ours, false);
        let answer = ours(accepted, nothing);
        settle(&twin.theirs, &answer, PollFlags::IN);
        let there = net::accept_with(&twin.theirs, SocketFlags::NONBLOCK);
        let told = theirs(there.as_ref().map_err(|error| *error), nothing);
        if let (Ok(ours), Ok(theirs)) = (accepted, there) {
            self.put(to, kind, ours, theirs);
        }
        Some((answer, told))
    }

    fn send_ours(&mut self, id: SocketId, to: &Destination, bytes: &[u8]) -> Answer {
        let mut rest = bytes;
        let mut give = |room: &mut [u8]| {
            let (piece, left) = rest.split_at(room.len());
            room.copy_from_slice(piece);
            rest = left;
            piece.len()
        };
        let sending = SendRequest { length: bytes.len(), control: ControlMessage::default(), urgent: false, more: false, give: &mut give };
        ours(self.sockets.send(id, to, sending), |count| count.to_le_bytes().to_vec())
    }

    fn send_to(&mut self, place: usize, target: usize, bytes: &[u8]) -> Option<(Answer, Answer)> {
        let twin = self.places[place].as_ref()?;
        let (id, kind) = (twin.ours, twin.kind);
        let ((_, address), there) = self.addresses(kind, target)?;
        let to = match (&address, kind) {
            // The destination is ignored on connections.
            (_, Kind::Tcp | Kind::Unix(SockType::SeqPacket)) => Ok(Destination::Connected),
            (Address::Inet(to), _) => Ok(Destination::Inet(*to)),
            (Address::Abstract(_), Kind::Unix(SockType::Stream)) => Ok(Destination::Unix(id)),
            (Address::Abstract(name), _) => {
                self.sockets.named(&UnixName::Abstract(SockType::Datagram, name.clone()), SockType::Datagram).map(Destination::Unix)
            }
            _ => return None,
        };
        let answer = to.map_err(|error| error as i32).and_then(|to| self.send_ours(id, &to, bytes));
        let twin = self.places[place].as_ref()?;
        let told = theirs(net::sendto(&twin.theirs, bytes, SendFlags::NOSIGNAL, &there), |count| count.to_le_bytes().to_vec());
        Some((answer, told))
    }

    fn receive(&mut self, place: usize, room: usize, peeks: bool) -> Option<(Answer, Answer)> {
        let twin = self.places[place].as_ref()?;
        let mut got = Vec::new();
        let mut take = |piece: &[u8]| {
            got.extend_from_slice(piece);
            piece.len()
        };
        let received = self.sockets.receive(twin.ours, ReceiveRequest { room, peeks, waits: false, take: &mut take });
        let answer = ours(received, |_| got);
        settle(&twin.theirs, &answer, PollFlags::IN);
        let mut buffer = vec![0; room];
        let flags = if peeks { RecvFlags::PEEK } else { RecvFlags::empty() };
        let told = net::recv(&twin.theirs, &mut buffer[..], flags).map(|(_, count)| count);
        Some((answer, theirs(told, |count| buffer[..count].to_vec())))
    }

    /// Performs operations on one socket that neither create nor name another.
    fn ask(&mut self, operation: &Operation) -> Option<(Answer, Answer)> {
        match *operation {
            Operation::Send(place, count) => {
                let id = self.places[place].as_ref()?.ours;
                let sent = bytes(count);
                let answer = self.send_ours(id, &Destination::Connected, &sent);
                let twin = self.places[place].as_ref()?;
                Some((answer, theirs(net::send(&twin.theirs, &sent, SendFlags::NOSIGNAL), |count| count.to_le_bytes().to_vec())))
            }
            Operation::Receive(place, room) => self.receive(place, room, false),
            Operation::Peek(place, room) => self.receive(place, room, true),
            Operation::Listen(place, backlog) => {
                let twin = self.places[place].as_ref()?;
                let answer = ours(self.sockets.listen(twin.ours, backlog, WHO), nothing);
                Some((answer, theirs(net::listen(&twin.theirs, backlog as i32), nothing)))
            }
            Operation::Disconnect(place) => {
                let twin = self.places[place].as_ref()?;
                if matches!(twin.kind, Kind::Unix(SockType::Stream | SockType::SeqPacket)) {
                    return None;
                }
                let answer = ours(self.sockets.disconnect(twin.ours), nothing);
                Some((answer, theirs(net::connect_unspec(&twin.theirs), nothing)))
            }
            Operation::Shutdown(place, how) => {
                let twin = self.places[place].as_ref()?;
                let direction = [Shutdown::Read, Shutdown::Write, Shutdown::Both].get(how as usize)?;
                let answer = ours(self.sockets.shutdown(twin.ours, how), nothing);
                Some((answer, theirs(net::shutdown(&twin.theirs, *direction), nothing)))
            }
            Operation::Ready(place) => {
                let twin = self.places[place].as_ref()?;
                let ready = self.sockets.ready(twin.ours) & ASKED;
                let events = PollFlags::IN | PollFlags::OUT | PollFlags::RDHUP;
                let mut asked = [PollFd::new(&twin.theirs, events)];
                let told = poll(&mut asked, Some(&Timespec::default()));
                let shown = asked[0].revents().bits();
                Some((Ok(ready.to_le_bytes().to_vec()), theirs(told, |_| shown.to_le_bytes().to_vec())))
            }
            Operation::Error(place) => {
                let twin = self.places[place].as_ref()?;
                let found = self.sockets.get_mut(twin.ours).and_then(|socket| socket.option(SOL_SOCKET, SO_ERROR));
                let answer =
                    ours(found, |value| if let Value::Number(number) = value { number.to_le_bytes().to_vec() } else { Vec::new() });
                let told = net::sockopt::socket_error(&twin.theirs);
                Some((answer, theirs(told, |error| error.err().map_or(0, |error| error.raw_os_error()).to_le_bytes().to_vec())))
            }
            Operation::Peer(place) => {
                let twin = self.places[place].as_ref()?;
                let peer = self.sockets.get(twin.ours).and_then(|socket| socket.peer().ok_or(Errno::ENOTCONN));
                Some((ours(peer, nothing), theirs(net::getpeername(&twin.theirs), nothing)))
            }
            Operation::Waiting(place) => {
                let twin = self.places[place].as_ref()?;
                let socket = self.sockets.get(twin.ours).ok()?;
                if socket.listens() {
                    return None;
                }
                let waiting = socket.queue.length(socket.socket_type != SockType::Datagram) as u64;
                Some((
                    Ok(waiting.to_le_bytes().to_vec()),
                    theirs(rustix::io::ioctl_fionread(&twin.theirs), |count| count.to_le_bytes().to_vec()),
                ))
            }
            _ => None,
        }
    }
}
