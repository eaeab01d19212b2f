// SPDX-License-Identifier: MIT OR Apache-2.0
//! Terminals: dialogues, pseudo terminals, job control.

mod dialogues;
mod exec;
mod pseudo_terminals;
