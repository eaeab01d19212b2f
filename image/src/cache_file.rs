// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files in the cache: opened only if nobody else could have written them, and replaced as a whole.

use std::{
    fs::{self, File, Metadata},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::Path,
};

use rustix::{
    fs::{FlockOperation, OFlags, flock},
    process::geteuid,
};

use crate::host_stat::open_at;

/// Opens a file of the cache if the caller owns it and no other user can write it: anybody else could make the caller's cells see any file
/// that the caller may read.
#[must_use]
pub fn open_cache_file(path: &Path) -> Option<(File, Metadata)> {
    let file = open_at(path, OFlags::empty()).ok()?;
    let metadata = file.metadata().ok()?;
    let is_own = metadata.is_file() && metadata.uid() == geteuid().as_raw() && metadata.mode() & 0o022 == 0;
    is_own.then_some((file, metadata))
}

/// Replaces a file of the cache: writes it under a temporary name that only one process writes at a time, and renames it. So killed
/// processes leave one file at most, which the next one reuses. If another process is writing it at present, nothing happens.
///
/// # Errors
/// The host refuses; the file that was there before, if any, remains.
pub fn replace_cache_file(path: &Path, parts: &[&[u8]]) -> io::Result<()> {
    let temporary = path.with_extension("new");
    if let Some(directory) = path.parent() {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    }
    let mut file = File::options().write(true).create(true).truncate(false).mode(0o600).open(&temporary)?;
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        return Ok(());
    }
    // Another process may have renamed it between the two lines above.
    if !fs::symlink_metadata(&temporary).is_ok_and(|named| file.metadata().is_ok_and(|opened| named.ino() == opened.ino())) {
        return Ok(());
    }
    file.set_len(0)?;
    for part in parts {
        file.write_all(part)?;
    }
    fs::rename(&temporary, path)
}
