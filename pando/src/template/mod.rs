// SPDX-License-Identifier: MIT OR Apache-2.0
//! Templates: programs that have been started once and are cloned ever after.

mod make;
mod place;
mod recipe;
mod standard;

use crate::cli::{Limits, Seen};
use crate::failure::Failure;
use crate::guard::RootGuard;
use crate::progress::Progress;
use crate::view::Asked;
use clap::Args;
pub(crate) use make::{Plan, create};
use pando_kernel::limits::LESSONS;
use pando_kernel::{CellId, Kernel};
use pando_launch::{LaunchError, Root, Volume};
use pando_machine::PageCount;
use pando_store::Saved;
pub(crate) use place::{Name, VARIANTS_MAX, all, directory, draw, file, keep_first, make as make_directory, variants};
pub(crate) use recipe::Recipe;
use rustix::process::geteuid;
pub(crate) use standard::PROGRAM;
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tempfile::NamedTempFile;

/// How long a clone to learn from may run that nobody asked for: a server would never end.
const TRAINING_MAX: Duration = Duration::from_secs(3);

/// What a template is made of.
#[derive(Clone, Debug, Args)]
pub(crate) struct Create {
    #[command(flatten)]
    pub(crate) seen: Seen,

    #[command(flatten)]
    pub(crate) limits: Limits,

    /// Replace the template of this name, if there is one
    #[arg(long)]
    pub(crate) replace: bool,

    /// Run a clone of it to its end before it is kept, however long that takes, and learn which memory that touches: later clones have it before they run. What it says is not shown. Without this, a clone is given no arguments and three seconds
    #[arg(long)]
    pub(crate) train: bool,

    /// Run no clone before it is kept
    #[arg(long, conflicts_with_all = ["train", "train_arg", "train_count"])]
    pub(crate) no_train: bool,

    /// Give that clone an argument, and train (repeat for more)
    #[arg(long, value_name = "ARG", allow_hyphen_values = true)]
    pub(crate) train_arg: Vec<OsString>,

    /// Learn from so many clones, one after the other, and train: later ones have what most of them touched
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=LESSONS as i64))]
    pub(crate) train_count: Option<u32>,

    /// Start the program so many times, and let clones be of any of these by lot: where things lie in memory is different in each
    #[arg(long, value_name = "K", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=i64::from(place::VARIANTS_MAX)))]
    pub(crate) variants: u32,

    /// The template's name
    #[arg(value_name = "NAME")]
    pub(crate) name: Name,

    /// The program and its arguments, as for `pando run`
    #[arg(value_name = "PROGRAM [ARGS]", num_args = 1.., required = true, trailing_var_arg = true)]
    pub(crate) words: Vec<OsString>,

    /// It is one of the standard ones, and nothing of it was asked for otherwise.
    #[arg(skip)]
    pub(crate) standard: bool,
}

/// How a template learns what its clones will touch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Training {
    /// From how many clones, one after the other.
    clones: u32,
    /// How long each may run; `None`: as long as it likes.
    most: Option<Duration>,
    /// Somebody asked for it, and wants to be told of a clone that fails.
    is_asked: bool,
}

impl Create {
    /// How it learns.
    fn training(&self) -> Training {
        let is_asked = self.train || !self.train_arg.is_empty() || self.train_count.is_some();
        let clones = if self.no_train { 0 } else { self.train_count.unwrap_or(1) };
        let most = self.limits.timeout;
        let most = if is_asked { most } else { Some(most.map_or(TRAINING_MAX, |most| most.min(TRAINING_MAX))) };
        Training { clones, most, is_asked }
    }
}

/// A template: by the name under which it is kept, or by its file.
#[derive(Clone, Debug)]
pub(crate) enum Which {
    /// One that is kept.
    Kept(Name),
    /// A path, which has a slash.
    File(PathBuf),
}

impl std::str::FromStr for Which {
    type Err = String;

    fn from_str(text: &str) -> Result<Which, String> {
        if text.contains('/') { Ok(Which::File(text.into())) } else { text.parse().map(Which::Kept) }
    }
}

impl Which {
    /// Its file.
    pub(crate) fn path(&self) -> Result<PathBuf, Failure> {
        match self {
            Which::File(path) => Ok(path.clone()),
            Which::Kept(name) => place::draw(name),
        }
    }
}

/// A template that was found.
pub(crate) struct Found {
    saved: Saved,
    recipe: Recipe,
}

impl Found {
    /// Opens a template.
    ///
    /// # Errors
    /// There is none, or its file is damaged.
    pub(crate) fn open(which: &Which) -> Result<Found, Failure> {
        let path = which.path()?;
        if let (Which::Kept(name), false) = (which, path.exists()) {
            return Err(Failure::NoTemplate(name.to_string()));
        }
        let saved = Saved::open(&path)?;
        // Its recipe says which files of the host its clones see.
        let metadata = path.metadata().map_err(|source| Failure::Templates { path: path.clone(), source })?;
        if metadata.uid() != geteuid().as_raw() || metadata.mode() & 0o022 != 0 {
            return Err(Failure::Foreign(path));
        }
        let recipe = Recipe::of(&saved, &path)?;
        Ok(Found { saved, recipe })
    }

    /// What can be told of it.
    pub(crate) fn recipe(&self) -> &Recipe {
        &self.recipe
    }

    /// What it is called.
    pub(crate) fn name(&self) -> &str {
        &self.recipe.name
    }

    /// Finds what it sees.
    ///
    /// # Errors
    /// The host does not show it any more.
    pub(crate) fn find(&self) -> Result<Asked, Failure> {
        self.recipe.find()
    }

    /// The memory that it had.
    pub(crate) fn memory(&self) -> PageCount {
        self.recipe.memory()
    }

    /// Makes it a root of a kernel, whose programs are its clones. Reads those of its pages that clones are expected to touch.
    ///
    /// # Errors
    /// The machine lacks something, or the file makes no sense.
    pub(crate) fn load(&self, kernel: &Arc<Kernel>, asked: &mut Asked) -> Result<RootGuard, Failure> {
        load_volumes(&self.saved, kernel, std::mem::take(&mut asked.volumes), self.memory())
    }

    /// Keeps a clone of it that has frozen as a template of its own. Writes what it is; see [`pando_store::save`].
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn keep(&self, kernel: &Kernel, clone: CellId, name: &Name) -> Result<(), Failure> {
        let recipe = self.recipe.renamed(name);
        pando_store::save(kernel, clone, &place::file(name)?, &recipe.encode())?;
        place::keep_first(name, 1)
    }

    /// The pages that its file has.
    pub(crate) fn contents(&self) -> PageCount {
        PageCount(self.saved.image().contents())
    }

    /// Whether it, or what it is a clone of, was stopped as it stood.
    pub(crate) fn is_forced(&self) -> bool {
        self.saved.image().is_forced()
    }

    /// Reads all that is stored of it.
    ///
    /// # Errors
    /// Some of it is damaged.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let progress = Progress::bytes("checking", self.contents().bytes());
        Ok(self.saved.check(&mut |pages| progress.set(PageCount(pages).bytes()))?)
    }

    /// Why a page of it could not be read, if that has happened.
    pub(crate) fn complaint(&self) -> Option<String> {
        self.saved.complaint()
    }
}

/// Makes a saved template that sees these volumes a root of a kernel.
fn load_volumes(saved: &Saved, kernel: &Arc<Kernel>, volumes: Vec<Volume>, memory: PageCount) -> Result<RootGuard, Failure> {
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
        // No cell has them.
        disks.iter().for_each(|disk| _ = kernel.remove_disk(*disk));
    }
    let root = RootGuard::new(kernel, Root::loaded(loaded?, volumes, disks));
    kernel.foresee(root.cell()).map_err(LaunchError::from)?;
    Ok(root)
}

/// Sees to it that a template of this name can be made.
///
/// # Errors
/// There is one already, which is not to be replaced.
pub(crate) fn check_free(name: &Name, replaces: bool) -> Result<(), Failure> {
    if place::file(name)?.exists() && !replaces { Err(Failure::TemplateThere(name.to_string())) } else { Ok(()) }
}

/// A file in the directory of templates for one that comes from elsewhere; removed when it is dropped.
///
/// # Errors
/// It cannot be made.
pub(crate) fn incoming() -> Result<NamedTempFile, Failure> {
    let directory = place::directory()?;
    place::make(&directory)?;
    let made = tempfile::Builder::new().prefix(".pando-").tempfile_in(&directory);
    made.map_err(|source| Failure::Templates { path: directory, source })
}

/// Keeps such a file as a template, once every page of it was compared with its checksum.
///
/// # Errors
/// It is none, is damaged, or there is one of this name that is not to be replaced.
pub(crate) fn adopt(file: NamedTempFile, name: &Name, replaces: bool) -> Result<(), Failure> {
    check_free(name, replaces)?;
    Found::open(&Which::File(file.path().into()))?.check()?;
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
pub(crate) fn remove(name: &Name) -> Result<(), Failure> {
    let all = place::variants(name)?;
    if all.is_empty() {
        return Err(Failure::NoTemplate(name.to_string()));
    }
    // The first goes last: while it is there, so is the template.
    all.into_iter().rev().try_for_each(|path| std::fs::remove_file(&path).map_err(|source| Failure::Templates { path, source }))
}
