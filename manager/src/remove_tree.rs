// SPDX-License-Identifier: MIT OR Apache-2.0
//! Removes directories that a cell has filled: of any depth, and without permissions for their owner.

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, chmodat, openat, renameat, statat, unlinkat};
use rustix::io::Errno;
use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// Removes a directory with all that it contains. Does not follow links. Another process may be removing it, too.
///
/// Directories below are moved to the top before their parents are removed. So neither the stack nor open files nor the length of a path
/// limit the depth.
///
/// # Errors
/// The host refuses.
pub(crate) fn remove_tree(path: &Path) -> Result<(), Errno> {
    let Some(top) = present(chmodat(CWD, path, Mode::RWXU, AtFlags::empty()).and_then(|()| open_directory(CWD, path)))? else {
        return Ok(());
    };
    let (mut moved, mut is_empty) = (0, false);
    while !is_empty {
        is_empty = true;
        each_entry(&top, |name, is_directory| {
            is_empty = false;
            if is_directory { remove_directory(&top, name, &mut moved) } else { remove(&top, name, AtFlags::empty()) }
        })?;
    }
    remove(CWD, path, AtFlags::REMOVEDIR)
}

/// Removes a directory of the top one; moves the directories in it there. `moved` counts those.
fn remove_directory(top: &OwnedFd, name: &CStr, moved: &mut u64) -> Result<(), Errno> {
    let Some(directory) = present(chmodat(top, name, Mode::RWXU, AtFlags::empty()).and_then(|()| open_directory(top, name)))? else {
        return Ok(());
    };
    each_entry(&directory, |below, is_directory| {
        if !is_directory {
            return remove(&directory, below, AtFlags::empty());
        }
        // Its entry `..` changes, which its owner must be allowed to.
        present(chmodat(&directory, below, Mode::RWXU, AtFlags::empty()))?;
        loop {
            *moved += 1;
            match renameat(&directory, below, top, format!("{moved}")) {
                // The cell has chosen this name, too.
                Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => {}
                renamed => return present(renamed).map(drop),
            }
        }
    })?;
    remove(top, name, AtFlags::REMOVEDIR)
}

fn open_directory(at: impl AsFd, name: impl rustix::path::Arg) -> Result<OwnedFd, Errno> {
    openat(at, name, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

/// Calls a function for each name in a directory, and whether it is that of a directory.
fn each_entry(directory: &OwnedFd, mut action: impl FnMut(&CStr, bool) -> Result<(), Errno>) -> Result<(), Errno> {
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        let kind = match entry.file_type() {
            FileType::Unknown => present(statat(directory, name, AtFlags::SYMLINK_NOFOLLOW))?
                .map_or(FileType::Unknown, |stat| FileType::from_raw_mode(stat.st_mode)),
            kind => kind,
        };
        if !matches!(name.to_bytes(), b"." | b"..") {
            action(name, kind == FileType::Directory)?;
        }
    }
    Ok(())
}

fn remove(at: impl AsFd, name: impl rustix::path::Arg, flags: AtFlags) -> Result<(), Errno> {
    present(unlinkat(at, name, flags)).map(drop)
}

/// The result of an operation on a file; `None` if the file is not there any more.
fn present<T>(result: Result<T, Errno>) -> Result<Option<T>, Errno> {
    match result {
        Err(Errno::NOENT) => Ok(None),
        result => result.map(Some),
    }
}
