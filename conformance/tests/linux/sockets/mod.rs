// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sockets, and servers with their clients.

mod servers;
mod static_programs;
