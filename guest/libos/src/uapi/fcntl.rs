// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flags of calls that open and access files: `fcntl.h`, `openat2.h`, `fs.h`, `falloc.h`, `memfd.h`, `eventfd.h`, `random.h`,
//! `userfaultfd.h`.

constants! { general as i16 {
    F_RDLCK, F_UNLCK, F_WRLCK,
} }

constants! { general as u32 {
    F_SEAL_EXEC, F_SEAL_FUTURE_WRITE, F_SEAL_GROW, F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_WRITE, LOCK_EX, LOCK_NB, LOCK_SH, LOCK_UN,
} }

constants! { general as u64 {
    AT_EACCESS, AT_EMPTY_PATH, AT_NO_AUTOMOUNT, AT_REMOVEDIR, AT_STATX_SYNC_TYPE, AT_SYMLINK_FOLLOW, AT_SYMLINK_NOFOLLOW, EFD_SEMAPHORE,
    FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE, FALLOC_FL_ZERO_RANGE, FASYNC, F_ADD_SEALS, F_DUPFD, F_DUPFD_CLOEXEC, F_GETFD, F_GETFL,
    F_GETLK, F_GETOWN, F_GETPIPE_SZ, F_GET_SEALS, F_NOTIFY, F_OFD_GETLK, F_SETFD, F_SETFL, F_SETLK, F_SETLKW, F_SETOWN, F_SETPIPE_SZ,
    GRND_INSECURE, GRND_NONBLOCK, GRND_RANDOM, MFD_ALLOW_SEALING, MFD_CLOEXEC, MFD_EXEC, MFD_NOEXEC_SEAL, O_ACCMODE, O_APPEND, O_CLOEXEC,
    O_CREAT, O_DIRECT, O_DIRECTORY, O_EXCL, O_LARGEFILE, O_NOATIME, O_NOCTTY, O_NOFOLLOW, O_NONBLOCK, O_PATH, O_RDONLY, O_RDWR, O_TRUNC,
    O_WRONLY, RENAME_EXCHANGE, RENAME_NOREPLACE, RESOLVE_BENEATH, RESOLVE_CACHED, RESOLVE_IN_ROOT, RESOLVE_NO_MAGICLINKS,
    RESOLVE_NO_SYMLINKS, RESOLVE_NO_XDEV, RWF_APPEND, RWF_DSYNC, RWF_HIPRI, RWF_NOWAIT, RWF_SYNC, SEEK_CUR, SEEK_DATA, SEEK_END,
    SEEK_HOLE, SEEK_SET, SPLICE_F_GIFT, SPLICE_F_MORE, SPLICE_F_MOVE, SPLICE_F_NONBLOCK, UFFD_USER_MODE_ONLY, __O_TMPFILE,
} }

// Constants that the crate lacks or has as another type; each names its header.

/// `AT_FDCWD` as the argument of a system call: relative paths start at the current directory.
pub const AT_FDCWD: u64 = linux_raw_sys::general::AT_FDCWD as u64;
/// `CLOSE_RANGE_UNSHARE` of `close_range.h`: the caller gets its own descriptor table first.
pub const CLOSE_RANGE_UNSHARE: u64 = 2;
/// `CLOSE_RANGE_CLOEXEC` of `close_range.h`: the descriptors are closed by `execve`.
pub const CLOSE_RANGE_CLOEXEC: u64 = 4;
/// `RWF_NOAPPEND` of `fs.h`: the offset counts although the file has `O_APPEND`.
pub const RWF_NOAPPEND: u64 = 0x20;
