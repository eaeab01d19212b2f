// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flags of `open`, `openat2`, `fcntl` and of calls with paths: `fcntl.h`, `openat2.h`.

constants! { general as u32 {
    F_SEAL_EXEC, F_SEAL_FUTURE_WRITE, F_SEAL_GROW, F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_WRITE,
} }

constants! { general as u64 {
    AT_EMPTY_PATH, AT_SYMLINK_FOLLOW, AT_SYMLINK_NOFOLLOW, FASYNC, O_ACCMODE, O_APPEND, O_CLOEXEC, O_CREAT, O_DIRECT, O_DIRECTORY,
    O_EXCL, O_LARGEFILE, O_NOATIME, O_NOCTTY, O_NOFOLLOW, O_NONBLOCK, O_PATH, O_RDONLY, O_RDWR, O_TRUNC, O_WRONLY, RENAME_EXCHANGE,
    RENAME_NOREPLACE, RESOLVE_BENEATH, RESOLVE_CACHED, RESOLVE_IN_ROOT, RESOLVE_NO_MAGICLINKS, RESOLVE_NO_SYMLINKS, RESOLVE_NO_XDEV,
    SEEK_CUR, SEEK_DATA, SEEK_END, SEEK_HOLE, SEEK_SET, __O_TMPFILE,
} }

// Constants that the crate lacks or has as another type; each names its header.

/// `AT_FDCWD` as the argument of a system call: relative paths start at the current directory.
pub const AT_FDCWD: u64 = linux_raw_sys::general::AT_FDCWD as u64;
