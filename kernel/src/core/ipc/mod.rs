// SPDX-License-Identifier: MIT OR Apache-2.0
//! Synchronous messages between cells, as in Fluke: a call waits at its caller until the holder of the port receives it.
//!
//! A *port* is a holding of the cell that receives. A *reference* to it is a holding of a cell that may call; it carries a label that only
//! the kernel delivers. No message is ever stored in the kernel: it is copied from cell to cell. Each of them
//! is at rest, or its vCPU does the copy. A cell with a posted call may also run elsewhere: it is written to only where no entry of its
//! tables changes.
//!
//! A call that blocks its cell leaves the cell's registers as if the instruction was not executed yet. So a halt, a freeze, a clone and an
//! export find a complete cell, which makes the call again. The end of the wait moves the instruction pointer
//! past it.

mod blocking;
mod calls;
mod delivery;
mod port;
mod posted_results;
mod release;
mod rights;
mod wait;

pub(super) use port::{Call, CallTicket, MessagePort, Reference};
pub(super) use rights::{CellRights, ReleaseQueue};
pub(super) use wait::IpcState;
