// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where everything lies: a block with the superblock, the inodes, the directories, then each file's data.

use std::mem;

use crate::{
    Builder, Error, Source,
    builder::{Content, Directory, Node},
    format::{BLOCK, BLOCK_SIZE, BlockNumber, Entry, FileType, INODE_SIZE, Inode, InodeIndex, encode_directory, write_superblock},
};

/// Data is handed over in pieces of at most so many bytes.
pub const PIECE_SIZE: usize = 1 << 20;

/// Takes a piece of data and its offset in bytes.
pub type Sink<'a, E> = dyn FnMut(u64, &[u8]) -> Result<(), E> + 'a;

/// An image whose every byte has its place.
#[derive(Debug)]
pub struct Layout {
    size: u64,
    metadata: Vec<u8>,
    extents: Vec<Extent>,
}

/// The data of one file or symbolic link, not empty.
#[derive(Debug)]
pub struct Extent {
    /// Where it begins in the image, at the start of a block.
    pub offset: u64,
    /// What lies there.
    pub source: Source,
}

impl Layout {
    /// The image's size in bytes, a multiple of [`BLOCK_SIZE`].
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The image's first blocks: everything but the content of files.
    pub fn metadata(&self) -> &[u8] {
        &self.metadata
    }

    /// The content of files, in the order of offsets. What neither they nor the metadata cover is zero.
    pub fn extents(&self) -> &[Extent] {
        &self.extents
    }

    /// Hands the image to `sink` in pieces of at most [`PIECE_SIZE`] bytes, each with its offset, in order. What no
    /// piece covers is zero.
    ///
    /// # Errors
    /// [`Error::Host`] or [`Error::Changed`] if a host file cannot be read as it was when it was added; then what the
    /// sink has seen is worth nothing. And whatever `sink` returns.
    pub fn write_to<E: From<Error>>(&self, sink: &mut Sink<'_, E>) -> Result<(), E> {
        for (index, piece) in self.metadata.chunks(PIECE_SIZE).enumerate() {
            sink((index * PIECE_SIZE) as u64, piece)?;
        }
        let mut buffer = vec![0; PIECE_SIZE];
        for extent in &self.extents {
            extent.source.read(&mut buffer, &mut |offset, piece| sink(extent.offset + offset, piece))?;
        }
        Ok(())
    }

    pub(crate) fn new(mut builder: Builder) -> Result<Self, Error> {
        let order = preorder(&builder);
        // By node: the place of its inode.
        let mut places = vec![InodeIndex(0); order.len()];
        for (place, &node) in order.iter().enumerate() {
            places[node] = InodeIndex(place);
        }
        let mut metadata = vec![0; BLOCK + order.len() * INODE_SIZE];
        write_directories(&builder, &order, &places, &mut metadata)?;

        let mut extents = Vec::new();
        let mut next = (metadata.len() / BLOCK) as u64;
        for &node in &order {
            let Node { attributes, content } = &mut builder.nodes[node];
            let (kind, source) = match content {
                Content::Directory(_) => continue,
                Content::File(source) => (FileType::Regular, mem::take(source)),
                Content::Symlink(target) => (FileType::Symlink, mem::take(target)),
            };
            let size = source.size();
            let first_block = if size == 0 { None } else { Some(BlockNumber::new(next)?) };
            write_inode(&mut metadata, places[node], &Inode { kind, attributes: *attributes, links: 1, size, first_block });
            if let Some(block) = first_block {
                extents.push(Extent { offset: block.offset(), source });
                next += size.div_ceil(BLOCK_SIZE);
            }
        }
        let end = BlockNumber::new(next)?;
        let first = metadata.first_chunk_mut().expect("the metadata begins with the superblock's block");
        write_superblock(first, order.len() as u64, end);
        Ok(Layout { size: end.offset(), metadata, extents })
    }
}

/// Appends every directory's blocks to the metadata, in whole blocks, and writes their inodes.
fn write_directories(builder: &Builder, order: &[usize], places: &[InodeIndex], metadata: &mut Vec<u8>) -> Result<(), Error> {
    for &node in order {
        let Node { attributes, content: Content::Directory(directory) } = &builder.nodes[node] else { continue };
        metadata.resize(metadata.len().next_multiple_of(BLOCK), 0);
        let first_block = BlockNumber::new((metadata.len() / BLOCK) as u64)?;
        let entries = entries(builder, node, directory, places);
        let blocks = encode_directory(&entries);
        let inode = Inode {
            kind: FileType::Directory,
            attributes: *attributes,
            // `.`, `..` of each directory in it, and its own name: as many as it names directories, `.` and `..` included.
            links: entries.iter().filter(|entry| entry.kind == FileType::Directory).count() as u32,
            size: blocks.len() as u64,
            first_block: Some(first_block),
        };
        metadata.extend(blocks);
        write_inode(metadata, places[node], &inode);
    }
    metadata.resize(metadata.len().next_multiple_of(BLOCK), 0);
    Ok(())
}

/// All nodes, each directory followed by what is in it, sorted by name: independent of the order of additions.
fn preorder(builder: &Builder) -> Vec<usize> {
    let mut order = Vec::with_capacity(builder.nodes.len());
    let mut pending = vec![0];
    while let Some(node) = pending.pop() {
        order.push(node);
        if let Content::Directory(directory) = &builder.nodes[node].content {
            pending.extend(directory.children.values().rev());
        }
    }
    order
}

/// A directory's entries, sorted.
fn entries<'a>(builder: &Builder, node: usize, directory: &'a Directory, places: &[InodeIndex]) -> Vec<Entry<'a>> {
    let entry = |name, node: usize| {
        let kind = match builder.nodes[node].content {
            Content::Directory(_) => FileType::Directory,
            Content::File(_) => FileType::Regular,
            Content::Symlink(_) => FileType::Symlink,
        };
        Entry { name, inode: places[node], kind }
    };
    let mut entries = vec![entry(b".", node), entry(b"..", directory.parent)];
    entries.extend(directory.children.iter().map(|(name, &child)| entry(name, child)));
    // The children are sorted, but some names are less than a dot.
    entries.sort_unstable_by_key(|entry| entry.name);
    entries
}

fn write_inode(metadata: &mut [u8], index: InodeIndex, inode: &Inode) {
    let offset = index.offset();
    metadata[offset..offset + INODE_SIZE].copy_from_slice(&inode.encode(index));
}
