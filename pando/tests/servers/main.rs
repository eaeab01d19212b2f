// SPDX-License-Identifier: MIT OR Apache-2.0
//! Unmodified servers in cells, used from the host by their real clients through the gateway.
//!
//! [`server`] is the common interface: a server's script, its forwarded ports, and the line that reports that it listens.
//! `PANDO_TESTS=all` transfers more data.
#![forbid(unsafe_code)]

mod data;
mod names;
mod resolved;
mod server;
mod shells;
mod streams;
mod web;
