// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ways in which cells end, with messages for people.

use super::counters::Counters;
use super::traffic::Traffic;
use crate::memory::{StartTrace, Usage};
use pando_abi::holding::ChildState;
use pando_abi::limits::MISSING_CALLS;
use pando_abi::registers::UNREADABLE;
use pando_abi::virtual_registers::MissingCall;
use pando_machine::Violation;
use std::fmt;

/// Why a cell ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// Its program exited.
    Exited {
        /// The program's status.
        status: u8,
    },
    /// A signal from its libOS ended its program.
    Signalled {
        /// The signal's number.
        signal: u8,
        /// The accessed address, or the instruction's address if the instruction itself is at fault.
        address: u64,
        /// The program's instruction pointer.
        instruction: u64,
    },
    /// An exception that the cell does not handle.
    Fault(FaultReport),
    /// An exception while the libOS was handling its own.
    DoubleFault(FaultReport),
    /// An action that is forbidden to every cell.
    Violation(Violation),
    /// Its memory quota is used up, and it needs a page to continue.
    Quota,
    /// The machine is out of memory, and this cell used the most memory.
    MachineFull,
    /// The operator ended it.
    Killed,
    /// Its time limit has expired.
    TimedOut,
    /// It exceeded its output limit.
    OutputLimit,
    /// It keeps faulting on memory that is present: the machine does not see its tables.
    Stuck {
        /// The address.
        address: u64,
    },
    /// The host failed.
    Host(String),
}

impl End {
    /// The state of a child that has ended so, as its parent sees it.
    #[must_use]
    pub fn child_state(&self) -> ChildState {
        match self {
            End::Exited { status } => ChildState::Exited(*status),
            End::Signalled { signal, .. } => ChildState::Signalled(*signal),
            End::Quota => ChildState::Quota,
            End::MachineFull => ChildState::MachineFull,
            End::Killed | End::TimedOut | End::OutputLimit => ChildState::Killed,
            End::Fault(_) | End::DoubleFault(_) | End::Violation(_) | End::Stuck { .. } | End::Host(_) => ChildState::Failed,
        }
    }
}

/// An exception, as reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultReport {
    /// The vector.
    pub vector: u8,
    /// The error code.
    pub error: u64,
    /// The accessed address.
    pub address: u64,
    /// The instruction pointer.
    pub instruction: u64,
}

impl fmt::Display for FaultReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unnamed = format!("exception {}", self.vector);
        let name = match self.vector {
            0 => "division error",
            1 => "debug exception",
            3 => "breakpoint",
            4 => "overflow",
            5 => "BOUND range exceeded",
            6 => "invalid opcode",
            7 => "device not available",
            8 => "double fault",
            11 => "segment not present",
            12 => "stack-segment fault",
            13 => "general protection fault",
            14 => "page fault",
            16 => "x87 floating-point error",
            17 => "alignment check",
            19 => "SIMD floating-point exception",
            _ => unnamed.as_str(),
        };
        if self.vector == 14 {
            let tried = match (self.error & 16 != 0, self.error & 2 != 0) {
                (true, _) => "executing",
                (_, true) => "writing",
                _ => "reading",
            };
            let why = if self.error & UNREADABLE != 0 { ", a block of a disk that cannot be read" } else { "" };
            write!(f, "{name} {tried} address {:#x}{why} (instruction at {:#x})", self.address, self.instruction)
        } else {
            write!(f, "{name} (instruction at {:#x}, error code {:#x})", self.instruction, self.error)
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            End::Exited { status } => write!(f, "exited with status {status}"),
            End::Signalled { signal, address: 0, instruction: 0 } => write!(f, "ended by {}", signal_name(*signal)),
            End::Signalled { signal, address, instruction } if address == instruction => {
                write!(f, "ended by {}: instruction at {instruction:#x}", signal_name(*signal))
            }
            End::Signalled { signal, address, instruction } => {
                write!(f, "ended by {}: touched address {address:#x} (instruction at {instruction:#x})", signal_name(*signal))
            }
            End::Fault(fault) => write!(f, "{fault}, which the cell does not handle"),
            End::DoubleFault(fault) => write!(f, "{fault} while its libOS was handling another"),
            End::Violation(violation) => write!(f, "{violation}"),
            End::Quota => f.write_str("its memory quota is used up"),
            End::MachineFull => f.write_str("the machine is out of memory, and this cell used the most memory"),
            End::Killed => f.write_str("killed"),
            End::TimedOut => f.write_str("its time limit expired"),
            End::OutputLimit => f.write_str("it exceeded its output limit"),
            End::Stuck { address } => write!(f, "faulted repeatedly at {address:#x}, on memory that is present (a fault of the machine)"),
            End::Host(error) => write!(f, "the host failed: {error}"),
        }
    }
}

fn signal_name(signal: u8) -> String {
    let name = match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL (illegal instruction)",
        5 => "SIGTRAP (trap)",
        6 => "SIGABRT (aborted)",
        7 => "SIGBUS (bus error)",
        8 => "SIGFPE (arithmetic error)",
        9 => "SIGKILL (killed)",
        10 => "SIGUSR1",
        11 => "SIGSEGV (segmentation fault)",
        12 => "SIGUSR2",
        13 => "SIGPIPE (broken pipe)",
        14 => "SIGALRM",
        15 => "SIGTERM (terminated)",
        16 => "SIGSTKFLT",
        24 => "SIGXCPU (CPU time)",
        25 => "SIGXFSZ (file size)",
        26 => "SIGVTALRM",
        27 => "SIGPROF",
        29 => "SIGIO",
        30 => "SIGPWR",
        31 => "SIGSYS (bad system call)",
        _ => return format!("signal {signal}"),
    };
    name.into()
}

/// A libOS's report about its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// System calls that programs made.
    pub calls: u64,
    /// System calls that the libOS does not implement.
    pub missing_calls: u64,
    /// The missing calls; unused entries are zero.
    pub missing: [MissingCall; MISSING_CALLS],
}

/// The record of an ended cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Why it ended.
    pub end: End,
    /// Its activity.
    pub counters: Counters,
    /// Its memory use.
    pub usage: Usage,
    /// Its libOS's report; zeros if there is none.
    pub report: Report,
    /// Its network card's traffic, if it had a card.
    pub traffic: Option<Traffic>,
    /// The trace of its start, if it was traced.
    pub start: Option<StartTrace>,
}

#[cfg(test)]
mod tests {
    use super::FaultReport;

    #[test]
    fn an_exception_without_a_name_is_reported_by_its_number() {
        let report = |vector| FaultReport { vector, error: 0, address: 0, instruction: 0x1000 }.to_string();
        assert!(report(20).starts_with("exception 20 (instruction at 0x1000"));
        assert!(report(14).starts_with("page fault reading"));
    }
}
