// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs in cells that communicate over a network: unmodified servers in some, their clients in others.

mod clones;
#[path = "../common/mod.rs"]
mod common;
mod faults;
mod host_peer;
mod hostile;
mod many;
mod peer;
mod ping;
mod slow;
mod talk;
mod world;
