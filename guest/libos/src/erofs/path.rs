// SPDX-License-Identifier: MIT OR Apache-2.0
//! Path lookup: from names to inodes, through symbolic links.

use super::{Error, FileType, Image, Inode, Nid};

/// Upper limit on a path, in bytes with its terminating NUL.
const PATH_MAX: usize = 4096;
/// Upper limit on the symbolic links followed in one path, as on Linux.
const LINKS_MAX: usize = 40;

/// How a symbolic link at the end of a path is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastLink {
    /// Follow it, as `stat` does.
    Follow,
    /// Return the link itself, as `lstat` does.
    Keep,
}

impl<'a> Image<'a> {
    /// Resolves `path` from the directory `from`; an absolute path begins at the root, and `..` never leaves it. Symbolic links before
    /// the last component are followed.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotADirectory`], [`Error::NameTooLong`], [`Error::TooManyLinks`], or an error of the image.
    pub fn resolve(&self, from: Nid, path: &[u8], last_link: LastLink) -> Result<Inode, Error> {
        if path.is_empty() {
            return Err(Error::NotFound);
        }
        if path.len() >= PATH_MAX {
            return Err(Error::NameTooLong);
        }
        let start = |path: &[u8], from| self.inode(if path.starts_with(b"/") { self.root } else { from });
        let mut here = start(path, from)?;
        // The unresolved rest of the path, with the rests of the link targets being followed on top of it.
        let mut pending: [&[u8]; LINKS_MAX + 1] = [&[]; LINKS_MAX + 1];
        let (mut top, mut links) = (0, 0);
        pending[top] = path;
        loop {
            let slashes = pending[top].iter().take_while(|&&byte| byte == b'/').count();
            let rest = &pending[top][slashes..];
            // A slash requires a directory before it, at the end of a path too.
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

    /// Resolves one name in `here`.
    fn step(&self, here: &Inode, name: &[u8]) -> Result<Inode, Error> {
        let directory = self.directory(here)?;
        match name {
            b"." => Ok(*here),
            b".." if here.nid == self.root => Ok(*here),
            name => self.inode(directory.lookup(name)?),
        }
    }
}
