// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a cell is told, and when: exceptions, system calls, events, time, identity, and what its calls come to. On every machine the same.

mod calls;
mod cell;
mod delivery;
mod identity;
mod idle;
mod refusals;
mod spaces;
mod upcalls;
