// SPDX-License-Identifier: MIT OR Apache-2.0
//! The network of cells: what it reaches, captures, gateways, TAP devices.

mod by_name;
mod captures;
pub(crate) mod gateways;
mod published;
pub(crate) mod reach;
mod taps;
