// SPDX-License-Identifier: MIT OR Apache-2.0
//! From paths to what they name: files of the root image, and the few names of `/dev` and `/proc` that the libOS makes up.

use alloc::format;
use alloc::vec::Vec;

use super::{Device, Files, Kind};
use crate::erofs::{FileType, Inode, LastLink, Nid, Position};
use crate::errno::Errno;

/// Stands for the working directory in place of a descriptor.
pub const AT_FDCWD: i32 = -100;
/// The same as an argument register holds it.
pub const CURRENT: u64 = AT_FDCWD as u64;
/// Do not follow a symbolic link at the end.
pub const AT_SYMLINK_NOFOLLOW: u64 = 0x100;
/// An empty path names the descriptor itself.
pub const AT_EMPTY_PATH: u64 = 0x1000;

/// Directories may be nested this deep when a path is made from an inode.
const DEPTH_MAX: usize = 256;

/// What the libOS makes up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Special {
    /// A device.
    Device(Device),
    /// A link to the file of a descriptor.
    Descriptor(u64),
    /// A link to the program that runs.
    Program,
    /// The controlling terminal, which nobody has.
    Terminal,
}

/// What an absolute path stands for if the libOS makes it up. `.` and `..` are not looked through: who writes them means the image.
#[must_use]
pub fn special(path: &[u8]) -> Option<Special> {
    let number = |digits: &[u8]| core::str::from_utf8(digits).ok()?.parse::<u32>().ok().map(|fd| Special::Descriptor(fd.into()));
    match path {
        b"/dev/null" => Some(Special::Device(Device::Null)),
        b"/dev/zero" => Some(Special::Device(Device::Zero)),
        b"/dev/full" => Some(Special::Device(Device::Full)),
        b"/dev/random" | b"/dev/urandom" => Some(Special::Device(Device::Random)),
        b"/dev/stdin" => Some(Special::Descriptor(0)),
        b"/dev/stdout" => Some(Special::Descriptor(1)),
        b"/dev/stderr" => Some(Special::Descriptor(2)),
        b"/dev/tty" => Some(Special::Terminal),
        b"/proc/self/exe" | b"/proc/1/exe" => Some(Special::Program),
        _ => path.strip_prefix(b"/dev/fd/").or_else(|| path.strip_prefix(b"/proc/self/fd/")).and_then(number),
    }
}

impl Files {
    /// The directory from which a path is looked up.
    fn base(&mut self, directory: u64, path: &[u8]) -> Result<Nid, Errno> {
        if path.starts_with(b"/") {
            return Ok(self.root.image.root());
        }
        if directory as i32 == AT_FDCWD {
            return Ok(self.working_directory);
        }
        match self.get(directory)?.kind {
            Kind::Directory(inode) => Ok(inode.nid),
            Kind::Name(inode) if inode.kind == FileType::Directory => Ok(inode.nid),
            _ => Err(Errno::ENOTDIR),
        }
    }

    /// Finds what a path names in the root image.
    ///
    /// # Errors
    /// Those of looking up paths.
    pub fn resolve(&mut self, directory: u64, path: &[u8], last_link: LastLink) -> Result<Inode, Errno> {
        if path.is_empty() {
            return Err(Errno::ENOENT);
        }
        let base = self.base(directory, path)?;
        Ok(self.root.image.resolve(base, path, last_link)?)
    }

    /// The path of a directory, found by walking up.
    ///
    /// # Errors
    /// `ENOENT`: it has none.
    pub fn path_of(&self, directory: Nid) -> Result<Vec<u8>, Errno> {
        let image = &self.root.image;
        let mut names: Vec<&[u8]> = Vec::new();
        let mut here = directory;
        while here != image.root() {
            if names.len() == DEPTH_MAX {
                return Err(Errno::ENAMETOOLONG);
            }
            let parent = image.directory(&image.inode(here)?)?.lookup(b"..")?;
            let mut entries = image.directory(&image.inode(parent)?)?.entries(Position(0));
            let own = |entry: &crate::erofs::Entry<'_>| entry.nid == here && entry.name != b"." && entry.name != b"..";
            names.push(entries.find_map(|entry| entry.ok().filter(own)).ok_or(Errno::ENOENT)?.name);
            here = parent;
        }
        let mut path: Vec<u8> = names.iter().rev().flat_map(|name| b"/".iter().chain(*name).copied()).collect();
        if path.is_empty() {
            path.push(b'/');
        }
        Ok(path)
    }

    /// Where a link that the libOS makes up leads. `None`: it is no link.
    ///
    /// # Errors
    /// `ENOENT`: the descriptor is not open.
    pub fn special_target(&mut self, special: Special) -> Result<Option<Vec<u8>>, Errno> {
        let fd = match special {
            Special::Program => return Ok(Some(self.program.clone())),
            Special::Descriptor(fd) => fd,
            Special::Device(_) | Special::Terminal => return Ok(None),
        };
        let kind = self.get(fd).map_err(|_| Errno::ENOENT)?.kind;
        Ok(Some(match kind {
            Kind::Console { terminal: true, .. } => b"/dev/console".to_vec(),
            Kind::Console { .. } => format!("pipe:[{}]", fd + 1).into_bytes(),
            Kind::Directory(inode) => self.path_of(inode.nid)?,
            Kind::Regular(inode, _) | Kind::Name(inode) => format!("image:[{}]", inode.nid).into_bytes(),
            Kind::Device(Device::Null) => b"/dev/null".to_vec(),
            Kind::Device(Device::Zero) => b"/dev/zero".to_vec(),
            Kind::Device(Device::Full) => b"/dev/full".to_vec(),
            Kind::Device(Device::Random) => b"/dev/urandom".to_vec(),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::{Device, Special, special};

    #[test]
    fn made_up_names_are_known_and_others_are_not() {
        assert_eq!(special(b"/dev/null"), Some(Special::Device(Device::Null)));
        assert_eq!(special(b"/dev/fd/12"), Some(Special::Descriptor(12)));
        assert_eq!(special(b"/proc/self/fd/0"), Some(Special::Descriptor(0)));
        for other in [b"/dev/fd/".as_slice(), b"/dev/fd/x", b"dev/null", b"/dev/null/", b"/proc/self/fd/99999999999999999999"] {
            assert_eq!(special(other), None);
        }
    }
}
