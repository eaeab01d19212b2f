// SPDX-License-Identifier: MIT OR Apache-2.0
//! The commands that ask `pando serve`.

mod attach;
mod cells;
mod detached;
mod exec;

pub(crate) use attach::{attach, detach};
pub(crate) use cells::{Kill, Listing, Logs, Sleepers, freeze, kill, logs, ps, sleep, stats, wake};
pub(crate) use detached::{new_cell, run};
pub(crate) use exec::{Exec, exec};
