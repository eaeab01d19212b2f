// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sending and receiving through sockets.

use alloc::vec::Vec;
use core::net::SocketAddr;

use super::address::{Address, LinkAddress, in_family, plain};
use super::names::LOOPBACK;
use super::queue::{ControlMessage, Packet, ReceiveResult};
use super::{Family, PeerCredentials, SockType, Socket, SocketId, Sockets, State};
use crate::errno::Errno;
use crate::uapi::{IP_TOS, IP_TTL, IPV6_TCLASS, IPV6_UNICAST_HOPS, SO_OOBINLINE, SOL_IP, SOL_IPV6, SOL_SOCKET, SOL_UDP, UDP_CORK};

/// Maximum payload of a UDP datagram in bytes.
const UDP_MAX: usize = 65507;
/// Upper limit, minus one, on a Unix socket's queued datagrams from senders that are not its peer, as in
/// `/proc/sys/net/unix/max_dgram_qlen`.
const DATAGRAMS_MAX: usize = 10;
/// Bytes of a Unix socket's send limit that Linux reserves.
const UNIX_RESERVE: usize = 32;

/// The destination of a send operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// The socket's peer.
    Connected,
    /// This Unix socket.
    Unix(SocketId),
    /// This address.
    Inet(SocketAddr),
    /// A link-layer address on an interface.
    Link(LinkAddress),
}

/// The parameters of a send operation.
pub struct SendRequest<'a> {
    /// The number of bytes.
    pub length: usize,
    /// Control messages and sender.
    pub control: ControlMessage,
    /// The last byte is urgent (`MSG_OOB`).
    pub urgent: bool,
    /// More parts of the datagram follow (`MSG_MORE`).
    pub more: bool,
    /// Fills the given buffer with the bytes to send, and returns how many it filled.
    pub give: &'a mut dyn FnMut(&mut [u8]) -> usize,
}

/// A datagram that is assembled from several parts.
#[derive(Debug)]
pub struct CorkedDatagram {
    to: Destination,
    bytes: Vec<u8>,
    packet: Packet,
}

/// The parameters of a receive operation.
pub struct ReceiveRequest<'a> {
    /// Size of the receiver's buffer in bytes.
    pub room: usize,
    /// The data stays in the queue (`MSG_PEEK`).
    pub peeks: bool,
    /// The operation may block.
    pub waits: bool,
    /// Takes the received bytes, and returns how many it took.
    pub take: &'a mut dyn FnMut(&[u8]) -> usize,
}

impl Socket {
    /// The limit on the bytes in the peer's queue.
    fn send_limit(&self) -> usize {
        self.options.send_limit(self.is_tcp())
    }

    /// Appends bytes to the receive queue of a stream.
    pub(super) fn receive_into(
        &mut self,
        room: usize,
        control: ControlMessage,
        give: &mut dyn FnMut(&mut [u8]) -> usize,
    ) -> Result<usize, Errno> {
        self.event_times.input();
        self.queue.push(room, control, give)
    }

    /// Appends bytes to the receive queue of a stream, the last of them urgent.
    fn take_urgent(&mut self, before: usize, give: &mut dyn FnMut(&mut [u8]) -> usize) -> Result<usize, Errno> {
        if before > 0 {
            let done = self.receive_into(before, ControlMessage::default(), give)?;
            if done < before {
                return Ok(done);
            }
        }
        let mut byte = [0];
        if give(&mut byte) == 0 {
            return if before > 0 { Ok(before) } else { Err(Errno::EFAULT) };
        }
        let in_line = self.stored_option(SOL_SOCKET, SO_OOBINLINE).is_some_and(|value| value != 0);
        self.event_times.other();
        self.queue.push_urgent(byte[0], in_line, PeerCredentials::default())?;
        Ok(before + 1)
    }
}

/// Whether the queue of a Unix socket is full for senders that are not its peer.
pub(super) fn is_full_for_others(socket: &Socket) -> bool {
    socket.queue.count() > DATAGRAMS_MAX
}

impl Sockets {
    /// Sends. Returns how many bytes: of a stream as many as fit. Open files that are sent with them hold a reference from then on.
    ///
    /// # Errors
    /// `EAGAIN`: the queue is full. `EOPNOTSUPP`: data that leaves the cell cannot be urgent. `EPIPE`, `ECONNRESET`, `ECONNREFUSED`,
    /// `ENOTCONN`, `EDESTADDRREQ`, `EISCONN`, `EOPNOTSUPP`, `EMSGSIZE`, `EPERM`, `EFAULT`, `ENOMEM`.
    pub fn send(&mut self, id: SocketId, to: &Destination, sending: SendRequest<'_>) -> Result<usize, Errno> {
        let socket = self.get(id)?;
        match (socket.family, socket.socket_type) {
            (Family::Unix, SockType::Stream) => self.send_stream(id, to, sending),
            (Family::Unix, SockType::SeqPacket) => self.send_packet(id, sending),
            (Family::Unix, SockType::Datagram) => self.send_datagram(id, to, sending),
            (_, SockType::Stream) => self.send_tcp(id, sending),
            (Family::Inet | Family::Inet6, _) if socket.is_udp() => self.send_pieces(id, to, sending),
            (Family::Inet | Family::Inet6, _) => self.send_message(id, to, sending),
            (Family::Unix, SockType::Raw) => Err(Errno::EOPNOTSUPP),
            (Family::Packet, _) => self.send_frame(id, to, sending),
            (Family::Netlink, _) => Err(Errno::EOPNOTSUPP),
        }
    }

    /// Sends bytes of the libOS to a socket's peer. Returns how many.
    ///
    /// # Errors
    /// Those of [`Sockets::send`].
    pub fn send_bytes(&mut self, id: SocketId, bytes: &[u8]) -> Result<usize, Errno> {
        let mut give = giving(bytes);
        self.send(
            id,
            &Destination::Connected,
            SendRequest { length: bytes.len(), control: ControlMessage::default(), urgent: false, more: false, give: &mut give },
        )
    }

    fn send_tcp(&mut self, id: SocketId, sending: SendRequest<'_>) -> Result<usize, Errno> {
        let socket = self.get_mut(id)?;
        if matches!(socket.state, State::Connecting(_)) {
            return Err(Errno::EAGAIN);
        }
        let limit = socket.send_limit();
        let Some(peer) = socket.peer().filter(|_| socket.error.is_none() && !socket.is_send_shutdown) else {
            return Err(socket.error.take().unwrap_or(Errno::EPIPE));
        };
        if sending.length == 0 {
            return Ok(0);
        }
        let room = match self.get(peer) {
            // smoltcp does not support urgent bytes.
            Ok(Socket { remote_end: Some(_), .. }) if sending.urgent => return Err(Errno::EOPNOTSUPP),
            Ok(other) if other.remote_end.is_some() && !(other.is_rcv_shutdown && other.is_send_shutdown) => {
                return self.send_to_remote_end(peer, sending.give);
            }
            Ok(other) if !(other.is_rcv_shutdown && other.is_send_shutdown) => limit.saturating_sub(other.queue.used()).min(sending.length),
            // The peer is closed: the next send gets a reset.
            other => {
                if other.is_ok() {
                    self.get_mut(peer)?.reset(Errno::ECONNRESET);
                } else {
                    self.time_wait.remove(peer);
                }
                self.reset_peer(id);
                return Ok(sending.length);
            }
        };
        if room == 0 {
            return Err(Errno::EAGAIN);
        }
        let other = self.get_mut(peer)?;
        if sending.urgent && room == sending.length {
            other.take_urgent(room - 1, sending.give)
        } else {
            other.receive_into(room, ControlMessage::default(), sending.give)
        }
    }

    fn send_stream(&mut self, id: SocketId, to: &Destination, sending: SendRequest<'_>) -> Result<usize, Errno> {
        let socket = self.get(id)?;
        let limit = socket.send_limit();
        let peer = match (socket.peer(), to) {
            (Some(_), Destination::Unix(_)) => return Err(Errno::EISCONN),
            (None, Destination::Unix(_)) => return Err(Errno::EOPNOTSUPP),
            (None, _) => return Err(Errno::ENOTCONN),
            (Some(peer), _) => peer,
        };
        if socket.is_send_shutdown {
            return Err(Errno::EPIPE);
        }
        if sending.length == 0 {
            return Ok(0);
        }
        let other = self.get_mut(peer).map_err(|_| Errno::EPIPE)?;
        if other.is_rcv_shutdown {
            return Err(Errno::EPIPE);
        }
        let room = limit.saturating_sub(other.queue.used()).min(sending.length);
        if room == 0 { Err(Errno::EAGAIN) } else { other.receive_into(room, sending.control, sending.give) }
    }

    fn send_packet(&mut self, id: SocketId, sending: SendRequest<'_>) -> Result<usize, Errno> {
        let socket = self.get_mut(id)?;
        socket.take_error()?;
        let peer = socket.peer().ok_or(Errno::ENOTCONN)?;
        self.deliver(id, peer, sending)
    }

    fn send_datagram(&mut self, id: SocketId, to: &Destination, sending: SendRequest<'_>) -> Result<usize, Errno> {
        let socket = self.get_mut(id)?;
        if sending.length > socket.send_limit() - UNIX_RESERVE {
            return Err(Errno::EMSGSIZE);
        }
        socket.take_error()?;
        if socket.is_send_shutdown {
            return Err(Errno::EPIPE);
        }
        let (target, is_peer) = match (to, socket.peer()) {
            (Destination::Unix(target), peer) => (*target, peer == Some(*target)),
            (_, Some(peer)) => (peer, true),
            _ => return Err(Errno::ENOTCONN),
        };
        if self.get(target).is_err() {
            let socket = self.get_mut(id)?;
            if is_peer {
                (socket.state, socket.remote) = (State::Idle, None);
            }
            return Err(Errno::ECONNREFUSED);
        }
        if !self.may_send(id, target)? {
            return Err(Errno::EPERM);
        }
        self.deliver(id, target, sending)
    }

    /// Appends a datagram or a part of a stream to the queue of a Unix socket.
    fn deliver(&mut self, id: SocketId, to: SocketId, sending: SendRequest<'_>) -> Result<usize, Errno> {
        let socket = self.get(id)?;
        let limit = socket.send_limit();
        if sending.length > limit - UNIX_RESERVE {
            return Err(Errno::EMSGSIZE);
        }
        if socket.is_send_shutdown {
            return Err(Errno::EPIPE);
        }
        let from = socket.local.clone();
        let other = self.get_mut(to).map_err(|_| Errno::EPIPE)?;
        if other.is_rcv_shutdown {
            return Err(Errno::EPIPE);
        }
        let is_mutual = to == id || other.peer() == Some(id);
        if other.queue.used() >= limit || !is_mutual && is_full_for_others(other) {
            return Err(Errno::EAGAIN);
        }
        other.queue.push_whole(sending.length, from, sending.control, sending.give)?;
        other.event_times.input();
        Ok(sending.length)
    }

    /// Whether a message through a Unix socket carries the sender's credentials. It does if an end has requested them, or is not accepted
    /// yet and may still do so.
    #[must_use]
    pub fn passes_credentials(&self, id: SocketId, to: &Destination) -> bool {
        let Ok(socket) = self.get(id) else { return false };
        let target = if let Destination::Unix(target) = to { Some(*target) } else { socket.peer() };
        let target = target.and_then(|target| self.get(target).ok());
        socket.options.passes_credentials || target.is_some_and(|target| target.options.passes_credentials || target.is_unaccepted)
    }

    /// Sends by UDP, or appends to the datagram being assembled.
    fn send_pieces(&mut self, id: SocketId, to: &Destination, sending: SendRequest<'_>) -> Result<usize, Errno> {
        let socket = self.get_mut(id)?;
        let waits = sending.more || socket.stored_option(SOL_UDP, UDP_CORK).is_some_and(|value| value != 0);
        let before = socket.corked.take();
        if !waits && before.is_none() {
            return self.send_udp(id, to, sending);
        }
        if before.is_none() && *to == Destination::Connected && socket.remote.is_none() {
            return Err(Errno::EDESTADDRREQ);
        }
        let length = sending.length;
        let mut whole = before.unwrap_or_else(|| CorkedDatagram { to: to.clone(), bytes: Vec::new(), packet: sending.control.packet });
        if whole.bytes.len().saturating_add(length) > UDP_MAX {
            return Err(Errno::EMSGSIZE);
        }
        let piece = gather(length, sending.give)?;
        whole.bytes.try_reserve(length).map_err(|_| Errno::ENOMEM)?;
        whole.bytes.extend(piece);
        self.get_mut(id)?.corked = Some(whole);
        if !waits {
            self.uncork(id)?;
        }
        Ok(length)
    }

    /// Sends the datagram being assembled, if there is one.
    ///
    /// # Errors
    /// Those of [`Sockets::send`].
    pub fn uncork(&mut self, id: SocketId) -> Result<(), Errno> {
        let Some(CorkedDatagram { to, bytes, packet }) = self.get_mut(id)?.corked.take() else { return Ok(()) };
        let mut give = giving(&bytes);
        let control = ControlMessage { packet, ..ControlMessage::default() };
        self.send_udp(id, &to, SendRequest { length: bytes.len(), control, urgent: false, more: false, give: &mut give }).map(|_| ())
    }

    fn send_udp(&mut self, id: SocketId, to: &Destination, sending: SendRequest<'_>) -> Result<usize, Errno> {
        self.bind_any_port(id)?;
        let socket = self.get(id)?;
        let to = match (to, socket.remote.as_ref().and_then(Address::internet)) {
            (Destination::Inet(to), _) if to.port() == 0 => return Err(Errno::EINVAL),
            (Destination::Inet(to), _) => *to,
            (_, Some(remote)) => remote,
            _ => return Err(Errno::EDESTADDRREQ),
        };
        let to = self.reachable(id, to)?;
        if sending.length > UDP_MAX {
            return Err(Errno::EMSGSIZE);
        }
        let socket = self.get_mut(id)?;
        socket.take_error()?;
        if socket.is_send_shutdown {
            return Err(Errno::EPIPE);
        }
        let from = self.source(id, to)?;
        let packet = self.packet(id, to, sending.control.packet)?;
        if !self.inet.is_own(to.ip()) {
            return self.send_remote([from, to], packet.hops, sending);
        }
        let Some(target) = self.at_address(SockType::Datagram, LOOPBACK, to, Some(from)) else {
            let bytes = gather(sending.length, sending.give)?;
            self.get_mut(id)?.process_refusal([from, to], &bytes);
            return Ok(bytes.len());
        };
        let time = self.time();
        let other = self.get_mut(target)?;
        let from = Address::Inet(in_family(other.family, from));
        // A datagram that does not fit is dropped, as on any network.
        if other.queue.used() < other.options.receive_buffer {
            let packet = Packet { time, ..packet };
            other.queue.push_whole(sending.length, from, ControlMessage { packet, ..ControlMessage::default() }, sending.give)?;
            other.event_times.input();
        }
        Ok(sending.length)
    }

    /// The header fields of a packet to an address: those given, or the socket's options.
    pub(super) fn packet(&self, id: SocketId, to: SocketAddr, requested: Packet) -> Result<Packet, Errno> {
        let socket = self.get(id)?;
        let (level, hops, class) = if to.is_ipv6() { (SOL_IPV6, IPV6_UNICAST_HOPS, IPV6_TCLASS) } else { (SOL_IP, IP_TTL, IP_TOS) };
        let option_value = |option| socket.stored_option(level, option).unwrap_or_default().cast_signed();
        let value_or_option =
            |requested: Option<i32>, option| Some(requested.filter(|requested| *requested >= 0).unwrap_or_else(|| option_value(option)));
        Ok(Packet {
            hops: value_or_option(requested.hops, hops),
            class: value_or_option(requested.class, class),
            to: Some(to.ip()),
            by: LOOPBACK,
            time: None,
        })
    }

    /// The source address of a datagram to another address.
    pub(super) fn source(&self, id: SocketId, to: SocketAddr) -> Result<SocketAddr, Errno> {
        let local = plain(self.get(id)?.local.internet().ok_or(Errno::EINVAL)?);
        let host = if local.ip().is_unspecified() { self.inet.source_address(to.ip()) } else { local.ip() };
        Ok(SocketAddr::new(host, local.port()))
    }

    /// Receives. Returns no bytes at the end of the stream.
    ///
    /// # Errors
    /// `EAGAIN`: no data is available yet. `ENOTCONN`, `EINVAL`, `ECONNRESET`, `ECONNREFUSED`, `EFAULT`.
    pub fn receive(&mut self, id: SocketId, receiving: ReceiveRequest<'_>) -> Result<ReceiveResult, Errno> {
        let socket = self.get(id)?;
        let (sender, was_crowded) = (socket.peer().filter(|peer| *peer != id), is_full_for_others(socket));
        let had_room = sender.is_none_or(|sender| self.has_room(sender));
        let received = self.receive_here(id, receiving)?;
        if let Some(sender) = sender.filter(|sender| !had_room && self.has_room(*sender)) {
            self.get_mut(sender)?.event_times.output();
        }
        if was_crowded && !is_full_for_others(self.get(id)?) {
            self.notify_senders(id);
        }
        Ok(received)
    }

    /// Notifies the senders of a datagram socket that its queue has space.
    fn notify_senders(&mut self, id: SocketId) {
        for socket in self.sockets.iter_mut().flatten().filter(|socket| socket.peer() == Some(id)) {
            socket.event_times.output();
        }
    }

    /// Receives the urgent byte of a connection.
    ///
    /// # Errors
    /// `EINVAL`: there is none, or it is in line. `EOPNOTSUPP`: this socket does not support urgent bytes.
    pub fn receive_urgent(&mut self, id: SocketId, receiving: ReceiveRequest<'_>) -> Result<ReceiveResult, Errno> {
        let socket = self.get_mut(id)?;
        if !socket.is_tcp() {
            return Err(if socket.socket_type == SockType::Stream { Errno::EINVAL } else { Errno::EOPNOTSUPP });
        }
        let byte = socket.queue.take_urgent(receiving.peeks).ok_or(Errno::EINVAL)?;
        let bytes = if receiving.room > 0 { (receiving.take)(&[byte]) } else { 0 };
        Ok(ReceiveResult { bytes, whole: 1, ..ReceiveResult::default() })
    }

    fn receive_here(&mut self, id: SocketId, receiving: ReceiveRequest<'_>) -> Result<ReceiveResult, Errno> {
        let ReceiveRequest { room, peeks, waits, take } = receiving;
        let socket = self.get_mut(id)?;
        let is_tcp = socket.is_tcp();
        match socket.socket_type {
            SockType::Stream => {
                match socket.state {
                    State::Connected(_) => {}
                    _ if !is_tcp => return Err(Errno::EINVAL),
                    State::Listening { .. } => return Err(Errno::ENOTCONN),
                    _ => {}
                }
                if !socket.queue.is_empty() {
                    return socket.queue.take(room, peeks, is_tcp || !socket.options.passes_credentials, take);
                }
                if !peeks {
                    socket.queue.pass_mark();
                }
                if is_tcp && socket.has_peer_finished {
                    return Ok(ReceiveResult::default());
                }
                socket.take_error()?;
                match socket.state {
                    _ if socket.is_rcv_shutdown => Ok(ReceiveResult::default()),
                    State::Idle | State::Closed => Err(Errno::ENOTCONN),
                    _ => Err(Errno::EAGAIN),
                }
            }
            SockType::Datagram | SockType::SeqPacket | SockType::Raw => {
                if socket.socket_type == SockType::SeqPacket && socket.peer().is_none() {
                    return Err(Errno::ENOTCONN);
                }
                socket.take_error()?;
                match socket.queue.take_whole(room, peeks, take)? {
                    Some(received) => Ok(received),
                    None if socket.is_rcv_shutdown && (waits || socket.socket_type == SockType::SeqPacket) => Ok(ReceiveResult::default()),
                    None => Err(Errno::EAGAIN),
                }
            }
        }
    }

    /// Appends a datagram to a socket's own queue, as a reply.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn answer(&mut self, id: SocketId, from: Address, bytes: &[u8]) -> Result<(), Errno> {
        let mut give = giving(bytes);
        let socket = self.get_mut(id)?;
        socket.event_times.input();
        socket.queue.push_whole(bytes.len(), from, ControlMessage::default(), &mut give)
    }
}

/// Copies all bytes of a send operation into a buffer.
///
/// # Errors
/// `EFAULT`: some cannot be read. `ENOMEM`.
pub(super) fn gather(length: usize, give: &mut dyn FnMut(&mut [u8]) -> usize) -> Result<Vec<u8>, Errno> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(length).map_err(|_| Errno::ENOMEM)?;
    bytes.resize(length, 0);
    let mut filled = 0;
    while filled < length {
        match give(&mut bytes[filled..]) {
            0 => return Err(Errno::EFAULT),
            more => filled += more,
        }
    }
    Ok(bytes)
}

/// A source of these bytes for [`SendRequest`].
pub fn giving(bytes: &[u8]) -> impl FnMut(&mut [u8]) -> usize {
    let mut rest = bytes;
    move |room| {
        let (piece, left) = rest.split_at(room.len().min(rest.len()));
        room[..piece.len()].copy_from_slice(piece);
        rest = left;
        piece.len()
    }
}
