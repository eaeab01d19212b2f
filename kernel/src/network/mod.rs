// SPDX-License-Identifier: MIT OR Apache-2.0
//! Networks: switches that carry Ethernet frames between cells, and between cells and *stations*, which are the host's.
//!
//! Everything here lies under the kernel lock. Every queue that a frame stands in holds the same bytes, which lie in one of some [buffers](buffers) that are used again. It passes the
//! sender's [guard](guard), crosses its [link](link) and is put into the [queues](queue) of whom it is for. Nobody waits: what finds no room is dropped and counted, and what is dropped is
//! of whoever takes most room. A frame that would stand in one queue alone, and be first there, may go from memory to memory instead: [`Networks::shortcut`] says to whom.

pub mod address;
pub mod buffers;
mod guard;
pub mod link;
mod listener;
mod queue;
mod switch;

pub use queue::{PacketScheduler, RoundRobin};

use crate::cell::CellId;
use crate::cell::traffic::Traffic;
use crate::limits::MAX_NETWORKS;
use address::{Addresses, Pool};
use buffers::Buffers;
use bytes::Bytes;
use link::Link;
use pando_machine::Nanos;
use std::collections::BTreeMap;
use std::sync::Arc;
use switch::Switch;

/// A network, as the kernel calls it; never another's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NetworkId {
    index: u32,
    generation: u32,
}

/// A port of a network: where something is plugged in. Never reused for anything else while somebody can name it: whoever holds it unplugs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PortId {
    network: NetworkId,
    index: u32,
}

/// What a new network shall be.
#[derive(Clone, Debug)]
pub struct NetworkConfig {
    /// What operators find it by; empty: it has no name.
    pub name: String,
    /// Where its cells' addresses come from.
    pub pool: Pool,
    /// Bytes of the largest packet.
    pub mtu: u16,
    /// Seed of all that links leave to chance.
    pub seed: u64,
}

impl Default for NetworkConfig {
    fn default() -> NetworkConfig {
        NetworkConfig { name: String::new(), pool: Pool::default(), mtu: u16::MAX, seed: 0 }
    }
}

/// Somebody who listens to a network; as a port, not reused while it can be named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ListenerId {
    network: NetworkId,
    index: usize,
}

/// Wakes something of the host's. Called under the kernel lock: it must do no more than that.
pub(crate) type Wake = Arc<dyn Fn() + Send + Sync>;

/// Who is at a port, and is told when frames wait there.
#[derive(Clone)]
pub(crate) enum Owner {
    /// A cell.
    Cell(CellId),
    /// Something of the host's, which this wakes.
    Station(Wake),
}

/// All switches, each at its network's place.
#[derive(Default)]
struct Switches {
    /// Each with the generation of the network that is there, or will be.
    places: Vec<(u32, Option<Switch>)>,
    free: Vec<u32>,
}

impl Switches {
    fn add(&mut self, switch: Switch) -> Option<NetworkId> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.places.len() < MAX_NETWORKS => {
                self.places.push((0, None));
                self.places.len() as u32 - 1
            }
            None => return None,
        };
        let (generation, place) = self.places.get_mut(index as usize)?;
        *place = Some(switch);
        Some(NetworkId { index, generation: *generation })
    }

    fn remove(&mut self, id: NetworkId) {
        if self.get(id).is_some() {
            let (generation, place) = &mut self.places[id.index as usize];
            (*generation, *place) = (generation.wrapping_add(1), None);
            self.free.push(id.index);
        }
    }

    fn get(&self, id: NetworkId) -> Option<&Switch> {
        let (generation, switch) = self.places.get(id.index as usize)?;
        switch.as_ref().filter(|_| *generation == id.generation)
    }

    fn get_mut(&mut self, id: NetworkId) -> Option<&mut Switch> {
        let (generation, switch) = self.places.get_mut(id.index as usize)?;
        switch.as_mut().filter(|_| *generation == id.generation)
    }
}

/// All networks.
#[derive(Default)]
pub(crate) struct Networks {
    /// Where frames lie.
    pub(crate) buffers: Buffers,
    switches: Switches,
    named: BTreeMap<String, NetworkId>,
    /// Cells for whom frames have arrived, and who were not told yet.
    woken: Vec<CellId>,
}

impl Networks {
    /// Makes a network, whose name nobody else has. `None`: there are too many.
    pub(crate) fn add(&mut self, config: NetworkConfig) -> Option<NetworkId> {
        let name = config.name.clone();
        let id = self.switches.add(Switch::new(config))?;
        if !name.is_empty() {
            self.named.insert(name, id);
        }
        Some(id)
    }

    /// Removes a network. `false`: somebody is plugged in or listens.
    pub(crate) fn remove(&mut self, network: NetworkId) -> bool {
        let is_idle = self.switches.get(network).is_none_or(Switch::is_idle);
        if is_idle {
            self.named.retain(|_, named| *named != network);
            self.switches.remove(network);
        }
        is_idle
    }

    /// The network of a name.
    pub(crate) fn named(&self, name: &str) -> Option<NetworkId> {
        self.named.get(name).copied()
    }

    /// The addresses that a network keeps for who leads out of it, and the bytes of its largest packet.
    pub(crate) fn router(&self, network: NetworkId) -> Option<(Addresses, u16)> {
        self.switches.get(network).map(Switch::router)
    }

    /// Plugs a cell in. `None`: there is no such network, or no address left.
    pub(crate) fn plug(&mut self, network: NetworkId, cell: CellId, link: Link) -> Option<(PortId, Addresses)> {
        let (index, addresses) = self.switches.get_mut(network)?.plug(cell, link)?;
        Some((PortId { network, index }, addresses))
    }

    /// Plugs a station in, which may send in anybody's name. `None`: there is no such network, or no port left.
    pub(crate) fn plug_station(&mut self, network: NetworkId, wake: Wake, link: Link) -> Option<PortId> {
        let index = self.switches.get_mut(network)?.plug_station(wake, link)?;
        Some(PortId { network, index })
    }

    /// Lets somebody hear every frame that a switch carries. `None`: there is no such network.
    pub(crate) fn listen(&mut self, network: NetworkId, wake: Wake) -> Option<ListenerId> {
        let index = self.switches.get_mut(network)?.listeners.insert(wake);
        Some(ListenerId { network, index })
    }

    /// Takes the frame that a listener heard first, and when that was.
    pub(crate) fn hear(&mut self, listener: ListenerId) -> Option<(Nanos, Bytes)> {
        self.switches.get_mut(listener.network)?.listeners.take(listener.index)
    }

    /// How many frames a listener has lost.
    pub(crate) fn unheard(&self, listener: ListenerId) -> u64 {
        self.switches.get(listener.network).map_or(0, |switch| switch.listeners.lost(listener.index))
    }

    /// A listener has heard enough.
    pub(crate) fn dismiss(&mut self, listener: ListenerId) {
        if let Some(switch) = self.switches.get_mut(listener.network) {
            switch.listeners.remove(listener.index);
        }
    }

    /// Pulls a plug: what waits there is gone. Returns what went through it.
    pub(crate) fn unplug(&mut self, port: PortId) -> Traffic {
        self.switches.get_mut(port.network).map(|switch| switch.unplug(port.index)).unwrap_or_default()
    }

    /// A frame comes in at a port. Returns how many ports it may go to: what it costs.
    pub(crate) fn send(&mut self, port: PortId, frame: Bytes, now: Nanos) -> usize {
        let Networks { switches, woken, .. } = self;
        switches.get_mut(port.network).map_or(1, |switch| switch.send(port.index, frame, now, woken))
    }

    /// To whom a frame of so many bytes that begins with `head` may go at once, from memory to memory, with the port there. `None`: it must be sent.
    pub(crate) fn shortcut(&self, port: PortId, head: &[u8], length: usize) -> Option<(PortId, &Owner)> {
        let (index, owner) = self.switches.get(port.network)?.shortcut(port.index, head, length)?;
        Some((PortId { index, ..port }, owner))
    }

    /// A frame of so many bytes has gone that way. `is_news`: whoever has it must be told.
    pub(crate) fn note_shortcut(&mut self, from: PortId, to: PortId, length: usize, is_news: bool) {
        let Networks { switches, woken, .. } = self;
        let switch = switches.get_mut(from.network);
        let cell = switch.and_then(|switch| switch.note_shortcut(from.index, to.index, length));
        woken.extend(cell.filter(|_| is_news));
    }

    /// The next frame that waits at a port, which stays there.
    pub(crate) fn peek(&self, port: PortId) -> Option<&Bytes> {
        self.switches.get(port.network)?.peek(port.index)
    }

    /// Takes the next frame that waits at a port.
    pub(crate) fn take(&mut self, port: PortId) -> Option<Bytes> {
        self.switches.get_mut(port.network)?.take(port.index)
    }

    /// Drops the next frame that waits at a port, because whoever is there has no room for one of its size.
    pub(crate) fn drop_large(&mut self, port: PortId) {
        if let Some(switch) = self.switches.get_mut(port.network) {
            switch.drop_large(port.index);
        }
    }

    /// What went through a port, and what waits there.
    pub(crate) fn traffic(&self, port: PortId) -> Traffic {
        self.switches.get(port.network).map(|switch| switch.traffic(port.index)).unwrap_or_default()
    }

    /// Lets frames arrive whose time has come.
    pub(crate) fn advance(&mut self, now: Nanos) {
        let Networks { switches, woken, .. } = self;
        switches.places.iter_mut().filter_map(|(_, switch)| switch.as_mut()).for_each(|switch| switch.advance(now, woken));
    }

    /// When the next frame arrives that is on its way.
    pub(crate) fn next_arrival(&self) -> Nanos {
        let switches = self.switches.places.iter().filter_map(|(_, switch)| switch.as_ref());
        switches.filter_map(Switch::next_arrival).min().unwrap_or(Nanos::NEVER)
    }

    /// Takes the cells that are to be told of frames.
    pub(crate) fn take_woken(&mut self) -> Vec<CellId> {
        std::mem::take(&mut self.woken)
    }
}
