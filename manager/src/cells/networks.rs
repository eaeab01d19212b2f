// SPDX-License-Identifier: MIT OR Apache-2.0
//! The networks of cells: named ones, and those with an uplink of their own. A service in a cell has none.

use super::ManagerError;
use super::gateways::{CellUplink, GatewaySlot, Gateways};
use super::spec::ManagedCellSpec;
use crate::network::{NamedNetworks, SharedNetwork};
use pando_gateway::PortForward;
use pando_kernel::network::address::Addresses;
use pando_kernel::network::link::Link;
use pando_kernel::{CellId, Kernel};
use std::sync::Arc;

/// The networks of a kernel of this process.
pub(super) struct CellNetworks {
    kernel: Arc<Kernel>,
    named: NamedNetworks,
    gateways: Gateways,
}

/// The requested network of a cell that is being started: created before the cell, so that it is removed after it.
#[derive(Default)]
pub(super) struct RequestedNetwork {
    network: Option<Arc<SharedNetwork>>,
    slot: Option<GatewaySlot>,
}

/// The connection of a cell. Its parts are released after the cell has ended.
#[derive(Default)]
pub(super) struct CellConnection {
    /// The cell's addresses.
    pub(super) addresses: Option<Addresses>,
    /// The ports of the host that lead to the cell.
    pub(super) forwards: Vec<PortForward>,
    _uplink: Option<CellUplink>,
    _network: Option<Arc<SharedNetwork>>,
}

impl CellNetworks {
    pub(super) fn new(kernel: Arc<Kernel>, gateways: Gateways) -> CellNetworks {
        CellNetworks { named: NamedNetworks::new(Arc::clone(&kernel)), kernel, gateways }
    }

    /// The number of gateways.
    pub(super) fn gateways(&self) -> usize {
        self.gateways.count()
    }

    /// Waits briefly for a free gateway if the cell needs one.
    ///
    /// # Errors
    /// All are in use.
    pub(super) async fn slot(&self, spec: &ManagedCellSpec) -> Result<Option<GatewaySlot>, ManagerError> {
        if spec.allow.is_empty() && spec.publish.is_empty() { Ok(None) } else { self.gateways.slot().await.map(Some) }
    }

    /// The network that a cell requests.
    ///
    /// # Errors
    /// There are too many.
    pub(super) fn request(&self, spec: &ManagedCellSpec, slot: Option<GatewaySlot>) -> Result<RequestedNetwork, ManagerError> {
        let network = match &spec.network {
            Some(name) => Some(self.named.get(name)?),
            None => slot.as_ref().map(|_| self.named.create()).transpose()?,
        };
        Ok(RequestedNetwork { network, slot })
    }

    /// Connects a cell, by its number for clients, to the network that it requested.
    ///
    /// # Errors
    /// It has no address left, a port forward cannot listen, or resources for a gateway are missing.
    pub(super) fn connect(
        &self,
        (id, cell): (u64, CellId),
        spec: &ManagedCellSpec,
        RequestedNetwork { network, slot }: RequestedNetwork,
    ) -> Result<CellConnection, ManagerError> {
        let addresses = network.as_ref().map(|network| self.kernel.plug(cell, network.id(), Link::default())).transpose()?;
        let (uplink, forwards) = match (&network, &addresses, slot) {
            (Some(network), Some(own), Some(slot)) => {
                let owner = (cell, own, format!("cell {id}, {}", spec.source.name(&spec.arguments)));
                let (allow, publish) = (spec.allow.clone(), spec.publish.clone());
                let (uplink, forwards) = self.gateways.open(&self.kernel, owner, network, (allow, publish, slot))?;
                (Some(uplink), forwards)
            }
            _ => (None, Vec::new()),
        };
        Ok(CellConnection { addresses, forwards, _uplink: uplink, _network: network })
    }
}
