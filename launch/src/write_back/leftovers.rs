// SPDX-License-Identifier: MIT OR Apache-2.0
//! Temporary names: how they are made up, and how what a process left under them when it was killed is found and removed.
//!
//! A file that is being received is locked for as long as somebody receives it, so that nobody takes it for a leftover.

use super::place::{Export, below};
use rustix::fs::{AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, flock, fstat, openat, statat, unlinkat};
use rustix::io::Errno;
use std::ffi::{CStr, OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

const PREFIX: &str = ".pando-";
/// A link has its temporary name for no longer than two calls take. One that has it after so long will keep it.
const LINK_AGE: Duration = Duration::from_secs(60);

/// Names that were made up so far: no two are the same in one process.
static MADE_UP: AtomicU64 = AtomicU64::new(0);

/// A name that this process has not used yet.
pub(super) fn make_up() -> OsString {
    let number = MADE_UP.fetch_add(1, Ordering::Relaxed);
    format!("{PREFIX}{}-{number}", std::process::id()).into()
}

fn is_made_up(name: &[u8]) -> bool {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let numbers = std::str::from_utf8(name).ok().and_then(|name| name.strip_prefix(PREFIX)?.split_once('-'));
    numbers.is_some_and(|(process, number)| is_number(process) && is_number(number))
}

/// Claims a file that was made just now, until it is closed. `EEXIST`: somebody took it for a leftover before.
pub(super) fn claim(file: OwnedFd) -> Result<OwnedFd, Errno> {
    // On a file system without locks nobody finds it unlocked either.
    if flock(&file, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK) {
        return Err(Errno::EXIST);
    }
    if fstat(&file)?.st_nlink == 0 { Err(Errno::EXIST) } else { Ok(file) }
}

impl Export {
    /// Removes temporary files that a killed process left among what this exports. What cannot be looked at stays.
    pub fn remove_leftovers(&self) {
        let (root, deep) = match self {
            Export::Directory(root) => (root, true),
            Export::File { directory, .. } => (directory, false),
        };
        let mut waiting = vec![PathBuf::from(".")];
        while let Some(path) = waiting.pop() {
            let _ = sweep(root, &path, |below| waiting.extend(deep.then(|| path.join(below))));
        }
    }
}

/// Removes the leftovers of one directory, and names the directories in it.
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
            FileType::RegularFile | FileType::Symlink if is_made_up(name.to_bytes()) => {
                // Somebody else's, or one that is not left over.
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
    // Locked until it is gone, so that whoever made it just now sees that.
    unlinkat(&directory, name, AtFlags::empty())
}
