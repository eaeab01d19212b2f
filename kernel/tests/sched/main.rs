// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who runs when, who is let in, who goes: the policies and the operator's calls, seen with real cells.

#[path = "../events/cell.rs"]
#[allow(dead_code)]
mod cell;

mod ends;
mod fairness;
mod freezing;
mod policies;
mod pressure;
mod share;
mod threads;
