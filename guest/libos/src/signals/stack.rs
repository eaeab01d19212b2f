// SPDX-License-Identifier: MIT OR Apache-2.0
//! The alternate stack of signal handlers (`sigaltstack`).

use crate::errno::Errno;
use crate::uapi::{MINSIGSTKSZ, SS_AUTODISARM, SS_DISABLE, SS_ONSTACK};

/// Words of `stack_t`: pointer, flags, size.
pub const STACK_WORDS: usize = 3;

/// The alternate stack; its size is 0 if there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AlternateStack {
    start: u64,
    flags: u64,
    size: u64,
}

impl AlternateStack {
    /// Its words in a frame.
    #[must_use]
    pub fn to_words(self) -> [u64; STACK_WORDS] {
        [self.start, self.flags, self.size]
    }

    /// Its words for `sigaltstack`; `pointer` decides whether it is in use.
    #[must_use]
    pub fn sigaltstack_words(self, pointer: u64) -> [u64; STACK_WORDS] {
        let state = match self.size {
            0 => SS_DISABLE,
            _ if self.in_use(pointer) => SS_ONSTACK,
            _ => 0,
        };
        [self.start, state | self.flags & SS_AUTODISARM, self.size]
    }

    /// Whether a stack pointer lies in it.
    #[must_use]
    pub fn holds(self, pointer: u64) -> bool {
        pointer > self.start && pointer - self.start <= self.size
    }

    /// Whether the program runs on it. A stack that is disabled during use is never in use.
    #[must_use]
    pub fn in_use(self, pointer: u64) -> bool {
        self.flags & SS_AUTODISARM == 0 && self.holds(pointer)
    }

    /// The top of the stack for a handler that is to run on it; `None`: the handler runs on the present one.
    #[must_use]
    pub fn top(self, pointer: u64) -> Option<u64> {
        (self.size > 0 && !self.in_use(pointer)).then(|| self.start.wrapping_add(self.size))
    }

    /// The stack after a handler has started on it.
    #[must_use]
    pub fn entered(self) -> AlternateStack {
        if self.flags & SS_AUTODISARM != 0 { AlternateStack { start: 0, flags: SS_DISABLE, size: 0 } } else { self }
    }

    /// The stack of a `stack_t`, for a program that runs at `pointer`.
    ///
    /// # Errors
    /// `EPERM`: the program runs on the present one. `EINVAL`: unknown flags. `ENOMEM`: it is too small.
    pub fn replaced(self, [start, flags, size]: [u64; STACK_WORDS], pointer: u64) -> Result<AlternateStack, Errno> {
        if self.in_use(pointer) {
            return Err(Errno::EPERM);
        }
        // The field has 32 bits; what follows it is padding.
        let flags = u64::from(flags as u32);
        match flags & !SS_AUTODISARM {
            SS_DISABLE => Ok(AlternateStack { start: 0, flags, size: 0 }),
            0 | SS_ONSTACK if size < MINSIGSTKSZ => Err(Errno::ENOMEM),
            0 | SS_ONSTACK => Ok(AlternateStack { start, flags, size }),
            _ => Err(Errno::EINVAL),
        }
    }
}
