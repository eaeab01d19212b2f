// SPDX-License-Identifier: MIT OR Apache-2.0
//! The layout of an image.
//!
//! ```text
//! block 0   the superblock
//! block 1   inodes, the root's first, each directory followed by its entries; the last part of a directory and the
//!           target of a link directly after their inodes, so that listing a tree reads few blocks
//!           the whole blocks of large directories
//!           content in memory
//!           the identity table, if the image has one
//!           room for inodes, if the image can be updated
//!           content in host files, each at the start of a block
//! ```

use std::{collections::HashMap, ops::Range, sync::Arc};

use pando_erofs::{
    BLOCK_SIZE, Dirent, FileType, HostIdentity, ISLOT_SIZE, IdentityTable, Nid, directory_size, encode_directory, xattr_icount,
};

use crate::{
    Error, Image,
    block::{BLOCK, BlockNumber},
    encode::{self, DataLocation, INODE_SIZE, write_superblock},
    host::HostBlocks,
    image::{BlockRange, BlockSource},
    store::{Blocks, Bytes},
    tables::{DirectoryRecord, Extent, Sizes, SlotRecord, Tables},
    tree::{Content, ImageTree, InodeId},
};

/// Blocks for the inodes of files that come later: a million.
const SPARE_INODE_BLOCKS: u64 = 1 << 14;

/// Takes bytes and their offset in the image.
type Put<'a> = dyn FnMut(u64, &[u8]) + 'a;

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
        let end = plan.place_inodes(vec![InodeId::ROOT], BLOCK as u64)?;
        plan.next = end.div_ceil(BLOCK_SIZE);
        plan.place_heads()?;
        plan.place_identities()?;
        plan.place_data()?;
        let mut metadata = vec![0; plan.metadata_blocks as usize * BLOCK];
        let mut put = |offset: u64, bytes: &[u8]| metadata[offset as usize..][..bytes.len()].copy_from_slice(bytes);
        plan.write(&mut put)?;
        let end = BlockNumber::new(plan.next.saturating_add(tree.spare_blocks))?;
        if let Some(table) = plan.identities {
            let device = plan.order.iter().find_map(|id| tree.inode(*id).identity?.device);
            put(u64::from(table.first_block) * BLOCK_SIZE, &HostIdentity { device, ..HostIdentity::default() }.encode());
        }
        let volume_name = plan.identities.map_or([0; 16], IdentityTable::encode);
        write_superblock(&mut metadata, plan.order.len() as u64, end, volume_name);
        let (tables, sizes) = plan.tables();
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

/// Where an update of a finished image puts its parts.
pub(crate) struct UpdateRoom {
    /// The room for new inodes, in bytes.
    pub(crate) inodes: Range<u64>,
    /// The first block behind the image.
    pub(crate) next: u64,
    pub(crate) identities: IdentityTable,
    /// The directories that get other entries, with their inodes' offsets in units of [`ISLOT_SIZE`].
    pub(crate) directories: HashMap<InodeId, u32>,
}

impl UpdateRoom {
    /// The room in an image with this identity table; `None` if the image was laid out without.
    pub(crate) fn of(blocks: u64, identities: IdentityTable) -> Option<Self> {
        let end = u64::from(identities.records) * 2 * ISLOT_SIZE / BLOCK_SIZE;
        let start = end.checked_sub(SPARE_INODE_BLOCKS).filter(|start| *start >= identities.first_block.into())?;
        Some(UpdateRoom { inodes: start * BLOCK_SIZE..end * BLOCK_SIZE, next: blocks, identities, directories: HashMap::new() })
    }
}

/// A laid-out update of a finished image.
pub(crate) struct Update<'a> {
    plan: Plan<'a>,
    /// Blocks of directories, behind the image.
    pub(crate) head_blocks: u64,
    /// Blocks of content in host files, behind those.
    pub(crate) data_blocks: u64,
}

impl<'a> Update<'a> {
    /// Lays out changed directories, and what is new in them.
    pub(crate) fn new(tree: &'a ImageTree, room: &UpdateRoom) -> Result<Self, Error> {
        let mut plan = Plan::new(tree)?;
        let mut changed: Vec<InodeId> = room.directories.keys().copied().collect();
        changed.sort_unstable();
        for (id, slot) in &room.directories {
            plan.spots[id.index()].slot = *slot;
        }
        let end = plan.place_inodes(changed, room.inodes.start)?;
        if end > room.inodes.end {
            return Err(Error::TooLarge { blocks: end / BLOCK_SIZE });
        }
        plan.next = room.next;
        plan.place_heads()?;
        plan.identities = Some(room.identities);
        plan.place_data()?;
        let (head_blocks, data_blocks) = (plan.metadata_blocks - room.next, plan.next - plan.metadata_blocks);
        Ok(Update { plan, head_blocks, data_blocks })
    }

    /// The source of the content.
    pub(crate) fn content(&self) -> HostBlocks {
        let (tables, sizes) = self.plan.tables();
        HostBlocks::new(Tables::new(Bytes::Memory(tables), sizes), [])
    }

    /// Writes the bytes that differ from the image.
    pub(crate) fn write(&self, put: &mut Put<'_>) -> Result<(), Error> {
        self.plan.write(put)
    }
}

/// The location of an inode.
#[derive(Clone, Copy, Default)]
struct InodeSpot {
    /// Its offset in units of [`ISLOT_SIZE`]; 0 if it has none.
    slot: u32,
    /// It is in the order, or lies in the image that is updated.
    is_placed: bool,
    /// A directory's bytes directly after the inode.
    inline: usize,
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
    /// Sorts the entries.
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
        let kept = |content: &Content| if let Content::Existing { slot, .. } = content { Some(*slot) } else { None };
        let spot = |slot: Option<u32>| InodeSpot { slot: slot.unwrap_or(0), is_placed: slot.is_some(), ..InodeSpot::default() };
        let spots = tree.inodes.iter().map(|inode| spot(kept(&inode.content))).collect();
        Ok(Plan { tree, sorted, starts, spots, order: Vec::new(), next: 0, metadata_blocks: 0, identities: None, extents: Vec::new() })
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

    /// Places the inodes of these directories and of all below from an offset on; returns the end. Directories with a slot keep it.
    fn place_inodes(&mut self, mut pending: Vec<InodeId>, mut offset: u64) -> Result<u64, Error> {
        pending.reverse();
        // A list instead of recursion, so that a deep tree does not overflow the stack.
        while let Some(id) = pending.pop() {
            let spot = &mut self.spots[id.index()];
            if std::mem::replace(&mut spot.is_placed, true) {
                continue;
            }
            self.order.push(id);
            let has_slot = spot.slot != 0;
            let header = INODE_SIZE + self.tree.xattrs(id).len();
            let mut length = header;
            match &self.tree.inode(id).content {
                &Content::Directory { parent, .. } => {
                    let size = directory_size(self.all_children(id, parent).iter().map(|(name, _)| *name));
                    let first = pending.len();
                    let children = self.children(id).map(|(_, child)| child);
                    pending.extend(children);
                    pending[first..].reverse();
                    self.count_names(id);
                    let spot = &mut self.spots[id.index()];
                    (spot.size, spot.inline) = (size, if has_slot { 0 } else { inline(size, header) });
                    length += spot.inline;
                }
                Content::Symlink(target) => length += inline_target(usize::from(target.length), header),
                _ => {}
            }
            if has_slot {
                continue;
            }
            // Inline data must not reach into the next block.
            let left = BLOCK - offset as usize % BLOCK;
            if length > left {
                offset += left as u64;
            }
            let slot = offset / ISLOT_SIZE;
            self.spots[id.index()].slot = u32::try_from(slot).map_err(|_| Error::TooLarge { blocks: offset / BLOCK_SIZE })?;
            offset = (offset + length as u64).next_multiple_of(ISLOT_SIZE);
        }
        Ok(offset)
    }

    /// Counts a directory's names for its entries.
    fn count_names(&mut self, directory: InodeId) {
        let range = self.starts[directory.index()] as usize..self.starts[directory.index() + 1] as usize;
        for &number in &self.sorted[range] {
            let child = self.tree.entries[number as usize].inode;
            match self.tree.inode(child).content.kind() {
                FileType::Directory => self.spots[directory.index()].names += 1,
                _ => self.spots[child.index()].names += 1,
            }
        }
    }

    /// Places the kept data that is not inline.
    fn place_heads(&mut self) -> Result<(), Error> {
        for &id in &self.order {
            let header = INODE_SIZE + self.tree.xattrs(id).len();
            let spot = &mut self.spots[id.index()];
            let size = match &self.tree.inode(id).content {
                Content::Directory { .. } => spot.size - spot.inline,
                Content::Symlink(target) => usize::from(target.length) - inline_target(target.length.into(), header),
                Content::Bytes(bytes) => bytes.len(),
                Content::Host { .. } | Content::Special { .. } | Content::Existing { .. } => 0,
            };
            if size > 0 {
                spot.first_block = Some(BlockNumber::new(self.next)?.number());
                self.next += (size as u64).div_ceil(BLOCK_SIZE);
            }
        }
        self.metadata_blocks = self.next;
        Ok(())
    }

    /// Places the identity table, and room for inodes that come later. Only the records of the present inodes are part of the metadata.
    fn place_identities(&mut self) -> Result<(), Error> {
        if !self.tree.identified {
            return Ok(());
        }
        let last = self.order.iter().map(|id| self.spots[id.index()].slot).max().unwrap_or(0);
        let mut table = IdentityTable { first_block: BlockNumber::new(self.next)?.number(), records: last / 2 + 1 };
        self.metadata_blocks = self.next + table.blocks();
        self.next = self.metadata_blocks;
        if self.tree.spare_blocks > 0 {
            // The table has a record for each inode up to the end of the room behind it, and half the size of these inodes.
            let end = 2 * (u64::from(table.first_block) + SPARE_INODE_BLOCKS);
            let records = u32::try_from(end * BLOCK_SIZE / ISLOT_SIZE / 2);
            table.records = records.map_err(|_| Error::TooLarge { blocks: end })?;
            self.next = end;
        }
        self.identities = Some(table);
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

    /// The tables of the content in host files.
    fn tables(&self) -> (Vec<u8>, Sizes) {
        let directory = |(record, id): &(DirectoryRecord, InodeId)| DirectoryRecord { slot: self.spots[id.index()].slot, ..*record };
        let directories: Vec<DirectoryRecord> = self.tree.directories.iter().map(directory).collect();
        Tables::encode(&self.extents, &self.tree.files, &directories, &self.tree.names, &self.slots())
    }

    /// Writes the inodes, their identities, and the data that is kept.
    fn write(&self, put: &mut Put<'_>) -> Result<(), Error> {
        for (serial, &id) in (1..).zip(&self.order) {
            let spot = &self.spots[id.index()];
            let inode = self.tree.inode(id);
            let first = spot.first_block.map(|first| BlockNumber::new(first.into())).transpose()?;
            let xattrs = self.tree.xattrs(id);
            let plain = first.map_or(DataLocation::Absent, DataLocation::Blocks);
            let location = |inline: usize| if inline == 0 { plain } else { DataLocation::Inline(first) };
            let directory;
            let (location, size, data): (DataLocation, u64, &[u8]) = match &inode.content {
                &Content::Directory { parent, .. } => {
                    directory = self.encode(id, parent);
                    (location(spot.inline), spot.size as u64, &directory)
                }
                &Content::Symlink(target) => {
                    let inline = inline_target(target.length.into(), INODE_SIZE + xattrs.len());
                    (location(inline), target.length.into(), self.tree.text(target))
                }
                Content::Bytes(bytes) => (plain, bytes.len() as u64, bytes),
                &Content::Host { size, .. } => (plain, size, &[]),
                &Content::Special { kind: FileType::CharacterDevice | FileType::BlockDevice, device } => {
                    (DataLocation::Device(device), 0, &[])
                }
                Content::Special { .. } | Content::Existing { .. } => (DataLocation::Absent, 0, &[]),
            };
            let is_directory = matches!(inode.content, Content::Directory { .. });
            // A directory's own name and `.`, besides the `..` of its subdirectories.
            let links = if is_directory { spot.names.saturating_add(2) } else { spot.names };
            let units = xattr_icount(xattrs.len()).ok_or(Error::TooManyNames)?;
            let kind = inode.content.kind();
            let header = encode::inode_with_xattrs(kind, inode.attributes, links, size, location, serial, units);
            let offset = u64::from(spot.slot) * ISLOT_SIZE;
            put(offset, &header);
            let tail_size = if let DataLocation::Inline(_) = location { data.len() % BLOCK } else { 0 };
            let (head, tail) = data.split_at(data.len() - tail_size);
            put(offset + INODE_SIZE as u64, xattrs);
            put(offset + (INODE_SIZE + xattrs.len()) as u64, tail);
            if let Some(first) = first.filter(|_| !head.is_empty()) {
                put(u64::from(first.number()) * BLOCK_SIZE, head);
            }
            self.write_identity(id, put);
        }
        Ok(())
    }

    /// Writes a record of the identity table.
    fn write_identity(&self, id: InodeId, put: &mut Put<'_>) {
        let (inode, spot) = (self.tree.inode(id), &self.spots[id.index()]);
        let offset = self.identities.and_then(|table| table.offset(u64::from(spot.slot) / 2));
        if let (Some(mut identity), Some(offset)) = (inode.identity, offset) {
            if !matches!(inode.content, Content::Directory { .. }) && identity.links != spot.names {
                identity.device = None;
            }
            put(offset, &identity.encode());
        }
    }

    /// Which inodes are files of the host, if the image is to follow their changes.
    fn slots(&self) -> Vec<SlotRecord> {
        let slot = |&id: &InodeId| match self.tree.inode(id).content {
            Content::Host { file, .. } => Some(SlotRecord { slot: self.spots[id.index()].slot, file }),
            _ => None,
        };
        if self.tree.spare_blocks > 0 { self.order.iter().filter_map(slot).collect() } else { Vec::new() }
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

/// How much of a directory of this size is inline, after an inode with this many bytes: the part of the last block, if it fits.
fn inline(size: usize, header: usize) -> usize {
    let last = size % BLOCK;
    if last <= BLOCK - header { last } else { 0 }
}

/// How much of a link's target is inline: all or nothing.
fn inline_target(size: usize, header: usize) -> usize {
    if size <= BLOCK - header { size } else { 0 }
}
