// SPDX-License-Identifier: MIT OR Apache-2.0
//! The console: bytes out and in, through the two rings.
//!
//! The kernel processes the rings at every exit, so posted descriptors move with the next one. The doorbell is rung by code that must
//! wait, and by a line of output after a pause.

pub mod channel;
pub mod control;
mod input;
mod output;

use crate::user::Fault;

pub use input::{input_ready, receive_user, take};
pub use output::{SLOT, flush, send_bytes, send_copy, send_user};

/// Resets the state of the streams in a clone, whose peers are its own.
pub fn reset_in_clone() {
    input::reset_in_clone();
    output::reset_in_clone();
}

/// The reason why no byte was moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoError {
    /// The application's memory is not accessible.
    Fault,
    /// An event was noted while this waited.
    Event,
    /// The stream has no reader.
    NoReader,
}

impl From<Fault> for IoError {
    fn from(_: Fault) -> IoError {
        IoError::Fault
    }
}

/// The destination of output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// The standard output.
    Stdout,
    /// The standard error stream.
    Stderr,
    /// A program's notes to the operator beside its streams.
    Notes,
}
