// SPDX-License-Identifier: MIT OR Apache-2.0
//! Scheduling, admission and memory pressure: the policies and the operator's calls, tested with real cells.

mod admission;
mod cpu_limit;
mod ends;
mod fairness;
mod freezing;
mod policies;
mod pressure;
mod threads;
