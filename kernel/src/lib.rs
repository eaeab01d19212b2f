// SPDX-License-Identifier: MIT OR Apache-2.0
//! The isolation kernel: multiplexes one machine among thousands of cells, and protects them from each other.
//!
//! It knows no file, socket, process, thread, signal or path. Everything a cell can name is relative to that cell. The layers, each using those
//! above it in this list only: [`limits`], [`memory`], [`cell`], [`network`], [`device`], [`sched`], and the [`core`](crate::core) loop, where all meet.
#![forbid(unsafe_code)]

pub mod cell;
mod core;
pub mod device;
pub mod limits;
pub mod memory;
pub mod network;
pub mod sched;

pub use crate::core::{Config, Kernel, Listener, OperatorError, Station, Turn, Worker};
pub use cell::end::{Counters, End, FaultReport, Outcome, Report};
pub use cell::image::CellImage;
pub use cell::{CellConfig, CellId};
pub use device::console::{ConsolePort, Heard, Stream};
pub use device::disk::{Disk, DiskError};
pub use memory::{BadImage, DiskId};
pub use network::{NetworkConfig, NetworkId};
pub use sched::Share;
