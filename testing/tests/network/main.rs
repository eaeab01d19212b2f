// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs in cells that speak with each other over a network: unmodified servers in some, their clients in others.

#[path = "../common/mod.rs"]
mod common;
mod faults;
mod grove;
mod outsider;
mod peer;
mod ping;
mod talk;
mod world;
