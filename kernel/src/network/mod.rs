// SPDX-License-Identifier: MIT OR Apache-2.0
//! Networks: switches that carry Ethernet frames between cells, and between cells and *host ports*, which the host process uses.
//!
//! All state is protected by the kernel lock. All queues that hold a frame share its bytes, which lie in a reused
//! [buffer](buffers). A frame passes the sender's [anti-spoofing filter](anti_spoofing), crosses its [link](link) and enters the
//! [queues](queue) of its destinations. Senders never wait: a frame without room is dropped and counted, and the sender that takes
//! most room loses a frame. A frame for one cell whose queue is empty may be copied from memory to memory instead:
//! [`Networks::shortcut`] returns its destination.

pub mod address;
mod anti_spoofing;
pub mod buffers;
pub mod link;
mod packet_capture;
mod queue;
mod switch;

pub use queue::{PacketScheduler, RoundRobin};

use crate::cell::CellId;
use crate::cell::traffic::Traffic;
use crate::limits::MAX_NETWORKS;
use address::{AddressPool, Addresses};
use buffers::Buffers;
use bytes::Bytes;
use link::Link;
use pando_machine::Nanos;
use std::collections::BTreeMap;
use std::sync::Arc;
use switch::Switch;

/// Kernel-wide identifier of a network; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NetworkId {
    index: u32,
    generation: u32,
}

/// A port of a network. Its index is not reused while a `PortId` for it exists: its holder must unplug it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PortId {
    network: NetworkId,
    index: u32,
}

/// Configuration of a new network.
#[derive(Clone, Debug)]
pub struct NetworkConfig {
    /// Name for operators; empty: it has no name.
    pub name: String,
    /// Addresses of its cells.
    pub pool: AddressPool,
    /// MTU: bytes of the largest packet.
    pub mtu: u16,
    /// Seed of the random behaviour of links.
    pub seed: u64,
    /// Frames of cells reach host ports only, no other cell: a private VLAN.
    pub is_isolated: bool,
}

impl Default for NetworkConfig {
    fn default() -> NetworkConfig {
        NetworkConfig { name: String::new(), pool: AddressPool::default(), mtu: u16::MAX, seed: 0, is_isolated: false }
    }
}

/// A packet capture; like a port, not reused while it can be named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PacketCaptureId {
    network: NetworkId,
    index: usize,
}

/// Wakes a thread of the host. Called under the kernel lock, so it must do nothing else.
pub(crate) type Wake = Arc<dyn Fn() + Send + Sync>;

/// The owner of a port, notified when frames arrive there.
#[derive(Clone)]
pub(crate) enum Owner {
    /// A cell.
    Cell(CellId),
    /// A host port, with its wake function.
    HostPort(Wake),
}

/// All switches, indexed by network.
#[derive(Default)]
struct SwitchTable {
    /// Each with the generation of its present or next network.
    slots: Vec<(u32, Option<Switch>)>,
    free: Vec<u32>,
}

impl SwitchTable {
    fn add(&mut self, switch: Switch) -> Option<NetworkId> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.slots.len() < MAX_NETWORKS => {
                self.slots.push((0, None));
                self.slots.len() as u32 - 1
            }
            None => return None,
        };
        let (generation, slot) = self.slots.get_mut(index as usize)?;
        *slot = Some(switch);
        Some(NetworkId { index, generation: *generation })
    }

    fn remove(&mut self, id: NetworkId) {
        if self.get(id).is_some() {
            let (generation, slot) = &mut self.slots[id.index as usize];
            (*generation, *slot) = (generation.wrapping_add(1), None);
            self.free.push(id.index);
        }
    }

    fn get(&self, id: NetworkId) -> Option<&Switch> {
        let (generation, switch) = self.slots.get(id.index as usize)?;
        switch.as_ref().filter(|_| *generation == id.generation)
    }

    fn get_mut(&mut self, id: NetworkId) -> Option<&mut Switch> {
        let (generation, switch) = self.slots.get_mut(id.index as usize)?;
        switch.as_mut().filter(|_| *generation == id.generation)
    }
}

/// All networks.
#[derive(Default)]
pub(crate) struct Networks {
    /// Frame buffers.
    pub(crate) buffers: Buffers,
    switches: SwitchTable,
    named: BTreeMap<String, NetworkId>,
    /// Cells with new frames that were not notified yet.
    cells_to_notify: Vec<CellId>,
}

impl Networks {
    /// Adds a network; its name must be unused. `None`: there are too many.
    pub(crate) fn add(&mut self, config: NetworkConfig) -> Option<NetworkId> {
        let name = config.name.clone();
        let id = self.switches.add(Switch::new(config))?;
        if !name.is_empty() {
            self.named.insert(name, id);
        }
        Some(id)
    }

    /// Removes a network. `false`: a port or a packet capture is in use.
    pub(crate) fn remove(&mut self, network: NetworkId) -> bool {
        let is_idle = self.switches.get(network).is_none_or(Switch::is_idle);
        if is_idle {
            self.named.retain(|_, named| *named != network);
            self.switches.remove(network);
        }
        is_idle
    }

    /// Finds a network by name.
    pub(crate) fn named(&self, name: &str) -> Option<NetworkId> {
        self.named.get(name).copied()
    }

    /// The router's addresses in a network, and the MTU.
    pub(crate) fn router(&self, network: NetworkId) -> Option<(Addresses, u16)> {
        self.switches.get(network).map(Switch::router)
    }

    /// Plugs in a cell. `None`: there is no such network, or no free address.
    pub(crate) fn plug(&mut self, network: NetworkId, cell: CellId, link: Link) -> Option<(PortId, Addresses)> {
        let (index, addresses) = self.switches.get_mut(network)?.plug(cell, link)?;
        Some((PortId { network, index }, addresses))
    }

    /// Adds a host port, which may send from any address. `None`: there is no such network, or no free port.
    pub(crate) fn attach_host_port(&mut self, network: NetworkId, wake: Wake, link: Link) -> Option<PortId> {
        let index = self.switches.get_mut(network)?.attach_host_port(wake, link)?;
        Some(PortId { network, index })
    }

    /// Adds a packet capture, which receives every frame that a switch carries. `None`: there is no such network.
    pub(crate) fn add_capture(&mut self, network: NetworkId, wake: Wake) -> Option<PacketCaptureId> {
        let index = self.switches.get_mut(network)?.captures.insert(wake);
        Some(PacketCaptureId { network, index })
    }

    /// Takes a packet capture's oldest frame, with the time at which it was captured.
    pub(crate) fn take_captured(&mut self, capture: PacketCaptureId) -> Option<(Nanos, Bytes)> {
        self.switches.get_mut(capture.network)?.captures.take(capture.index)
    }

    /// Number of frames that a packet capture has lost.
    pub(crate) fn lost_captures(&self, capture: PacketCaptureId) -> u64 {
        self.switches.get(capture.network).map_or(0, |switch| switch.captures.lost(capture.index))
    }

    /// Removes a packet capture.
    pub(crate) fn remove_capture(&mut self, capture: PacketCaptureId) {
        if let Some(switch) = self.switches.get_mut(capture.network) {
            switch.captures.remove(capture.index);
        }
    }

    /// Unplugs a port and drops its queue. Returns its counters.
    pub(crate) fn unplug(&mut self, port: PortId) -> Traffic {
        self.switches.get_mut(port.network).map(|switch| switch.unplug(port.index)).unwrap_or_default()
    }

    /// Sends a frame from a port. Returns the number of ports that it may go to: its cost.
    pub(crate) fn send(&mut self, port: PortId, frame: Bytes, now: Nanos) -> usize {
        let Networks { switches, cells_to_notify, .. } = self;
        switches.get_mut(port.network).map_or(1, |switch| switch.send(port.index, frame, now, cells_to_notify))
    }

    /// The destination to which a frame of `length` bytes beginning with `head` may be copied from memory to memory, and its port.
    /// `None`: it must be sent.
    pub(crate) fn shortcut(&self, port: PortId, head: &[u8], length: usize) -> Option<(PortId, &Owner)> {
        let (index, owner) = self.switches.get(port.network)?.shortcut(port.index, head, length)?;
        Some((PortId { index, ..port }, owner))
    }

    /// Counts a frame of `length` bytes that took the shortcut. `must_notify`: the receiver must be notified.
    pub(crate) fn note_shortcut(&mut self, from: PortId, to: PortId, length: usize, must_notify: bool) {
        let Networks { switches, cells_to_notify, .. } = self;
        let switch = switches.get_mut(from.network);
        let cell = switch.and_then(|switch| switch.note_shortcut(from.index, to.index, length));
        cells_to_notify.extend(cell.filter(|_| must_notify));
    }

    /// The next frame in a port's queue, without removing it.
    pub(crate) fn peek(&self, port: PortId) -> Option<&Bytes> {
        self.switches.get(port.network)?.peek(port.index)
    }

    /// Takes the next frame from a port's queue.
    pub(crate) fn take(&mut self, port: PortId) -> Option<Bytes> {
        self.switches.get_mut(port.network)?.take(port.index)
    }

    /// Drops the next frame in a port's queue, because the receiver has no buffer of its size.
    pub(crate) fn drop_oversized(&mut self, port: PortId) {
        if let Some(switch) = self.switches.get_mut(port.network) {
            switch.drop_oversized(port.index);
        }
    }

    /// Marks the cell of a port as asleep or awake: group frames are not for cells that sleep or were not admitted.
    pub(crate) fn set_asleep(&mut self, port: PortId, is_asleep: bool) {
        if let Some(switch) = self.switches.get_mut(port.network) {
            switch.set_asleep(port.index, is_asleep);
        }
    }

    /// A port's counters and the load of its queue.
    pub(crate) fn traffic(&self, port: PortId) -> Traffic {
        self.switches.get(port.network).map(|switch| switch.traffic(port.index)).unwrap_or_default()
    }

    /// Delivers the delayed frames that are due.
    pub(crate) fn advance(&mut self, now: Nanos) {
        let Networks { switches, cells_to_notify, .. } = self;
        switches.slots.iter_mut().filter_map(|(_, switch)| switch.as_mut()).for_each(|switch| switch.advance(now, cells_to_notify));
    }

    /// Arrival time of the next delayed frame.
    pub(crate) fn next_arrival(&self) -> Nanos {
        let switches = self.switches.slots.iter().filter_map(|(_, switch)| switch.as_ref());
        switches.filter_map(Switch::next_arrival).min().unwrap_or(Nanos::NEVER)
    }

    /// Takes the cells to be notified of frames.
    pub(crate) fn take_cells_to_notify(&mut self) -> Vec<CellId> {
        std::mem::take(&mut self.cells_to_notify)
    }
}
