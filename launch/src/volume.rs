// SPDX-License-Identifier: MIT OR Apache-2.0
//! Volumes: images of files as disks, and where programs find them.

use pando_abi::{BlockNumber, PAGE_SIZE};
use pando_image::Image;
use pando_kernel::{Disk, DiskError};
use std::sync::Arc;

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
        Volume { mount_point: mount_point.into(), disk: Arc::new(ImageDisk(image)) }
    }

    /// How long the image is.
    pub(crate) fn bytes(&self) -> u64 {
        self.disk.blocks().saturating_mul(PAGE_SIZE)
    }
}

/// An image as a disk. Who made the image hears what is wrong with it.
struct ImageDisk(Image);

impl Disk for ImageDisk {
    fn blocks(&self) -> u64 {
        self.0.blocks()
    }

    fn run(&self, first: BlockNumber) -> u64 {
        self.0.run(first.0.into())
    }

    fn read(&self, first: BlockNumber, buffer: &mut [u8]) -> Result<(), DiskError> {
        self.0.read_blocks(first.0.into(), buffer).map_err(|_| DiskError)
    }
}
