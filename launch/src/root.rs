// SPDX-License-Identifier: MIT OR Apache-2.0
//! Roots: the libOS with its volumes, ready to be cloned for a program.

use crate::{LaunchError, Template, Volume};
use pando_abi::layout::{SLOT_SIZE, VOLUME_SLOTS, volume};
use pando_abi::{BlockAddress, BlockNumber, Permissions};
use pando_kernel::{CellId, Kernel};
use pando_machine::PageCount;

/// What a root may have: it never runs, so tables for its volumes are all it needs.
const QUOTA: PageCount = PageCount(1024);

/// What programs are cloned from, and never runs itself: the template with volumes, or a program that has frozen.
#[derive(Clone)]
pub struct Root {
    pub(crate) cell: CellId,
    pub(crate) volumes: Vec<Volume>,
}

impl Root {
    /// Mounts volumes, once for all programs that will see them; the first is the one at `/`. O(volumes), whatever they hold.
    ///
    /// # Errors
    /// There are too many, one is too large, or the machine is too small.
    pub fn new(kernel: &Kernel, template: Template, volumes: Vec<Volume>) -> Result<Root, LaunchError> {
        if volumes.len() > VOLUME_SLOTS {
            return Err(LaunchError::TooManyVolumes { given: volumes.len(), most: VOLUME_SLOTS });
        }
        let cell = kernel.clone_cell(template.cell(), QUOTA)?;
        let root = Root { cell, volumes };
        let mounted = root.mount(kernel);
        if mounted.is_err() {
            // Nobody else knows the cell, so it is still there to be ended.
            let _ = kernel.end(cell, pando_kernel::End::Killed);
            let _ = kernel.collect(cell);
        }
        mounted.map(|()| root)
    }

    /// A program of this root that has frozen, as what clones are made from. The cell is frozen ([`Kernel::wait_frozen`]).
    #[must_use]
    pub fn frozen(&self, cell: CellId) -> Root {
        Root { cell, volumes: self.volumes.clone() }
    }

    /// What clones are made from that another kernel made a template of these volumes, in the same order, and this one has imported.
    #[must_use]
    pub fn loaded(cell: CellId, volumes: Vec<Volume>) -> Root {
        Root { cell, volumes }
    }

    fn mount(&self, kernel: &Kernel) -> Result<(), LaunchError> {
        for (slot, Volume { mount_point, disk }) in self.volumes.iter().enumerate() {
            let pages = PageCount(disk.blocks());
            if pages.bytes() > SLOT_SIZE {
                return Err(LaunchError::VolumeTooLarge(mount_point.clone()));
            }
            let disk = kernel.attach(self.cell, kernel.add_disk(disk.clone())?)?;
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
