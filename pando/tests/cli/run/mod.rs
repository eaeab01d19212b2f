// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pando run`: streams, signals, terminals, volumes, limits.

mod checkpoint;
mod confinement;
pub(crate) mod debug;
mod limits;
mod live;
mod memory;
mod migrate;
mod named_volumes;
mod nested;
mod nested_messages;
mod nested_service;
mod page;
mod processor;
mod read_only;
mod signals;
mod stacking;
mod starts;
mod streams;
mod terminal;
mod trace;
mod volumes;
