// SPDX-License-Identifier: MIT OR Apache-2.0
//! Operator calls about networks: create them, plug in cells and host ports, capture frames.

use super::{Kernel, OperatorError, Shared};
use crate::cell::CellId;
use crate::cell::run_state::{Requirement, RunState};
use crate::cell::traffic::Traffic;
use crate::device::card::Card;
use crate::limits::CARD_STEP;
use crate::network::address::{self, Addresses};
use crate::network::link::Link;
use crate::network::{NetworkConfig, NetworkId, PacketCaptureId, PortId};
use bytes::Bytes;
use std::sync::{Arc, Weak};
use std::time::Duration;

impl Kernel {
    /// Creates an empty network. It stays until it is removed.
    ///
    /// # Errors
    /// There are too many, or one has this name.
    pub fn add_network(&self, config: NetworkConfig) -> Result<NetworkId, OperatorError> {
        let mut state = self.shared.lock();
        if state.networks.named(&config.name).is_some() {
            return Err(OperatorError::NameTaken(config.name));
        }
        state.networks.add(config).ok_or(OperatorError::TooManyNetworks)
    }

    /// Removes an unused network, with the frames that removed ports still have in transit.
    ///
    /// # Errors
    /// A cell or a host port is plugged in, or a packet capture exists.
    pub fn remove_network(&self, network: NetworkId) -> Result<(), OperatorError> {
        if self.shared.lock().networks.remove(network) { Ok(()) } else { Err(OperatorError::NetworkInUse) }
    }

    /// Finds a network by name.
    #[must_use]
    pub fn network(&self, name: &str) -> Option<NetworkId> {
        self.shared.lock().networks.named(name)
    }

    /// The router's addresses in a network, and the MTU.
    ///
    /// # Errors
    /// There is no such network.
    pub fn router(&self, network: NetworkId) -> Result<(Addresses, u16), OperatorError> {
        self.shared.lock().networks.router(network).ok_or(OperatorError::NoAddress)
    }

    /// Gives a cell that is not running a network card, with a link and the next addresses of a network. The cell sees them when it
    /// next runs. Its clones have no card.
    ///
    /// # Errors
    /// The cell runs or has a card, or the network has no address left.
    pub fn plug(&self, id: CellId, network: NetworkId, link: Link) -> Result<Addresses, OperatorError> {
        self.attempt("plug a network into", |state| {
            let (live, frames) = state.require(id, Requirement::AtRest)?;
            if live.card.is_some() {
                return Err(OperatorError::PluggedIn(id).into());
            }
            Card::empty_rings(frames, &mut live.cell.memory)?;
            let (router, mtu) = state.networks.router(network).ok_or(OperatorError::NoAddress)?;
            let (port, addresses) = state.networks.plug(network, id, link).ok_or(OperatorError::NoAddress)?;
            let (live, _) = state.require(id, Requirement::AtRest)?;
            let has_started = live.execution.run_state() != RunState::New;
            live.card = Some(Box::new(Card::new(port)));
            live.cell.identity.card = Some(Box::new(address::card(&addresses, &router, mtu)));
            live.cell.identity.is_stale = true;
            // Until it is admitted, it gets only frames for itself.
            state.networks.set_asleep(port, !has_started);
            Ok(addresses)
        })
    }

    /// Traffic counters of a cell's network card; `None`: it has none.
    ///
    /// # Errors
    /// There is no such living cell.
    pub fn traffic(&self, id: CellId) -> Result<Option<Traffic>, OperatorError> {
        self.attempt("inspect", |state| {
            let (live, _) = state.require(id, Requirement::Living)?;
            let port = live.card.as_ref().map(|card| card.port);
            Ok(port.map(|port| state.networks.traffic(port)))
        })
    }

    /// Adds a host port to a network, with a link. It may send from any address, and receives the frames for addresses that no cell
    /// has. `wake` is called when a frame arrives in its empty queue. It runs under the kernel lock, so it may only wake a thread.
    ///
    /// # Errors
    /// There is no such network, or it has no port left.
    pub fn host_port(&self, network: NetworkId, link: Link, wake: impl Fn() + Send + Sync + 'static) -> Result<HostPort, OperatorError> {
        let mut state = self.shared.lock();
        let port = state.networks.attach_host_port(network, Arc::new(wake), link).ok_or(OperatorError::NoAddress)?;
        Ok(HostPort { shared: Arc::downgrade(&self.shared), port })
    }

    /// Starts a packet capture, which receives every frame that a network's switch carries from now on. `wake` is as for
    /// [`Kernel::host_port`].
    ///
    /// # Errors
    /// There is no such network.
    pub fn capture_packets(&self, network: NetworkId, wake: impl Fn() + Send + Sync + 'static) -> Result<PacketCapture, OperatorError> {
        let id = self.shared.lock().networks.add_capture(network, Arc::new(wake)).ok_or(OperatorError::NoAddress)?;
        let epoch = Duration::from_nanos(self.shared.machine.clock().wall_base);
        Ok(PacketCapture { shared: Arc::downgrade(&self.shared), id, epoch })
    }
}

/// A switch port that the host process uses. Dropping it unplugs it.
pub struct HostPort {
    shared: Weak<Shared>,
    port: PortId,
}

impl HostPort {
    /// Sends frames in order, under one lock as many as a cell's card sends in one pass. Frames are dropped once the kernel is
    /// gone.
    pub fn send(&self, frames: impl IntoIterator<Item = Bytes>) {
        let mut frames = frames.into_iter().peekable();
        while frames.peek().is_some()
            && let Some(shared) = self.shared.upgrade()
        {
            let now = shared.machine.now();
            let mut state = shared.lock();
            let next = state.networks.next_arrival();
            let mut budget = CARD_STEP;
            while budget > 0
                && let Some(frame) = frames.next()
            {
                budget = budget.saturating_sub(state.networks.send(self.port, frame, now));
            }
            state.wake_receivers();
            // A vCPU that sleeps until the next arrival must learn of an earlier one.
            if state.notifications.has_sleep_work {
                shared.notify(&mut state);
            }
            if std::mem::take(&mut state.notifications.has_woken_receiver) || state.networks.next_arrival() < next {
                shared.kick_vcpu(&state);
            }
        }
    }

    /// Takes up to `max` frames from its queue.
    pub fn receive(&self, max: usize) -> Vec<Bytes> {
        let Some(shared) = self.shared.upgrade() else { return Vec::new() };
        let mut state = shared.lock();
        std::iter::from_fn(|| state.networks.take(self.port)).take(max).collect()
    }

    /// Its traffic counters.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        self.shared.upgrade().map(|shared| shared.lock().networks.traffic(self.port)).unwrap_or_default()
    }
}

impl Drop for HostPort {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.lock().networks.unplug(self.port);
        }
    }
}

/// A packet capture on a network. Dropping it removes it.
pub struct PacketCapture {
    shared: Weak<Shared>,
    id: PacketCaptureId,
    /// The machine's time 0, since 1970.
    epoch: Duration,
}

impl PacketCapture {
    /// Takes up to `max` frames, oldest first, each with the time at which the switch carried it, since 1970.
    pub fn receive(&self, max: usize) -> Vec<(Duration, Bytes)> {
        let Some(shared) = self.shared.upgrade() else { return Vec::new() };
        let mut state = shared.lock();
        let frames = std::iter::from_fn(|| state.networks.take_captured(self.id)).take(max);
        frames.map(|(moment, frame)| (self.epoch + Duration::from_nanos(moment.0), frame)).collect()
    }

    /// Number of frames that were not taken in time.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.shared.upgrade().map_or(0, |shared| shared.lock().networks.lost_captures(self.id))
    }
}

impl Drop for PacketCapture {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.lock().networks.remove_capture(self.id);
        }
    }
}
