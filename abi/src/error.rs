// SPDX-License-Identifier: MIT OR Apache-2.0
//! Refusals: the reasons why a hypercall did nothing. Each names a mistake of the caller; none reveals anything about other cells.

/// Declares the refusals with their numbers and their texts in one table.
macro_rules! refusals {
    ($($(#[doc = $doc:literal])+ $name:ident = $code:literal,)*) => {
        /// The reason why the kernel refused a hypercall. The result register then holds the negated number.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u16)]
        pub enum Refusal { $($(#[doc = $doc])+ $name = $code,)* }

        impl Refusal {
            /// Every refusal, in order of number.
            pub const ALL: &[Refusal] = &[$(Refusal::$name,)*];

            /// The refusal's name as the manual prints it.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Refusal::$name => stringify!($name),)* }
            }

            /// The caller's mistake, in one sentence.
            #[must_use]
            pub const fn cause(self) -> &'static str {
                match self { $(Refusal::$name => concat!($($doc),+),)* }
            }
        }
    };
}

refusals! {
    /// No hypercall has this number.
    NoSuchCall = 1,
    /// An address is not page aligned, not canonical, or the range leaves the part of the address space that cells
    /// own; or there is nothing to copy from or to.
    BadAddress = 2,
    /// A count is zero or larger than the call allows, or a flag is not defined.
    BadArgument = 3,
    /// The space does not exist.
    NoSuchSpace = 4,
    /// The segment does not exist.
    NoSuchSegment = 5,
    /// The space is the running one, or the segment is still mounted.
    Busy = 6,
    /// The slot of the address space already holds something else.
    SlotTaken = 7,
    /// The cell has as many spaces, segments, mounts or holdings as a cell may have.
    TooMany = 8,
    /// The cell's memory quota does not cover it.
    Quota = 9,
    /// The machine has no memory left.
    NoMemory = 10,
    /// The call would make memory writable that the kernel maps read-only.
    ReadOnly = 11,
    /// No disk of this index is attached to the cell.
    NoSuchDisk = 12,
    /// The disk ends before the last block that the call names.
    NoSuchBlock = 13,
    /// The caller holds no such cell, or it has ended, or the call needs another kind of holding.
    NoSuchHolding = 14,
    /// The run state of the held cell does not allow the call.
    WrongState = 15,
    /// The cell, or one of its ancestors, may not have so many descendants.
    NoMoreCells = 16,
    /// The parent of the cell has taken the page, or pages of the cell that is to be cloned.
    Taken = 17,
    /// No call waits at the port, and the caller does not wait either.
    NothingWaits = 18,
    /// The deadline has passed.
    TimedOut = 19,
    /// An unmasked event is pending. A call that was received already is not interrupted.
    Interrupted = 20,
    /// The message is longer, or has more holdings, than the receiver accepts.
    TooLong = 21,
    /// The receiver has given up its right to reply, or has ended.
    NoReply = 22,
}

impl Refusal {
    /// The value that the result register holds.
    #[must_use]
    pub const fn to_result(self) -> u64 {
        (self as u16 as u64).wrapping_neg()
    }

    /// Decodes a result register. An unused number in the range of refusals is [`Refusal::NoSuchCall`].
    ///
    /// # Errors
    /// The refusal in the register.
    pub fn from_result(result: u64) -> Result<u64, Refusal> {
        let code = result.wrapping_neg();
        if code == 0 || code > 0xfff {
            return Ok(result);
        }
        Err(Refusal::ALL.iter().copied().find(|refusal| *refusal as u64 == code).unwrap_or(Refusal::NoSuchCall))
    }
}
