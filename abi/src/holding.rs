// SPDX-License-Identifier: MIT OR Apache-2.0
//! Holdings: what a cell may name: children, views of descendants, templates, ports, references, posted calls, and rights to reply.
//!
//! A name is valid in one cell only. It has no meaning to other cells, and a stale one is refused.

use crate::limits::MAX_HOLDINGS;
use crate::memory::CURRENT_SPACE;

/// Bits of the index in a name.
const INDEX_BITS: u32 = MAX_HOLDINGS.trailing_zeros();
/// The largest generation. The name with all bits set is not used, because `space` arguments of all ones mean the running space.
const MAX_GENERATION: u32 = (1 << (32 - INDEX_BITS)) - 2;

/// The name of a holding: the index of its slot in the low 12 bits, and the slot's generation above. Never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HoldingName(u32);

impl HoldingName {
    /// The holding of the template that the cell itself was cloned from, in a cell that may have descendants: the first one that it gets.
    pub const ROOT: HoldingName = HoldingName::new(0, 1);

    /// In a `batch`: the child that the batch has made last. Elsewhere no holding has this name.
    pub const NEWEST: HoldingName = HoldingName::new(1, 0);

    /// The name of a slot in a generation.
    #[must_use]
    pub const fn new(index: u32, generation: u32) -> HoldingName {
        HoldingName(generation << INDEX_BITS | index)
    }

    /// Decodes an argument of a hypercall. `None`: no holding has this name.
    #[must_use]
    pub fn from_bits(bits: u64) -> Option<HoldingName> {
        u32::try_from(bits).ok().map(HoldingName).filter(|name| (1..=MAX_GENERATION).contains(&name.generation()))
    }

    /// The argument of a hypercall.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0 as u64
    }

    /// The index of the slot.
    #[must_use]
    pub const fn index(self) -> usize {
        (self.0 & (MAX_HOLDINGS as u32 - 1)) as usize
    }

    /// The generation of the slot, from 1 on.
    #[must_use]
    pub const fn generation(self) -> u32 {
        self.0 >> INDEX_BITS
    }

    /// The generation of a slot after this one; the first one again after the last.
    #[must_use]
    pub const fn next_generation(generation: u32) -> u32 {
        if generation >= MAX_GENERATION { 1 } else { generation + 1 }
    }

    /// The `space` argument for a space of the held cell.
    #[must_use]
    pub const fn space(self, space: u32) -> u64 {
        (self.0 as u64) << 32 | space as u64
    }

    /// The `space` argument for the space in which the held cell continues.
    #[must_use]
    pub const fn current_space(self) -> u64 {
        self.space(u32::MAX)
    }
}

/// The bits of the holding that a `space` argument names in its upper half. `None`: it means a space of the caller.
#[must_use]
pub const fn holding_of_space(space: u64) -> Option<u64> {
    if space == CURRENT_SPACE || space >> 32 == 0 { None } else { Some(space >> 32) }
}

/// The state of a child, as `cell_state` returns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildState {
    /// It was not started.
    New,
    /// It runs, or waits.
    Started {
        /// It has asked for input at least once.
        wants_input: bool,
    },
    /// It is a template.
    Frozen,
    /// It is halted, and continues when it is resumed.
    Halted,
    /// Its program exited with this status.
    Exited(u8),
    /// This signal ended its program.
    Signalled(u8),
    /// Its memory quota, or that of an ancestor, was used up.
    Quota,
    /// The machine was out of memory.
    MachineFull,
    /// Its parent or the operator ended it.
    Killed,
    /// It did something that is forbidden to cells, it did not handle an exception, or the host failed.
    Failed,
}

impl ChildState {
    /// Whether it has ended.
    #[must_use]
    pub const fn is_ended(self) -> bool {
        !matches!(self, ChildState::New | ChildState::Started { .. } | ChildState::Frozen | ChildState::Halted)
    }

    /// The result of `cell_state`.
    #[must_use]
    pub const fn bits(self) -> u64 {
        match self {
            ChildState::New => 1,
            ChildState::Started { wants_input } => 2 | (wants_input as u64) << 8,
            ChildState::Frozen => 3,
            ChildState::Exited(status) => 4 | (status as u64) << 8,
            ChildState::Signalled(signal) => 5 | (signal as u64) << 8,
            ChildState::Quota => 6,
            ChildState::MachineFull => 7,
            ChildState::Killed => 8,
            ChildState::Failed => 9,
            ChildState::Halted => 10,
        }
    }

    /// Decodes a result of `cell_state`. `None`: another bit is set, or no state has this kind.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Option<ChildState> {
        let detail = (bits >> 8) as u8;
        let state = match bits as u8 {
            1 => ChildState::New,
            2 => ChildState::Started { wants_input: detail != 0 },
            3 => ChildState::Frozen,
            4 => ChildState::Exited(detail),
            5 => ChildState::Signalled(detail),
            6 => ChildState::Quota,
            7 => ChildState::MachineFull,
            8 => ChildState::Killed,
            9 => ChildState::Failed,
            10 => ChildState::Halted,
            _ => return None,
        };
        if state.bits() == bits { Some(state) } else { None }
    }
}

/// The result of `console_read`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConsoleReadResult {
    /// There is no output yet.
    Nothing,
    /// This many bytes of the stream with this tag (see [`crate::ring`]) were copied.
    Bytes {
        /// The number of bytes, at least 1.
        count: u32,
        /// The tag.
        stream: u32,
    },
    /// The child has ended or is frozen, and all its output was read.
    End,
}

impl ConsoleReadResult {
    const END: u64 = 1 << 40;

    /// The result of `console_read`.
    #[must_use]
    pub const fn bits(self) -> u64 {
        match self {
            ConsoleReadResult::Nothing => 0,
            ConsoleReadResult::Bytes { count, stream } => count as u64 | (stream as u64 & 0xff) << 32,
            ConsoleReadResult::End => ConsoleReadResult::END,
        }
    }

    /// Decodes a result of `console_read`.
    #[must_use]
    pub const fn from_bits(bits: u64) -> ConsoleReadResult {
        match bits {
            0 => ConsoleReadResult::Nothing,
            bits if bits & ConsoleReadResult::END != 0 => ConsoleReadResult::End,
            bits => ConsoleReadResult::Bytes { count: bits as u32, stream: (bits >> 32) as u32 & 0xff },
        }
    }
}

/// Facts about a child for `cell_state`.
pub mod fact {
    /// Its state ([`ChildState`](super::ChildState)).
    pub const STATE: u64 = 0;
    /// Its CPU time in nanoseconds.
    pub const CPU: u64 = 1;
    /// Pages that it uses.
    pub const USED: u64 = 2;
    /// The most pages that it has used.
    pub const PEAK: u64 = 3;
    /// Its exits.
    pub const EXITS: u64 = 4;
}

/// Ways to stop a child for `cell_stop`.
pub mod stop {
    /// Its libOS is asked to freeze it.
    pub const ASK: u64 = 0;
    /// It is frozen as it stands.
    pub const FORCE: u64 = 1;
    /// It is halted, until it is resumed.
    pub const HALT: u64 = 2;
    /// An earlier request to freeze is withdrawn.
    pub const WITHDRAW: u64 = 3;
}

/// Ports of a child for `console_read` and `console_write`.
pub mod port {
    /// The console, with its standard streams.
    pub const CONSOLE: u64 = 0;
    /// The control channel ([`crate::control`]).
    pub const CONTROL: u64 = 1;
}

/// Kinds of limits for `cell_limit`.
pub mod limit {
    /// Memory in pages.
    pub const MEMORY: u64 = 0;
    /// Number of descendants.
    pub const CELLS: u64 = 1;
    /// CPU time in thousandths of a CPU.
    pub const CPU: u64 = 2;
    /// The weight of the child among its siblings: 0 to [`MAX_CPU_WEIGHT`](crate::limits::MAX_CPU_WEIGHT).
    pub const CPU_WEIGHT: u64 = 3;
}

/// Why a donation of CPU time has ended: the result of `donate`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum DonationEnd {
    /// The donated time is used up.
    TimeOver = 0,
    /// No cell of the child's family waits for a vCPU: they are idle, run already, or wait for admission, a flush or the next
    /// period of a CPU limit.
    Idle = 1,
    /// The child has ended.
    Ended = 2,
    /// The child was not started, or is halted or frozen.
    Stopped = 3,
    /// The donor has an unmasked event, or is itself to be stopped.
    Event = 4,
}

impl DonationEnd {
    /// Every end, in order of number.
    pub const ALL: [DonationEnd; 5] =
        [DonationEnd::TimeOver, DonationEnd::Idle, DonationEnd::Ended, DonationEnd::Stopped, DonationEnd::Event];

    /// Decodes a result of `donate`. `None`: no end has this number.
    #[must_use]
    pub fn from_bits(bits: u64) -> Option<DonationEnd> {
        DonationEnd::ALL.into_iter().find(|end| *end as u64 == bits)
    }
}

#[cfg(test)]
mod tests {
    use super::{ChildState, ConsoleReadResult, HoldingName, MAX_GENERATION, holding_of_space};
    use crate::limits::MAX_HOLDINGS;
    use crate::memory::CURRENT_SPACE;

    #[test]
    fn names_decode_to_index_and_generation() {
        for (index, generation) in [(0, 1), (MAX_HOLDINGS as u32 - 1, MAX_GENERATION), (7, 9)] {
            let name = HoldingName::new(index, generation);
            assert_eq!(HoldingName::from_bits(name.bits()), Some(name));
            assert_eq!((name.index(), name.generation()), (index as usize, generation));
            assert_eq!([name.current_space(), name.space(0)].map(holding_of_space), [Some(name.bits()); 2]);
        }
        assert_eq!([CURRENT_SPACE, 0, u64::from(u32::MAX)].map(holding_of_space), [None; 3]);
        assert_eq!(HoldingName::next_generation(MAX_GENERATION), 1);
        for bits in [0, 5, u64::from(u32::MAX), 1 << 32] {
            assert_eq!(HoldingName::from_bits(bits), None, "{bits:#x}");
        }
    }

    #[test]
    fn states_and_progress_decode_to_the_encoded_ones() {
        use ChildState::{Exited, Failed, Frozen, Halted, Killed, MachineFull, New, Quota, Signalled, Started};
        let started = [false, true].map(|wants_input| Started { wants_input });
        for state in
            started.into_iter().chain([New, Frozen, Halted, Exited(0), Exited(255), Signalled(9), Quota, MachineFull, Killed, Failed])
        {
            assert_eq!(ChildState::from_bits(state.bits()), Some(state));
        }
        assert_eq!((ChildState::from_bits(0), ChildState::from_bits(1 << 8 | 1), ChildState::from_bits(1 << 16 | 4)), (None, None, None));
        for progress in [ConsoleReadResult::Nothing, ConsoleReadResult::Bytes { count: 1 << 16, stream: 1 }, ConsoleReadResult::End] {
            assert_eq!(ConsoleReadResult::from_bits(progress.bits()), progress);
        }
    }
}
