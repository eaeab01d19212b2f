// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opening what a path names.

use super::names::{Special, special};
use super::{Files, Kind, OpenFile, flag};
use crate::erofs::{FileType, LastLink};
use crate::errno::Errno;

impl Files {
    /// Opens what a path names.
    ///
    /// # Errors
    /// Those of `open`, on a read-only file system.
    pub fn open_path(&mut self, directory: u64, path: &[u8], flags: u64) -> Result<OpenFile, Errno> {
        let kept = flags & !(flag::CLOSE_ON_EXEC | flag::CREATE | flag::EXCLUSIVE | flag::TRUNCATE);
        let file = |kind| OpenFile { kind, offset: 0, flags: kept };
        match special(path) {
            Some(Special::Device(device)) => return Ok(file(Kind::Device(device))),
            Some(Special::Terminal) => return Err(Errno::ENXIO),
            Some(Special::Descriptor(fd)) => {
                let kind = self.get(fd).map_err(|_| Errno::ENOENT)?.kind;
                return Ok(file(kind));
            }
            Some(Special::Program) => {
                let program = self.program.clone();
                return self.open_path(directory, &program, flags);
            }
            None => {}
        }
        let writing = flags & flag::ACCESS != flag::READ_ONLY || flags & flag::TRUNCATE != 0;
        let path_only = flags & flag::PATH != 0;
        let last_link = if flags & flag::NO_FOLLOW != 0 { LastLink::Keep } else { LastLink::Follow };
        let inode = match self.resolve(directory, path, last_link) {
            Err(Errno::ENOENT) if flags & flag::CREATE != 0 && !path.is_empty() => return Err(self.no_new_name(directory, path)),
            found => found?,
        };
        if flags & flag::CREATE != 0 && flags & flag::EXCLUSIVE != 0 {
            return Err(Errno::EEXIST);
        }
        if flags & flag::DIRECTORY != 0 && inode.kind != FileType::Directory {
            return Err(Errno::ENOTDIR);
        }
        if !path_only && writing {
            return Err(if inode.kind == FileType::Directory && flags & flag::TEMPORARY == 0 { Errno::EISDIR } else { Errno::EROFS });
        }
        Ok(file(self.kind_of(inode, path_only)?))
    }

    /// Why a name cannot be made: its directory is missing, or the image is read-only.
    pub fn no_new_name(&mut self, directory: u64, path: &[u8]) -> Errno {
        let trimmed = path.iter().rposition(|byte| *byte != b'/').map_or(&path[..0], |last| &path[..=last]);
        let parent: &[u8] = match trimmed.iter().rposition(|byte| *byte == b'/') {
            Some(0) => b"/",
            Some(slash) => &trimmed[..slash],
            None => b".",
        };
        match self.resolve(directory, parent, LastLink::Follow) {
            Ok(inode) if inode.kind == FileType::Directory => Errno::EROFS,
            Ok(_) => Errno::ENOTDIR,
            Err(error) => error,
        }
    }
}
