// SPDX-License-Identifier: MIT OR Apache-2.0
//! Unmodified servers in cells, used from the host by their real clients through the gateway.
//!
//! [`server`] is the one boundary: a server's script, the ports that lead to it, and the line by which it says that it listens. `PANDO_TESTS=all`
//! carries more.
#![forbid(unsafe_code)]

mod data;
mod names;
mod resolved;
mod server;
mod shells;
mod streams;
mod web;
