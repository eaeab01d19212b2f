// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command line itself: help, options, refusals, the README.

mod hostile_inputs;
mod options;
mod other_commands;
mod readme;
mod refusals;
mod systemd_units;
