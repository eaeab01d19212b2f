// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flags of `umount2`: `include/linux/fs.h`.

constants! { general as u64 {
    MNT_DETACH, MNT_EXPIRE, MNT_FORCE, UMOUNT_NOFOLLOW,
} }
