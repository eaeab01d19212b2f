// SPDX-License-Identifier: MIT OR Apache-2.0
//! The networks of cells: named ones, and those with an uplink of their own. A service in a cell has none.

use super::ManagerError;
use super::gateways::{CellUplink, GatewaySlot, Gateways};
use super::spec::ManagedCellSpec;
use super::virtual_hosts::{CellPorts, NamedCellEntry, NamedCellTable, VirtualHostIngress};
use crate::network::{NamedNetworks, SharedNetwork};
use pando_gateway::{Publication, VirtualHosts};
use pando_kernel::network::address::Addresses;
use pando_kernel::network::link::Link;
use pando_kernel::{CellId, Kernel};
use std::sync::Arc;

/// The networks of a kernel of this process.
pub(super) struct CellNetworks {
    kernel: Arc<Kernel>,
    named: NamedNetworks,
    /// The network of cells that are reached by name, if the service has an address for them.
    ingress: Option<VirtualHostIngress>,
    gateways: Gateways,
}

/// The requested network of a cell that is being started: created before the cell, so that it is removed after it.
#[derive(Default)]
pub(super) struct RequestedNetwork {
    network: Option<Arc<SharedNetwork>>,
    slot: Option<GatewaySlot>,
    /// The table of the cells that are reached by name, if it is one.
    table: Option<Arc<NamedCellTable>>,
}

/// The connection of a cell. Its parts are released after the cell has ended.
#[derive(Default)]
pub(super) struct CellConnection {
    /// The cell's addresses.
    pub(super) addresses: Option<Addresses>,
    /// The published ports of the cell.
    pub(super) ports: CellPorts,
    _entry: Option<NamedCellEntry>,
    _uplink: Option<CellUplink>,
    _network: Option<Arc<SharedNetwork>>,
}

impl CellNetworks {
    /// Networks with these gateways. Listens for clients that choose their cell by name, if the service has an address for them.
    ///
    /// # Errors
    /// The host does not listen there, or lacks resources.
    pub(super) fn new(kernel: Arc<Kernel>, gateways: Gateways) -> Result<CellNetworks, ManagerError> {
        let named = NamedNetworks::new(Arc::clone(&kernel));
        let config = gateways.virtual_hosts().cloned();
        let ingress = config.map(|config| VirtualHostIngress::open(&kernel, &named, &gateways, config)).transpose()?;
        Ok(CellNetworks { named, kernel, ingress, gateways })
    }

    /// The address at which the host listens for clients that choose their cell by name, and the domain of the names.
    pub(super) fn listening(&self) -> Option<VirtualHosts> {
        self.ingress.as_ref().and_then(|ingress| ingress.table.config())
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
        let needs_gateway = !spec.allow.is_empty() || spec.publish.iter().any(|published| matches!(published, Publication::Forward(_)));
        if needs_gateway { self.gateways.slot().await.map(Some) } else { Ok(None) }
    }

    /// The network that a cell requests.
    ///
    /// # Errors
    /// There are too many, or the cell cannot be reached by name.
    pub(super) fn request(&self, spec: &ManagedCellSpec, slot: Option<GatewaySlot>) -> Result<RequestedNetwork, ManagerError> {
        if spec.publish.iter().any(|published| matches!(published, Publication::ByName(_))) {
            return match &self.ingress {
                None => Err(ManagerError::NoVirtualHosts),
                Some(_) if slot.is_some() || spec.network.is_some() => Err(ManagerError::TwoNetworks),
                Some(VirtualHostIngress { network, table, .. }) => {
                    Ok(RequestedNetwork { network: Some(Arc::clone(network)), slot: None, table: Some(Arc::clone(table)) })
                }
            };
        }
        let network = match &spec.network {
            Some(name) => Some(self.named.get(name)?),
            None => slot.as_ref().map(|_| self.named.create()).transpose()?,
        };
        Ok(RequestedNetwork { network, slot, table: None })
    }

    /// Connects a cell, by its number and its name for clients, to the network that it requested.
    ///
    /// # Errors
    /// It has no address left, a port forward cannot listen, or resources for a gateway are missing.
    pub(super) fn connect(
        &self,
        (id, cell, name): (u64, CellId, &str),
        spec: &ManagedCellSpec,
        RequestedNetwork { network, slot, table }: RequestedNetwork,
    ) -> Result<CellConnection, ManagerError> {
        let addresses = network.as_ref().map(|network| self.kernel.plug(cell, network.id(), Link::default())).transpose()?;
        let (mut forwards, mut by_name) = (Vec::new(), Vec::new());
        for published in &spec.publish {
            match published {
                Publication::Forward(forward) => forwards.push(*forward),
                Publication::ByName(port) => by_name.push(*port),
            }
        }
        let (uplink, forwards) = match (&network, &addresses, slot) {
            (Some(network), Some(own), Some(slot)) => {
                let owner = (cell, own, format!("cell {id}, {}", spec.source.name(&spec.arguments)));
                let (uplink, forwards) = self.gateways.open(&self.kernel, owner, network, (spec.allow.clone(), forwards, slot))?;
                (Some(uplink), forwards)
            }
            _ => (None, Vec::new()),
        };
        let entry = table.as_ref().zip(addresses).map(|(table, own)| table.add(id, name, own.v4, by_name.clone()));
        Ok(CellConnection { addresses, ports: CellPorts { forwards, by_name, table }, _entry: entry, _uplink: uplink, _network: network })
    }
}
