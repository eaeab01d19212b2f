// SPDX-License-Identifier: MIT OR Apache-2.0
//! Temporary files: their names, and the removal of those that a killed process left.
//!
//! A file is locked while it is being received, so that it is not taken for a leftover.

use super::write_target::{WritableVolume, below};
use rustix::fs::{AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, flock, fstat, openat, statat, unlinkat};
use rustix::io::Errno;
use std::ffi::{CStr, OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

const PREFIX: &str = ".pando-";
/// A link has its temporary name for the time of two system calls. After this time it is a leftover.
const LINK_AGE: Duration = Duration::from_secs(60);

/// The number of names so far: none is used twice in a process.
static NEXT_NUMBER: AtomicU64 = AtomicU64::new(0);

/// A new name, unique in this process.
pub(super) fn unique_name() -> OsString {
    let number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
    format!("{PREFIX}{}-{number}", std::process::id()).into()
}

fn is_temporary_name(name: &[u8]) -> bool {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let numbers = std::str::from_utf8(name).ok().and_then(|name| name.strip_prefix(PREFIX)?.split_once('-'));
    numbers.is_some_and(|(process, number)| is_number(process) && is_number(number))
}

/// Locks a new file until it is closed. `EEXIST`: another process took it for a leftover before.
pub(super) fn claim(file: OwnedFd) -> Result<OwnedFd, Errno> {
    // Without support for locks, no process finds it unlocked either.
    if flock(&file, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK) {
        return Err(Errno::EXIST);
    }
    if fstat(&file)?.st_nlink == 0 { Err(Errno::EXIST) } else { Ok(file) }
}

impl WritableVolume {
    /// Removes temporary files that a killed process left in this export. Unreadable directories are skipped.
    pub fn remove_leftovers(&self) {
        let (root, deep) = match self {
            WritableVolume::Directory(root) => (root, true),
            WritableVolume::File { directory, .. } => (directory, false),
        };
        let mut waiting = vec![PathBuf::from(".")];
        while let Some(path) = waiting.pop() {
            let _ = sweep(root, &path, |below| waiting.extend(deep.then(|| path.join(below))));
        }
    }
}

/// Removes the leftovers of one directory, and reports its subdirectories.
fn sweep(root: &OwnedFd, path: &Path, mut found: impl FnMut(&OsStr)) -> Result<(), Errno> {
    let directory = below(root, path.as_os_str())?;
    for entry in Dir::read_from(&directory)? {
        let entry = entry?;
        let name = entry.file_name();
        let kind = match entry.file_type() {
            FileType::Unknown => FileType::from_raw_mode(statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW)?.st_mode),
            kind => kind,
        };
        match kind {
            FileType::Directory if !matches!(name.to_bytes(), b"." | b"..") => found(OsStr::from_bytes(name.to_bytes())),
            FileType::RegularFile | FileType::Symlink if is_temporary_name(name.to_bytes()) => {
                // It may belong to another user, or be in use.
                let _ = remove(&directory, name, kind);
            }
            _ => {}
        }
    }
    Ok(())
}

fn remove(directory: impl AsFd, name: &CStr, kind: FileType) -> Result<(), Errno> {
    if kind == FileType::Symlink {
        let changed = u64::try_from(statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW)?.st_ctime).unwrap_or(0);
        let age = (SystemTime::UNIX_EPOCH + Duration::from_secs(changed)).elapsed().unwrap_or_default();
        if age < LINK_AGE {
            return Ok(());
        }
        return unlinkat(&directory, name, AtFlags::empty());
    }
    let file = openat(&directory, name, OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    // Locked until it is removed, so that its creator notices.
    unlinkat(&directory, name, AtFlags::empty())
}
