// SPDX-License-Identifier: MIT OR Apache-2.0
//! Templates: started programs to be cloned.

mod builtin;
mod create;
mod error;
mod manifest;
mod name;
mod spec;
mod store;

use crate::environment::HostEnvironment;
use crate::report::{LongOperation, Reporter};
use crate::root::RootGuard;
use crate::view::PreparedView;
use pando_kernel::Kernel;
use pando_launch::{LaunchError, Root, Volume};
use pando_machine::PageCount;
use pando_store::TemplateFile;
use rustix::process::geteuid;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

pub use builtin::{PROGRAMS, PYTHON, PYTHON_TRAINING};
pub use create::{CellObserver, CreationContext, OutputSink, Plan};
pub use error::TemplateError;
pub use manifest::Manifest;
pub use name::{TemplateName, TemplateRef};
pub use spec::{TemplateSpec, TrainingSpec};
pub use store::{TemplateStore, VARIANTS_MAX, create_private_directory};

/// An open template.
pub struct OpenTemplate {
    saved: TemplateFile,
    manifest: Manifest,
}

impl OpenTemplate {
    /// Opens a template's file.
    ///
    /// # Errors
    /// It is damaged, or another user could have written it.
    pub fn open(path: &Path) -> Result<OpenTemplate, TemplateError> {
        let saved = TemplateFile::open(path)?;
        // The recipe lists the host files that its clones see.
        let metadata = path.metadata().map_err(|source| TemplateError::File { path: path.into(), source })?;
        if metadata.uid() != geteuid().as_raw() || metadata.mode() & 0o022 != 0 {
            return Err(TemplateError::Foreign(path.into()));
        }
        let manifest = Manifest::read(&saved, path)?;
        Ok(OpenTemplate { saved, manifest })
    }

    /// How it was created.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.manifest.name
    }

    /// Finds the files that it sees.
    ///
    /// # Errors
    /// They are missing or have changed.
    pub fn find(&self, environment: &HostEnvironment) -> Result<PreparedView, TemplateError> {
        self.manifest.find(environment)
    }

    /// Checks that a template that is created now would see the same, whatever this one has read.
    ///
    /// # Errors
    /// Files are missing or have changed.
    pub fn check_host(&self, environment: &HostEnvironment) -> Result<(), TemplateError> {
        self.manifest.without_images().find(environment).map(drop)
    }

    /// Its memory limit.
    pub fn memory(&self) -> PageCount {
        self.manifest.memory()
    }

    /// Loads it as a root of a kernel, from which clones are made. Reads the pages that clones are expected to touch.
    ///
    /// # Errors
    /// The machine lacks a feature or memory, or the file is invalid.
    pub fn load(&self, kernel: &Arc<Kernel>, view: &mut PreparedView) -> Result<RootGuard, TemplateError> {
        load_volumes(&self.saved, kernel, std::mem::take(&mut view.volumes), self.memory())
    }

    /// The number of pages in its file.
    pub fn contents(&self) -> PageCount {
        PageCount(self.saved.image().contents())
    }

    /// Whether it, or an ancestor, was frozen by force.
    pub fn is_forced(&self) -> bool {
        self.saved.image().is_forced()
    }

    /// Verifies all of its file.
    ///
    /// # Errors
    /// A part is damaged.
    pub fn check(&self, reporter: &Reporter) -> Result<(), TemplateError> {
        let progress = reporter.progress(LongOperation::CheckTemplate { bytes: self.contents().bytes() });
        Ok(self.saved.check(&mut |pages| progress.set(PageCount(pages).bytes()))?)
    }

    /// The error of a page that could not be read, if there was one.
    pub fn last_error(&self) -> Option<String> {
        self.saved.last_error()
    }
}

/// Loads a saved template with its volumes as a root of a kernel.
fn load_volumes(saved: &TemplateFile, kernel: &Arc<Kernel>, volumes: Vec<Volume>, memory: PageCount) -> Result<RootGuard, TemplateError> {
    let mut disks = Vec::new();
    let mut load = || {
        for volume in &volumes {
            disks.push(kernel.add_disk(volume.disk.clone()).map_err(LaunchError::from)?);
        }
        let (cell, pages) = saved.load(kernel, &disks, memory)?;
        disks.push(pages);
        Ok::<_, TemplateError>(cell)
    };
    let loaded = load();
    if loaded.is_err() {
        // No cell uses them.
        disks.iter().for_each(|disk| _ = kernel.remove_disk(*disk));
    }
    let root = RootGuard::new(Arc::<Kernel>::clone(kernel), Root::loaded(loaded?, volumes, disks));
    kernel.prefetch(root.cell()).map_err(LaunchError::from)?;
    Ok(root)
}
