// SPDX-License-Identifier: MIT OR Apache-2.0
//! The on-disk format of EROFS: its structures, their checked decoding and their encoding.
//!
//! Names follow Linux's `fs/erofs/erofs_fs.h`, without the prefixes of structures and fields. `image` writes images with this crate, and
//! the libOS reads them with it.
//!
//! - Decoding takes untrusted bytes. It accepts any bytes without a panic and without a loop over them, except in
//!   [`DirectoryBlock::dirents`], which ends with the block. A decoded value has known types and layouts; the *positions* in it are
//!   unchecked.
//! - `encode_into` changes the fields that this crate knows and no other byte, so that structures of other writers can be changed.
//! - Compressed and chunk-based data are named ([`DataLayout`]) and no more.
//!
//! One addition is Pando's own: the [identity table](IdentityTable).

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod directory;
mod fields;
mod identity;
mod inode;
mod superblock;
#[cfg(test)]
mod tests;
mod types;
mod xattr;

pub use directory::{DirectoryBlock, Dirent, NAME_LEN, directory_size, encode_directory};
pub use identity::{HostIdentity, IdentityTable};
pub use inode::{DataLayout, DiskInode, InodeVersion, NULL_ADDR};
pub use superblock::{BLOCK_SIZE, FEATURE_COMPAT_MTIME, FEATURE_COMPAT_SB_CHKSUM, SUPER_MAGIC_V1, SUPER_OFFSET, SuperBlock};
pub use types::{Corrupt, FileType, ISLOT_SIZE, Nid, Timestamp};
pub use xattr::{Xattr, XattrHeader, encode_xattrs, xattr_ibody_size, xattr_icount};
