// SPDX-License-Identifier: MIT OR Apache-2.0
//! The network of cells: what it reaches, captures, gateways, TAP devices.

mod captures;
mod gateways;
mod published;
pub(crate) mod reach;
mod taps;
