// SPDX-License-Identifier: MIT OR Apache-2.0
//! A template in a file.

use crate::error::Error;
use crate::features;
use crate::format::{HEADER, Header, Index, index_matches};
use crate::pages::Pages;
use pando_kernel::{CellId, CellImage, Disk, DiskId, Kernel};
use pando_machine::PageCount;
use rustix::fs::{Mode, OFlags, open};
use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An open template file: its description in memory, and its pages, which are read on first access. The file must not
/// change while pages may be read; another may be renamed to its path.
pub struct TemplateFile {
    path: PathBuf,
    image: CellImage,
    metadata: Vec<u8>,
    features: Vec<u32>,
    pages: Arc<Pages>,
}

impl fmt::Debug for TemplateFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TemplateFile({:?} in {})", self.image, self.path.display())
    }
}

impl TemplateFile {
    /// Opens a file and reads its index: some bytes for each 64 KiB of content.
    ///
    /// # Errors
    /// It cannot be read, is no saved template, or is damaged.
    pub fn open(path: &Path) -> Result<TemplateFile, Error> {
        let failed = |source| Error::Read { path: path.into(), source };
        let damaged = |what| Error::Damaged { path: path.into(), what };
        // The path may be anything: opening a FIFO would wait for a writer.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file: File = open(path, flags, Mode::empty()).map_err(|errno| failed(errno.into()))?.into();
        let found = file.metadata().map_err(failed)?;
        let mut header = [0; HEADER];
        if !found.is_file() || found.len() < HEADER as u64 {
            return Err(Error::Other { path: path.into() });
        }
        file.read_exact_at(&mut header, 0).map_err(failed)?;
        let Header { index: start, end } = Header::decode(&header, found.len(), path)?;
        if !index_matches(&file, &header, Header { index: start, end }).map_err(failed)? {
            return Err(damaged("the checksum of its index is wrong"));
        }
        let mut bytes = vec![0; (end - start) as usize];
        file.read_exact_at(&mut bytes, start).map_err(failed)?;
        if (Header { index: start, end }).encode(&bytes) != header {
            return Err(damaged("the checksum of its index is wrong"));
        }
        let Index { image, metadata, features, runs, stored, chunks } =
            postcard::from_bytes(&bytes).map_err(|_| damaged("its index cannot be decoded"))?;
        let pages = Pages::new(file, &runs, stored, &chunks, start);
        let pages = pages.filter(|pages| pages.blocks() == image.contents()).ok_or(damaged("its index is inconsistent"))?;
        Ok(TemplateFile { path: path.into(), image, metadata, features, pages: Arc::new(pages) })
    }

    /// The metadata that it was saved with.
    #[must_use]
    pub fn metadata(&self) -> &[u8] {
        &self.metadata
    }

    /// The description of the template, without its pages.
    #[must_use]
    pub fn image(&self) -> &CellImage {
        &self.image
    }

    /// Its pages.
    #[must_use]
    pub fn contents(&self) -> Arc<dyn Disk> {
        Arc::clone(&self.pages) as Arc<dyn Disk>
    }

    /// Verifies the checksums of all stored pages, and reports the number of pages so far.
    ///
    /// # Errors
    /// A part cannot be read, or is damaged.
    pub fn check(&self, done: &mut dyn FnMut(u64)) -> Result<(), Error> {
        self.pages.check(done).map_err(|()| Error::Damaged { path: self.path.clone(), what: "the checksum of a page is wrong" })
    }

    /// The reason why a page of it could not be read, if that has happened, to explain the end of a cell.
    #[must_use]
    pub fn last_error(&self) -> Option<String> {
        self.pages.last_error().map(|last_error| format!("{}: {last_error}", self.path.display()))
    }

    /// Checks that the kernel's machine has the features with which the template was started.
    ///
    /// # Errors
    /// The error names the missing features.
    pub fn check_cpu(&self, kernel: &Kernel) -> Result<(), Error> {
        match features::missing(&self.features, &features::of(&kernel.machine().cpuid())) {
            Some(missing) => Err(Error::Cpu { missing }),
            None => Ok(()),
        }
    }

    /// Imports it into a kernel. `disks` are those that were attached to it, in the same order. It reads none of its
    /// pages. Returns also the disk of the pages, which can be removed once the template and all its clones have ended.
    ///
    /// # Errors
    /// The machine is another, the disks are not those that it needs, the file has values that no kernel writes, or
    /// there is not enough memory.
    pub fn load(&self, kernel: &Kernel, disks: &[DiskId], quota: PageCount) -> Result<(CellId, DiskId), Error> {
        self.check_cpu(kernel)?;
        let contents = kernel.add_disk(self.contents())?;
        let imported = kernel.import(&self.image, contents, disks, quota);
        if imported.is_err() {
            // No cell uses it.
            kernel.remove_disk(contents)?;
        }
        Ok((imported?, contents))
    }
}
