// SPDX-License-Identifier: MIT OR Apache-2.0
//! File types and modes: `stat.h`.

constants! { general as u16 {
    S_ISGID, S_ISUID, S_ISVTX, S_IXGRP,
} }

constants! { general as u32 {
    S_IFBLK, S_IFCHR, S_IFDIR, S_IFIFO, S_IFLNK, S_IFMT, S_IFREG, S_IFSOCK,
} }

constants! { general as u64 {
    OVERLAYFS_SUPER_MAGIC, PIPEFS_MAGIC, PROC_SUPER_MAGIC, STATX__RESERVED, SYSFS_MAGIC, UTIME_NOW, UTIME_OMIT,
} }
