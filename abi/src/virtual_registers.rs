// SPDX-License-Identifier: MIT OR Apache-2.0
//! The virtual registers: one page that kernel and cell share (Denali section 3.2.1).
//!
//! The kernel touches the page only while the cell does not run, so a cell sees it change at hypercalls, upcalls and quanta. The cell owns the control words;
//! the kernel owns the rest and rewrites it when it has changed.
//!
//! # When an upcall happens
//! An exception that the kernel does not resolve, a `syscall`, or an unmasked event saves the context and runs the libOS. Which of the two save levels:
//! level 0 for an application, level 1 for the libOS itself. The libOS counts as running when [`Control::level`] is not 0 or the instruction
//! pointer lies in [`Control::leave_start`]`..`[`Control::leave_end`], the libOS's way out: it may reset `level` and `critical` there and be sure that
//! nothing comes between before it has left. An upcall sets `level` and `critical`, sets the stack pointer to [`Control::stacks`] of its level and jumps to the entry.
//! An exception at level 2 ends the cell.

use crate::limits::{ENTROPY_BYTES, HOST_NAME_BYTES, MISSING_CALLS};
use crate::{PAGE_SIZE, SavedContext};

/// The page.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct VirtualRegisters {
    /// Written by the cell.
    pub control: Control,
    /// The clock.
    pub time: Time,
    /// Memory.
    pub memory: Memory,
    /// Who this is.
    pub identity: Identity,
    /// The two save levels.
    pub saves: [SavedContext; 2],
    /// What the cell tells its operator.
    pub report: Report,
    /// The operator's terminal.
    pub window: Window,
    /// The network card; it changes with the generation.
    pub card: Card,
    /// What the clock read when this cell's source was frozen as it stood; 0: that froze by itself. It changes with the generation.
    pub stopped: u64,
}

const _: () = assert!(size_of::<VirtualRegisters>() <= PAGE_SIZE as usize);

/// What the cell sets, and the events it has.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Control {
    /// Events that have happened; the kernel adds, the cell clears.
    pub pending: u64,
    /// Events that are held back: a set bit masks.
    pub mask: u64,
    /// Not 0: no upcall for events (Xok's robust critical sections). Never delays the kernel.
    pub critical: u64,
    /// How deep the libOS is: 0 application, 1 libOS, 2 libOS handling its own exception.
    pub level: u64,
    /// First instruction of the libOS's way out.
    pub leave_start: u64,
    /// The instruction after the way out.
    pub leave_end: u64,
    /// Where exceptions and `syscall` enter; 0: none, an exception ends the cell.
    pub exception_entry: u64,
    /// Where events enter; 0: none, events only end idling.
    pub event_entry: u64,
    /// Stack pointers of upcalls, by the level they save.
    pub stacks: [u64; 2],
    /// The timer: event [`crate::Event::Timer`] comes once the clock reaches this; all ones: never.
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
    /// What the cell's clock reads when the TSC reads `tsc`.
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
    /// How many frames the cell may have.
    pub quota: u64,
    /// How many it has, tables included.
    pub used: u64,
}

/// Who this cell is; all of it changes with the generation.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Identity {
    /// Grows at every clone.
    pub generation: u64,
    /// Which clone of its template this is, from 0.
    pub clone_index: u64,
    /// Fresh random bytes.
    pub entropy: [u8; ENTROPY_BYTES],
    /// Bytes of `host_name` in use.
    pub host_name_length: u64,
    /// The host name.
    pub host_name: [u8; HOST_NAME_BYTES],
}

/// The size of the operator's terminal; zeros until the operator says so with [`crate::Event::WindowSize`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Window {
    /// Rows of characters.
    pub rows: u64,
    /// Columns of characters.
    pub columns: u64,
}

/// The network card, and the addresses that the cell has on its network. All zeros: there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Card {
    /// Bytes of the largest packet that its frames carry; 0: there is no card.
    pub mtu: u64,
    /// Its Ethernet address, the first byte lowest.
    pub mac: u64,
    /// The IPv4 address as a number, and in the upper half the bits of its prefix.
    pub address4: u64,
    /// The IPv4 address of who leads to other networks; 0: nobody.
    pub router4: u64,
    /// The IPv6 address, its upper half first.
    pub address6: [u64; 2],
    /// Bits of its prefix.
    pub prefix6: u64,
    /// The IPv6 address of who leads to other networks; 0: nobody.
    pub router6: [u64; 2],
    /// The IPv4 address of who resolves names; 0: nobody.
    pub resolver4: u64,
}

impl Card {
    /// How many words it is.
    pub const WORDS: usize = size_of::<Card>() / 8;

    /// Its words, in order.
    #[must_use]
    pub const fn to_words(self) -> [u64; Card::WORDS] {
        let Card { mtu, mac, address4, router4, address6: [high, low], prefix6, router6: [router_high, router_low], resolver4 } = self;
        [mtu, mac, address4, router4, high, low, prefix6, router_high, router_low, resolver4]
    }
}

/// What the libOS counts for its operator; the kernel copies it when the cell ends.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Report {
    /// System calls that programs made.
    pub calls: u64,
    /// System calls that the libOS does not implement.
    pub missing_calls: u64,
    /// Which those were, the first that were met; a count of 0 is a place that is free, and so are those behind it.
    pub missing: [MissingCall; MISSING_CALLS],
}

/// A system call that the libOS does not implement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct MissingCall {
    /// Its number.
    pub number: u32,
    /// How often it was made, as far as 32 bits can say.
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
    /// Of [`VirtualRegisters::stopped`](super::VirtualRegisters::stopped).
    pub const STOPPED: usize = offset_of!(VirtualRegisters, stopped);
}

impl Control {
    /// How many words the control words are.
    pub const WORDS: usize = size_of::<Control>() / 8;

    /// The control words from the start of the page, in order.
    #[must_use]
    pub const fn from_words(words: [u64; Control::WORDS]) -> Control {
        let [pending, mask, critical, level, leave_start, leave_end, exception_entry, event_entry, stack0, stack1, timer] = words;
        Control { pending, mask, critical, level, leave_start, leave_end, exception_entry, event_entry, stacks: [stack0, stack1], timer }
    }

    /// Whether code at `rip` is the libOS on its way out.
    #[must_use]
    pub const fn leaving(&self, rip: u64) -> bool {
        self.leave_start <= rip && rip < self.leave_end
    }
}
