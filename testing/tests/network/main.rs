// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs in cells that speak with each other over a network: unmodified servers in some, their clients in others.

#[path = "../common/mod.rs"]
mod common;
mod faults;
mod grove;
mod hostile;
mod many;
mod outsider;
mod peer;
mod ping;
mod slow;
mod talk;
mod world;
