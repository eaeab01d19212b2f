// SPDX-License-Identifier: MIT OR Apache-2.0
//! The console: bytes out and in, through the two rings.
//!
//! The kernel looks at the rings at every exit, so what is posted without a doorbell moves with the next system call; a doorbell is rung only by
//! who must wait.

pub mod channel;
pub mod control;
mod input;
mod output;

use crate::user::Fault;

pub use input::{input_ready, receive_user, take};
pub use output::{SLOT, flush, send_bytes, send_copy, send_user};

/// Forgets what became of the other ends: a clone's are its own.
pub fn begin_anew() {
    input::begin_anew();
    output::begin_anew();
}

/// Why no byte was moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The application's memory is not there.
    Fault,
    /// An event was noted while this waited.
    Event,
    /// Nobody reads it.
    Unread,
}

impl From<Fault> for Stop {
    fn from(_: Fault) -> Stop {
        Stop::Fault
    }
}

/// Where output goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// The standard output.
    Output,
    /// The standard error stream.
    Errors,
    /// What a program says to the operator beside its streams.
    Notes,
}
