// SPDX-License-Identifier: MIT OR Apache-2.0
//! The auxiliary vector, which describes the program and the machine to the program.

use alloc::vec::Vec;

use pando_rt::cpuid;

use crate::credentials::Credentials;
use crate::elf::Executable;
use crate::uapi::{
    AT_BASE, AT_CLKTCK, AT_EGID, AT_ENTRY, AT_EUID, AT_FLAGS, AT_GID, AT_HWCAP, AT_HWCAP2, AT_MINSIGSTKSZ, AT_PAGESZ, AT_PHDR, AT_PHENT,
    AT_PHNUM, AT_SECURE, AT_UID, HWCAP2_FSGSBASE,
};
use crate::user::TICKS;

/// Bytes of a program header.
const HEADER: u64 = 56;

/// The numeric entries of the auxiliary vector of a program, which its linker starts if it has one.
pub(super) fn numbers(main: &Executable, linker: Option<&Executable>, credentials: &Credentials) -> Vec<(u64, u64)> {
    /// Upper bound on the bytes of a signal frame besides the vector state.
    const SIGNAL_FRAME: u64 = 1024;

    let [_, _, _, features] = cpuid::lookup(1, 0);
    let [_, vector_state, ..] = cpuid::lookup(0xd, 0);
    alloc::vec![
        (AT_MINSIGSTKSZ, SIGNAL_FRAME + u64::from(vector_state)),
        (AT_HWCAP, features.into()),
        (AT_PAGESZ, pando_abi::PAGE_SIZE),
        (AT_CLKTCK, TICKS),
        (AT_PHDR, main.headers.unwrap_or_default()),
        (AT_PHENT, HEADER),
        (AT_PHNUM, main.header_count),
        (AT_BASE, linker.map_or(0, |linker| linker.load_bias)),
        (AT_FLAGS, 0),
        (AT_ENTRY, main.entry),
        (AT_UID, credentials.user.real.into()),
        (AT_EUID, credentials.user.effective.into()),
        (AT_GID, credentials.group.real.into()),
        (AT_EGID, credentials.group.effective.into()),
        (AT_SECURE, 0),
        (AT_HWCAP2, HWCAP2_FSGSBASE),
    ]
}
