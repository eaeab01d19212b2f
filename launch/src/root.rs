// SPDX-License-Identifier: MIT OR Apache-2.0
//! Roots: the libOS with its volumes, ready to be cloned for programs.

use crate::{LaunchError, Template, Volume};
use pando_abi::boot_info::VolumesHeader;
use pando_abi::layout::{SLOT_SIZE, VOLUME_SLOTS, VOLUMES, VOLUMES_SIZE, volume};
use pando_abi::{BlockAddress, BlockNumber, Permissions};
use pando_kernel::{CellId, DiskId, Kernel};
use pando_machine::PageCount;

/// A root's memory quota: it never runs, so it needs only tables for its volumes.
const QUOTA: PageCount = PageCount(1024);

/// Volumes as disks of a kernel, before a root mounts them.
pub struct VolumeDisks {
    pub(crate) volumes: Vec<Volume>,
    pub(crate) disks: Vec<DiskId>,
}

impl VolumeDisks {
    /// Adds volumes to a kernel. Nothing of them is read.
    ///
    /// # Errors
    /// There are too many.
    pub fn add(kernel: &Kernel, volumes: Vec<Volume>) -> Result<VolumeDisks, LaunchError> {
        if volumes.len() > VOLUME_SLOTS {
            return Err(LaunchError::TooManyVolumes { given: volumes.len(), most: VOLUME_SLOTS });
        }
        let mut disks = Vec::with_capacity(volumes.len());
        for volume in &volumes {
            match kernel.add_disk(volume.disk.clone()) {
                Ok(disk) => disks.push(disk),
                Err(error) => {
                    remove(kernel, disks);
                    return Err(error.into());
                }
            }
        }
        Ok(VolumeDisks { volumes, disks })
    }
}

/// Removes disks that no cell uses.
fn remove(kernel: &Kernel, disks: Vec<DiskId>) {
    for disk in disks {
        let _ = kernel.remove_disk(disk);
    }
}

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
        Root::of_disks(kernel, template, VolumeDisks::add(kernel, volumes)?)
    }

    /// The same for volumes that are disks already.
    ///
    /// # Errors
    /// One is too large, or there is not enough memory.
    pub fn of_disks(kernel: &Kernel, template: &Template, VolumeDisks { volumes, disks }: VolumeDisks) -> Result<Root, LaunchError> {
        let cell = match kernel.clone_cell(template.cell(), QUOTA) {
            Ok(cell) => cell,
            Err(error) => {
                remove(kernel, disks);
                return Err(error.into());
            }
        };
        let root = Root { cell, volumes, disks };
        match root.mount(kernel, &root.disks) {
            Ok(()) => Ok(root),
            Err(error) => {
                remove(kernel, root.clear(kernel));
                Err(error)
            }
        }
    }

    /// A root without a program that mounts the volumes of `root`, which may be a frozen program: nested cells of its clones are cloned
    /// from it. It uses the disks of `root`, so it must be cleared before.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn for_nesting(kernel: &Kernel, template: &Template, root: &Root) -> Result<Root, LaunchError> {
        let cell = kernel.clone_cell(template.cell(), QUOTA)?;
        let plain = Root { cell, volumes: root.volumes.clone(), disks: Vec::new() };
        if let Err(error) = plain.mount(kernel, &root.disks) {
            plain.clear(kernel);
            return Err(error);
        }
        Ok(plain)
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

    /// Its volumes, the first mounted at `/`.
    #[must_use]
    pub fn volumes(&self) -> &[Volume] {
        &self.volumes
    }

    /// Closes the host files that its volumes keep open, when no clone runs; they are reopened when they are read.
    pub fn release_idle(&self) {
        self.volumes.iter().for_each(|volume| volume.disk.release_idle());
    }

    /// Releases its cell. Its clones continue. Returns the disks, which can be removed ([`Kernel::remove_disk`]) once the clones have
    /// ended.
    pub fn clear(self, kernel: &Kernel) -> Vec<DiskId> {
        // Nothing else terminates it.
        let _ = kernel.end(self.cell, pando_kernel::End::Killed);
        let _ = kernel.collect(self.cell);
        self.disks
    }

    /// Mounts the volumes, whose disks are the first of `disks`.
    fn mount(&self, kernel: &Kernel, disks: &[DiskId]) -> Result<(), LaunchError> {
        for (slot, (Volume { mount_point, disk, .. }, id)) in self.volumes.iter().zip(disks).enumerate() {
            let pages = PageCount(disk.blocks());
            if pages.bytes() > SLOT_SIZE {
                return Err(LaunchError::VolumeTooLarge(mount_point.clone()));
            }
            let disk = kernel.attach(self.cell, *id)?;
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
