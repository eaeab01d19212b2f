// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pando template`.

use crate::client;
use crate::completion;
use crate::failure::Failure;
use crate::output_file;
use crate::template::{self, Create, Manifest, OpenTemplate, TemplateName, TemplateRef};
use clap::Subcommand;
use clap_complete::ArgValueCandidates;
use indicatif::{HumanBytes, HumanDuration};
use pando_image::escaped;
use pando_store::TemplateFile;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The subcommands of `pando template`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Create a template: start a program, and freeze it when it reports that it is ready
    #[command(override_usage = "pando template create [OPTIONS] NAME PROGRAM [ARGS]...", after_help = READY)]
    Create(Box<Create>),
    /// List the templates
    Ls {
        /// Print one JSON object per line
        #[arg(long)]
        json: bool,
    },
    /// Remove templates; running clones continue, unless they need a page that was never read
    Rm {
        /// The templates' names
        #[arg(value_name = "NAME", required = true, add = ArgValueCandidates::new(completion::templates))]
        names: Vec<TemplateName>,
    },
    /// Print a template's description as a JSON object
    Inspect {
        /// The template: a name, or a path with a slash
        #[arg(value_name = "NAME|FILE", add = ArgValueCandidates::new(completion::templates))]
        template: TemplateRef,
    },
    /// Create a template from a cell of `pando serve`, and terminate the cell
    Freeze {
        /// The cell's number, as in `pando ps`
        #[arg(value_name = "CELL", add = ArgValueCandidates::new(completion::cells))]
        cell: u64,
        /// The template's name
        name: TemplateName,
        /// Stop the cell at once instead of asking its program: its clones' random numbers may not be distinct
        #[arg(long)]
        force: bool,
        /// Replace the template of this name, if there is one
        #[arg(long)]
        replace: bool,
    },
    /// Save a template to a file
    Save {
        /// The template's name
        #[arg(add = ArgValueCandidates::new(completion::templates))]
        name: TemplateName,
        /// The file
        file: PathBuf,
    },
    /// Load a template from a file, after verifying that it is undamaged
    Load {
        /// The file
        file: PathBuf,
        /// The template's new name [default: the saved one]
        name: Option<TemplateName>,
        /// Replace the template of this name, if there is one
        #[arg(long)]
        replace: bool,
    },
}

const READY: &str = "The program reports that it is ready:
  in a shell        pando-ready, or eval \"$(pando-ready -s)\" to receive arguments and variables
  in Python         import pando; pando.ready()
  in Node           require('pando').ready()
  in C              #include <pando.h>, pando_ready()
  otherwise         write `ready` to /dev/pando
Every clone continues there, with its own arguments, variables, random numbers and clone number. Without `pando template create` the report has no effect.";

/// Runs a subcommand.
///
/// # Errors
/// The subcommand fails.
pub(crate) fn command(command: &Command) -> Result<u8, Failure> {
    match command {
        Command::Create(options) => template::create(options),
        Command::Ls { json } => list(*json),
        Command::Rm { names } => names.iter().try_for_each(template::remove).map(|()| 0),
        Command::Inspect { template } => inspect(template),
        Command::Freeze { cell, name, force, replace } => client::freeze(*cell, name, *force, *replace),
        Command::Save { name, file } => copy(&TemplateRef::Kept(name.clone()), file),
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
        let manifest = TemplateFile::open(&path).map_err(Failure::from).and_then(|saved| Manifest::of(&saved, &path));
        match (manifest, json) {
            (Ok(manifest), true) => {
                writeln!(
                    out,
                    "{}",
                    serde_json::json!({ "name": name.to_string(), "bytes": size, "made": manifest.made, "arguments": manifest.arguments })
                )?;
            }
            (Ok(manifest), false) => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
                let age = HumanDuration(Duration::from_secs(now.saturating_sub(manifest.made))).to_string();
                let words = escaped(manifest.arguments.join(" "));
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

/// Shortens a text to the remaining width.
fn shortened(text: &str) -> String {
    const ROOM: usize = 60;
    match text.char_indices().nth(ROOM) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.into(),
    }
}

fn inspect(which: &TemplateRef) -> Result<u8, Failure> {
    let found = OpenTemplate::open(which)?;
    let manifest = found.manifest();
    let Manifest { name, program, arguments, root, bare, volumes, made, .. } = manifest;
    let shown = serde_json::json!({
        "name": name, "made": made, "program": program, "arguments": arguments, "root": root, "bare": bare,
        "volumes": volumes, "forced": found.is_forced(), "memory_bytes": manifest.memory().bytes(), "content_bytes": found.contents().bytes(),
    });
    println!("{shown:#}");
    Ok(0)
}

fn load(file: &Path, name: Option<&TemplateName>, replaces: bool) -> Result<u8, Failure> {
    let found = OpenTemplate::open(&TemplateRef::File(file.into()))?;
    let name = match name {
        Some(name) => name.clone(),
        None => found.name().parse().map_err(|_| Failure::NoRecipe(file.into()))?,
    };
    template::make_directory(&template::directory()?)?;
    template::check_free(&name, replaces)?;
    copy(&TemplateRef::File(file.into()), &template::file(&name)?)?;
    template::keep_first(&name, 1).map(|()| 0)
}

/// Copies a template's file atomically, after verifying every page's checksum.
fn copy(which: &TemplateRef, to: &Path) -> Result<u8, Failure> {
    // One variant is drawn, and that one is looked at.
    output_file::refuse_special(to)?;
    let path = which.path()?;
    let found = OpenTemplate::open(&TemplateRef::File(path.clone()))?;
    found.check()?;
    let failed = |source| Failure::Templates { path: to.into(), source };
    // A name without a directory is relative to the current one.
    let directory = to.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new().prefix(".pando-").tempfile_in(directory).map_err(failed)?;
    let mut source = File::open(&path).map_err(failed)?;
    std::io::copy(&mut source, &mut file).map_err(failed)?;
    file.as_file().sync_all().map_err(failed)?;
    file.persist(to).map_err(|error| failed(error.error))?;
    Ok(0)
}
