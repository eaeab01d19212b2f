// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cells that clients reach by name, at one address of the host. They share one network, in which they do not reach each other, and one
//! gateway: a cell costs no thread, process or socket for that.

use super::ManagerError;
use super::cell_number::cell_number;
use super::gateways::{CellUplink, Gateways};
use super::tasks::lock;
use crate::network::{CellDirectory, NamedNetworks, SharedNetwork};
use pando_gateway::{PortForward, Protocol, VirtualHosts};
use pando_kernel::Kernel;
use std::collections::{BTreeSet, HashMap};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, OnceLock};

/// The network and the gateway of cells that are reached by name. Dropping it stops the gateway.
pub(super) struct VirtualHostIngress {
    pub(super) network: Arc<SharedNetwork>,
    pub(super) table: Arc<NamedCellTable>,
    _uplink: CellUplink,
}

/// The cells that are reached by name.
pub(super) struct NamedCellTable {
    domain: String,
    /// The address at which the host listens, once it does.
    address: OnceLock<SocketAddr>,
    hosts: Mutex<NamedCells>,
}

#[derive(Default)]
struct NamedCells {
    by_number: HashMap<u64, NamedCell>,
    /// Number of entries so far.
    added: u64,
    /// Numbers by name, in lower case.
    by_name: HashMap<String, BTreeSet<u64>>,
}

/// A cell that is reached by name.
struct NamedCell {
    /// The number of its entry.
    serial: u64,
    name: String,
    address: Ipv4Addr,
    /// Its published ports: the first one is for requests that name none.
    ports: Vec<u16>,
}

/// The entry of a cell, which is removed when this is dropped.
pub(super) struct NamedCellEntry {
    table: Arc<NamedCellTable>,
    number: u64,
    serial: u64,
}

/// A published port of a cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellPort {
    /// The address or the name of the host, with its port.
    pub host: String,
    /// The port of the cell.
    pub cell: u16,
    /// TCP or UDP.
    pub protocol: Protocol,
}

/// The published ports of a cell.
#[derive(Default)]
pub(super) struct CellPorts {
    /// Ports of the host that lead to it.
    pub(super) forwards: Vec<PortForward>,
    /// Ports that are reached by its name.
    pub(super) by_name: Vec<u16>,
    /// The table that has its name.
    pub(super) table: Option<Arc<NamedCellTable>>,
}

impl VirtualHostIngress {
    /// Listens for clients.
    ///
    /// # Errors
    /// The host does not listen at the address, or lacks resources.
    pub(super) fn open(
        kernel: &Arc<Kernel>,
        networks: &NamedNetworks,
        gateways: &Gateways,
        config: VirtualHosts,
    ) -> Result<VirtualHostIngress, ManagerError> {
        let network = networks.create_isolated()?;
        let table = Arc::new(NamedCellTable { domain: config.domain.clone(), address: OnceLock::new(), hosts: Mutex::default() });
        let (uplink, address) = gateways.open_shared(kernel, &network, config, Arc::<NamedCellTable>::clone(&table))?;
        let _ = table.address.set(address);
        Ok(VirtualHostIngress { network, table, _uplink: uplink })
    }
}

impl NamedCellTable {
    /// Adds a cell.
    pub(super) fn add(self: &Arc<NamedCellTable>, number: u64, name: &str, address: Ipv4Addr, ports: Vec<u16>) -> NamedCellEntry {
        let mut hosts = lock(&self.hosts);
        hosts.remove(number);
        let name = name.to_ascii_lowercase();
        hosts.by_name.entry(name.clone()).or_default().insert(number);
        hosts.added += 1;
        let serial = hosts.added;
        hosts.by_number.insert(number, NamedCell { serial, name, address, ports });
        NamedCellEntry { table: Arc::clone(self), number, serial }
    }

    /// The address at which the host listens, and the domain of the names.
    pub(super) fn config(&self) -> Option<VirtualHosts> {
        self.address.get().map(|address| VirtualHosts { address: *address, domain: self.domain.clone() })
    }

    /// The address of the host at which it listens, as clients write it for a cell of this name.
    fn host(&self, name: &str, port: Option<u16>) -> String {
        let prefix = port.map_or_else(String::new, |port| format!("{port}."));
        let own = self.address.get().map_or(0, SocketAddr::port);
        format!("{prefix}{}.{}:{own}", name.to_ascii_lowercase(), self.domain)
    }
}

impl NamedCells {
    /// The cell of this number or name. Of several, the one that was started last.
    fn find(&self, name: &str) -> Option<&NamedCell> {
        let number = match cell_number(name) {
            Some(number) => number,
            None => *self.by_name.get(name)?.last()?,
        };
        self.by_number.get(&number)
    }

    fn remove(&mut self, number: u64) {
        let Some(NamedCell { name, .. }) = self.by_number.remove(&number) else { return };
        if let Some(numbers) = self.by_name.get_mut(&name) {
            numbers.remove(&number);
            if numbers.is_empty() {
                self.by_name.remove(&name);
            }
        }
    }
}

impl CellDirectory for NamedCellTable {
    /// Finds `NAME`, or the port of `PORT.NAME`.
    fn find(&self, name: &str) -> Result<SocketAddr, String> {
        let hosts = lock(&self.hosts);
        let with_port = || {
            let (port, name) = name.split_once('.')?;
            Some((hosts.find(name)?, Some(port.parse::<u16>().ok()?)))
        };
        let Some((host, port)) = hosts.find(name).map(|host| (host, None)).or_else(with_port) else {
            return Err(format!(
                "no cell `{name}` is published by name: `pando ps` lists the names; start one with `pando clone -d --publish 80 TEMPLATE`"
            ));
        };
        let known = |port: u16| host.ports.contains(&port).then_some(port);
        match port.map_or_else(|| host.ports.first().copied(), known) {
            Some(port) => Ok(SocketAddr::new(host.address.into(), port)),
            None => Err(format!(
                "cell `{}` does not publish this port by name: request one of {:?}, or start it with another --publish",
                host.name, host.ports
            )),
        }
    }
}

impl Drop for NamedCellEntry {
    fn drop(&mut self) {
        let mut hosts = lock(&self.table.hosts);
        // A cell that was started again has its number.
        if hosts.by_number.get(&self.number).is_some_and(|host| host.serial == self.serial) {
            hosts.remove(self.number);
        }
    }
}

impl CellPorts {
    /// The ports of a cell with this name.
    pub(super) fn of(&self, name: &str) -> Vec<CellPort> {
        let forwards =
            self.forwards.iter().map(|&PortForward { host, cell, protocol }| CellPort { host: host.to_string(), cell, protocol });
        let named = self.by_name.iter().enumerate().filter_map(|(at, &cell)| {
            let host = self.table.as_ref()?.host(name, (at > 0).then_some(cell));
            Some(CellPort { host, cell, protocol: Protocol::Tcp })
        });
        forwards.chain(named).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{CellPorts, NamedCellTable};
    use crate::network::CellDirectory;
    use std::net::Ipv4Addr;
    use std::sync::{Arc, Mutex, OnceLock};

    fn table() -> Arc<NamedCellTable> {
        let address = OnceLock::from("127.0.0.1:8080".parse::<std::net::SocketAddr>().expect("an address"));
        Arc::new(NamedCellTable { domain: "cells.localhost".into(), address, hosts: Mutex::default() })
    }

    #[test]
    fn cells_are_found_by_number_name_and_port_until_they_end() {
        let table = table();
        let found = |name: &str| table.find(name).map(|address| address.to_string());
        let web = table.add(7, "Web", Ipv4Addr::new(10, 77, 0, 7), vec![80, 81]);
        for (name, address) in [("7", "10.77.0.7:80"), ("web", "10.77.0.7:80"), ("80.7", "10.77.0.7:80"), ("81.web", "10.77.0.7:81")] {
            assert_eq!(found(name), Ok(address.into()), "{name}");
        }
        assert!(found("82.web").is_err_and(|error| error.contains("[80, 81]")));
        for name in ["8", "we", "x.web", "", ".", "65617.web", "80.", "18446744073709551616"] {
            assert!(found(name).is_err_and(|error| error.contains("pando ps")), "{name}");
        }
        let digits = table.add(9, "007", Ipv4Addr::new(10, 77, 0, 9), vec![80]);
        assert_eq!(found("007"), Ok("10.77.0.9:80".into()), "a number that is not printed like that is a name");
        assert!(found("07").is_err());
        drop(digits);
        let dotted = table.add(8, "81.web", Ipv4Addr::new(10, 77, 0, 8), vec![90]);
        assert_eq!(found("81.web"), Ok("10.77.0.8:90".into()), "a whole name comes first");
        drop(dotted);
        // A cell that is started again may be added before its predecessor's entry is dropped.
        let again = table.add(7, "web", Ipv4Addr::new(10, 77, 0, 7), vec![90]);
        drop(web);
        assert_eq!(found("web"), Ok("10.77.0.7:90".into()), "also with the same address");
        drop(again);
        assert!(found("web").is_err() && found("7").is_err());
        assert!(table.hosts.lock().expect("no panic").by_name.is_empty());
    }

    #[test]
    fn ports_are_shown_as_clients_write_them() {
        let ports = CellPorts { forwards: Vec::new(), by_name: vec![80, 443], table: Some(table()) };
        let hosts: Vec<String> = ports.of("Web-1").into_iter().map(|port| port.host).collect();
        assert_eq!(hosts, ["web-1.cells.localhost:8080", "443.web-1.cells.localhost:8080"]);
    }
}
