// SPDX-License-Identifier: MIT OR Apache-2.0
//! The network: batches of frames between cells, and between cells and host ports. A cell that floods, spoofs or writes invalid
//! data harms only itself.

mod batches;
mod host_ports;
mod hostile;
mod links;
mod shortcuts;
