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
    image: Arc<ImageDisk>,
}

impl Volume {
    /// A volume of an image.
    #[must_use]
    pub fn new(mount_point: impl Into<Vec<u8>>, image: Image) -> Volume {
        Volume::watched(mount_point, image, |_, _| ())
    }

    /// The same, with a callback for blocks that cannot be read, from vCPU threads: once for each host file, and again once the image
    /// [is stale](Image::is_stale), which the callback is told.
    #[must_use]
    pub fn watched(mount_point: impl Into<Vec<u8>>, image: Image, report: impl Fn(&BlockError, bool) + Send + Sync + 'static) -> Volume {
        let image = Arc::new(ImageDisk { image, report: Box::new(report), reported: Mutex::default() });
        Volume { mount_point: mount_point.into(), disk: Arc::<ImageDisk>::clone(&image), image }
    }

    /// Its image.
    #[must_use]
    pub fn image(&self) -> &Image {
        &self.image.image
    }

    /// The image's length.
    pub(crate) fn bytes(&self) -> u64 {
        self.disk.blocks().saturating_mul(PAGE_SIZE)
    }
}

/// Receives errors of blocks, each with whether the image is stale.
type BlockReport = Box<dyn Fn(&BlockError, bool) + Send + Sync>;

/// An image as a disk.
struct ImageDisk {
    image: Image,
    report: BlockReport,
    /// Files that were reported already, each with whether the image was stale.
    reported: Mutex<HashSet<(Option<PathBuf>, bool)>>,
}

impl ImageDisk {
    fn report(&self, error: &BlockError) {
        let file = match error {
            BlockError::Changed(path) | BlockError::Host { path, .. } => Some(path.clone()),
            BlockError::Outside { .. } | BlockError::NoFile { .. } | BlockError::Damaged(_) => None,
        };
        let is_stale = self.image.is_stale();
        // The set is consistent even if a thread panicked.
        if self.reported.lock().unwrap_or_else(PoisonError::into_inner).insert((file, is_stale)) {
            (self.report)(error, is_stale);
        }
    }
}

impl Disk for ImageDisk {
    fn blocks(&self) -> u64 {
        self.image.blocks()
    }

    fn contiguous_blocks(&self, first: BlockNumber) -> u64 {
        self.image.run(first.0.into())
    }

    fn read(&self, first: BlockNumber, buffer: &mut [u8]) -> Result<(), DiskError> {
        self.image.read_blocks(first.0.into(), buffer).map_err(|error| {
            // Readahead reaches behind the last file.
            if !matches!(error, BlockError::NoFile { .. }) {
                self.report(&error);
            }
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
