// SPDX-License-Identifier: MIT OR Apache-2.0
//! How cells end: the reason, and the exit status that a shell would show.

use pando_kernel::End;

/// The exit status of a program whose time limit expired, as `timeout` uses it.
pub const TIMED_OUT: u8 = 124;
/// The exit status of failures of Pando and of the host, as container tools use it.
pub const PANDO_FAILURE_STATUS: u8 = 125;
/// The signal that ends a program which writes to a closed pipe.
pub const SIGPIPE: u8 = 13;
/// The signal of a program that violates the memory's protection.
const SIGSEGV: u8 = 11;
/// The signal that cannot be caught.
pub const SIGKILL: u8 = 9;

/// The exit status that a shell would show.
pub fn exit_status(end: &End) -> u8 {
    match end {
        End::Exited { status } => *status,
        End::Signalled { signal, .. } => of_signal(*signal),
        End::TimedOut => TIMED_OUT,
        End::Fault(_) | End::DoubleFault(_) | End::Violation(_) | End::Stuck { .. } => of_signal(SIGSEGV),
        End::Quota | End::MachineFull | End::Killed | End::OutputLimit => of_signal(SIGKILL),
        End::Host(_) => PANDO_FAILURE_STATUS,
    }
}

/// Whether the program chose its end: it exited, or wrote to a closed pipe. Other ends need a message.
pub fn is_chosen(end: &End) -> bool {
    matches!(end, End::Exited { .. } | End::Signalled { signal: SIGPIPE, .. })
}

/// The exit status that a shell shows for a signal.
pub fn of_signal(signal: u8) -> u8 {
    128_u8.saturating_add(signal)
}
