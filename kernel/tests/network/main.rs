// SPDX-License-Identifier: MIT OR Apache-2.0
//! The network: frames between cells, and between cells and stations, in batches; who floods, lies or writes nonsense hurts itself only.

mod batches;
mod bench;
mod hostile;
mod links;
mod shortcuts;
mod stations;
