// SPDX-License-Identifier: MIT OR Apache-2.0
//! Capabilities, by number, and securebits: `capability.h`, `securebits.h`.

constants! { general as u32 {
    _LINUX_CAPABILITY_VERSION_1, _LINUX_CAPABILITY_VERSION_2, _LINUX_CAPABILITY_VERSION_3,
} }

constants! { general as u64 {
    CAP_AUDIT_CONTROL, CAP_CHECKPOINT_RESTORE, CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_FOWNER, CAP_FSETID, CAP_IPC_LOCK,
    CAP_IPC_OWNER, CAP_KILL, CAP_LAST_CAP, CAP_LINUX_IMMUTABLE, CAP_MAC_OVERRIDE, CAP_MKNOD, CAP_NET_ADMIN, CAP_NET_BIND_SERVICE,
    CAP_NET_RAW, CAP_SETGID, CAP_SETPCAP, CAP_SETUID, CAP_SYSLOG, CAP_SYS_ADMIN, CAP_SYS_BOOT, CAP_SYS_CHROOT, CAP_SYS_NICE,
    CAP_SYS_PACCT, CAP_SYS_PTRACE, CAP_SYS_RESOURCE, CAP_SYS_TTY_CONFIG,
} }

// Constants that the crate lacks or has as another type; each names its header.

/// `SECBIT_NOROOT` of `securebits.h`: root gains nothing by executing a program.
pub const SECBIT_NOROOT: u64 = 1 << 0;
/// `SECBIT_NO_SETUID_FIXUP` of `securebits.h`: a change of users changes no capabilities.
pub const SECBIT_NO_SETUID_FIXUP: u64 = 1 << 2;
/// `SECBIT_KEEP_CAPS` of `securebits.h`: permitted capabilities survive when the process stops being root, until it executes a program.
pub const SECBIT_KEEP_CAPS: u64 = 1 << 4;
/// `SECBIT_NO_CAP_AMBIENT_RAISE` of `securebits.h`: no capability can be made ambient.
pub const SECBIT_NO_CAP_AMBIENT_RAISE: u64 = 1 << 6;
/// `SECURE_ALL_BITS` of `securebits.h`: all of these bits; each has a bit above it that locks it.
pub const SECURE_ALL_BITS: u64 = SECBIT_NOROOT | SECBIT_NO_SETUID_FIXUP | SECBIT_KEEP_CAPS | SECBIT_NO_CAP_AMBIENT_RAISE;
/// `SECURE_ALL_LOCKS` of `securebits.h`: the bits that lock these bits.
pub const SECURE_ALL_LOCKS: u64 = SECURE_ALL_BITS << 1;
