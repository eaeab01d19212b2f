// SPDX-License-Identifier: MIT OR Apache-2.0
//! The identities of the host's files, for the identity table of an image.

use pando_erofs::{HostIdentity, Timestamp};
use rustix::fs::Stat;

/// Inode numbers from here on are not recorded: the libOS gives them to files that cells make.
const INODE_END: u64 = 1 << 47;

/// The identity from a file's status; `None` if its number is not recorded.
pub(crate) fn host_identity(stat: &Stat) -> Option<HostIdentity> {
    let changed = Timestamp { seconds: stat.st_ctime, nanoseconds: stat.st_ctime_nsec as u32 };
    let links = u32::try_from(stat.st_nlink).unwrap_or(u32::MAX);
    (stat.st_ino < INODE_END).then_some(HostIdentity { device: Some(stat.st_dev), inode: stat.st_ino, changed, links })
}
