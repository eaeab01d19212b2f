// SPDX-License-Identifier: MIT OR Apache-2.0
//! The host's file systems by their magic numbers: those that show the kernel's state, and those with reliable change times.

use std::{io, path::Path};

use rustix::fs::statfs;

/// File systems that show the kernel's state instead of files: proc, sysfs, cgroup and cgroup2, debugfs, tracefs,
/// securityfs, bpf, efivarfs, pstore, configfs, fusectl, binfmt_misc, mqueue, devpts, selinuxfs.
const KERNEL_FILE_SYSTEMS: [u64; 16] = [
    0x9fa0,
    0x6265_6572,
    0x0027_e0eb,
    0x6367_7270,
    0x6462_6720,
    0x7472_6163,
    0x7363_6673,
    0xcafe_4a11,
    0xde5e_81e4,
    0x6165_676c,
    0x6265_6570,
    0x6573_5543,
    0x4249_4e4d,
    0x1980_0202,
    0x1cd1,
    0xf97c_ff8c,
];

/// File systems on which a directory's change time is known to move when a name in it comes or goes, in steps of two seconds or
/// less: ext2 to ext4, btrfs, XFS, tmpfs, overlayfs, f2fs, ZFS, bcachefs.
const CHANGE_TIMES: [u64; 8] = [0xef53, 0x9123_683e, 0x5846_5342, 0x0102_1994, 0x794c_7630, 0xf2f5_2010, 0x2fc1_2fc1, 0xca45_1a4e];

/// Whether a directory's change time can be relied on.
pub(crate) fn has_change_times(path: &Path) -> bool {
    statfs(path).is_ok_and(|found| CHANGE_TIMES.contains(&(found.f_type.cast_unsigned() & 0xffff_ffff)))
}

/// Whether a file or directory of the host shows the kernel's state, so that its content is made up whenever it is read.
///
/// # Errors
/// It cannot be read.
pub fn shows_kernel(path: &Path) -> io::Result<bool> {
    Ok(is_kernels(statfs(path)?.f_type.cast_unsigned()))
}

/// Whether the file system with this magic number shows the kernel's state.
pub(crate) fn is_kernels(kind: u64) -> bool {
    KERNEL_FILE_SYSTEMS.contains(&(kind & 0xffff_ffff))
}
