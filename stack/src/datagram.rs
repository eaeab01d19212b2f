// SPDX-License-Identifier: MIT OR Apache-2.0
//! Datagrams of UDP, and how single packets leave.

use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use smoltcp::wire::{IpProtocol, IpRepr, UdpPacket, UdpRepr};

use crate::hear::Context;
use crate::packet::{Ends, Packet, compose};
use crate::{Datagram, Error, Happening, Hearing, Obstacle, Outlet, Stack};

/// Bytes of UDP's header.
const UDP: usize = 8;

impl Stack {
    pub(crate) fn hear_datagram(&mut self, packet: &Packet, context: &mut Context) -> Option<()> {
        let datagram = UdpPacket::new_checked(packet.payload).ok()?;
        UdpRepr::parse(&datagram, &packet.source.into(), &packet.destination.into(), &self.capabilities.checksum).ok()?;
        let local = SocketAddr::new(packet.destination, datagram.dst_port());
        let remote = SocketAddr::new(packet.source, datagram.src_port());
        match context.doorkeeper.hears(local, remote) {
            Hearing::Heard => {
                let bytes = Vec::from(datagram.payload());
                self.news.post(Happening::Datagram(Datagram { local, remote, bytes, hops: packet.hops }));
                Some(())
            }
            Hearing::Nobody => self.say_unreachable(packet, Obstacle::Port, context),
            Hearing::Lost => Some(()),
        }
    }

    /// Sends a datagram. Where the neighbour is not known yet, it waits a while for it.
    pub fn send_datagram(&mut self, datagram: &Datagram, now: u64, outlet: &mut dyn Outlet) -> Result<(), Error> {
        let Datagram { local, remote, bytes, hops } = datagram;
        if local.is_ipv4() != remote.is_ipv4() || remote.port() == 0 {
            return Err(Error::Unaddressable);
        }
        let (from, to) = (local.ip().into(), remote.ip().into());
        let header = IpRepr::new(from, to, IpProtocol::Udp, UDP + bytes.len(), (*hops).max(1));
        let repr = UdpRepr { src_port: local.port(), dst_port: remote.port() };
        let sums = self.capabilities.checksum.clone();
        self.send_packet(&header, now, outlet, &mut |room| {
            repr.emit(&mut UdpPacket::new_unchecked(room), &from, &to, bytes.len(), |payload| payload.copy_from_slice(bytes), &sums);
        })
    }

    /// Sends one packet, of which `write` writes what follows the header.
    pub(crate) fn send_packet(
        &mut self,
        header: &IpRepr,
        now: u64,
        outlet: &mut dyn Outlet,
        write: &mut dyn FnMut(&mut [u8]),
    ) -> Result<(), Error> {
        if header.buffer_len() > self.capabilities.max_transmission_unit {
            return Err(Error::TooLong);
        }
        let remote = IpAddr::from(header.dst_addr());
        let hop = self.network.hop(remote).ok_or(Error::NoRoute)?;
        let sums = &self.capabilities.checksum;
        let Some(to) = self.network.group(hop).or_else(|| self.neighbours.find(hop, now)) else {
            self.neighbours.post(hop, compose(header, sums, write), now);
            return Ok(());
        };
        if !(Ends { from: self.network.mac, to }.packet(outlet, header, sums, write)) {
            return Err(Error::Full);
        }
        self.counts.sent += 1;
        Ok(())
    }
}
