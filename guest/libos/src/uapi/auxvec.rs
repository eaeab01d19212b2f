// SPDX-License-Identifier: MIT OR Apache-2.0
//! Entries of the auxiliary vector: `auxvec.h`.

constants! { auxvec as u64 {
    AT_BASE, AT_CLKTCK, AT_EGID, AT_ENTRY, AT_EUID, AT_EXECFN, AT_FLAGS, AT_GID, AT_HWCAP, AT_HWCAP2, AT_MINSIGSTKSZ, AT_NULL, AT_PAGESZ,
    AT_PHDR, AT_PHENT, AT_PHNUM, AT_PLATFORM, AT_RANDOM, AT_SECURE, AT_UID,
} }

// Constants that the crate lacks or has as another type; each names its header.

/// `HWCAP2_FSGSBASE` of `asm/hwcap2.h`: the instructions for the FS and GS base.
pub const HWCAP2_FSGSBASE: u64 = 2;
