// SPDX-License-Identifier: MIT OR Apache-2.0
//! Adds directories and files to a finished image, without rebuilding it.
//!
//! New data is in memory, after the image's last block. The parent directory keeps its inode, which then refers to a new copy of its
//! entries; so nothing else in the image changes.

use pando_erofs::{
    BLOCK_SIZE, Corrupt, DataLayout, Dirent, DiskInode, FileType, NAME_LEN, Nid, SuperBlock, directory_size, encode_directory,
};

use crate::{
    Attributes, Error, HostFile, Image,
    block::{BLOCK, BlockNumber},
    encode::{self, DataLocation, write_checksummed},
    image::{BlockSource, one_file},
    inspect::{Node, Resolved, entries},
    path::shown,
    tables::Extent,
};

/// Attributes of implicitly created directories.
const DEFAULT_ATTRIBUTES: Attributes = Attributes::root(0o755);

impl Image {
    /// Creates a directory with these attributes unless it exists; its missing parents are owned by root, with permissions 755. Returns
    /// the path without links, which is where something can be mounted.
    ///
    /// # Errors
    /// [`Error::NotADirectory`], [`Error::Path`], [`Error::TooLarge`]; the image cannot be read, or is invalid.
    pub fn add_directory(&mut self, path: &[u8], attributes: Attributes) -> Result<Vec<u8>, Error> {
        let Resolved { chain, names, missing } = self.resolve(path)?;
        let directory = chain[chain.len() - 1];
        if !directory.is_directory() {
            return Err(Error::NotADirectory { path: shown(path), ancestor: shown(&names.join(&b'/')) });
        }
        self.add_directories(path, directory, &missing, attributes)?;
        let real: Vec<u8> = names.iter().chain(&missing).flat_map(|name| [b"/", &name[..]].concat()).collect();
        Ok(if real.is_empty() { b"/".to_vec() } else { real })
    }

    /// Creates an empty directory with these attributes in place of an existing one and its content, or where none is.
    ///
    /// # Errors
    /// As [`Image::add_directory`]; [`Error::Path`] for the root.
    pub fn empty_directory(&mut self, path: &[u8], attributes: Attributes) -> Result<(), Error> {
        let Resolved { mut chain, mut names, mut missing } = self.resolve(path)?;
        if missing.is_empty() {
            let (Some(name), Some(existing)) = (names.pop(), chain.pop()) else {
                return Err(Error::Path { path: shown(path), reason: "the root cannot be emptied" });
            };
            if !existing.is_directory() {
                return Err(Error::NotADirectory { path: shown(path), ancestor: shown(path) });
            }
            missing.push(name);
        }
        let directory = chain[chain.len() - 1];
        self.add_directories(path, directory, &missing, attributes).map(drop)
    }

    /// Adds a file of the host, with missing parent directories. An existing file is replaced, at the target of links. If the image
    /// would have more than `most` bytes with its content, only its name, size and times are added, and reading it is an error.
    ///
    /// # Errors
    /// [`Error::NotADirectory`], [`Error::Path`], [`Error::TooLarge`]; the image cannot be read, or is invalid.
    pub fn add_file(&mut self, path: &[u8], file: &HostFile, most: u64) -> Result<(), Error> {
        let Resolved { mut chain, mut names, mut missing } = self.resolve(path)?;
        if missing.is_empty() {
            // The existing file's name.
            missing.extend(names.pop());
            if chain.pop().is_none_or(|existing| existing.is_directory()) {
                return Err(Error::Duplicate { path: shown(path) });
            }
        }
        let (Some(&directory), Some((name, directories))) = (chain.last(), missing.split_last()) else {
            return Err(Error::Duplicate { path: shown(path) });
        };
        if !directory.is_directory() {
            return Err(Error::NotADirectory { path: shown(path), ancestor: shown(&names.join(&b'/')) });
        }
        check_names(path, &missing)?;
        let directory = self.add_directories(path, directory, directories, DEFAULT_ATTRIBUTES)?;
        let size = file.version.size;
        let mut data = DataLocation::Absent;
        if size > 0 && self.size().saturating_add(size) <= most {
            let first = BlockNumber::new(self.blocks())?;
            let blocks = size.div_ceil(BLOCK_SIZE);
            BlockNumber::new(self.blocks().saturating_add(blocks))?;
            let extent = Extent { first: first.number(), file: 0, offset: 0, size };
            self.append(blocks, Some(BlockSource::Host(Box::new(one_file(extent, file.path(), file.version, [])?))));
            data = DataLocation::Blocks(first);
        }
        let nid = self.append_block(&encode::inode(FileType::Regular, file.attributes(), 1, size, data, 0))?;
        self.add_entry(&directory, name, nid, FileType::Regular)
    }

    /// Adds nested directories to this one, the last with these attributes; returns the last.
    fn add_directories(&mut self, path: &[u8], directory: Node, names: &[Vec<u8>], attributes: Attributes) -> Result<Node, Error> {
        check_names(path, names)?;
        let Some((first, rest)) = names.split_first() else { return Ok(directory) };
        let mut parent = directory.nid;
        let mut outermost = None;
        // Each is in a block of its own, so the position of the next is known.
        let mut below = rest.iter();
        let last = loop {
            let nid = self.next_nid(0)?;
            let mut all = vec![
                Dirent { name: b".", nid, file_type: Some(FileType::Directory) },
                Dirent { name: b"..", nid: parent, file_type: Some(FileType::Directory) },
            ];
            let child = below.next();
            if let Some(name) = child {
                all.push(Dirent { name, nid: self.next_nid(1)?, file_type: Some(FileType::Directory) });
            }
            all.sort_unstable_by_key(|entry| entry.name);
            let size = directory_size(all.iter().map(|entry| entry.name)) as u64;
            let links = 2 + u32::from(child.is_some());
            let attributes = if child.is_some() { DEFAULT_ATTRIBUTES } else { attributes };
            let inode = encode::inode(FileType::Directory, attributes, links, size, DataLocation::Inline(None), 0);
            parent = self.append_block(&[&inode[..], &encode_directory(&all)].concat())?;
            outermost = outermost.or(Some(parent));
            if child.is_none() {
                break parent;
            }
        };
        self.add_entry(&directory, first, outermost.unwrap_or(last), FileType::Directory)?;
        self.node(last)
    }

    /// Sets a directory's entry for a name. The directory gets new blocks for all its entries.
    fn add_entry(&mut self, directory: &Node, name: &[u8], nid: Nid, file_type: FileType) -> Result<(), Error> {
        let data = self.data(directory)?;
        let mut all = entries(&data)?;
        all.retain(|entry| entry.name != name);
        all.push(Dirent { name, nid, file_type: Some(file_type) });
        all.sort_unstable_by_key(|entry| entry.name);
        let encoded = encode_directory(&all);
        let first = BlockNumber::new(self.blocks())?;
        for block in encoded.chunks(BLOCK) {
            self.append_block(block)?;
        }
        // The size fits a compact inode too: larger directories cannot be read.
        let inode = DiskInode {
            layout: DataLayout::FlatPlain,
            startblk_or_rdev: first.number(),
            size: encoded.len() as u64,
            nlink: directory.inode.nlink.saturating_add(u32::from(file_type == FileType::Directory)),
            ..directory.inode
        };
        let mut bytes = [0; DiskInode::SIZE_MAX];
        let bytes = &mut bytes[..inode.version.size()];
        self.read_bytes(directory.offset, bytes)?;
        inode.encode_into(bytes);
        self.alter(directory.offset, bytes)
    }

    /// The number of the inode at the start of the block that is this many after the next.
    fn next_nid(&self, ahead: u64) -> Result<Nid, Error> {
        Ok(Nid::at((self.blocks() + ahead) * BLOCK_SIZE - self.inodes()?.min(self.size())))
    }

    /// Adds a block that starts with these bytes; returns the number of an inode at its start.
    fn append_block(&mut self, bytes: &[u8]) -> Result<Nid, Error> {
        let nid = self.next_nid(0)?;
        BlockNumber::new(self.blocks() + 1)?;
        let mut block = bytes.to_vec();
        block.resize(BLOCK, 0);
        let number = self.append(1, None);
        self.altered.insert(number, block.into());
        self.change_superblock(|_| ())?;
        Ok(nid)
    }

    /// Changes bytes of the image, and updates the superblock.
    fn alter(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        for (at, byte) in (offset..).zip(bytes) {
            self.altered_block(at / BLOCK_SIZE)?[(at % BLOCK_SIZE) as usize] = *byte;
        }
        self.change_superblock(|_| ())
    }

    /// Changes the superblock, and updates its number of blocks and its checksum.
    pub(crate) fn change_superblock(&mut self, change: impl FnOnce(&mut SuperBlock)) -> Result<(), Error> {
        let blocks = BlockNumber::new(self.blocks())?;
        let block = self.altered_block(0)?;
        let mut superblock = SuperBlock::decode(block).ok_or(Corrupt("it has no EROFS superblock"))?;
        change(&mut superblock);
        superblock.blocks = blocks.number();
        write_checksummed(block, &mut superblock);
        Ok(())
    }

    /// A mutable copy of a block.
    fn altered_block(&mut self, number: u64) -> Result<&mut [u8], Error> {
        let mut block = [0; BLOCK];
        if !self.altered.contains_key(&number) {
            // As stored: inodes are revised whenever it is read. Otherwise the image would differ with the time at which it is changed.
            self.read_unrevised(number, &mut block)?;
        }
        Ok(self.altered.entry(number).or_insert_with(|| block.into()))
    }
}

fn check_names(path: &[u8], names: &[Vec<u8>]) -> Result<(), Error> {
    let refused = |reason| Err(Error::Path { path: shown(path), reason });
    match names.iter().find(|name| name.len() > NAME_LEN || name.contains(&0)) {
        Some(name) if name.contains(&0) => refused("a name has a NUL"),
        Some(_) => refused("a name has more than 255 bytes"),
        None => Ok(()),
    }
}
