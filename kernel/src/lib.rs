// SPDX-License-Identifier: MIT OR Apache-2.0
//! The isolation kernel: multiplexes one machine among thousands of cells, and protects them from each other.
//!
//! It has no files, sockets, processes, threads, signals or paths. All names that a cell can use are relative to that cell. The
//! layers, each using only those above it in this list: [`limits`], [`memory`], [`cell`], [`network`], [`device`], [`sched`], and
//! the [`core`](crate::core) loop, which uses all of them.
#![forbid(unsafe_code)]

pub mod cell;
mod core;
pub mod device;
pub mod limits;
pub mod memory;
pub mod network;
pub mod sched;

pub use crate::core::{
    AdmissionCallback, Config, HostPort, Kernel, OperatorError, PacketCapture, SleepCounters, SleepOutcome, Statistics, TurnOutcome,
    Worker, WrongState,
};
pub use cell::counters::Counters;
pub use cell::cpu_limit::{CpuLimit, Weight};
pub use cell::end::{End, FaultReport, Outcome, Report};
pub use cell::image::CellImage;
pub use cell::run_state::RunState;
pub use cell::watch::WatchCallback;
pub use cell::{CellConfig, CellId};
pub use device::console::{ConsoleOutput, ConsolePort, Stream};
pub use device::disk::{Disk, DiskError};
pub use device::swap::{Swap, SwapError, SwapSlot, SwapUsage};
pub use memory::{BadImage, DiskId, StartMode, StartTrace};
pub use network::{NetworkConfig, NetworkId};
