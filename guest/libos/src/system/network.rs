// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cell's network: opened for a network card when the cell starts or continues as a clone.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};

use pando_rt::{clock, registers};

use super::System;
use crate::errno::Errno;
use crate::files::status::time;
use crate::network::{self, NetworkStack};
use crate::wait::Channel;

impl System {
    /// Closes the network, and opens that of the card in the virtual registers, if there is one. A clone has none of its source's
    /// connections.
    pub(super) fn reopen_network(&mut self) {
        if let Some(network) = self.network.take() {
            network.close(&mut self.files.sockets);
            self.wake(Channel::Sockets);
        }
        // Most programs work without host names.
        let _ = self.open_network();
    }

    /// Opens the network of the card that the virtual registers show, if there is one and it is not open. Writes the files with the DNS
    /// servers and the host name. Listening sockets accept connections from it from now on.
    ///
    /// # Errors
    /// The files cannot be created.
    pub fn open_network(&mut self) -> Result<(), Errno> {
        let card = registers::card();
        if self.network.is_some() || card.mtu == 0 {
            return Ok(());
        }
        let mut seed = [0; 8];
        self.random.fill(&mut seed);
        self.network = NetworkStack::open(&mut self.files.sockets, u64::from_le_bytes(seed), clock::now()).map(Box::new);
        let identity = registers::identity();
        let resolver = Ipv4Addr::from_bits(card.resolver4 as u32);
        let name = identity.host_name.get(..identity.host_name_length as usize).unwrap_or_default();
        let name = core::str::from_utf8(name).unwrap_or("localhost");
        let hosts: Vec<(IpAddr, &str)> = network::hosts(&card).into_iter().map(|(address, _)| (address, name)).collect();
        let resolver = Some(IpAddr::V4(resolver)).filter(|resolver| !resolver.is_unspecified());
        self.files.tree.with_writable_root(|tree| tree.write_etc_files(resolver, &hosts, time(clock::wall())))
    }
}
