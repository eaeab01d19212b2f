// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pando template`: what can be done with templates.

use crate::client;
use crate::completion;
use crate::failure::Failure;
use crate::template::{self, Create, Found, Name, Recipe, Which};
use clap::Subcommand;
use clap_complete::ArgValueCandidates;
use indicatif::{HumanBytes, HumanDuration};
use pando_image::escaped;
use pando_store::Saved;
use std::fs::File;
use std::io::Write;
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
        #[arg(value_name = "NAME", required = true, add = ArgValueCandidates::new(completion::templates))]
        names: Vec<Name>,
    },
    /// Say what a template is: one JSON object
    Inspect {
        /// Which
        #[arg(value_name = "NAME|FILE", add = ArgValueCandidates::new(completion::templates))]
        template: Which,
    },
    /// Make a template of a cell of `pando serve`, which does not go on: its clones do
    Freeze {
        /// The cell's number, which `pando ps` tells
        #[arg(value_name = "CELL", add = ArgValueCandidates::new(completion::cells))]
        cell: u64,
        /// The template's name
        name: Name,
        /// Stop the cell as it stands instead of asking it: nothing promises that its clones' random numbers are distinct
        #[arg(long)]
        force: bool,
        /// Replace the template of this name, if there is one
        #[arg(long)]
        replace: bool,
    },
    /// Write a template to a file of its own
    Save {
        /// Which
        #[arg(add = ArgValueCandidates::new(completion::templates))]
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

/// Does what is asked.
///
/// # Errors
/// It cannot be done.
pub(crate) fn command(command: &Command) -> Result<u8, Failure> {
    match command {
        Command::Create(options) => template::create(options),
        Command::Ls { json } => list(*json),
        Command::Rm { names } => names.iter().try_for_each(template::remove).map(|()| 0),
        Command::Inspect { template } => inspect(template),
        Command::Freeze { cell, name, force, replace } => client::freeze(*cell, name, *force, *replace),
        Command::Save { name, file } => copy(&Which::Kept(name.clone()), file),
        Command::Load { file, name, replace } => load(file, name.as_ref(), *replace),
    }
}

fn list(json: bool) -> Result<u8, Failure> {
    let mut out = std::io::stdout().lock();
    if !json {
        writeln!(out, "{:<20} {:>12} {:>18}  PROGRAM", "NAME", "SIZE", "MADE")?;
    }
    for (name, path) in template::all()? {
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
                let words = escaped(recipe.arguments.join(" "));
                writeln!(out, "{:<20} {:>12} {:>14} ago  {}", name.to_string(), HumanBytes(size).to_string(), age, shortened(&words))?;
            }
            (Err(failure), true) => {
                writeln!(out, "{}", serde_json::json!({ "name": name.to_string(), "bytes": size, "error": failure.to_string() }))?
            }
            (Err(failure), false) => writeln!(out, "{:<20} {}", name.to_string(), escaped(failure.to_string()))?,
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

fn inspect(which: &Which) -> Result<u8, Failure> {
    let found = Found::open(which)?;
    let recipe = found.recipe();
    let Recipe { name, program, arguments, root, bare, volumes, made, .. } = recipe;
    let shown = serde_json::json!({
        "name": name, "made": made, "program": program, "arguments": arguments, "root": root, "bare": bare,
        "volumes": volumes, "forced": found.is_forced(), "memory_bytes": recipe.memory().bytes(), "content_bytes": found.contents().bytes(),
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
    template::make_directory(&template::directory()?)?;
    template::check_free(&name, replaces)?;
    copy(&Which::File(file.into()), &template::file(&name)?)?;
    template::keep_first(&name, 1).map(|()| 0)
}

/// Copies a template's file, which is there whole or not at all, once every page of it was compared with its checksum.
fn copy(which: &Which, to: &Path) -> Result<u8, Failure> {
    // One variant is drawn, and that one is looked at.
    let path = which.path()?;
    let found = Found::open(&Which::File(path.clone()))?;
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
