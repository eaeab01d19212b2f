// SPDX-License-Identifier: MIT OR Apache-2.0
//! An argument of a traced call: its register, the other registers, and the call's result.

use alloc::string::String;

use super::text::pointer;
use crate::errno::Errno;

/// An argument of a call.
pub(super) struct Argument<'a> {
    /// Its index.
    pub index: usize,
    /// All arguments.
    pub all: &'a [u64; 6],
    /// The call's result, for arguments that the call fills in.
    pub result: Option<Result<u64, Errno>>,
}

impl Argument<'_> {
    /// Its register.
    pub(super) fn value(&self) -> u64 {
        self.all[self.index]
    }

    /// The argument after this.
    pub(super) fn next(&self) -> u64 {
        self.all.get(self.index + 1).copied().unwrap_or_default()
    }

    /// Bytes that the call moved.
    pub(super) fn moved(&self) -> u64 {
        self.result.map_or(0, Result::unwrap_or_default)
    }

    /// The argument before this.
    pub(super) fn before(&self) -> u64 {
        self.all[self.index.saturating_sub(1)]
    }

    /// Bytes of memory to print: as many as the call moved, or as it was given.
    pub(super) fn length(&self) -> u64 {
        self.result.map_or(self.next(), Result::unwrap_or_default)
    }
}

/// Formats an argument.
pub(super) type Show = fn(&Argument<'_>, &mut String);

/// Formats `content`, unless the call that was to fill it in has failed.
pub(super) fn show_pointee(argument: &Argument<'_>, text: &mut String, content: impl FnOnce(u64) -> String) {
    *text += &match argument.result {
        Some(Err(_)) => pointer(argument.value()),
        _ => content(argument.value()),
    };
}
