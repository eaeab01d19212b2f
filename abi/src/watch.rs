// SPDX-License-Identifier: MIT OR Apache-2.0
//! Watching children: the events that halt a watched child, and the state that its parent then reads and writes.

/// Bits of the mask of `cell_watch`.
pub mod mask {
    /// Debug (1) and breakpoint (3) exceptions of programs.
    pub const EXCEPTIONS: u64 = 1;
    /// The instruction `syscall` of programs.
    pub const SYSCALLS: u64 = 1 << 1;
    /// The call `report` of the libOS.
    pub const REPORTS: u64 = 1 << 2;
    /// The child needs memory, and its quota or an ancestor's is used up.
    pub const SHORTAGE: u64 = 1 << 3;
    /// All bits.
    pub const ALL: u64 = EXCEPTIONS | SYSCALLS | REPORTS | SHORTAGE;
}

/// Values of `how` of `cell_resume`.
pub mod resume {
    /// The child continues as its registers say.
    pub const CONTINUE: u64 = 0;
    /// The same, for one instruction.
    pub const STEP: u64 = 1;
    /// The exception or `syscall` that halted it goes to its libOS.
    pub const DELIVER: u64 = 2;
}

/// Kinds of `state_read` and `state_write`.
pub mod state {
    /// The reason for the halt. Of a child that was not started it can be written: then it halts with it when it is started.
    pub const REASON: u64 = 0;
    /// The context.
    pub const CONTEXT: u64 = 1;
    /// The vector state.
    pub const VECTOR: u64 = 2;
    /// The registers of the program.
    pub const PROGRAM: u64 = 3;
    /// The descendants as [records](crate::DescendantRecord), read-only, whether the child is halted or not. The upper half of the kind
    /// is the number of descendants to leave out.
    pub const DESCENDANTS: u64 = 4;
    /// The mounts of its spaces, read-only, two words each: the space and the address of a slot. The upper half of the kind is the number
    /// of mounts to leave out. The slot of the libOS is not among them.
    pub const MOUNTS: u64 = 5;
    /// A bitmap of the swap numbers in its memory, read-only. The upper half of the kind is the number of the first bit.
    pub const SWAP_NUMBERS: u64 = 6;
    /// Of a child that was not started: all of its state but its memory, its registers and rings included, as opaque bytes.
    pub const IMAGE: u64 = 7;
    /// Of a child that was not started: its spaces and segments ([`cell_image`](crate::cell_image)). Writing it removes all of its memory.
    pub const LAYOUT: u64 = 8;
    /// Of a child that was not started: extents of its memory, as records ([`cell_image`](crate::cell_image)). They can only be written:
    /// `image_list` reads them.
    pub const EXTENTS: u64 = 9;
    /// Of a child that is halted or was not started: its [holdings](crate::holding_record). The upper half of the kind is the number of
    /// places to leave out. They can be written, in order, if the child was not started.
    pub const HOLDINGS: u64 = 10;
    /// Of a child that is halted or was not started: a part of the unread bytes on its console. The upper half of the kind is the number of
    /// bytes to leave out. The part begins with a word, the number of such bytes in it; the rest is opaque. The parts can be
    /// written, in order, if the child was not started.
    pub const CONSOLE: u64 = 11;
}

/// Words of a context: the registers, the bases of FS and GS, the address of the last page fault, and pending events of the CPU.
pub const CONTEXT_WORDS: usize = crate::Registers::WORDS + 4;
/// Bytes of a vector state.
pub const VECTOR_BYTES: usize = 4096;

/// First arguments of `report`, as this project's libOS makes it.
pub mod report {
    /// A program starts: its process, and the address of the [thread table](crate::thread_table).
    pub const START: u64 = 1;
    /// A signal is about to take effect: the thread and the signal.
    pub const SIGNAL: u64 = 2;
    /// The answer to [`Event::Debug`](crate::Event::Debug): the address of the [thread table](crate::thread_table), and the address and the
    /// number of the words that describe the [processes](crate::thread_table::ProcessHead).
    pub const THREADS: u64 = 3;
    /// A process has ended: its number, and its status as `wait4` returns it. The end of the first process is that of the cell, without a
    /// report.
    pub const END: u64 = 4;
}

/// Words of a reason.
pub const REASON_WORDS: usize = 5;

/// Why a child is halted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HaltReason {
    /// Its parent halted it by `cell_stop`.
    Requested,
    /// An exception of its program.
    Exception {
        /// The vector.
        vector: u8,
        /// The error code.
        error: u64,
        /// The address that a page fault touched.
        address: u64,
    },
    /// Its program has executed `syscall`.
    Syscall,
    /// Its libOS has called `report` with these arguments.
    Report([u64; 4]),
    /// It needs a page that its parent has taken. It goes on with the same instruction or call when it is resumed.
    Taken {
        /// The space.
        space: u32,
        /// The address of the page.
        address: u64,
        /// The swap number of the page.
        number: u32,
    },
    /// It needs memory, and its quota or an ancestor's is used up. It goes on with the same instruction or call when it is resumed.
    Shortage,
}

impl HaltReason {
    /// The words that `state_read` copies.
    #[must_use]
    pub const fn to_words(self) -> [u64; REASON_WORDS] {
        match self {
            HaltReason::Requested => [1, 0, 0, 0, 0],
            HaltReason::Exception { vector, error, address } => [2, vector as u64, error, address, 0],
            HaltReason::Syscall => [3, 0, 0, 0, 0],
            HaltReason::Report([kind, first, second, third]) => [4, kind, first, second, third],
            HaltReason::Taken { space, address, number } => [5, space as u64, address, number as u64, 0],
            HaltReason::Shortage => [6, 0, 0, 0, 0],
        }
    }

    /// Decodes the words. `None`: no reason has them.
    #[must_use]
    pub const fn from_words(words: [u64; REASON_WORDS]) -> Option<HaltReason> {
        Some(match words {
            [1, 0, 0, 0, 0] => HaltReason::Requested,
            [2, vector @ 0..=255, error, address, 0] => HaltReason::Exception { vector: vector as u8, error, address },
            [3, 0, 0, 0, 0] => HaltReason::Syscall,
            [4, kind, first, second, third] => HaltReason::Report([kind, first, second, third]),
            [5, space @ 0..=0xffff_ffff, address, number @ 0..=0xffff_ffff, 0] => {
                HaltReason::Taken { space: space as u32, address, number: number as u32 }
            }
            [6, 0, 0, 0, 0] => HaltReason::Shortage,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::HaltReason::{Exception, Report, Requested, Shortage, Syscall, Taken};
    use super::{HaltReason, REASON_WORDS};

    #[test]
    fn reasons_decode_to_the_encoded_ones() {
        let taken = Taken { space: u32::MAX, address: u64::MAX, number: 7 };
        for reason in [Requested, Exception { vector: 3, error: 1, address: u64::MAX }, Syscall, Report([1, 2, 3, 4]), taken, Shortage] {
            assert_eq!(HaltReason::from_words(reason.to_words()), Some(reason));
        }
        for words in [[0; REASON_WORDS], [1, 1, 0, 0, 0], [2, 256, 0, 0, 0], [5, 1 << 32, 0, 0, 0], [7, 0, 0, 0, 0]] {
            assert_eq!(HaltReason::from_words(words), None, "{words:?}");
        }
    }
}
