// SPDX-License-Identifier: MIT OR Apache-2.0
//! The commands that ask `pando serve`.

mod attach;
mod cells;
mod commit;
mod detached;
mod exec;
mod lifecycle;
mod run_in_service;

pub(crate) use attach::{AttachOptions, attach};
pub(crate) use cells::{KillOptions, LogsOptions, PsOptions, SleepOptions, freeze, kill, logs, ps, sleep, stats, wake};
pub(crate) use commit::{CommitOptions, commit, make_image};
pub(crate) use detached::{new_cell, run};
pub(crate) use exec::{ExecOptions, exec};
pub(crate) use lifecycle::{InspectOptions, RemoveOptions, StopOptions, inspect, remove, stop};
pub(crate) use run_in_service::{run_attached, run_detached};
