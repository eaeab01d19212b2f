// SPDX-License-Identifier: MIT OR Apache-2.0
//! Exceptions, system calls, events, time, identity, and the results of calls, as a cell sees them. The same on every machine.

mod calls;
mod delivery;
mod identity;
mod idle;
mod refusals;
mod spaces;
mod upcalls;
