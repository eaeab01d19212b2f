// SPDX-License-Identifier: MIT OR Apache-2.0
//! A file tree in few bytes: inodes, entries and names, each in one array, so that a million files take some 150 MB.

use std::{fs::File, hash::BuildHasher, hash::RandomState, sync::Arc};

use hashbrown::HashTable;
use pando_erofs::{FileType, HostIdentity};

use crate::{
    Attributes, Error,
    tables::{DirectoryRecord, FileRecord, Name},
};

/// Maximal bytes of the extended attributes of all inodes, which are in memory.
const XATTR_BYTES_MAX: usize = 1 << 30;

/// An index into [`ImageTree::inodes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct InodeId(u32);

impl InodeId {
    pub(crate) const ROOT: InodeId = InodeId(0);

    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

#[derive(Debug)]
pub(crate) struct Inode {
    pub(crate) attributes: Attributes,
    pub(crate) content: Content,
    /// Its identity on the host, if the image records identities.
    pub(crate) identity: Option<HostIdentity>,
    /// Its extended attributes in [`ImageTree::xattrs`].
    pub(crate) xattrs: XattrsId,
}

/// An index into [`ImageTree::xattrs`]; 0 for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct XattrsId(u32);

#[derive(Debug)]
pub(crate) enum Content {
    Directory {
        parent: InodeId,
        /// Created implicitly as a parent, so that its attributes may still be set.
        implied: bool,
    },
    Bytes(Vec<u8>),
    /// Bytes of the host's file with this number in [`ImageTree::files`], from `offset` on.
    Host {
        file: u32,
        offset: u64,
        size: u64,
    },
    Symlink(Name),
    Special {
        kind: FileType,
        device: u32,
    },
    /// An inode that a finished image has, for an update of that image.
    Existing {
        kind: FileType,
        /// Its offset in units of 32 bytes.
        slot: u32,
    },
}

impl Content {
    pub(crate) fn kind(&self) -> FileType {
        match self {
            Content::Directory { .. } => FileType::Directory,
            Content::Bytes(_) | Content::Host { .. } => FileType::Regular,
            Content::Symlink(_) => FileType::Symlink,
            Content::Special { kind, .. } | Content::Existing { kind, .. } => *kind,
        }
    }
}

/// A name in a directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TreeEntry {
    pub(crate) directory: InodeId,
    pub(crate) name: Name,
    pub(crate) inode: InodeId,
}

/// The tree of an image. An inode without an entry, other than the root, is left out of the image.
#[derive(Debug)]
pub(crate) struct ImageTree {
    pub(crate) inodes: Vec<Inode>,
    /// The image records the identities of the host's files.
    pub(crate) identified: bool,
    /// All scanned directories are on file systems that update a directory's change time with its names.
    pub(crate) has_change_times: bool,
    /// The scan found all directories unchanging, and all files readable.
    pub(crate) is_settled: bool,
    /// Blocks that are left for files that grow.
    pub(crate) spare_blocks: u64,
    pub(crate) entries: Vec<TreeEntry>,
    pub(crate) names: Vec<u8>,
    /// Encoded extended attributes of inodes.
    xattrs: Vec<Box<[u8]>>,
    /// Bytes that are left for more.
    pub(crate) xattr_bytes_left: usize,
    /// Files of the host that hold data.
    pub(crate) files: Vec<FileRecord>,
    /// Directories of the host that the names of files need.
    pub(crate) directories: Vec<(DirectoryRecord, InodeId)>,
    /// Files that stay open, by number, because their names may change or vanish later.
    pub(crate) held: Vec<(u32, Arc<File>)>,
    /// Maximal bytes of host files' content in the image.
    pub(crate) content_max: u64,
    /// Entries by directory and name.
    index: HashTable<u32>,
    /// Seeded, because names may come from an archive whose author wants them to collide.
    hasher: RandomState,
}

impl ImageTree {
    /// A tree with only its root.
    pub(crate) fn new() -> Self {
        let content = Content::Directory { parent: InodeId::ROOT, implied: true };
        ImageTree {
            inodes: vec![Inode { attributes: Attributes::root(0o755), content, identity: None, xattrs: XattrsId::default() }],
            identified: false,
            has_change_times: true,
            is_settled: true,
            spare_blocks: 0,
            entries: Vec::new(),
            names: Vec::new(),
            xattrs: Vec::new(),
            xattr_bytes_left: XATTR_BYTES_MAX,
            files: Vec::new(),
            directories: Vec::new(),
            held: Vec::new(),
            content_max: u64::MAX,
            index: HashTable::new(),
            hasher: RandomState::new(),
        }
    }

    pub(crate) fn inode(&self, id: InodeId) -> &Inode {
        &self.inodes[id.index()]
    }

    /// All inodes.
    pub(crate) fn ids(&self) -> impl Iterator<Item = InodeId> + use<> {
        (0..self.inodes.len() as u32).map(InodeId)
    }

    pub(crate) fn inode_mut(&mut self, id: InodeId) -> &mut Inode {
        &mut self.inodes[id.index()]
    }

    pub(crate) fn text(&self, name: Name) -> &[u8] {
        text(&self.names, name)
    }

    /// Stores a string of at most 65,535 bytes.
    pub(crate) fn intern(&mut self, bytes: &[u8]) -> Result<Name, Error> {
        let (Ok(start), Ok(length)) = (u32::try_from(self.names.len()), u16::try_from(bytes.len())) else {
            return Err(Error::TooManyNames);
        };
        self.names.extend_from_slice(bytes);
        Ok(Name { start, length })
    }

    pub(crate) fn add(&mut self, attributes: Attributes, content: Content) -> Result<InodeId, Error> {
        let id = u32::try_from(self.inodes.len()).map_err(|_| Error::TooManyNames)?;
        self.inodes.push(Inode { attributes, content, identity: None, xattrs: XattrsId::default() });
        Ok(InodeId(id))
    }

    /// The encoded extended attributes of an inode; empty if it has none.
    pub(crate) fn xattrs(&self, id: InodeId) -> &[u8] {
        (self.inode(id).xattrs.0 as usize).checked_sub(1).map_or(&[], |index| &self.xattrs[index])
    }

    /// Sets the extended attributes of an inode, as [`pando_erofs::encode_xattrs`] returns them.
    pub(crate) fn set_xattrs(&mut self, id: InodeId, encoded: Vec<u8>) -> Result<(), Error> {
        let mut index = XattrsId::default();
        if !encoded.is_empty() {
            self.xattr_bytes_left = self.xattr_bytes_left.checked_sub(encoded.len()).ok_or(Error::TooManyAttributes)?;
            self.xattrs.push(encoded.into());
            index = XattrsId(u32::try_from(self.xattrs.len()).map_err(|_| Error::TooManyNames)?);
        }
        self.inode_mut(id).xattrs = index;
        Ok(())
    }

    /// Adds a file of the host.
    pub(crate) fn add_file(&mut self, record: FileRecord) -> Result<u32, Error> {
        let number = u32::try_from(self.files.len()).map_err(|_| Error::TooManyNames)?;
        self.files.push(record);
        Ok(number)
    }

    /// Adds a directory of the host, which is this inode.
    pub(crate) fn add_directory(&mut self, record: DirectoryRecord, inode: InodeId) -> Result<u32, Error> {
        let number = u32::try_from(self.directories.len()).map_err(|_| Error::TooManyNames)?;
        self.directories.push((record, inode));
        Ok(number)
    }

    /// Records that a directory may change without another change time, if it has a record.
    pub(crate) fn unsettle(&mut self, directory: u32) {
        self.is_settled = false;
        if let Some((record, _)) = self.directories.get_mut(directory as usize) {
            record.is_settled = false;
        }
    }

    /// The inode of a directory's entry.
    pub(crate) fn find(&self, directory: InodeId, name: &[u8]) -> Option<InodeId> {
        self.slot(directory, name).map(|slot| self.entries[slot as usize].inode)
    }

    /// The paths of all files with a name. O(names).
    pub(crate) fn named(&self, name: &[u8]) -> Vec<Vec<u8>> {
        let found: Vec<&TreeEntry> = self.entries.iter().filter(|entry| self.text(entry.name) == name).collect();
        let mut names_of = vec![None; if found.is_empty() { 0 } else { self.inodes.len() }];
        for entry in &self.entries {
            if let Some(slot) = names_of.get_mut(entry.inode.index()) {
                *slot = Some(entry);
            }
        }
        let path = |entry: &TreeEntry| {
            // Directories have one name each, so this ends at the root.
            let names = std::iter::successors(Some(entry), |entry| names_of[entry.directory.index()]);
            let names: Vec<&[u8]> = names.map(|entry| self.text(entry.name)).collect();
            names.iter().rev().flat_map(|name| [b"/", *name].concat()).collect()
        };
        found.into_iter().map(path).collect()
    }

    /// Sets a directory's entry for a name; the replaced inode is returned and has one name less.
    pub(crate) fn link(&mut self, directory: InodeId, name: &[u8], inode: InodeId) -> Result<Option<InodeId>, Error> {
        if let Some(slot) = self.slot(directory, name) {
            return Ok(Some(std::mem::replace(&mut self.entries[slot as usize].inode, inode)));
        }
        let name = self.intern(name)?;
        self.link_new(directory, name, inode)?;
        Ok(None)
    }

    /// Adds an entry with a new name to a directory.
    pub(crate) fn link_new(&mut self, directory: InodeId, name: Name, inode: InodeId) -> Result<(), Error> {
        let slot = u32::try_from(self.entries.len()).map_err(|_| Error::TooManyNames)?;
        self.entries.push(TreeEntry { directory, name, inode });
        let ImageTree { entries, names, hasher, index, .. } = self;
        let hash = |slot: u32| {
            let entry = &entries[slot as usize];
            hasher.hash_one((entry.directory, text(names, entry.name)))
        };
        index.insert_unique(hash(slot), slot, |&slot| hash(slot));
        Ok(())
    }

    fn slot(&self, directory: InodeId, name: &[u8]) -> Option<u32> {
        let same = |&slot: &u32| {
            let entry = &self.entries[slot as usize];
            entry.directory == directory && self.text(entry.name) == name
        };
        self.index.find(self.hasher.hash_one((directory, name)), same).copied()
    }
}

fn text(names: &[u8], name: Name) -> &[u8] {
    &names[name.start as usize..][..usize::from(name.length)]
}
