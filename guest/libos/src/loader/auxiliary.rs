// SPDX-License-Identifier: MIT OR Apache-2.0
//! The auxiliary vector, which describes the program and the machine to the program.

use alloc::vec::Vec;

use pando_rt::cpuid;

use crate::credentials::Credentials;
use crate::elf::Executable;
use crate::user::TICKS;

/// The bit of `AT_HWCAP2` for the FS and GS base instructions.
const HWCAP2_FSGSBASE: u64 = 2;
/// Bytes of a program header.
const HEADER: u64 = 56;

/// The numeric entries of the auxiliary vector of a program, which its linker starts if it has one.
pub(super) fn numbers(main: &Executable, linker: Option<&Executable>, who: &Credentials) -> Vec<(u64, u64)> {
    const AT_PHDR: u64 = 3;
    const AT_PHENT: u64 = 4;
    const AT_PHNUM: u64 = 5;
    const AT_PAGESZ: u64 = 6;
    const AT_BASE: u64 = 7;
    const AT_FLAGS: u64 = 8;
    const AT_ENTRY: u64 = 9;
    const AT_UID: u64 = 11;
    const AT_EUID: u64 = 12;
    const AT_GID: u64 = 13;
    const AT_EGID: u64 = 14;
    const AT_HWCAP: u64 = 16;
    const AT_CLKTCK: u64 = 17;
    const AT_SECURE: u64 = 23;
    const AT_HWCAP2: u64 = 26;
    const AT_MINSIGSTKSZ: u64 = 51;
    /// Upper bound on the bytes of a signal frame besides the vector state.
    const SIGNAL_FRAME: u64 = 1024;

    let [_, _, _, features] = cpuid::answer(1, 0);
    let [_, vector_state, ..] = cpuid::answer(0xd, 0);
    alloc::vec![
        (AT_MINSIGSTKSZ, SIGNAL_FRAME + u64::from(vector_state)),
        (AT_HWCAP, features.into()),
        (AT_PAGESZ, pando_abi::PAGE_SIZE),
        (AT_CLKTCK, TICKS),
        (AT_PHDR, main.headers.unwrap_or_default()),
        (AT_PHENT, HEADER),
        (AT_PHNUM, main.header_count),
        (AT_BASE, linker.map_or(0, |linker| linker.moved_by)),
        (AT_FLAGS, 0),
        (AT_ENTRY, main.entry),
        (AT_UID, who.user.real.into()),
        (AT_EUID, who.user.effective.into()),
        (AT_GID, who.group.real.into()),
        (AT_EGID, who.group.effective.into()),
        (AT_SECURE, 0),
        (AT_HWCAP2, HWCAP2_FSGSBASE),
    ]
}
