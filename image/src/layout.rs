// SPDX-License-Identifier: MIT OR Apache-2.0
//! The layout of an image.
//!
//! ```text
//! block 0   the superblock
//! block 1   inodes, the root's first, each directory followed by its entries; the last part of a directory and the
//!           target of a link directly after their inodes, so that listing a tree reads few blocks
//!           the whole blocks of large directories
//!           content in memory
//!           content in host files, each at the start of a block
//! ```

use std::sync::Arc;

use pando_erofs::{BLOCK_SIZE, Dirent, FileType, HostIdentity, ISLOT_SIZE, IdentityTable, Nid, directory_size, encode_directory};

use crate::{
    Error, Image,
    block::{BLOCK, BlockNumber},
    encode::{self, DataLocation, INODE_SIZE, write_superblock},
    host::HostBlocks,
    image::{BlockRange, BlockSource},
    store::{Blocks, Bytes},
    tables::{Extent, Sizes, SlotRecord, Tables},
    tree::{Content, ImageTree, InodeId},
};

/// A laid-out image: the bytes that are kept of it, and the locations of the rest.
pub(crate) struct Layout {
    pub(crate) blocks: u64,
    /// Everything but the content of host files: whole blocks.
    pub(crate) metadata: Vec<u8>,
    pub(crate) tables: Vec<u8>,
    pub(crate) sizes: Sizes,
    pub(crate) held: Vec<(u32, Arc<std::fs::File>)>,
}

impl Layout {
    /// Lays out a tree. The same tree gives the same bytes, independent of the order of additions.
    pub(crate) fn new(tree: ImageTree) -> Result<Self, Error> {
        let mut plan = Plan::new(&tree)?;
        plan.place_heads()?;
        plan.place_data()?;
        let mut metadata = vec![0; plan.metadata_blocks as usize * BLOCK];
        plan.write(&mut metadata)?;
        let end = BlockNumber::new(plan.next.saturating_add(tree.spare_blocks))?;
        if let Some(table) = plan.identities {
            plan.write_identities(&mut metadata[table.first_block as usize * BLOCK..]);
        }
        let volume_name = plan.identities.map_or([0; 16], IdentityTable::encode);
        write_superblock(&mut metadata, plan.order.len() as u64, end, volume_name);
        let (tables, sizes) = Tables::encode(&plan.extents, &tree.files, &tree.directories, &tree.names, &plan.slots());
        Ok(Layout { blocks: end.number().into(), metadata, tables, sizes, held: tree.held })
    }

    /// The image, in memory except for the content of host files.
    pub(crate) fn image(self) -> Image {
        let metadata_blocks = (self.metadata.len() / BLOCK) as u64;
        let tables = Tables::new(Bytes::Memory(self.tables), self.sizes);
        let metadata = BlockRange { blocks: 0..metadata_blocks, source: BlockSource::Metadata(Blocks::Memory(self.metadata)) };
        let host =
            BlockRange { blocks: metadata_blocks..self.blocks, source: BlockSource::Host(Box::new(HostBlocks::new(tables, self.held))) };
        Image::new(self.blocks, vec![metadata, host])
    }
}

/// The location of an inode.
#[derive(Clone, Copy, Default)]
struct InodeSpot {
    /// Its offset in units of [`ISLOT_SIZE`]; 0 if it has none.
    slot: u32,
    /// The number of its names; for a directory, the number of its subdirectories.
    names: u32,
    /// The first block of data that is not directly after the inode.
    first_block: Option<u32>,
    /// A directory's size.
    size: usize,
}

struct Plan<'a> {
    tree: &'a ImageTree,
    /// Indices of entries, sorted by directory and then by name.
    sorted: Vec<u32>,
    /// By inode: the start of a directory's entries in `sorted`; one more at the end.
    starts: Vec<u32>,
    spots: Vec<InodeSpot>,
    /// The inodes in their order in the image.
    order: Vec<InodeId>,
    /// The first free block.
    next: u64,
    metadata_blocks: u64,
    /// The position of the identity table, if there is one.
    identities: Option<IdentityTable>,
    extents: Vec<Extent>,
}

impl<'a> Plan<'a> {
    /// Sorts the entries and places the inodes.
    fn new(tree: &'a ImageTree) -> Result<Self, Error> {
        let mut starts = vec![0u32; tree.inodes.len() + 1];
        tree.entries.iter().for_each(|entry| starts[entry.directory.index() + 1] += 1);
        for index in 1..starts.len() {
            starts[index] += starts[index - 1];
        }
        let mut sorted = vec![0u32; tree.entries.len()];
        let mut free = starts.clone();
        for (number, entry) in tree.entries.iter().enumerate() {
            let index = &mut free[entry.directory.index()];
            sorted[*index as usize] = number as u32;
            *index += 1;
        }
        for bounds in starts.windows(2) {
            let entries = &mut sorted[bounds[0] as usize..bounds[1] as usize];
            entries.sort_unstable_by_key(|&number| tree.text(tree.entries[number as usize].name));
        }
        let spots = vec![InodeSpot::default(); tree.inodes.len()];
        let mut plan =
            Plan { tree, sorted, starts, spots, order: Vec::new(), next: 0, metadata_blocks: 0, identities: None, extents: Vec::new() };
        plan.place_inodes()?;
        Ok(plan)
    }

    /// A directory's entries, sorted, without `.` and `..`.
    fn children(&self, directory: InodeId) -> impl Iterator<Item = (&'a [u8], InodeId)> + Clone + '_ {
        let range = self.starts[directory.index()] as usize..self.starts[directory.index() + 1] as usize;
        self.sorted[range].iter().map(|&number| {
            let entry = &self.tree.entries[number as usize];
            (self.tree.text(entry.name), entry.inode)
        })
    }

    /// The same with `.` and `..` in sorted order: some names sort before a dot.
    fn all_children(&self, directory: InodeId, parent: InodeId) -> Vec<(&'a [u8], InodeId)> {
        let mut all = Vec::with_capacity(self.children(directory).size_hint().0 + 2);
        all.extend([(&b"."[..], directory), (&b".."[..], parent)]);
        all.extend(self.children(directory));
        // It is nearly sorted already, which makes this sort fast.
        all.sort_by_key(|(name, _)| *name);
        all
    }

    fn place_inodes(&mut self) -> Result<(), Error> {
        let mut offset = BLOCK as u64;
        // A list instead of recursion, so that a deep tree does not overflow the stack.
        let mut pending = vec![InodeId::ROOT];
        while let Some(id) = pending.pop() {
            let spot = &mut self.spots[id.index()];
            if spot.slot != 0 {
                continue;
            }
            let mut length = INODE_SIZE;
            match &self.tree.inode(id).content {
                &Content::Directory { parent, .. } => {
                    let size = directory_size(self.all_children(id, parent).iter().map(|(name, _)| *name));
                    let first = pending.len();
                    let children = self.children(id).map(|(_, child)| child);
                    pending.extend(children);
                    pending[first..].reverse();
                    self.count_names(id);
                    self.spots[id.index()].size = size;
                    length += inline(size);
                }
                Content::Symlink(target) => length += inline_target(usize::from(target.length)),
                _ => {}
            }
            // Inline data must not reach into the next block.
            let left = BLOCK - offset as usize % BLOCK;
            if length > left {
                offset += left as u64;
            }
            let slot = offset / ISLOT_SIZE;
            self.spots[id.index()].slot = u32::try_from(slot).map_err(|_| Error::TooLarge { blocks: offset / BLOCK_SIZE })?;
            offset = (offset + length as u64).next_multiple_of(ISLOT_SIZE);
            self.order.push(id);
        }
        self.next = offset.div_ceil(BLOCK_SIZE);
        Ok(())
    }

    /// Counts a directory's names for its entries.
    fn count_names(&mut self, directory: InodeId) {
        let range = self.starts[directory.index()] as usize..self.starts[directory.index() + 1] as usize;
        for &number in &self.sorted[range] {
            let child = self.tree.entries[number as usize].inode;
            match self.tree.inode(child).content {
                Content::Directory { .. } => self.spots[directory.index()].names += 1,
                _ => self.spots[child.index()].names += 1,
            }
        }
    }

    /// Places the kept data that is not inline.
    fn place_heads(&mut self) -> Result<(), Error> {
        for &id in &self.order {
            let spot = &mut self.spots[id.index()];
            let size = match &self.tree.inode(id).content {
                Content::Directory { .. } => spot.size - inline(spot.size),
                Content::Symlink(target) => usize::from(target.length) - inline_target(target.length.into()),
                Content::Bytes(bytes) => bytes.len(),
                Content::Host { .. } | Content::Special { .. } => 0,
            };
            if size > 0 {
                spot.first_block = Some(BlockNumber::new(self.next)?.number());
                self.next += (size as u64).div_ceil(BLOCK_SIZE);
            }
        }
        if self.tree.identified {
            let last = self.order.iter().map(|id| self.spots[id.index()].slot).max().unwrap_or(0);
            let table = IdentityTable { first_block: BlockNumber::new(self.next)?.number(), records: last / 2 + 1 };
            self.next += table.blocks();
            self.identities = Some(table);
        }
        self.metadata_blocks = self.next;
        Ok(())
    }

    /// The largest size of host files that are placed: all files up to it fit together.
    fn largest_placed(&self) -> u64 {
        let blocks = |size: u64| size.div_ceil(BLOCK_SIZE);
        let sizes = self.order.iter().filter_map(|&id| match self.tree.inode(id).content {
            Content::Host { size, .. } => Some(size),
            _ => None,
        });
        let max_blocks = self.tree.content_max / BLOCK_SIZE;
        if sizes.clone().fold(0, |sum: u64, size| sum.saturating_add(blocks(size))) <= max_blocks {
            return u64::MAX;
        }
        let mut sizes: Vec<u64> = sizes.collect();
        sizes.sort_unstable();
        let mut sum = 0_u64;
        let too_large = sizes.into_iter().find(|&size| {
            sum = sum.saturating_add(blocks(size));
            sum > max_blocks
        });
        too_large.map_or(u64::MAX, |size| size - 1)
    }

    /// Places the content of host files.
    fn place_data(&mut self) -> Result<(), Error> {
        let largest = self.largest_placed();
        for &id in &self.order {
            // Reading a file without a place is an error, which is better than wrong content.
            if let Content::Host { file, offset, size } = self.tree.inode(id).content
                && size > 0
                && size <= largest
            {
                let first = BlockNumber::new(self.next)?.number();
                self.spots[id.index()].first_block = Some(first);
                self.extents.push(Extent { first, file, offset, size });
                self.next = self.next.saturating_add(size.div_ceil(BLOCK_SIZE));
            }
        }
        Ok(())
    }

    fn write(&self, metadata: &mut [u8]) -> Result<(), Error> {
        for (serial, &id) in (1..).zip(&self.order) {
            let spot = &self.spots[id.index()];
            let inode = self.tree.inode(id);
            let first = spot.first_block.map(|first| BlockNumber::new(first.into())).transpose()?;
            let plain = first.map_or(DataLocation::Absent, DataLocation::Blocks);
            let location = |inline: usize| if inline == 0 { plain } else { DataLocation::Inline(first) };
            let directory;
            let (location, size, data): (DataLocation, u64, &[u8]) = match &inode.content {
                &Content::Directory { parent, .. } => {
                    directory = self.encode(id, parent);
                    (location(inline(spot.size)), spot.size as u64, &directory)
                }
                &Content::Symlink(target) => (location(inline_target(target.length.into())), target.length.into(), self.tree.text(target)),
                Content::Bytes(bytes) => (plain, bytes.len() as u64, bytes),
                &Content::Host { size, .. } => (plain, size, &[]),
                &Content::Special { kind: FileType::CharacterDevice | FileType::BlockDevice, device } => {
                    (DataLocation::Device(device), 0, &[])
                }
                Content::Special { .. } => (DataLocation::Absent, 0, &[]),
            };
            let is_directory = matches!(inode.content, Content::Directory { .. });
            // A directory's own name and `.`, besides the `..` of its subdirectories.
            let links = if is_directory { spot.names.saturating_add(2) } else { spot.names };
            let header = encode::inode(inode.content.kind(), inode.attributes, links, size, location, serial);
            let offset = spot.slot as usize * ISLOT_SIZE as usize;
            metadata[offset..offset + INODE_SIZE].copy_from_slice(&header);
            let tail_size = if let DataLocation::Inline(_) = location { data.len() % BLOCK } else { 0 };
            let (head, tail) = data.split_at(data.len() - tail_size);
            metadata[offset + INODE_SIZE..][..tail.len()].copy_from_slice(tail);
            if let Some(first) = first.filter(|_| !head.is_empty()) {
                metadata[first.number() as usize * BLOCK..][..head.len()].copy_from_slice(head);
            }
        }
        Ok(())
    }

    /// Which inodes are files of the host, if the image is to follow their changes.
    fn slots(&self) -> Vec<SlotRecord> {
        let slot = |&id: &InodeId| match self.tree.inode(id).content {
            Content::Host { file, .. } => Some(SlotRecord { slot: self.spots[id.index()].slot, file }),
            _ => None,
        };
        if self.tree.spare_blocks > 0 { self.order.iter().filter_map(slot).collect() } else { Vec::new() }
    }

    /// Writes the identity table.
    fn write_identities(&self, table: &mut [u8]) {
        let mut write = |index: usize, identity: HostIdentity| {
            table[index * HostIdentity::SIZE..][..HostIdentity::SIZE].copy_from_slice(&identity.encode());
        };
        let mut volume = None;
        for &id in &self.order {
            let (inode, spot) = (self.tree.inode(id), &self.spots[id.index()]);
            if let Some(mut identity) = inode.identity {
                volume = volume.or(identity.device);
                if !matches!(inode.content, Content::Directory { .. }) && identity.links != spot.names {
                    identity.device = None;
                }
                write(spot.slot as usize / 2, identity);
            }
        }
        write(0, HostIdentity { device: volume, ..HostIdentity::default() });
    }

    fn encode(&self, directory: InodeId, parent: InodeId) -> Vec<u8> {
        let all = self.all_children(directory, parent);
        let entry = |&(name, inode): &(&'a [u8], InodeId)| {
            let nid = Nid::new(self.spots[inode.index()].slot.into());
            Dirent { name, nid, file_type: Some(self.tree.inode(inode).content.kind()) }
        };
        encode_directory(&all.iter().map(entry).collect::<Vec<_>>())
    }
}

/// How much of a directory of this size is inline: the part of the last block, if it fits.
fn inline(size: usize) -> usize {
    let last = size % BLOCK;
    if last <= BLOCK - INODE_SIZE { last } else { 0 }
}

/// How much of a link's target is inline: all or nothing.
fn inline_target(size: usize) -> usize {
    if size <= BLOCK - INODE_SIZE { size } else { 0 }
}
