// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options of `prctl` and `arch_prctl`, and personalities: `prctl.h`, `asm/prctl.h`, `personality.h`.

constants! { general as u64 {
    ARCH_SET_FS,
} }

constants! { prctl as u32 {
    PR_CAPBSET_DROP, PR_CAPBSET_READ, PR_CAP_AMBIENT, PR_GET_CHILD_SUBREAPER, PR_GET_DUMPABLE, PR_GET_KEEPCAPS, PR_GET_NAME,
    PR_GET_NO_NEW_PRIVS, PR_GET_PDEATHSIG, PR_GET_SECCOMP, PR_GET_SECUREBITS, PR_GET_THP_DISABLE, PR_GET_TIMERSLACK,
    PR_SET_CHILD_SUBREAPER, PR_SET_DUMPABLE, PR_SET_KEEPCAPS, PR_SET_NAME, PR_SET_NO_NEW_PRIVS, PR_SET_PDEATHSIG, PR_SET_SECUREBITS,
    PR_SET_THP_DISABLE, PR_SET_TIMERSLACK,
} }

constants! { prctl as u64 {
    PR_CAP_AMBIENT_CLEAR_ALL, PR_CAP_AMBIENT_IS_SET, PR_CAP_AMBIENT_LOWER, PR_CAP_AMBIENT_RAISE,
} }

// Constants that the crate lacks or has as another type; each names its header.

/// `ARCH_SET_GS` of `asm/prctl.h`.
pub const ARCH_SET_GS: u64 = 0x1001;
/// `ARCH_GET_FS` of `asm/prctl.h`.
pub const ARCH_GET_FS: u64 = 0x1003;
/// `ARCH_GET_GS` of `asm/prctl.h`.
pub const ARCH_GET_GS: u64 = 0x1004;
/// `ARCH_GET_CPUID` of `asm/prctl.h`.
pub const ARCH_GET_CPUID: u64 = 0x1011;
/// `ARCH_SET_CPUID` of `asm/prctl.h`.
pub const ARCH_SET_CPUID: u64 = 0x1012;
/// `ADDR_NO_RANDOMIZE` of `personality.h`: addresses are not chosen at random.
pub const ADDR_NO_RANDOMIZE: u32 = 0x4_0000;
