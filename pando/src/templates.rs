// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pando template`.

mod build;
mod inside;

use crate::arguments::{LimitOptions, ViewOptions};
use crate::client;
use crate::completion;
use crate::environment;
use crate::failure::Failure;
use crate::messages;
use crate::nested;
use crate::observer;
use crate::signals::Signals;
use crate::size::Size;
use crate::table;
use clap::{Args, Subcommand};
use clap_complete::ArgValueCandidates;
use indicatif::{HumanBytes, HumanDuration};
use pando_confine::SyscallGroups;
use pando_image::escaped;
use pando_kernel::limits::TRACES;
use pando_kernel::{ConsolePort, Kernel};
use pando_launch::copy_output;
use pando_manager::limits::Limits;
use pando_manager::template::{
    CreationContext, Manifest, OpenTemplate, Plan, TemplateError, TemplateName, TemplateRef, TemplateSpec, TemplateStore, TrainingSpec,
    VARIANTS_MAX,
};
use pando_manager::time_limits::TimeLimits;
use pando_manager::timings::Timings;
use pando_manager::view::ViewSpec;
use pando_manager::{machine, output_file};
use pando_store::TemplateFile;
use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The subcommands of `pando template`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Create a template: start a program, and freeze it when it reports that it is ready
    #[command(override_usage = "pando template create [OPTIONS] NAME PROGRAM [ARGS]...", after_help = READY)]
    Create(Box<CreateOptions>),
    /// Build a template by a recipe: steps that install packages, copy files and run commands, once for the same recipe
    #[command(after_help = RECIPE)]
    Build(build::BuildOptions),
    /// List the templates
    Ls {
        /// Print one JSON object per line
        #[arg(long)]
        json: bool,
    },
    /// Remove templates; running clones continue
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
        /// The cell's number or name, as in `pando ps`
        #[arg(value_name = "CELL", value_parser = crate::options::cell, add = ArgValueCandidates::new(completion::cells))]
        cell: String,
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

/// Options of `pando template create`.
#[derive(Clone, Debug, Args)]
pub(crate) struct CreateOptions {
    #[command(flatten)]
    view: ViewOptions,

    #[command(flatten)]
    limits: LimitOptions,

    /// Replace the template of this name, if there is one
    #[arg(long)]
    replace: bool,

    /// Train: run a clone to its end, without time limit, and record which memory it touches, so that later clones have it before they
    /// run. Its output is not shown [default: one clone without arguments, for five seconds]
    #[arg(long)]
    train: bool,

    /// Do not train
    #[arg(long, conflicts_with_all = ["train", "train_arg", "train_count"])]
    no_train: bool,

    /// Train, and give the clone an argument (repeatable)
    #[arg(long, value_name = "ARG", allow_hyphen_values = true)]
    train_arg: Vec<OsString>,

    /// Train with this many clones, one after the other: later clones get the memory that most of them touched
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=TRACES as i64))]
    train_count: Option<u32>,

    /// Start the program K times; each clone is made from one of these variants at random, so that memory layouts differ
    #[arg(long, value_name = "K", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=i64::from(VARIANTS_MAX)))]
    variants: u32,

    /// The template's name
    #[arg(value_name = "NAME")]
    name: TemplateName,

    /// The program and its arguments, as for `pando run`
    #[arg(value_name = "PROGRAM [ARGS]", num_args = 1.., required_unless_present = "image", trailing_var_arg = true)]
    words: Vec<OsString>,
}

impl CreateOptions {
    /// The first option that a template in a cell does not support.
    fn unsupported_inside(&self) -> Option<&'static str> {
        let options = [
            (self.view.directory.is_some(), "-w"),
            (!self.view.variable_files.is_empty(), "--env-file"),
            (self.view.user.is_some(), "-u"),
            (self.limits.cpus.is_some(), "--cpus"),
            (self.limits.cpu_weight.is_some(), "--cpu-weight"),
            (self.limits.output_limit.is_some(), "--output-limit"),
            (self.train || !self.train_arg.is_empty() || self.train_count.is_some(), "--train"),
            (self.variants > 1, "--variants"),
        ];
        self.view.unsupported_inside().or_else(|| options.into_iter().find_map(|(is_given, name)| is_given.then_some(name)))
    }
}

impl From<&CreateOptions> for TemplateSpec {
    fn from(options: &CreateOptions) -> TemplateSpec {
        let CreateOptions { view, limits, replace, train, no_train, train_arg, train_count, variants, name, words } = options;
        TemplateSpec {
            name: name.clone(),
            command: words.clone(),
            view: ViewSpec::from(view),
            limits: Limits::from(limits),
            replace: *replace,
            variants: *variants,
            training: TrainingSpec {
                clones: if *no_train { 0 } else { train_count.unwrap_or(1) },
                arguments: train_arg.clone(),
                is_requested: *train || !train_arg.is_empty() || train_count.is_some(),
            },
            is_standard: false,
        }
    }
}

/// The width of the column of programs in the list of templates.
const PROGRAM_WIDTH: usize = 60;

const READY: &str = "The program reports that it is ready:
  in a shell        pando-ready, or eval \"$(pando-ready -s)\" to receive arguments and variables
  in Python         import pando; pando.ready()
  in Node           require('pando').ready()
  in C              #include <pando.h>, pando_ready()
  otherwise         write `ready` to /dev/pando
Every clone continues there, with its own arguments, variables, random numbers and clone number. Without `pando template create` the report has no effect.";

const RECIPE: &str = "A recipe is a file of TOML:
  image = \"python:3.12\"               # begin with an image; by default with this host's Python
  preload = [\"pandas\"]                # modules that clones find loaded
  steps = [
    { apt = [\"git\"] },                # packages of Debian; they need an image
    { pip = [\"pandas>=2\"] },          # packages of Python, wheels of this host, or options of pip
    { copy = [\"project\", \"/work\"] },
    { run = \"make -C /work\" },
  ]
  env = { NAME = \"value\" }
  allow = [\"pypi.org:443\"]            # what the steps may reach; by default all public hosts if one installs from a network
  memory = \"2G\"                       # of the cell in which the steps run, and of clones
  timeout = 1800                      # seconds for all steps
Paths begin at the directory of the file.";

/// Runs a subcommand.
///
/// # Errors
/// The subcommand fails.
pub(crate) fn command(command: &Command) -> Result<u8, Failure> {
    if nested::device()?.is_some() {
        return inside::command(command);
    }
    match command {
        Command::Create(options) => create(options),
        Command::Build(options) => build::build(options),
        Command::Ls { json } => list(*json),
        Command::Rm { names } => {
            let store = store()?;
            let removed = names.iter().try_for_each(|name| store.remove(name, || ()));
            store.remove_leftover_views();
            removed?;
            Ok(0)
        }
        Command::Inspect { template } => inspect(template),
        Command::Freeze { cell, name, force, replace } => client::freeze(cell, name, *force, *replace),
        Command::Save { name, file } => copy(&TemplateRef::Stored(name.clone()), file),
        Command::Load { file, name, replace } => load(file, name.as_ref(), *replace),
    }
}

/// Creates and stores a template.
fn create(options: &CreateOptions) -> Result<u8, Failure> {
    let caller = environment::caller();
    let store = TemplateStore::of(&caller)?;
    let mut plan = Plan::new(TemplateSpec::from(options), &store, &caller)?;
    pando_confine::forbid_dumps()?;
    plan.view.visible.change.push(store.directory().into());
    let mut timings = Timings::start();
    let kernel = Arc::new(machine::start(plan.memory(), machine::vcpus_for_many_cells(), false, &plan.view.visible, &mut timings)?);
    let libos = machine::libos(&kernel, &mut timings)?;
    // Both start threads, which a confined process cannot.
    let time_limits = TimeLimits::start(Arc::<Kernel>::clone(&kernel)).map_err(Failure::Thread)?;
    let signals = Signals::forward(Arc::<Kernel>::clone(&kernel), None, &time_limits)?;
    // Compression starts no thread; writing the file needs the same calls as a write-back.
    machine::install_seccomp_filter(SyscallGroups { writing_back: true, ..SyscallGroups::default() })?;
    let limit = options.limits.output_limit.map(Size::in_bytes);
    let mut output = |cell, port: &ConsolePort| {
        let streams = (std::io::stdout().lock(), std::io::stderr());
        copy_output(&*kernel, cell, port, streams, limit).map(drop)
    };
    let context = CreationContext { kernel: &kernel, libos: &libos, time_limits: &time_limits };
    plan.create(context, &mut output, &|cell| signals.set_target(cell))?;
    Ok(0)
}

/// This process's directory of templates.
fn store() -> Result<TemplateStore, Failure> {
    Ok(TemplateStore::of(&environment::caller())?)
}

fn list(json: bool) -> Result<u8, Failure> {
    let mut out = std::io::stdout().lock();
    if !json {
        print_header(&mut out)?;
    }
    for (name, path) in store()?.all()? {
        let size = std::fs::metadata(&path).map_or(0, |metadata| metadata.len());
        let manifest = TemplateFile::open(&path).map_err(TemplateError::from).and_then(|saved| Manifest::read(&saved, &path));
        match (manifest, json) {
            (Ok(manifest), true) => {
                writeln!(
                    out,
                    "{}",
                    serde_json::json!({ "name": name.to_string(), "bytes": size, "created": crate::api::timestamp(manifest.created), "arguments": manifest.arguments })
                )?;
            }
            (Ok(manifest), false) => {
                print_line(&mut out, &name.to_string(), size, manifest.created, &manifest.arguments)?;
            }
            (Err(error), true) => {
                writeln!(out, "{}", serde_json::json!({ "name": name.to_string(), "bytes": size, "error": messages::template(&error) }))?
            }
            (Err(error), false) => writeln!(out, "{:<20} {}", name.to_string(), escaped(messages::template(&error)))?,
        }
    }
    Ok(0)
}

/// Prints the first line of the list of templates.
fn print_header(out: &mut impl Write) -> std::io::Result<()> {
    writeln!(out, "{:<20} {:>12} {:>18}  PROGRAM", "NAME", "SIZE", "CREATED")
}

/// Prints a line of the list of templates. `created` is the time of its creation in seconds since 1970.
fn print_line(out: &mut impl Write, name: &str, size: u64, created: u64, arguments: &[String]) -> std::io::Result<()> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    let age = HumanDuration(Duration::from_secs(now.saturating_sub(created))).to_string();
    let program = table::shortened(&escaped(arguments.join(" ")), PROGRAM_WIDTH);
    writeln!(out, "{name:<20} {:>12} {age:>14} ago  {program}", HumanBytes(size).to_string())
}

fn inspect(which: &TemplateRef) -> Result<u8, Failure> {
    let template = store()?.open(which)?;
    let manifest = template.manifest();
    let Manifest { name, program, arguments, root, image, bare, volumes, created, .. } = manifest;
    let image = image.as_ref().map(|(id, name)| serde_json::json!({ "id": id, "name": name }));
    let shown = serde_json::json!({
        "name": name, "created": crate::api::timestamp(*created), "program": program, "arguments": arguments, "root": root, "image": image, "bare": bare,
        "volumes": volumes, "forced": template.is_forced(), "memory_bytes": manifest.memory().bytes(), "content_bytes": template.contents().bytes(),
    });
    println!("{shown:#}");
    Ok(0)
}

fn load(file: &Path, name: Option<&TemplateName>, replaces: bool) -> Result<u8, Failure> {
    let (store, template) = (store()?, OpenTemplate::open(file)?);
    let name = match name {
        Some(name) => name.clone(),
        None => template.name().parse().map_err(|_| TemplateError::NoRecipe(file.into()))?,
    };
    store.create_directory()?;
    store.check_free(&name, replaces)?;
    store.replace(&name, 1, || copy(&TemplateRef::File(file.into()), &store.file(&name)))
}

/// Copies a template's file atomically, after verifying every page's checksum.
fn copy(which: &TemplateRef, to: &Path) -> Result<u8, Failure> {
    output_file::refuse_special(to)?;
    // The variant that is checked is the one that is copied.
    let path = store()?.pick(which)?;
    OpenTemplate::open(&path)?.check(&observer::reporter())?;
    let failed = |source| Failure::File { path: to.into(), source };
    // A name without a directory is relative to the current one.
    let directory = to.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new().prefix(".pando-").tempfile_in(directory).map_err(failed)?;
    let mut source = File::open(&path).map_err(failed)?;
    std::io::copy(&mut source, &mut file).map_err(failed)?;
    file.as_file().sync_all().map_err(failed)?;
    file.persist(to).map_err(|error| failed(error.error))?;
    Ok(0)
}
