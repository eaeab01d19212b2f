// SPDX-License-Identifier: MIT OR Apache-2.0
//! Roots: the libOS with its volumes, ready to be cloned for programs.

use crate::{LaunchError, Template, Volume};
use pando_abi::layout::{SLOT_SIZE, VOLUME_SLOTS, VOLUMES, VOLUMES_SIZE, volume};
use pando_abi::note::VolumesHeader;
use pando_abi::{BlockAddress, BlockNumber, Permissions};
use pando_kernel::{CellId, DiskId, Kernel};
use pando_machine::PageCount;

/// A root's memory quota: it never runs, so it needs only tables for its volumes.
const QUOTA: PageCount = PageCount(1024);

/// The origin of programs' clones, which never runs itself: the template with volumes, or a frozen program.
#[derive(Clone)]
pub struct Root {
    pub(crate) cell: CellId,
    pub(crate) volumes: Vec<Volume>,
    /// The disks that it owns: the volumes, and that with the pages of a saved template.
    disks: Vec<DiskId>,
}

impl Root {
    /// Mounts volumes, once for all programs that see them; the first is mounted at `/`. O(volumes), independent of their content.
    ///
    /// # Errors
    /// There are too many, one is too large, or there is not enough memory.
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
                    // No cell uses it.
                    let _ = kernel.remove_disk(disk);
                }
                Err(error)
            }
        }
    }

    /// A frozen program of this root as a root for clones. The cell must be frozen ([`Kernel::wait_frozen`]).
    #[must_use]
    pub fn frozen(&self, cell: CellId) -> Root {
        Root { cell, volumes: self.volumes.clone(), disks: Vec::new() }
    }

    /// A root of another kernel with these volumes, in the same order, that this kernel has imported. It takes ownership of `disks`.
    #[must_use]
    pub fn loaded(cell: CellId, volumes: Vec<Volume>, disks: Vec<DiskId>) -> Root {
        Root { cell, volumes, disks }
    }

    /// Closes the host files that its volumes keep open, when no clone runs; they are reopened when they are read.
    pub fn rest(&self) {
        self.volumes.iter().for_each(|volume| volume.disk.rest());
    }

    /// Releases its cell. Its clones continue. Returns the disks, which can be removed ([`Kernel::remove_disk`]) once the clones have
    /// ended.
    pub fn clear(self, kernel: &Kernel) -> Vec<DiskId> {
        // Nothing else terminates it.
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
        Ok(kernel.write(self.cell, VOLUMES, &self.volume_table()?)?)
    }

    /// The bytes of the table of volumes, which the cell finds at [`VOLUMES`].
    fn volume_table(&self) -> Result<Vec<u8>, LaunchError> {
        let points: Vec<u8> = self.volumes.iter().flat_map(|volume| volume.mount_point.iter().copied().chain([0])).collect();
        let most = VOLUMES_SIZE as usize - VolumesHeader::SIZE;
        if points.len() > most {
            return Err(LaunchError::MountPointsTooLong { given: points.len(), most });
        }
        let mut volume_bytes = [0; VOLUME_SLOTS];
        for (room, volume) in volume_bytes.iter_mut().zip(&self.volumes) {
            *room = volume.bytes();
        }
        // Numbers of volumes, and sizes within the table, fit into 32 bits.
        let header = VolumesHeader { volumes: self.volumes.len() as u32, bytes: points.len() as u32, volume_bytes };
        Ok(header.to_bytes().into_iter().chain(points).collect())
    }

    /// The cell from which programs are cloned.
    #[must_use]
    pub fn cell(&self) -> CellId {
        self.cell
    }
}
