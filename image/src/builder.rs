// SPDX-License-Identifier: MIT OR Apache-2.0
//! The builder of an image's tree; it checks every name.

use crate::{
    Attributes, Error, Image, Source,
    layout::Layout,
    path::{check_target, components, shown},
    revision::SPARE_BLOCKS,
    tables::{FileRecord, NONE},
    tree::{Content, ImageTree, InodeId},
};

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// Collects the tree of an image.
///
/// Paths are bytes, read from the image's root whether they begin with a slash or not. Missing parents are made, owned
/// by root with permissions 755; adding such a directory later sets its attributes. An addition that fails changes
/// nothing that an image would show.
#[derive(Debug)]
pub struct Builder {
    pub(crate) tree: ImageTree,
}

impl Default for Builder {
    fn default() -> Self {
        Self::new()
    }
}

impl Builder {
    /// A tree with only its root.
    #[must_use]
    pub fn new() -> Self {
        Builder { tree: ImageTree::new() }
    }

    /// Omits the content of the largest files if that of all exceeds `bytes`: their names, sizes and times remain, and reading them is an
    /// error. Without this, such an image is refused.
    pub fn limit_content(&mut self, bytes: u64) {
        self.tree.content_max = bytes;
    }

    /// Records the device, inode number, change time and link count of each file of the host in the image. Use it for images that
    /// stay on this host.
    pub fn keep_identities(&mut self) {
        self.tree.identified = true;
    }

    /// Lets a cached image follow changes of files: each file is compared with the host when the image first reads its inode. Changed names
    /// are not followed ([`crate::CachedImage::is_outdated`]).
    pub fn allow_revisions(&mut self) {
        self.tree.spare_blocks = SPARE_BLOCKS;
    }

    /// Whether an image of the tree can be cached: all its files were compared with the host, and a later change of names can be detected.
    #[must_use]
    pub fn is_lasting(&self) -> bool {
        self.is_updatable() && self.tree.is_settled
    }

    /// Whether a cached image of the tree can be updated ([`crate::CachedImage::update`]): that lists the directories again in which
    /// changes may not show.
    #[must_use]
    pub fn is_updatable(&self) -> bool {
        self.tree.has_change_times
    }

    /// How many files and directories it has.
    #[must_use]
    pub fn count(&self) -> usize {
        self.tree.inodes.len()
    }

    /// Adds a directory; `/` sets the root's attributes.
    ///
    /// # Errors
    /// [`Error::Path`], [`Error::Duplicate`], [`Error::NotADirectory`].
    pub fn directory(&mut self, path: impl AsRef<[u8]>, attributes: Attributes) -> Result<(), Error> {
        let path = path.as_ref();
        let id = self.descend(path, &components(path)?)?;
        let inode = self.tree.inode_mut(id);
        let Content::Directory { implied: implied @ true, .. } = &mut inode.content else {
            return Err(Error::Duplicate { path: shown(path) });
        };
        *implied = false;
        inode.attributes = attributes;
        Ok(())
    }

    /// Adds a regular file.
    ///
    /// # Errors
    /// [`Error::Path`], [`Error::Duplicate`], [`Error::NotADirectory`].
    pub fn file(&mut self, path: impl AsRef<[u8]>, attributes: Attributes, data: impl Into<Source>) -> Result<(), Error> {
        let path = path.as_ref();
        let (parent, name) = self.new_entry(path)?;
        let content = match data.into() {
            Source::Bytes(bytes) => Content::Bytes(bytes),
            Source::Host(file) => {
                let host_path = std::os::unix::ffi::OsStrExt::as_bytes(file.path().as_os_str());
                let record = FileRecord { directory: NONE, name: self.tree.intern(host_path)?, version: file.version };
                Content::Host { file: self.tree.add_file(record)?, offset: 0, size: file.version.size }
            }
        };
        self.put(parent, name, attributes, content)
    }

    /// The paths of all files with this name, in any directory. O(names of the tree).
    #[must_use]
    pub fn named(&self, name: &str) -> Vec<PathBuf> {
        self.tree.named(name.as_bytes()).into_iter().map(|path| OsString::from_vec(path).into()).collect()
    }

    /// The attributes of every directory and regular file, and whether it is a directory.
    pub fn attributes(&self) -> impl Iterator<Item = (&Attributes, bool)> {
        self.tree.inodes.iter().filter_map(|inode| match inode.content {
            Content::Directory { implied, .. } => (!implied).then_some((&inode.attributes, true)),
            Content::Bytes(_) | Content::Host { .. } => Some((&inode.attributes, false)),
            Content::Symlink(_) | Content::Special { .. } | Content::Existing { .. } => None,
        })
    }

    /// Adds a symbolic link. Its target need not exist; it may point anywhere, also above the root, where it ends.
    ///
    /// # Errors
    /// [`Error::Target`], [`Error::Path`], [`Error::Duplicate`], [`Error::NotADirectory`].
    pub fn symlink(&mut self, path: impl AsRef<[u8]>, attributes: Attributes, target: impl AsRef<[u8]>) -> Result<(), Error> {
        let (path, target) = (path.as_ref(), target.as_ref());
        check_target(path, target)?;
        let (parent, name) = self.new_entry(path)?;
        let content = Content::Symlink(self.tree.intern(target)?);
        self.put(parent, name, attributes, content)
    }

    /// The readable image of the tree. The same tree gives the same image, independent of the order of additions.
    ///
    /// # Errors
    /// [`Error::TooLarge`].
    pub fn image(self) -> Result<Image, Error> {
        Ok(Layout::new(self.tree)?.image())
    }

    fn put(&mut self, parent: InodeId, name: &[u8], attributes: Attributes, content: Content) -> Result<(), Error> {
        let id = self.tree.add(attributes, content)?;
        self.tree.link(parent, name, id).map(|_| ())
    }

    /// The directory and the last name of a path that does not exist yet.
    fn new_entry<'a>(&mut self, path: &'a [u8]) -> Result<(InodeId, &'a [u8]), Error> {
        let (parent, name) = self.parent_of(path)?;
        match self.tree.find(parent, name) {
            Some(_) => Err(Error::Duplicate { path: shown(path) }),
            None => Ok((parent, name)),
        }
    }

    /// The directory and the last name of a path.
    pub(crate) fn parent_of<'a>(&mut self, path: &'a [u8]) -> Result<(InodeId, &'a [u8]), Error> {
        let names = components(path)?;
        let Some((name, parents)) = names.split_last() else {
            return Err(Error::Path { path: shown(path), reason: "the root must be a directory" });
        };
        let parent = self.descend(path, parents)?;
        match self.tree.inode(parent).content {
            Content::Directory { .. } => Ok((parent, name)),
            _ => Err(Error::NotADirectory { path: shown(path), ancestor: shown(&parents.join(&b'/')) }),
        }
    }

    /// Finds the inode of these names, creating missing directories. All but the last must be directories.
    fn descend(&mut self, path: &[u8], names: &[&[u8]]) -> Result<InodeId, Error> {
        let mut current = InodeId::ROOT;
        for (depth, name) in names.iter().enumerate() {
            if !matches!(self.tree.inode(current).content, Content::Directory { .. }) {
                return Err(Error::NotADirectory { path: shown(path), ancestor: shown(&names[..depth].join(&b'/')) });
            }
            current = match self.tree.find(current, name) {
                Some(next) => next,
                None => {
                    let created = self.tree.add(Attributes::root(0o755), Content::Directory { parent: current, implied: true })?;
                    self.tree.link(current, name, created)?;
                    created
                }
            };
        }
        Ok(current)
    }
}
