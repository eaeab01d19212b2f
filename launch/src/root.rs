// SPDX-License-Identifier: MIT OR Apache-2.0
//! Roots: the libOS with a root image, ready to be cloned for a program.

use crate::{LaunchError, Template};
use pando_abi::layout::ROOT_IMAGE;
use pando_abi::{LARGE_PAGE_SIZE, MapFlags, Permissions};
use pando_image::Builder;
use pando_kernel::{CellId, Kernel};
use pando_machine::PageCount;

/// Tables and pages besides the image itself.
const OVERHEAD: PageCount = PageCount(1024);

/// An image that lies in the cell, and where programs find its files.
#[derive(Clone, Debug)]
pub(crate) struct Volume {
    /// The directory that its root stands for.
    pub(crate) mount_point: Vec<u8>,
    /// How long it is.
    pub(crate) bytes: u64,
}

/// A clone of the template with its volumes, which never runs itself.
#[derive(Clone, Debug)]
pub struct Root {
    pub(crate) cell: CellId,
    pub(crate) volumes: Vec<Volume>,
}

impl Root {
    /// Writes an image into memory, once for all programs that will see it.
    ///
    /// # Errors
    /// A file changed or cannot be read, or the machine is too small for them.
    pub fn new(kernel: &Kernel, template: Template, files: Builder) -> Result<Root, LaunchError> {
        let image = files.image()?;
        let pages = PageCount::covering(image.size());
        // A table for every large page, at worst.
        let quota = PageCount(pages.0 + pages.0 / 512 + OVERHEAD.0);
        if quota > kernel.free() {
            return Err(LaunchError::ImageTooLarge(pages));
        }
        let cell = kernel.clone_cell(template.cell(), quota)?;
        let root = Root { cell, volumes: vec![Volume { mount_point: b"/".to_vec(), bytes: image.size() }] };
        let loaded = root.load(kernel, &image, pages);
        if loaded.is_err() {
            // Nobody else knows the cell, so it is still there to be ended.
            let _ = kernel.end(cell, pando_kernel::End::Killed);
            let _ = kernel.collect(cell);
        }
        loaded.map(|()| root)
    }

    fn load(&self, kernel: &Kernel, image: &pando_image::Image, pages: PageCount) -> Result<(), LaunchError> {
        kernel.mount_segment(self.cell, ROOT_IMAGE)?;
        let large = pages.bytes() >= LARGE_PAGE_SIZE;
        kernel.map(self.cell, ROOT_IMAGE, pages, MapFlags { permissions: Permissions::READ, eager: false, large })?;
        image.write_to(&mut |offset, piece| kernel.write(self.cell, ROOT_IMAGE + offset, piece).map_err(LaunchError::from))
    }

    /// The cell that programs are cloned from.
    #[must_use]
    pub fn cell(&self) -> CellId {
        self.cell
    }
}
