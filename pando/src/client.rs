// SPDX-License-Identifier: MIT OR Apache-2.0
//! The commands that ask `pando serve`.

mod attach;
mod cells;
mod commit;
mod console;
mod detached;
mod exec;
mod lifecycle;

pub(crate) use attach::{attach, detach};
pub(crate) use cells::{Kill, Listing, Logs, Sleepers, freeze, kill, logs, ps, sleep, stats, wake};
pub(crate) use commit::{CommitOptions, commit};
pub(crate) use console::{AttachOptions, attach_to_cell};
pub(crate) use detached::{new_cell, run};
pub(crate) use exec::{Exec, exec};
pub(crate) use lifecycle::{InspectOptions, RemoveOptions, StopOptions, inspect, remove, stop};
