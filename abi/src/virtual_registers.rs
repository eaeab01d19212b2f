// SPDX-License-Identifier: MIT OR Apache-2.0
//! The virtual registers: one page that kernel and cell share (Denali section 3.2.1).
//!
//! The kernel accesses the page only while the cell does not run, so a cell sees it change at hypercalls, upcalls and
//! quanta. The cell owns the control words; the kernel owns the rest and rewrites it when it has changed.
//!
//! # Upcalls
//! An exception that the kernel does not resolve, a `syscall`, or an unmasked event saves the context and runs the libOS. There
//! are two save levels: level 0 for an application, level 1 for the libOS itself. The libOS is running if [`Control::level`] is
//! not 0, or if the instruction pointer lies in [`Control::exit_path_start`]`..`[`Control::exit_path_end`], the libOS's exit path.
//! There it may reset `level` and `critical`, and no upcall comes before it has left. An upcall sets `level` and `critical`,
//! sets the stack pointer to [`Control::stacks`] of its level and jumps to the entry. An exception at level 2 ends the cell.

use crate::limits::{ENTROPY_BYTES, HOST_NAME_BYTES, MISSING_CALLS};
use crate::{PAGE_SIZE, SavedContext};

/// The page.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct VirtualRegisters {
    /// Control words, written by the cell.
    pub control: Control,
    /// The clock.
    pub time: Time,
    /// Memory.
    pub memory: Memory,
    /// The identity of the cell.
    pub identity: Identity,
    /// The two save levels.
    pub saves: [SavedContext; 2],
    /// Counters for the operator.
    pub report: Report,
    /// The operator's terminal.
    pub window: Window,
    /// The network card; it changes with the generation.
    pub card: Card,
    /// The clock at the time when this cell's source was frozen by the operator; 0: it froze itself. It changes with the generation.
    pub source_frozen_at: u64,
    /// Nanoseconds for which the cell could have run but had no vCPU: other cells ran, or its CPU limit was reached. The kernel adds to it.
    pub steal: u64,
}

const _: () = assert!(size_of::<VirtualRegisters>() <= PAGE_SIZE as usize);

/// The control words: settings of the cell, and its events.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Control {
    /// Pending events; the kernel adds, the cell clears.
    pub pending: u64,
    /// Masked events, one bit each.
    pub mask: u64,
    /// Not 0: no upcall for events (Xok's robust critical sections). It never delays the kernel.
    pub critical: u64,
    /// Nesting of the libOS: 0 application, 1 libOS, 2 libOS handling its own exception.
    pub level: u64,
    /// First instruction of the libOS's exit path.
    pub exit_path_start: u64,
    /// The instruction after the exit path.
    pub exit_path_end: u64,
    /// Entry of exceptions and `syscall`; 0: none, an exception ends the cell.
    pub exception_entry: u64,
    /// Entry of events; 0: none, events only end idling.
    pub event_entry: u64,
    /// Stack pointers of upcalls, by save level.
    pub stacks: [u64; 2],
    /// Deadline of event [`crate::Event::Timer`]; all ones: never.
    pub timer: u64,
}

/// The clock: `nanoseconds = base + ((rdtsc - tsc_base) * scale >> 32)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Time {
    /// Nanoseconds per TSC cycle, times 2^32.
    pub scale: u64,
    /// The TSC at `base`.
    pub tsc_base: u64,
    /// Nanoseconds of the cell's clock at `tsc_base`.
    pub base: u64,
    /// Nanoseconds since 1970 when the cell's clock read 0.
    pub wall_base: u64,
    /// TSC cycles per second.
    pub frequency: u64,
}

impl Time {
    /// The cell's clock at a TSC value.
    #[must_use]
    pub const fn nanoseconds(&self, tsc: u64) -> u64 {
        let passed = (tsc.saturating_sub(self.tsc_base) as u128 * self.scale as u128) >> 32;
        self.base.wrapping_add(passed as u64)
    }
}

/// Memory, in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Memory {
    /// Maximum number of frames of the cell.
    pub quota: u64,
    /// Number of frames in use, tables included.
    pub used: u64,
}

/// The identity of the cell; all of it changes with the generation.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Identity {
    /// Increases at every clone.
    pub generation: u64,
    /// Index of this clone of its template, from 0.
    pub clone_index: u64,
    /// Fresh random bytes.
    pub entropy: [u8; ENTROPY_BYTES],
    /// Bytes of `host_name` in use.
    pub host_name_length: u64,
    /// The host name.
    pub host_name: [u8; HOST_NAME_BYTES],
}

/// The size of the operator's terminal; zeros until the first [`crate::Event::WindowSize`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Window {
    /// Rows of characters.
    pub rows: u64,
    /// Columns of characters.
    pub columns: u64,
}

/// The network card, and the cell's addresses on its network. All zeros: there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Card {
    /// MTU: the largest packet in bytes; 0: there is no card.
    pub mtu: u64,
    /// Its Ethernet address, the first byte lowest.
    pub mac: u64,
    /// The IPv4 address as a number, and its prefix length in the upper half.
    pub address4: u64,
    /// The IPv4 address of the router; 0: none.
    pub router4: u64,
    /// The IPv6 address, its upper half first.
    pub address6: [u64; 2],
    /// Its prefix length.
    pub prefix6: u64,
    /// The IPv6 address of the router; 0: none.
    pub router6: [u64; 2],
    /// The IPv4 address of the DNS resolver; 0: none.
    pub resolver4: u64,
}

impl Card {
    /// Number of words.
    pub const WORDS: usize = size_of::<Card>() / 8;

    /// Its words, in order.
    #[must_use]
    pub const fn to_words(self) -> [u64; Card::WORDS] {
        let Card { mtu, mac, address4, router4, address6: [high, low], prefix6, router6: [router_high, router_low], resolver4 } = self;
        [mtu, mac, address4, router4, high, low, prefix6, router_high, router_low, resolver4]
    }
}

/// The libOS's counters for its operator; the kernel copies them when the cell ends.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Report {
    /// System calls that programs made.
    pub calls: u64,
    /// System calls that the libOS does not implement.
    pub missing_calls: u64,
    /// The first different ones of those; from the first count of 0 on, the entries are unused.
    pub missing: [MissingCall; MISSING_CALLS],
}

/// A system call that the libOS does not implement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct MissingCall {
    /// Its number.
    pub number: u32,
    /// Number of calls; saturates.
    pub count: u32,
}

/// Offsets within the page, in bytes, for the side that copies rather than points.
pub mod offset {
    use super::{Control, Identity, Report, VirtualRegisters};
    use core::mem::offset_of;

    /// Of [`Control::pending`](super::Control::pending).
    pub const PENDING: usize = offset_of!(VirtualRegisters, control) + offset_of!(Control, pending);
    /// Of [`Control::critical`](super::Control::critical).
    pub const CRITICAL: usize = offset_of!(VirtualRegisters, control) + offset_of!(Control, critical);
    /// Of [`Control::level`](super::Control::level).
    pub const LEVEL: usize = offset_of!(VirtualRegisters, control) + offset_of!(Control, level);
    /// Of [`Control::timer`](super::Control::timer).
    pub const TIMER: usize = offset_of!(VirtualRegisters, control) + offset_of!(Control, timer);
    /// Of the clock.
    pub const TIME: usize = offset_of!(VirtualRegisters, time);
    /// Of the memory words.
    pub const MEMORY: usize = offset_of!(VirtualRegisters, memory);
    /// Of the identity.
    pub const IDENTITY: usize = offset_of!(VirtualRegisters, identity);
    /// Of [`Identity::entropy`](super::Identity::entropy).
    pub const ENTROPY: usize = IDENTITY + offset_of!(Identity, entropy);
    /// Of [`Identity::host_name_length`](super::Identity::host_name_length).
    pub const HOST_NAME_LENGTH: usize = IDENTITY + offset_of!(Identity, host_name_length);
    /// Of the save levels.
    pub const SAVES: usize = offset_of!(VirtualRegisters, saves);
    /// Of the report.
    pub const REPORT: usize = offset_of!(VirtualRegisters, report);
    /// Of [`Report::missing`](super::Report::missing).
    pub const MISSING: usize = REPORT + offset_of!(Report, missing);
    /// Of the window's size.
    pub const WINDOW: usize = offset_of!(VirtualRegisters, window);
    /// Of the network card.
    pub const CARD: usize = offset_of!(VirtualRegisters, card);
    /// Of [`VirtualRegisters::source_frozen_at`](super::VirtualRegisters::source_frozen_at).
    pub const SOURCE_FROZEN_AT: usize = offset_of!(VirtualRegisters, source_frozen_at);
    /// Of [`VirtualRegisters::steal`](super::VirtualRegisters::steal).
    pub const STEAL: usize = offset_of!(VirtualRegisters, steal);
}

impl Control {
    /// Number of control words.
    pub const WORDS: usize = size_of::<Control>() / 8;

    /// The control words from the start of the page, in order.
    #[must_use]
    pub const fn from_words(words: [u64; Control::WORDS]) -> Control {
        let [pending, mask, critical, level, exit_path_start, exit_path_end, exception_entry, event_entry, stack0, stack1, timer] = words;
        Control {
            pending,
            mask,
            critical,
            level,
            exit_path_start,
            exit_path_end,
            exception_entry,
            event_entry,
            stacks: [stack0, stack1],
            timer,
        }
    }

    /// Whether `rip` is in the libOS's exit path.
    #[must_use]
    pub const fn is_in_exit_path(&self, rip: u64) -> bool {
        self.exit_path_start <= rip && rip < self.exit_path_end
    }
}
