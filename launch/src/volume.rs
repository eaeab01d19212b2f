// SPDX-License-Identifier: MIT OR Apache-2.0
//! Volumes: images of files as disks, and where programs find them.

use pando_abi::{BlockNumber, PAGE_SIZE};
use pando_image::{BlockError, Image};
use pando_kernel::{Disk, DiskError};
use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// A read-only image of files, and the directory that its root stands for. Nothing of it is read before a program asks.
#[derive(Clone)]
pub struct Volume {
    /// Where it is mounted, as the cell sees it.
    pub mount_point: Vec<u8>,
    /// The image.
    pub disk: Arc<dyn Disk>,
}

impl Volume {
    /// An image, and where it is mounted.
    #[must_use]
    pub fn new(mount_point: impl Into<Vec<u8>>, image: Image) -> Volume {
        Volume::watched(mount_point, image, |_| ())
    }

    /// An image, where it is mounted, and who is told when blocks cannot be read: once for each file of the host. Called from vCPU threads.
    #[must_use]
    pub fn watched(mount_point: impl Into<Vec<u8>>, image: Image, report: impl Fn(&BlockError) + Send + Sync + 'static) -> Volume {
        let disk = ImageDisk { image, report: Box::new(report), reported: Mutex::default() };
        Volume { mount_point: mount_point.into(), disk: Arc::new(disk) }
    }

    /// How long the image is.
    pub(crate) fn bytes(&self) -> u64 {
        self.disk.blocks().saturating_mul(PAGE_SIZE)
    }
}

/// An image as a disk.
struct ImageDisk {
    image: Image,
    report: Box<dyn Fn(&BlockError) + Send + Sync>,
    /// What was reported already.
    reported: Mutex<HashSet<Option<PathBuf>>>,
}

impl ImageDisk {
    fn report(&self, error: &BlockError) {
        let file = match error {
            BlockError::Changed(path) | BlockError::Host { path, .. } => Some(path.clone()),
            BlockError::Outside { .. } | BlockError::Damaged(_) => None,
        };
        // The set is whole whatever a thread was doing when it panicked.
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

    fn rest(&self) {
        self.image.close_files();
    }
}
