// SPDX-License-Identifier: MIT OR Apache-2.0
//! `linux/fuse.h`, which `linux-raw-sys` lacks: the operations and flags that a client of a file server uses.

/// `FUSE_LOOKUP`.
pub const FUSE_LOOKUP: u32 = 1;
/// `FUSE_FORGET`.
pub const FUSE_FORGET: u32 = 2;
/// `FUSE_GETATTR`.
pub const FUSE_GETATTR: u32 = 3;
/// `FUSE_SETATTR`.
pub const FUSE_SETATTR: u32 = 4;
/// `FUSE_READLINK`.
pub const FUSE_READLINK: u32 = 5;
/// `FUSE_SYMLINK`.
pub const FUSE_SYMLINK: u32 = 6;
/// `FUSE_MKNOD`.
pub const FUSE_MKNOD: u32 = 8;
/// `FUSE_MKDIR`.
pub const FUSE_MKDIR: u32 = 9;
/// `FUSE_UNLINK`.
pub const FUSE_UNLINK: u32 = 10;
/// `FUSE_RMDIR`.
pub const FUSE_RMDIR: u32 = 11;
/// `FUSE_LINK`.
pub const FUSE_LINK: u32 = 13;
/// `FUSE_OPEN`.
pub const FUSE_OPEN: u32 = 14;
/// `FUSE_READ`.
pub const FUSE_READ: u32 = 15;
/// `FUSE_WRITE`.
pub const FUSE_WRITE: u32 = 16;
/// `FUSE_RELEASE`.
pub const FUSE_RELEASE: u32 = 18;
/// `FUSE_FSYNC`.
pub const FUSE_FSYNC: u32 = 20;
/// `FUSE_SETXATTR`.
pub const FUSE_SETXATTR: u32 = 21;
/// `FUSE_GETXATTR`.
pub const FUSE_GETXATTR: u32 = 22;
/// `FUSE_LISTXATTR`.
pub const FUSE_LISTXATTR: u32 = 23;
/// `FUSE_REMOVEXATTR`.
pub const FUSE_REMOVEXATTR: u32 = 24;
/// `FUSE_FSYNCDIR`.
pub const FUSE_FSYNCDIR: u32 = 30;
/// `FUSE_CREATE`.
pub const FUSE_CREATE: u32 = 35;
/// `FUSE_READDIRPLUS`.
pub const FUSE_READDIRPLUS: u32 = 44;
/// `FUSE_RENAME2`.
pub const FUSE_RENAME2: u32 = 45;
/// `FUSE_ROOT_ID`.
pub const FUSE_ROOT_ID: u64 = 1;

/// `FATTR_MODE`.
pub const FATTR_MODE: u32 = 1 << 0;
/// `FATTR_SIZE`.
pub const FATTR_SIZE: u32 = 1 << 3;
/// `FATTR_ATIME`.
pub const FATTR_ATIME: u32 = 1 << 4;
/// `FATTR_MTIME`.
pub const FATTR_MTIME: u32 = 1 << 5;
/// `FATTR_FH`.
pub const FATTR_FH: u32 = 1 << 6;
/// `FATTR_ATIME_NOW`.
pub const FATTR_ATIME_NOW: u32 = 1 << 7;
/// `FATTR_MTIME_NOW`.
pub const FATTR_MTIME_NOW: u32 = 1 << 8;
