// SPDX-License-Identifier: MIT OR Apache-2.0
//! Volumes: file-system images as disks, with their mount points.

use pando_abi::{BlockNumber, PAGE_SIZE};
use pando_image::{BlockError, Image};
use pando_kernel::{Disk, DiskError};
use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// A read-only file-system image and its mount point. Nothing of it is read before a program does.
#[derive(Clone)]
pub struct Volume {
    /// Its mount point in the cell.
    pub mount_point: Vec<u8>,
    /// The image.
    pub disk: Arc<dyn Disk>,
}

impl Volume {
    /// A volume of an image.
    #[must_use]
    pub fn new(mount_point: impl Into<Vec<u8>>, image: Image) -> Volume {
        Volume::watched(mount_point, image, |_| ())
    }

    /// The same, with a callback for blocks that cannot be read: once for each host file, from vCPU threads.
    #[must_use]
    pub fn watched(mount_point: impl Into<Vec<u8>>, image: Image, report: impl Fn(&BlockError) + Send + Sync + 'static) -> Volume {
        let disk = ImageDisk { image, report: Box::new(report), reported: Mutex::default() };
        Volume { mount_point: mount_point.into(), disk: Arc::new(disk) }
    }

    /// The image's length.
    pub(crate) fn bytes(&self) -> u64 {
        self.disk.blocks().saturating_mul(PAGE_SIZE)
    }
}

/// An image as a disk.
struct ImageDisk {
    image: Image,
    report: Box<dyn Fn(&BlockError) + Send + Sync>,
    /// Files that were reported already.
    reported: Mutex<HashSet<Option<PathBuf>>>,
}

impl ImageDisk {
    fn report(&self, error: &BlockError) {
        let file = match error {
            BlockError::Changed(path) | BlockError::Host { path, .. } => Some(path.clone()),
            BlockError::Outside { .. } | BlockError::Damaged(_) => None,
        };
        // The set is consistent even if a thread panicked.
        if self.reported.lock().unwrap_or_else(PoisonError::into_inner).insert(file) {
            (self.report)(error);
        }
    }
}

impl Disk for ImageDisk {
    fn blocks(&self) -> u64 {
        self.image.blocks()
    }

    fn run(&self, first: BlockNumber) -> u64 {
        self.image.run(first.0.into())
    }

    fn read(&self, first: BlockNumber, buffer: &mut [u8]) -> Result<(), DiskError> {
        self.image.read_blocks(first.0.into(), buffer).map_err(|error| {
            self.report(&error);
            DiskError
        })
    }

    fn prefetch(&self, first: BlockNumber, buffer: &mut [u8]) -> Result<(), DiskError> {
        self.image.read_blocks(first.0.into(), buffer).map_err(|_| DiskError)
    }

    fn release_idle(&self) {
        self.image.close_files();
    }
}
