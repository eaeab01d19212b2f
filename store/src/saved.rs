// SPDX-License-Identifier: MIT OR Apache-2.0
//! A template in a file.

use crate::error::Error;
use crate::features;
use crate::format::{HEADER, Header, Index, is_whole};
use crate::pages::Pages;
use pando_kernel::{CellId, CellImage, Disk, DiskId, Kernel};
use pando_machine::PageCount;
use rustix::fs::{Mode, OFlags, open};
use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A template in a file that was opened: all that it is but its pages, which are read when they are touched. The file must stay as it is as long as anybody touches them; another may be put in its place.
pub struct Saved {
    path: PathBuf,
    image: CellImage,
    metadata: Vec<u8>,
    features: Vec<u32>,
    pages: Arc<Pages>,
}

impl fmt::Debug for Saved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Saved({:?} in {})", self.image, self.path.display())
    }
}

impl Saved {
    /// Opens a file. Reads its index: some bytes for each 64 KiB of content.
    ///
    /// # Errors
    /// It cannot be read, is no saved template, or is damaged.
    pub fn open(path: &Path) -> Result<Saved, Error> {
        let failed = |source| Error::Read { path: path.into(), source };
        let damaged = |what| Error::Damaged { path: path.into(), what };
        // Whatever stands at that path: a FIFO would let this wait for a writer.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file: File = open(path, flags, Mode::empty()).map_err(|errno| failed(errno.into()))?.into();
        let found = file.metadata().map_err(failed)?;
        let mut header = [0; HEADER];
        if !found.is_file() || found.len() < HEADER as u64 {
            return Err(Error::Other { path: path.into() });
        }
        file.read_exact_at(&mut header, 0).map_err(failed)?;
        let Header { index: start, end } = Header::decode(&header, found.len(), path)?;
        if !is_whole(&file, &header, Header { index: start, end }).map_err(failed)? {
            return Err(damaged("its index is not as it was written"));
        }
        let mut bytes = vec![0; (end - start) as usize];
        file.read_exact_at(&mut bytes, start).map_err(failed)?;
        if (Header { index: start, end }).encode(&bytes) != header {
            return Err(damaged("its index is not as it was written"));
        }
        let Index { image, metadata, features, runs, stored, chunks } =
            postcard::from_bytes(&bytes).map_err(|_| damaged("its index says nothing that makes sense"))?;
        let pages = Pages::new(file, &runs, stored, &chunks, start);
        let pages = pages.filter(|pages| pages.blocks() == image.contents()).ok_or(damaged("its index contradicts itself"))?;
        Ok(Saved { path: path.into(), image, metadata, features, pages: Arc::new(pages) })
    }

    /// The words that it was saved with.
    #[must_use]
    pub fn metadata(&self) -> &[u8] {
        &self.metadata
    }

    /// What the template is, without its pages.
    #[must_use]
    pub fn image(&self) -> &CellImage {
        &self.image
    }

    /// Its pages.
    #[must_use]
    pub fn contents(&self) -> Arc<dyn Disk> {
        Arc::clone(&self.pages) as Arc<dyn Disk>
    }

    /// Compares all that is stored with its checksums; tells how many pages were.
    ///
    /// # Errors
    /// Something cannot be read, or is not as it was written.
    pub fn check(&self, done: &mut dyn FnMut(u64)) -> Result<(), Error> {
        self.pages.check(done).map_err(|()| Error::Damaged { path: self.path.clone(), what: "a page of it is not as it was written" })
    }

    /// Why a page of it could not be read, if that has happened: for whoever tells the end of a cell that missed it.
    #[must_use]
    pub fn complaint(&self) -> Option<String> {
        self.pages.complaint().map(|complaint| format!("{}: {complaint}", self.path.display()))
    }

    /// Checks that the kernel's machine has what the template was started with.
    ///
    /// # Errors
    /// Names what is missing.
    pub fn check_cpu(&self, kernel: &Kernel) -> Result<(), Error> {
        match features::missing(&self.features, &features::of(&kernel.machine().cpuid())) {
            Some(missing) => Err(Error::Cpu { missing }),
            None => Ok(()),
        }
    }

    /// Makes it a template of a kernel. `disks` are those that were attached to it, in the same order. Reads nothing of its pages. Returns the disk that they are, too: it can be removed once the template and all its
    /// clones have ended.
    ///
    /// # Errors
    /// The machine is another, the disks are not those that it needs, the file says what no kernel would have, or there is not enough memory.
    pub fn load(&self, kernel: &Kernel, disks: &[DiskId], quota: PageCount) -> Result<(CellId, DiskId), Error> {
        self.check_cpu(kernel)?;
        let contents = kernel.add_disk(self.contents())?;
        let imported = kernel.import(&self.image, contents, disks, quota);
        if imported.is_err() {
            // Nobody else knows it.
            kernel.remove_disk(contents)?;
        }
        Ok((imported?, contents))
    }
}
