// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packet sockets: raw frames of the card, in addition to the stack, which receives them too. Frames sent by the cell itself are not
//! delivered.

use super::address::{Address, LinkAddress};
use super::inet::NetworkRequest;
use super::names::{CARD, LOOPBACK};
use super::queue::{ControlMessage, Packet};
use super::transfer::{Destination, SendRequest, gather, giving};
use super::{Family, SockType, SocketId, Sockets};
use crate::errno::Errno;
use crate::uapi::{ARPHRD_ETHER, ETH_P_ALL};

/// Size of the Ethernet header in bytes.
const HEADER: usize = 14;

impl Sockets {
    /// Whether any socket receives frames.
    #[must_use]
    pub fn has_packet_socket(&self) -> bool {
        !self.packets.is_empty()
    }

    /// Binds a packet socket to an interface, or to all of them, and to a protocol, if there is one.
    ///
    /// # Errors
    /// `ENODEV`: there is no such interface.
    pub fn bind_link(&mut self, id: SocketId, link: LinkAddress) -> Result<(), Errno> {
        let is_there = matches!(link.index, 0 | LOOPBACK) || link.index == CARD && self.inet.card.is_some();
        if !is_there {
            return Err(Errno::ENODEV);
        }
        let mac = self.inet.card.map(|card| card.mac).filter(|_| link.index == CARD);
        let socket = self.get_mut(id)?;
        if link.protocol != 0 {
            socket.protocol = link.protocol.into();
        }
        let protocol = socket.protocol as u16;
        socket.local = Address::Link(LinkAddress { protocol, index: link.index, hardware: ARPHRD_ETHER, kind: 0, mac });
        Ok(())
    }

    /// Sends a frame, or the payload of one.
    pub(super) fn send_frame(&mut self, id: SocketId, to: &Destination, sending: SendRequest<'_>) -> Result<usize, Errno> {
        let SendRequest { length, give, .. } = sending;
        let socket = self.get_mut(id)?;
        socket.take_error()?;
        let Address::Link(bound) = socket.local else { return Err(Errno::EINVAL) };
        let to = if let Destination::Link(to) = to { *to } else { LinkAddress { mac: None, ..bound } };
        let (socket_type, kind) = (socket.socket_type, if to.protocol == 0 { socket.protocol as u16 } else { to.protocol });
        let card = self.inet.card.filter(|_| to.index == CARD || to.index == 0 && bound.index == CARD).ok_or(Errno::ENXIO)?;
        let header = if socket_type == SockType::Raw { HEADER } else { 0 };
        if length > card.mtu + header {
            return Err(Errno::EMSGSIZE);
        }
        let carried = gather(length, give)?;
        let frame = match (socket_type, to.mac) {
            (SockType::Raw, _) if length < HEADER => return Err(Errno::EINVAL),
            (SockType::Raw, _) => carried,
            (_, None) => return Err(Errno::EINVAL),
            (_, Some(mac)) => [&mac[..], &card.mac, &kind.to_be_bytes(), &carried].concat(),
        };
        self.inet.request(NetworkRequest::Frame(frame));
        Ok(length)
    }

    /// Delivers a received frame to all matching sockets.
    pub fn process_frame(&mut self, frame: &[u8]) {
        let Some((&[to, a, b, c, d, e, x, source @ .., high, low], carried)) = frame.split_first_chunk::<HEADER>() else { return };
        let kind = u16::from_be_bytes([high, low]);
        let whom = [to, a, b, c, d, e];
        let mac = [x, source[0], source[1], source[2], source[3], source[4]];
        // Packet type: to the cell, broadcast, multicast.
        let audience = if whom == [0xff; 6] { 1 } else { 2 * (to & 1) };
        for index in 0..self.packets.len() {
            let id = self.packets[index];
            let time = self.time();
            let Ok(socket) = self.get(id) else { continue };
            let is_here = matches!(socket.local, Address::Link(LinkAddress { index: 0 | CARD, .. }));
            if !is_here || socket.protocol != ETH_P_ALL && socket.protocol != u32::from(kind) {
                continue;
            }
            let bytes = if socket.socket_type == SockType::Raw { frame } else { carried };
            let accepted = socket.program.as_ref().map_or(bytes.len(), |program| program.run(bytes)).min(bytes.len());
            // A frame that does not fit is dropped.
            if accepted == 0 || socket.queue.used() >= socket.options.receive_buffer {
                continue;
            }
            let from = Address::Link(LinkAddress { protocol: kind, index: CARD, hardware: ARPHRD_ETHER, kind: audience, mac: Some(mac) });
            let packet = Packet { time, by: CARD, ..Packet::default() };
            let Ok(socket) = self.get_mut(id) else { continue };
            if socket.queue.push_whole(accepted, from, ControlMessage { packet, ..ControlMessage::default() }, &mut giving(bytes)).is_ok() {
                socket.event_times.input();
            }
        }
    }
}

/// The address of an unbound packet socket.
#[must_use]
pub fn unbound(family: Family, protocol: u32) -> Address {
    match family {
        Family::Packet => Address::Link(LinkAddress { protocol: protocol as u16, hardware: ARPHRD_ETHER, ..LinkAddress::default() }),
        _ => Address::none(family),
    }
}
