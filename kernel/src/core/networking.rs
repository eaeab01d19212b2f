// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the operator can do with networks: make them, plug cells and stations in, look at what goes through.

use super::state::State;
use super::{Kernel, OperatorError, Shared};
use crate::cell::CellId;
use crate::cell::traffic::Traffic;
use crate::device::card::Card;
use crate::limits::CARD_PIECE;
use crate::network::address::{self, Addresses};
use crate::network::link::Link;
use crate::network::{ListenerId, NetworkConfig, NetworkId, PortId};
use bytes::Bytes;
use std::sync::{Arc, Weak};
use std::time::Duration;

impl Kernel {
    /// Makes a network that nobody is plugged into. It stays until it is removed.
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

    /// Removes a network that nobody uses: with frames that are under way, of those who have gone.
    ///
    /// # Errors
    /// A cell or a station is plugged in, or somebody listens.
    pub fn remove_network(&self, network: NetworkId) -> Result<(), OperatorError> {
        if self.shared.lock().networks.remove(network) { Ok(()) } else { Err(OperatorError::NetworkInUse) }
    }

    /// The network of a name, if there is one.
    #[must_use]
    pub fn network(&self, name: &str) -> Option<NetworkId> {
        self.shared.lock().networks.named(name)
    }

    /// The addresses that a network keeps for who leads out of it, and the bytes of its largest packet.
    ///
    /// # Errors
    /// There is no such network.
    pub fn router(&self, network: NetworkId) -> Result<(Addresses, u16), OperatorError> {
        self.shared.lock().networks.router(network).ok_or(OperatorError::NoAddress)
    }

    /// Gives a cell that is not running a network card, with a link and the next addresses of a network; it is told of them when it next runs. Its clones have none.
    ///
    /// # Errors
    /// The cell runs or has a card, or the network has no address left.
    pub fn plug(&self, id: CellId, network: NetworkId, link: Link) -> Result<Addresses, OperatorError> {
        self.shared.lock().has_no_card(id)?;
        self.copy(id, |cell, frames| Card::empty_rings(frames, &mut cell.memory))?;
        let mut state = self.shared.lock();
        // Somebody else may have been faster.
        state.has_no_card(id)?;
        let (router, mtu) = state.networks.router(network).ok_or(OperatorError::NoAddress)?;
        let (port, addresses) = state.networks.plug(network, id, link).ok_or(OperatorError::NoAddress)?;
        let (occupant, _) = state.living(id).ok_or(OperatorError::NoSuchCell)?;
        occupant.card = Some(Box::new(Card::new(port)));
        occupant.cell.identity.card = address::card(&addresses, &router, mtu);
        occupant.cell.identity.stale = true;
        Ok(addresses)
    }

    /// What went through a cell's network card; `None`: it has none.
    ///
    /// # Errors
    /// There is no such living cell.
    pub fn traffic(&self, id: CellId) -> Result<Option<Traffic>, OperatorError> {
        let mut state = self.shared.lock();
        let (occupant, _) = state.living(id).ok_or(OperatorError::NoSuchCell)?;
        let port = occupant.card.as_ref().map(|card| card.port);
        Ok(port.map(|port| state.networks.traffic(port)))
    }

    /// Plugs something of the host's into a network, with a link: it may send in anybody's name, and gets what is for addresses that are no cell's. `wake` is called when frames
    /// wait for it after none did; under the kernel lock, so it must do no more than wake a thread.
    ///
    /// # Errors
    /// There is no such network, or it has no port left.
    pub fn station(&self, network: NetworkId, link: Link, wake: impl Fn() + Send + Sync + 'static) -> Result<Station, OperatorError> {
        let mut state = self.shared.lock();
        let port = state.networks.plug_station(network, Arc::new(wake), link).ok_or(OperatorError::NoAddress)?;
        Ok(Station { shared: Arc::downgrade(&self.shared), port })
    }

    /// Hears every frame that a network's switch carries from now on. `wake` is as with [`Kernel::station`].
    ///
    /// # Errors
    /// There is no such network.
    pub fn listen(&self, network: NetworkId, wake: impl Fn() + Send + Sync + 'static) -> Result<Listener, OperatorError> {
        let id = self.shared.lock().networks.listen(network, Arc::new(wake)).ok_or(OperatorError::NoAddress)?;
        let epoch = Duration::from_nanos(self.shared.machine.clock().wall_base);
        Ok(Listener { shared: Arc::downgrade(&self.shared), id, epoch })
    }
}

impl State {
    /// Checks that a cell neither runs nor has a network card.
    fn has_no_card(&mut self, id: CellId) -> Result<(), OperatorError> {
        self.at_rest(id)?;
        let is_plugged_in = self.living(id).is_some_and(|(occupant, _)| occupant.card.is_some());
        if is_plugged_in { Err(OperatorError::PluggedIn) } else { Ok(()) }
    }
}

/// Something of the host's on a network. Dropping it pulls its plug.
pub struct Station {
    shared: Weak<Shared>,
    port: PortId,
}

impl Station {
    /// Sends frames, one after the other, as many under one lock as a cell's card sends in one look. Nobody hears them once the kernel is gone.
    pub fn send(&self, frames: impl IntoIterator<Item = Bytes>) {
        let mut frames = frames.into_iter().peekable();
        while frames.peek().is_some()
            && let Some(shared) = self.shared.upgrade()
        {
            let now = shared.machine.now();
            let mut state = shared.lock();
            let next = state.networks.next_arrival();
            let mut budget = CARD_PIECE;
            while budget > 0
                && let Some(frame) = frames.next()
            {
                budget = budget.saturating_sub(state.networks.send(self.port, frame, now));
            }
            state.wake_receivers();
            // Who sleeps until something arrives must know that this will be sooner.
            if std::mem::take(&mut state.woken) || state.networks.next_arrival() < next {
                shared.announce(&state);
            }
        }
    }

    /// Takes the frames that wait, at most so many.
    pub fn receive(&self, most: usize) -> Vec<Bytes> {
        let Some(shared) = self.shared.upgrade() else { return Vec::new() };
        let mut state = shared.lock();
        std::iter::from_fn(|| state.networks.take(self.port)).take(most).collect()
    }

    /// What went through it.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        self.shared.upgrade().map(|shared| shared.lock().networks.traffic(self.port)).unwrap_or_default()
    }
}

impl Drop for Station {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.lock().networks.unplug(self.port);
        }
    }
}

/// Somebody who hears all of a network. Dropping it ends that.
pub struct Listener {
    shared: Weak<Shared>,
    id: ListenerId,
    /// The machine's moment 0, since 1970.
    epoch: Duration,
}

impl Listener {
    /// Takes the frames that were heard first, at most so many, each with the moment at which the switch carried it, since 1970.
    pub fn receive(&self, most: usize) -> Vec<(Duration, Bytes)> {
        let Some(shared) = self.shared.upgrade() else { return Vec::new() };
        let mut state = shared.lock();
        let heard = std::iter::from_fn(|| state.networks.hear(self.id)).take(most);
        heard.map(|(moment, frame)| (self.epoch + Duration::from_nanos(moment.0), frame)).collect()
    }

    /// How many frames were not taken in time.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.shared.upgrade().map_or(0, |shared| shared.lock().networks.unheard(self.id))
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.lock().networks.dismiss(self.id);
        }
    }
}
