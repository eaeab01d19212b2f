// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pando template`: programs that have been started once and are cloned ever after.

mod make;
mod place;
mod recipe;
mod standard;

use crate::cli::{Limits, Seen};
use crate::failure::Failure;
use crate::progress::Progress;
use crate::view::Asked;
use clap::{Args, Subcommand};
use indicatif::{HumanBytes, HumanDuration};
pub(crate) use make::Plan;
use pando_kernel::Kernel;
use pando_launch::{LaunchError, Root, Volume};
use pando_machine::PageCount;
use pando_store::Saved;
pub(crate) use place::{Name, all, directory, file, make as make_directory};
pub(crate) use recipe::Recipe;
use rustix::process::geteuid;
use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What can be done with templates.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start a program, wait until it says that it is ready, and keep it for `pando clone`
    #[command(override_usage = "pando template create [OPTIONS] NAME PROGRAM [ARGS]...", after_help = READY)]
    Create(Box<Create>),
    /// List the templates
    Ls {
        /// Print one JSON object a line
        #[arg(long)]
        json: bool,
    },
    /// Remove templates; clones that run go on, unless they miss a page that nobody has read
    Rm {
        /// Which
        #[arg(value_name = "NAME", required = true)]
        names: Vec<Name>,
    },
    /// Say what a template is: one JSON object
    Inspect {
        /// Which
        #[arg(value_name = "NAME|FILE")]
        template: Which,
    },
    /// Write a template to a file of its own
    Save {
        /// Which
        name: Name,
        /// The file
        file: PathBuf,
    },
    /// Keep a template that was saved to a file, whole and undamaged
    Load {
        /// The file
        file: PathBuf,
        /// Its name from now on [default: the one it had]
        name: Option<Name>,
        /// Replace the template of this name, if there is one
        #[arg(long)]
        replace: bool,
    },
}

const READY: &str = "The program says that it is ready:
  in a shell        pando-ready, or eval \"$(pando-ready -s)\" to be given arguments and variables
  in Python         import pando; pando.ready()
  in Node           require('pando').ready()
  in C              #include <pando.h>, pando_ready()
  otherwise         by writing `ready` to /dev/pando
From there every clone goes on, with arguments, variables, random numbers and a number of its own. Where nobody wants a template, saying so changes nothing.";

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

    /// Run a clone of it to its end before it is kept, and learn which memory that touches: later clones have it before they run. What it says is not shown
    #[arg(long)]
    pub(crate) train: bool,

    /// Give that clone an argument, and train (repeat for more)
    #[arg(long, value_name = "ARG", allow_hyphen_values = true)]
    pub(crate) train_arg: Vec<OsString>,

    /// The template's name
    #[arg(value_name = "NAME")]
    pub(crate) name: Name,

    /// The program and its arguments, as for `pando run`
    #[arg(value_name = "PROGRAM [ARGS]", num_args = 1.., required = true, trailing_var_arg = true)]
    pub(crate) words: Vec<OsString>,
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
    fn path(&self) -> Result<PathBuf, Failure> {
        match self {
            Which::File(path) => Ok(path.clone()),
            Which::Kept(name) => place::file(name),
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
    pub(crate) fn load(&self, kernel: &Kernel, asked: &mut Asked) -> Result<Root, Failure> {
        load_volumes(&self.saved, kernel, std::mem::take(&mut asked.volumes), self.memory())
    }

    /// Reads all that is stored of it.
    fn check(&self) -> Result<(), Failure> {
        let progress = Progress::bytes("checking", PageCount(self.saved.image().contents()).bytes());
        Ok(self.saved.check(&mut |pages| progress.set(PageCount(pages).bytes()))?)
    }

    /// Why a page of it could not be read, if that has happened.
    pub(crate) fn complaint(&self) -> Option<String> {
        self.saved.complaint()
    }
}

/// Makes a saved template that sees these volumes a root of a kernel.
fn load_volumes(saved: &Saved, kernel: &Kernel, volumes: Vec<Volume>, memory: PageCount) -> Result<Root, Failure> {
    let disks =
        volumes.iter().map(|volume| kernel.add_disk(volume.disk.clone())).collect::<Result<Vec<_>, _>>().map_err(LaunchError::from)?;
    let (cell, pages) = saved.load(kernel, &disks, memory)?;
    kernel.foresee(cell).map_err(LaunchError::from)?;
    Ok(Root::loaded(cell, volumes, disks.into_iter().chain([pages]).collect()))
}

/// Does what is asked.
///
/// # Errors
/// It cannot be done.
pub(crate) fn template(command: &Command) -> Result<u8, Failure> {
    match command {
        Command::Create(options) => make::create(options),
        Command::Ls { json } => list(*json),
        Command::Rm { names } => names.iter().try_for_each(remove).map(|()| 0),
        Command::Inspect { template } => inspect(template),
        Command::Save { name, file } => copy(&Which::Kept(name.clone()), file),
        Command::Load { file, name, replace } => load(file, name.as_ref(), *replace),
    }
}

fn list(json: bool) -> Result<u8, Failure> {
    let mut out = std::io::stdout().lock();
    for (name, path) in place::all()? {
        let size = std::fs::metadata(&path).map_or(0, |metadata| metadata.len());
        let recipe = Saved::open(&path).map_err(Failure::from).and_then(|saved| Recipe::of(&saved, &path));
        match (recipe, json) {
            (Ok(recipe), true) => {
                writeln!(
                    out,
                    "{}",
                    serde_json::json!({ "name": name.to_string(), "bytes": size, "made": recipe.made, "arguments": recipe.arguments })
                )?;
            }
            (Ok(recipe), false) => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
                let age = HumanDuration(Duration::from_secs(now.saturating_sub(recipe.made))).to_string();
                let words = recipe.arguments.join(" ").escape_debug().to_string();
                writeln!(out, "{:<20} {:>12} {:>14} ago  {}", name.to_string(), HumanBytes(size).to_string(), age, shortened(&words))?;
            }
            (Err(failure), true) => {
                writeln!(out, "{}", serde_json::json!({ "name": name.to_string(), "bytes": size, "error": failure.to_string() }))?
            }
            (Err(failure), false) => writeln!(out, "{:<20} {failure}", name.to_string())?,
        }
    }
    Ok(0)
}

/// As much of a text as fits beside the rest.
fn shortened(text: &str) -> String {
    const ROOM: usize = 60;
    match text.char_indices().nth(ROOM) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.into(),
    }
}

/// Removes a template.
///
/// # Errors
/// There is none, or the host refuses.
pub(crate) fn remove(name: &Name) -> Result<(), Failure> {
    match std::fs::remove_file(place::file(name)?) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(Failure::NoTemplate(name.to_string())),
        removed => removed.map_err(|source| Failure::Templates { path: name.to_string().into(), source }),
    }
}

fn inspect(which: &Which) -> Result<u8, Failure> {
    let Found { saved, recipe } = Found::open(which)?;
    let Recipe { name, program, arguments, root, bare, volumes, made, .. } = &recipe;
    let shown = serde_json::json!({
        "name": name, "made": made, "program": program, "arguments": arguments, "root": root, "bare": bare,
        "volumes": volumes, "memory_bytes": recipe.memory().bytes(), "content_bytes": PageCount(saved.image().contents()).bytes(),
    });
    println!("{shown:#}");
    Ok(0)
}

fn load(file: &Path, name: Option<&Name>, replaces: bool) -> Result<u8, Failure> {
    let found = Found::open(&Which::File(file.into()))?;
    let name = match name {
        Some(name) => name.clone(),
        None => found.name().parse().map_err(|_| Failure::NoRecipe(file.into()))?,
    };
    place::make(&place::directory()?)?;
    let place = place::file(&name)?;
    if place.exists() && !replaces {
        return Err(Failure::TemplateThere(name.to_string()));
    }
    copy(&Which::File(file.into()), &place)
}

/// Copies a template's file, which is there whole or not at all, once every page of it was compared with its checksum.
fn copy(which: &Which, to: &Path) -> Result<u8, Failure> {
    let (path, found) = (which.path()?, Found::open(which)?);
    found.check()?;
    let failed = |source| Failure::Templates { path: to.into(), source };
    // A name without a directory means this one.
    let directory = to.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new().prefix(".pando-").tempfile_in(directory).map_err(failed)?;
    let mut source = File::open(&path).map_err(failed)?;
    std::io::copy(&mut source, &mut file).map_err(failed)?;
    file.as_file().sync_all().map_err(failed)?;
    file.persist(to).map_err(|error| failed(error.error))?;
    Ok(0)
}
