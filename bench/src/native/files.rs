// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files of the host and its page cache.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Drops the pages of a file from the host's page cache, except those that were not written to the disk yet.
pub(crate) fn drop_cached_pages(file: &File) -> io::Result<()> {
    // SAFETY: the descriptor is open while `file` is borrowed; the call only gives advice about the file's cached pages.
    match unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}
