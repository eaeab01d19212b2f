// SPDX-License-Identifier: MIT OR Apache-2.0
//! Paths: from names to inodes, through symbolic links.

use super::{Error, FileType, Image, Inode, Nid};

/// A path, with its terminating NUL, fits into this many bytes.
const PATH_MAX: usize = 4096;
/// As many symbolic links as Linux follows in one path.
const LINKS_MAX: usize = 40;

/// What to do with a symbolic link at a path's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastLink {
    /// Follow it, as `stat` does.
    Follow,
    /// Return the link itself, as `lstat` does.
    Keep,
}

impl<'a> Image<'a> {
    /// Finds what `path` names, as seen from the directory `from`; an absolute path begins at the root, and `..`
    /// never leaves it. Links on the way are followed.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotADirectory`], [`Error::NameTooLong`], [`Error::TooManyLinks`], or what is
    /// wrong with the image.
    pub fn resolve(&self, from: Nid, path: &[u8], last_link: LastLink) -> Result<Inode, Error> {
        if path.is_empty() {
            return Err(Error::NotFound);
        }
        if path.len() >= PATH_MAX {
            return Err(Error::NameTooLong);
        }
        let start = |path: &[u8], from| self.inode(if path.starts_with(b"/") { self.root } else { from });
        let mut here = start(path, from)?;
        // What is left of the path, and above it of each link's target that is being followed.
        let mut pending: [&[u8]; LINKS_MAX + 1] = [&[]; LINKS_MAX + 1];
        let (mut top, mut links) = (0, 0);
        pending[top] = path;
        loop {
            let slashes = pending[top].iter().take_while(|&&byte| byte == b'/').count();
            let rest = &pending[top][slashes..];
            // A slash says that what stands before it is a directory, at the end of a path too.
            if slashes > 0 && here.kind != FileType::Directory {
                return Err(Error::NotADirectory);
            }
            if rest.is_empty() {
                if top == 0 {
                    return Ok(here);
                }
                top -= 1;
                continue;
            }
            let (name, rest) = rest.split_at(rest.iter().position(|&byte| byte == b'/').unwrap_or(rest.len()));
            pending[top] = rest;
            let next = self.step(&here, name)?;
            let at_end = pending[..=top].iter().all(|rest| rest.is_empty());
            if next.kind != FileType::Symlink || (at_end && last_link == LastLink::Keep) {
                here = next;
                continue;
            }
            if links == LINKS_MAX {
                return Err(Error::TooManyLinks);
            }
            let target = self.link_target(&next)?;
            if target.is_empty() {
                return Err(Error::NotFound);
            }
            here = start(target, here.nid)?;
            links += 1;
            top += 1;
            pending[top] = target;
        }
    }

    /// Goes from `here` to what one name in it stands for.
    fn step(&self, here: &Inode, name: &[u8]) -> Result<Inode, Error> {
        let directory = self.directory(here)?;
        match name {
            b"." => Ok(*here),
            b".." if here.nid == self.root => Ok(*here),
            name => self.inode(directory.lookup(name)?),
        }
    }
}
