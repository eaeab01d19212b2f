// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory of the application: its addresses are untrusted, and routines that survive a fault copy it.
//!
//! No reference ever points into it. A page fault inside [`copy`] arrives on save level 1; [`fix_up`] then sends the
//! routine to its end, and the caller gets [`Fault`].

use core::arch::global_asm;

use pando_abi::layout;

use crate::copy::CLOSE;

/// The end of application memory: below the volumes and the system segment.
pub const END: u64 = layout::PROGRAM_END;

/// The application's memory is not mapped, or lacks the permission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault;

/// A range in the part of the address space that applications own. It need not be mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserRange {
    start: u64,
    length: u64,
}

impl UserRange {
    /// The range, if it lies where applications may have memory.
    ///
    /// # Errors
    /// It does not.
    pub const fn new(start: u64, length: u64) -> Result<UserRange, Fault> {
        match start.checked_add(length) {
            Some(end) if end <= END => Ok(UserRange { start, length }),
            _ => Err(Fault),
        }
    }

    /// The first byte's address.
    #[must_use]
    pub const fn start(self) -> u64 {
        self.start
    }

    /// The number of bytes.
    #[must_use]
    pub const fn length(self) -> u64 {
        self.length
    }

    /// The part of at most `length` bytes from `offset` on.
    #[must_use]
    pub fn part(self, offset: u64, length: u64) -> UserRange {
        let offset = offset.min(self.length);
        UserRange { start: self.start + offset, length: length.min(self.length - offset) }
    }
}

// rdi: to, rsi: from, rdx: bytes. Returns in rax the number of bytes that were not copied. `rep` keeps `rcx` valid at a fault.
// Words are moved where bytes would be slow (`copy.rs`); the rest, after the last word or at a fault, is moved as bytes.
global_asm!(
    ".pushsection .text.pando_copy,\"ax\",@progbits",
    ".globl pando_copy",
    "pando_copy:",
    "mov rcx, rdx",
    "lea eax, [rdi-1]",
    "sub eax, esi",
    "and eax, 0xfff",
    "cmp eax, {close}-1",
    "jae pando_copy_start",
    "and edx, 7",
    "shr rcx, 3",
    ".globl pando_copy_words",
    "pando_copy_words:",
    "rep movsq",
    ".globl pando_copy_words_fixup",
    "pando_copy_words_fixup:",
    "lea rcx, [rdx+rcx*8]",
    ".globl pando_copy_start",
    "pando_copy_start:",
    "rep movsb",
    ".globl pando_copy_fixup",
    "pando_copy_fixup:",
    "mov rax, rcx",
    "ret",
    ".globl pando_fill",
    "pando_fill:",
    "mov rcx, rsi",
    "xor eax, eax",
    ".globl pando_fill_start",
    "pando_fill_start:",
    "rep stosb",
    ".globl pando_fill_fixup",
    "pando_fill_fixup:",
    "mov rax, rcx",
    "ret",
    ".popsection",
    close = const CLOSE,
);

unsafe extern "C" {
    fn pando_copy(to: u64, from: u64, bytes: u64) -> u64;
    fn pando_fill(to: u64, bytes: u64) -> u64;
    static pando_copy_words: u8;
    static pando_copy_words_fixup: u8;
    static pando_copy_start: u8;
    static pando_copy_fixup: u8;
    static pando_fill_start: u8;
    static pando_fill_fixup: u8;
}

/// The address at which a copying routine that faulted at `instruction` continues; `None`: there is no such routine.
#[must_use]
pub fn fix_up(instruction: u64) -> Option<u64> {
    let pairs = [
        (&raw const pando_copy_words, &raw const pando_copy_words_fixup),
        (&raw const pando_copy_start, &raw const pando_copy_fixup),
        (&raw const pando_fill_start, &raw const pando_fill_fixup),
    ];
    pairs.into_iter().find(|(start, _)| start.addr() as u64 == instruction).map(|(_, fixup)| fixup.addr() as u64)
}

/// Copies application memory into `to`.
///
/// # Errors
/// Some of it cannot be read; part of `to` may have changed.
pub fn read(from: u64, to: &mut [u8]) -> Result<(), Fault> {
    let range = UserRange::new(from, to.len() as u64)?;
    // SAFETY: the destination is ours and as long; the source is never ours, and a fault ends the routine.
    check_complete(unsafe { pando_copy(to.as_mut_ptr().addr() as u64, range.start, range.length) })
}

/// Copies `from` into application memory.
///
/// # Errors
/// Some of it cannot be written; part of it may have changed.
pub fn write(to: u64, from: &[u8]) -> Result<(), Fault> {
    let range = UserRange::new(to, from.len() as u64)?;
    // SAFETY: the source is ours and as long; the destination lies in application memory, never in ours, and a fault ends the routine.
    check_complete(unsafe { pando_copy(range.start, from.as_ptr().addr() as u64, range.length) })
}

/// Copies application memory into `to` as far as it can be read. Returns the number of bytes.
pub fn read_some(from: u64, to: &mut [u8]) -> usize {
    let Ok(range) = UserRange::new(from, to.len() as u64) else { return 0 };
    // SAFETY: as for `read`.
    to.len() - unsafe { pando_copy(to.as_mut_ptr().addr() as u64, range.start, range.length) } as usize
}

/// Copies `from` into application memory as far as the source can be read and the target be written. Returns the number of bytes.
pub fn write_some(to: u64, from: &[u8]) -> usize {
    let Ok(range) = UserRange::new(to, from.len() as u64) else { return 0 };
    // SAFETY: as for `write`.
    from.len() - unsafe { pando_copy(range.start, from.as_ptr().addr() as u64, range.length) } as usize
}

/// Copies bytes whose read may fail, as those of a volume, as far as possible. Returns the number of bytes.
///
/// # Panics
/// The slices differ in length.
pub fn fetch(from: &[u8], to: &mut [u8]) -> usize {
    assert_eq!(from.len(), to.len());
    // SAFETY: the destination is ours and as long as the source, and a fault of the source ends the routine.
    to.len() - unsafe { pando_copy(to.as_mut_ptr().addr() as u64, from.as_ptr().addr() as u64, from.len() as u64) } as usize
}

/// Copies from application memory to application memory; the ranges do not overlap.
///
/// # Errors
/// Some of it cannot be read or written; part may have changed.
pub fn copy(to: u64, from: u64, bytes: u64) -> Result<(), Fault> {
    let (to, from) = (UserRange::new(to, bytes)?, UserRange::new(from, bytes)?);
    // SAFETY: both ranges lie in application memory, never in ours, and a fault ends the routine.
    check_complete(unsafe { pando_copy(to.start, from.start, bytes) })
}

/// Fills application memory with zeros.
///
/// # Errors
/// Some of it cannot be written; part may have changed.
pub fn zero(range: UserRange) -> Result<(), Fault> {
    // SAFETY: the range lies in application memory, never in ours, and a fault ends the routine.
    check_complete(unsafe { pando_fill(range.start, range.length) })
}

fn check_complete(left: u64) -> Result<(), Fault> {
    if left == 0 { Ok(()) } else { Err(Fault) }
}
