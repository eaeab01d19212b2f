// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stacks that talk to each other over a simulated link, and hostile peers.

mod basics;
mod ends;
mod faults;
mod hostile;
mod links;
mod liveness;
mod many;
mod net;
mod rates;
