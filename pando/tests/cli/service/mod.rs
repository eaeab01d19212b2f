// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pando serve` and its clients.

mod admission;
mod attach;
mod cell_use;
mod control;
mod debugging;
mod detached;
mod host_limits;
mod lifecycle;
mod memory_control;
mod nested_cells;
mod pool;
mod python_client;
mod serve;
mod sleep;
mod socket_activation;
mod supervisor;
