// SPDX-License-Identifier: MIT OR Apache-2.0
//! Templates: started programs to be cloned.

mod builtin;
mod create;
mod manifest;
mod place;

use crate::cli::{Limits, ViewOptions};
use crate::failure::Failure;
use crate::guards::RootGuard;
use crate::progress::Progress;
use crate::view::ViewRequest;
pub(crate) use builtin::PROGRAM;
use clap::Args;
pub(crate) use create::{Plan, create};
pub(crate) use manifest::Manifest;
use pando_kernel::limits::TRACES;
use pando_kernel::{CellId, Kernel};
use pando_launch::{LaunchError, Root, Volume};
use pando_machine::PageCount;
use pando_store::TemplateFile;
pub(crate) use place::{TemplateName, VARIANTS_MAX, all, directory, draw, file, keep_first, make as make_directory, variants};
use rustix::process::geteuid;
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tempfile::NamedTempFile;

/// The time limit of a training clone that was not requested: a server would never end.
const TRAINING_MAX: Duration = Duration::from_secs(3);

/// Options of `pando template create`.
#[derive(Clone, Debug, Args)]
pub(crate) struct Create {
    #[command(flatten)]
    pub(crate) seen: ViewOptions,

    #[command(flatten)]
    pub(crate) limits: Limits,

    /// Replace the template of this name, if there is one
    #[arg(long)]
    pub(crate) replace: bool,

    /// Train: run a clone to its end, without time limit, and record which memory it touches, so that later clones have it before they
    /// run. Its output is not shown [default: one clone without arguments, for three seconds]
    #[arg(long)]
    pub(crate) train: bool,

    /// Do not train
    #[arg(long, conflicts_with_all = ["train", "train_arg", "train_count"])]
    pub(crate) no_train: bool,

    /// Train, and give the clone an argument (repeatable)
    #[arg(long, value_name = "ARG", allow_hyphen_values = true)]
    pub(crate) train_arg: Vec<OsString>,

    /// Train with this many clones, one after the other: later clones get the memory that most of them touched
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=TRACES as i64))]
    pub(crate) train_count: Option<u32>,

    /// Start the program K times; each clone is made from one of these variants at random, so that memory layouts differ
    #[arg(long, value_name = "K", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=i64::from(place::VARIANTS_MAX)))]
    pub(crate) variants: u32,

    /// The template's name
    #[arg(value_name = "NAME")]
    pub(crate) name: TemplateName,

    /// The program and its arguments, as for `pando run`
    #[arg(value_name = "PROGRAM [ARGS]", num_args = 1.., required = true, trailing_var_arg = true)]
    pub(crate) words: Vec<OsString>,

    /// It is a built-in one with its default options.
    #[arg(skip)]
    pub(crate) standard: bool,
}

/// The training of a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Training {
    /// The number of clones, run one after the other.
    clones: u32,
    /// The time limit of each; `None`: none.
    most: Option<Duration>,
    /// It was requested, so failures are reported.
    is_asked: bool,
}

impl Create {
    /// Its training.
    fn training(&self) -> Training {
        let is_asked = self.train || !self.train_arg.is_empty() || self.train_count.is_some();
        let clones = if self.no_train { 0 } else { self.train_count.unwrap_or(1) };
        let most = self.limits.timeout;
        let most = if is_asked { most } else { Some(most.map_or(TRAINING_MAX, |most| most.min(TRAINING_MAX))) };
        Training { clones, most, is_asked }
    }
}

/// A reference to a template: its name or its file.
#[derive(Clone, Debug)]
pub(crate) enum TemplateRef {
    /// A stored template.
    Kept(TemplateName),
    /// A path, which contains a slash.
    File(PathBuf),
}

impl std::str::FromStr for TemplateRef {
    type Err = String;

    fn from_str(text: &str) -> Result<TemplateRef, String> {
        if text.contains('/') { Ok(TemplateRef::File(text.into())) } else { text.parse().map(TemplateRef::Kept) }
    }
}

impl TemplateRef {
    /// Its file.
    pub(crate) fn path(&self) -> Result<PathBuf, Failure> {
        match self {
            TemplateRef::File(path) => Ok(path.clone()),
            TemplateRef::Kept(name) => place::draw(name),
        }
    }
}

/// An open template.
pub(crate) struct OpenTemplate {
    saved: TemplateFile,
    manifest: Manifest,
}

impl OpenTemplate {
    /// Opens a template.
    ///
    /// # Errors
    /// There is none, or its file is damaged.
    pub(crate) fn open(which: &TemplateRef) -> Result<OpenTemplate, Failure> {
        let path = which.path()?;
        if let (TemplateRef::Kept(name), false) = (which, path.exists()) {
            return Err(Failure::NoTemplate(name.to_string()));
        }
        let saved = TemplateFile::open(&path)?;
        // The recipe lists the host files that its clones see.
        let metadata = path.metadata().map_err(|source| Failure::Templates { path: path.clone(), source })?;
        if metadata.uid() != geteuid().as_raw() || metadata.mode() & 0o022 != 0 {
            return Err(Failure::Foreign(path));
        }
        let manifest = Manifest::of(&saved, &path)?;
        Ok(OpenTemplate { saved, manifest })
    }

    /// How it was created.
    pub(crate) fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Its name.
    pub(crate) fn name(&self) -> &str {
        &self.manifest.name
    }

    /// Finds the files that it sees.
    ///
    /// # Errors
    /// They are missing or have changed.
    pub(crate) fn find(&self) -> Result<ViewRequest, Failure> {
        self.manifest.find()
    }

    /// Its memory limit.
    pub(crate) fn memory(&self) -> PageCount {
        self.manifest.memory()
    }

    /// Loads it as a root of a kernel, from which clones are made. Reads the pages that clones are expected to touch.
    ///
    /// # Errors
    /// The machine lacks a feature or memory, or the file is invalid.
    pub(crate) fn load(&self, kernel: &Arc<Kernel>, asked: &mut ViewRequest) -> Result<RootGuard, Failure> {
        load_volumes(&self.saved, kernel, std::mem::take(&mut asked.volumes), self.memory())
    }

    /// Stores a frozen clone as a template of its own; see [`pando_store::save`].
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn keep(&self, kernel: &Kernel, clone: CellId, name: &TemplateName) -> Result<(), Failure> {
        let manifest = self.manifest.renamed(name);
        pando_store::save(kernel, clone, &place::file(name)?, &manifest.encode())?;
        place::keep_first(name, 1)
    }

    /// The number of pages in its file.
    pub(crate) fn contents(&self) -> PageCount {
        PageCount(self.saved.image().contents())
    }

    /// Whether it, or an ancestor, was frozen by force.
    pub(crate) fn is_forced(&self) -> bool {
        self.saved.image().is_forced()
    }

    /// Verifies all of its file.
    ///
    /// # Errors
    /// A part is damaged.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let progress = Progress::bytes("checking", self.contents().bytes());
        Ok(self.saved.check(&mut |pages| progress.set(PageCount(pages).bytes()))?)
    }

    /// The error of a page that could not be read, if there was one.
    pub(crate) fn last_error(&self) -> Option<String> {
        self.saved.last_error()
    }
}

/// Loads a saved template with its volumes as a root of a kernel.
fn load_volumes(saved: &TemplateFile, kernel: &Arc<Kernel>, volumes: Vec<Volume>, memory: PageCount) -> Result<RootGuard, Failure> {
    let mut disks = Vec::new();
    let mut load = || {
        for volume in &volumes {
            disks.push(kernel.add_disk(volume.disk.clone()).map_err(LaunchError::from)?);
        }
        let (cell, pages) = saved.load(kernel, &disks, memory)?;
        disks.push(pages);
        Ok::<_, Failure>(cell)
    };
    let loaded = load();
    if loaded.is_err() {
        // No cell uses them.
        disks.iter().for_each(|disk| _ = kernel.remove_disk(*disk));
    }
    let root = RootGuard::new(kernel, Root::loaded(loaded?, volumes, disks));
    kernel.prefetch(root.cell()).map_err(LaunchError::from)?;
    Ok(root)
}

/// Checks that a template of this name can be created.
///
/// # Errors
/// It exists, and `replaces` is not set.
pub(crate) fn check_free(name: &TemplateName, replaces: bool) -> Result<(), Failure> {
    if place::file(name)?.exists() && !replaces { Err(Failure::TemplateThere(name.to_string())) } else { Ok(()) }
}

/// A temporary file in the directory of templates for an uploaded template; removed when it is dropped.
///
/// # Errors
/// It cannot be created.
pub(crate) fn incoming() -> Result<NamedTempFile, Failure> {
    let directory = place::directory()?;
    place::make(&directory)?;
    let made = tempfile::Builder::new().prefix(".pando-").tempfile_in(&directory);
    made.map_err(|source| Failure::Templates { path: directory, source })
}

/// Stores such a file as a template after verifying every page's checksum.
///
/// # Errors
/// It is no template, is damaged, or the name exists and `replaces` is not set.
pub(crate) fn adopt(file: NamedTempFile, name: &TemplateName, replaces: bool) -> Result<(), Failure> {
    check_free(name, replaces)?;
    OpenTemplate::open(&TemplateRef::File(file.path().into()))?.check()?;
    let to = place::file(name)?;
    let failed = |source| Failure::Templates { path: to.clone(), source };
    file.as_file().sync_all().map_err(failed)?;
    file.persist(&to).map_err(|error| failed(error.error))?;
    place::keep_first(name, 1)
}

/// Removes a template.
///
/// # Errors
/// There is none, or the host refuses.
pub(crate) fn remove(name: &TemplateName) -> Result<(), Failure> {
    let all = place::variants(name)?;
    if all.is_empty() {
        return Err(Failure::NoTemplate(name.to_string()));
    }
    // The first variant is removed last: it marks that the template exists.
    all.into_iter().rev().try_for_each(|path| std::fs::remove_file(&path).map_err(|source| Failure::Templates { path, source }))
}
