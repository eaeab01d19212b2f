// SPDX-License-Identifier: MIT OR Apache-2.0
//! UDP datagrams, and the transmission of single packets.

use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use smoltcp::wire::{IpProtocol, IpRepr, UdpPacket, UdpRepr};

use crate::packet::{MacPair, Packet, compose};
use crate::receive::Context;
use crate::{Datagram, DatagramVerdict, Error, SocketEvent, Stack, TxSink, Unreachable};

/// Bytes of UDP's header.
const UDP: usize = 8;

impl Stack {
    pub(crate) fn process_datagram(&mut self, packet: &Packet, context: &mut Context) -> Option<()> {
        let datagram = UdpPacket::new_checked(packet.payload).ok()?;
        UdpRepr::parse(&datagram, &packet.source.into(), &packet.destination.into(), &self.capabilities.checksum).ok()?;
        let local = SocketAddr::new(packet.destination, datagram.dst_port());
        let remote = SocketAddr::new(packet.source, datagram.src_port());
        match context.listeners.accepts_datagram(local, remote) {
            DatagramVerdict::Accepted => {
                let bytes = Vec::from(datagram.payload());
                self.events.post(SocketEvent::Datagram(Datagram { local, remote, bytes, hops: packet.hops }));
                Some(())
            }
            DatagramVerdict::Closed => self.send_unreachable(packet, Unreachable::Port, context),
            DatagramVerdict::Dropped => Some(()),
        }
    }

    /// Sends a datagram. If the link address of the next hop is unknown, the packet waits for address resolution.
    pub fn send_datagram(&mut self, datagram: &Datagram, now: u64, sink: &mut dyn TxSink) -> Result<(), Error> {
        let Datagram { local, remote, bytes, hops } = datagram;
        if local.is_ipv4() != remote.is_ipv4() || remote.port() == 0 {
            return Err(Error::Unaddressable);
        }
        let (from, to) = (local.ip().into(), remote.ip().into());
        let header = IpRepr::new(from, to, IpProtocol::Udp, UDP + bytes.len(), (*hops).max(1));
        let repr = UdpRepr { src_port: local.port(), dst_port: remote.port() };
        let checksums = self.capabilities.checksum.clone();
        self.send_packet(&header, now, sink, &mut |room| {
            repr.emit(&mut UdpPacket::new_unchecked(room), &from, &to, bytes.len(), |payload| payload.copy_from_slice(bytes), &checksums);
        })
    }

    /// Sends one packet; `write` writes the payload after the header.
    pub(crate) fn send_packet(
        &mut self,
        header: &IpRepr,
        now: u64,
        sink: &mut dyn TxSink,
        write: &mut dyn FnMut(&mut [u8]),
    ) -> Result<(), Error> {
        if header.buffer_len() > self.capabilities.max_transmission_unit {
            return Err(Error::TooLong);
        }
        let remote = IpAddr::from(header.dst_addr());
        let next_hop = self.network.next_hop(remote).ok_or(Error::NoRoute)?;
        let checksums = &self.capabilities.checksum;
        let Some(to) = self.network.group_mac(next_hop).or_else(|| self.neighbours.find(next_hop, now)) else {
            self.neighbours.wait_packet(next_hop, compose(header, checksums, write), now);
            return Ok(());
        };
        if !(MacPair { from: self.network.mac, to }.packet(sink, header, checksums, write)) {
            return Err(Error::Full);
        }
        self.counts.sent += 1;
        Ok(())
    }
}
