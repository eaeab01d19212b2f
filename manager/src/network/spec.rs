// SPDX-License-Identifier: MIT OR Apache-2.0
//! The specification of a cell's network.

use pando_gateway::{PortForward, Rule};
use pando_kernel::network::link::Link;
use std::path::PathBuf;

/// A cell's network: its uplink, the emulation of a link, and a capture. By default none.
#[derive(Clone, Debug, Default)]
pub struct NetworkSpec {
    /// The uplink.
    pub uplink: UplinkSpec,
    /// The emulated link between the cell and its network, in each direction.
    pub link: Link,
    /// The file to which every frame is captured.
    pub capture: Option<PathBuf>,
}

/// The connection of a cell's network with the host.
#[derive(Clone, Debug, Default)]
pub enum UplinkSpec {
    /// The cell has no network at all.
    #[default]
    None,
    /// The cell has a network without other hosts.
    Private,
    /// A gateway proxies connections.
    Gateway {
        /// The destinations that the cell may reach.
        rules: Vec<Rule>,
        /// The ports of the host that lead to the cell.
        forwards: Vec<PortForward>,
    },
    /// A TAP device of the host, by name.
    Tap(String),
}
