// SPDX-License-Identifier: MIT OR Apache-2.0
//! Roots: the libOS with its volumes, ready to be cloned for a program.

use crate::{LaunchError, Template, Volume};
use pando_abi::layout::{SLOT_SIZE, VOLUME_SLOTS, volume};
use pando_abi::{BlockAddress, BlockNumber, Permissions};
use pando_kernel::{CellId, DiskId, Kernel};
use pando_machine::PageCount;

/// What a root may have: it never runs, so tables for its volumes are all it needs.
const QUOTA: PageCount = PageCount(1024);

/// What programs are cloned from, and never runs itself: the template with volumes, or a program that has frozen.
#[derive(Clone)]
pub struct Root {
    pub(crate) cell: CellId,
    pub(crate) volumes: Vec<Volume>,
    /// The disks that are its own: the volumes, and what a saved one's pages are read from.
    disks: Vec<DiskId>,
}

impl Root {
    /// Mounts volumes, once for all programs that will see them; the first is the one at `/`. O(volumes), whatever they hold.
    ///
    /// # Errors
    /// There are too many, one is too large, or the machine is too small.
    pub fn new(kernel: &Kernel, template: &Template, volumes: Vec<Volume>) -> Result<Root, LaunchError> {
        if volumes.len() > VOLUME_SLOTS {
            return Err(LaunchError::TooManyVolumes { given: volumes.len(), most: VOLUME_SLOTS });
        }
        let cell = kernel.clone_cell(template.cell(), QUOTA)?;
        let mut root = Root { cell, volumes, disks: Vec::new() };
        match root.mount(kernel) {
            Ok(()) => Ok(root),
            Err(error) => {
                for disk in root.clear(kernel) {
                    // No cell is left that could have it.
                    let _ = kernel.remove_disk(disk);
                }
                Err(error)
            }
        }
    }

    /// A program of this root that has frozen, as what clones are made from. The cell is frozen ([`Kernel::wait_frozen`]).
    #[must_use]
    pub fn frozen(&self, cell: CellId) -> Root {
        Root { cell, volumes: self.volumes.clone(), disks: Vec::new() }
    }

    /// What clones are made from that another kernel made a template of these volumes, in the same order, and this one has imported; `disks` are no one else's.
    #[must_use]
    pub fn loaded(cell: CellId, volumes: Vec<Volume>, disks: Vec<DiskId>) -> Root {
        Root { cell, volumes, disks }
    }

    /// Closes the files of the host that its volumes keep open, now that no clone runs; they are opened again when they are read.
    pub fn rest(&self) {
        self.volumes.iter().for_each(|volume| volume.disk.rest());
    }

    /// Gives up what it has. Its clones go on; returns the disks, which can be removed ([`Kernel::remove_disk`]) once they have ended.
    pub fn clear(self, kernel: &Kernel) -> Vec<DiskId> {
        // Nobody else ends it.
        let _ = kernel.end(self.cell, pando_kernel::End::Killed);
        let _ = kernel.collect(self.cell);
        self.disks
    }

    fn mount(&mut self, kernel: &Kernel) -> Result<(), LaunchError> {
        for (slot, Volume { mount_point, disk }) in self.volumes.iter().enumerate() {
            let pages = PageCount(disk.blocks());
            if pages.bytes() > SLOT_SIZE {
                return Err(LaunchError::VolumeTooLarge(mount_point.clone()));
            }
            let id = kernel.add_disk(disk.clone())?;
            self.disks.push(id);
            let disk = kernel.attach(self.cell, id)?;
            kernel.mount_segment(self.cell, volume(slot))?;
            let first = BlockAddress { disk, block: BlockNumber(0) };
            kernel.map_blocks(self.cell, volume(slot), pages, first, Permissions::READ)?;
        }
        Ok(())
    }

    /// The cell that programs are cloned from.
    #[must_use]
    pub fn cell(&self) -> CellId {
        self.cell
    }
}
