// SPDX-License-Identifier: MIT OR Apache-2.0
//! The files behind mappings (`/proc/self/maps`), for debuggers, runtimes that look for their own code, and backtraces.

use alloc::collections::BTreeMap;

use pando_abi::{BlockNumber, DiskIndex, PAGE_SIZE};

use super::AddressSpace;
use super::regions::Backing;
use crate::files::OpenName;
use crate::files::tree::InodeRef;
use crate::files::tree::node::NodeId;

/// Further files are forgotten once no mapping shows them.
const KEPT: usize = 64;

/// The identity of a file, as a mapping knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    /// The disk and the number after that of the file's last block.
    Blocks(DiskIndex, BlockNumber),
    Node(NodeId),
}

impl Key {
    fn of(backing: Backing) -> Option<Key> {
        match backing {
            Backing::Blocks(blocks) => Some(Key::Blocks(blocks.disk(), blocks.end_block())),
            Backing::Node(pages) | Backing::Beyond(Some(pages)) => Some(Key::Node(pages.node)),
            _ => None,
        }
    }
}

/// A file that is mapped.
#[derive(Clone, Debug)]
pub struct FileMapping {
    /// The file's inode.
    pub inode: InodeRef,
    /// The name by which it was found.
    pub name: Option<OpenName>,
    /// Its first block, if it lies in blocks.
    first: BlockNumber,
}

/// The files that are mapped.
#[derive(Clone, Debug, Default)]
pub struct MappedFiles(BTreeMap<Key, FileMapping>);

impl AddressSpace {
    /// Records the file of a mapping. `first`: its first block, if it lies in blocks.
    pub fn record_file_mapping(&mut self, backing: Backing, first: BlockNumber, inode: InodeRef, name: Option<OpenName>) {
        if self.mapped_files.0.len() > KEPT + 2 * self.regions.count() {
            let all = self.all();
            self.mapped_files.0.retain(|key, _| all.iter().any(|(_, region)| Key::of(region.backing) == Some(*key)));
        }
        if let Some(key) = Key::of(backing) {
            self.mapped_files.0.insert(key, FileMapping { inode, name, first });
        }
    }

    /// The file of a mapping, and the offset in it of `address`.
    #[must_use]
    pub fn file_mapping(&self, backing: Backing, address: u64) -> Option<(&FileMapping, u64)> {
        let mapping = self.mapped_files.0.get(&Key::of(backing)?)?;
        let offset = match backing {
            Backing::Blocks(blocks) => u64::from(blocks.at(address).block.0.wrapping_sub(mapping.first.0)) * PAGE_SIZE,
            Backing::Node(pages) | Backing::Beyond(Some(pages)) => pages.at(address),
            _ => 0,
        };
        Some((mapping, offset))
    }
}
