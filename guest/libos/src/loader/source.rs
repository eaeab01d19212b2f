// SPDX-License-Identifier: MIT OR Apache-2.0
//! The source of a program's bytes: a file of a volume, or one of the overlay.

use pando_abi::{BlockAddress, BlockNumber};
use pando_rt::user::{self, UserRange};

use crate::errno::Errno;
use crate::files::tree::node::NodeId;
use crate::files::tree::volume::{ImageFile, VolumeIndex};
use crate::files::tree::{InodeRef, Tree};
use crate::files::user_copy::{copy_out, deliver};

/// A file that holds a program.
#[derive(Clone, Copy, Debug)]
pub enum ProgramSource {
    /// In a volume.
    Image(ImageFile, VolumeIndex),
    /// In the overlay.
    Node(NodeId),
}

impl ProgramSource {
    /// The file of an inode.
    ///
    /// # Errors
    /// `EACCES`: it is no regular file. `EIO`.
    pub fn new(tree: &Tree, inode: InodeRef) -> Result<ProgramSource, Errno> {
        match tree.real_inode(inode) {
            InodeRef::Image(image) => Ok(ProgramSource::Image(tree.image_file(image)?, image.volume)),
            InodeRef::Node(id) => Ok(ProgramSource::Node(id)),
            InodeRef::Proc(_) | InodeRef::Descriptor(_) => Err(Errno::EACCES),
        }
    }

    /// Bytes of the file.
    ///
    /// # Errors
    /// `ENOENT`: it is gone.
    pub fn size(&self, tree: &Tree) -> Result<u64, Errno> {
        match self {
            ProgramSource::Image(file, _) => Ok(file.size()),
            ProgramSource::Node(id) => Ok(tree.node(*id)?.content()?.size()),
        }
    }

    /// Reads into memory of the libOS, up to the end of the file or the first unreadable byte. Returns how many bytes.
    #[must_use]
    pub fn read(&self, tree: &Tree, offset: u64, buffer: &mut [u8]) -> usize {
        match self {
            ProgramSource::Image(file, _) => file.read(offset, buffer).unwrap_or_default(),
            ProgramSource::Node(id) => {
                let mut done = 0;
                let Ok(content) = tree.node(*id).and_then(|node| node.content()) else { return 0 };
                let read = content.read(offset, buffer.len() as u64, |piece| {
                    let fetched = user::fetch(piece, &mut buffer[done..done + piece.len()]);
                    done += fetched;
                    Ok(fetched)
                });
                read.map_or(0, |bytes| (bytes as usize).min(done))
            }
        }
    }

    /// Copies the file's content from `offset` on into writable memory.
    ///
    /// # Errors
    /// `EIO`; `EFAULT`.
    pub fn copy(&self, tree: &Tree, offset: u64, to: UserRange) -> Result<(), Errno> {
        let done = match self {
            ProgramSource::Image(file, _) => copy_out(file, offset, to)?,
            ProgramSource::Node(id) => {
                let mut done = 0;
                tree.node(*id)?.content()?.read(offset, to.length(), |piece| {
                    let bytes = deliver(to.part(done, piece.len() as u64), piece)?;
                    done += bytes as u64;
                    Ok(bytes)
                })?
            }
        };
        let wanted = to.length().min(self.size(tree)?.saturating_sub(offset));
        if done < wanted { Err(Errno::EIO) } else { Ok(()) }
    }

    /// The file's first block and the number after that of its last one. `None`: it must be copied.
    #[must_use]
    pub fn blocks(&self) -> Option<(BlockAddress, BlockNumber)> {
        match self {
            ProgramSource::Image(file, volume) => file.blocks(*volume),
            ProgramSource::Node(_) => None,
        }
    }
}
