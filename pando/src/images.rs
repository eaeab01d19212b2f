// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pando image`: the store of container images, with docker's names and formats where it has them.

use crate::completion;
use crate::diagnostics;
use crate::environment;
use crate::failure::Failure;
use crate::image::{self, BuildImage};
use crate::observer;
use crate::progress::ProgressLine;
use crate::pull::{self, PullOptions};
use crate::table;
use clap::{Args, Subcommand};
use clap_complete::ArgValueCandidates;
use indicatif::{HumanBytes, HumanDuration};
use pando_image::escaped;
use pando_manager::report::Progress;
use pando_manager::template::TemplateStore;
use pando_manager::view::{image_store, prepare_image};
use pando_oci::{ConfigChange, DamagedImage, ImageName, ImageStore, LoadProgress, LoadedImage, Removal, StoredImage};
use serde_json::{Value, json};
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// The subcommands of `pando image`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Pull a container image from a registry: the same as `pando pull`
    Pull(PullOptions),
    /// Load container images from an archive of `docker save` or `podman save`, or from an OCI layout
    Load(LoadOptions),
    /// Make a container image of a root file system in a tar archive
    Import(ImportOptions),
    /// List the container images
    #[command(visible_alias = "list")]
    Ls {
        /// Print only the images' IDs
        #[arg(short = 'q', long, conflicts_with = "json")]
        quiet: bool,
        /// Print one JSON object per line
        #[arg(long)]
        json: bool,
    },
    /// Print descriptions of container images as a JSON array
    Inspect {
        /// The images: names or IDs
        #[arg(value_name = "IMAGE", required = true, add = ArgValueCandidates::new(completion::images))]
        names: Vec<String>,
    },
    /// Give a container image another name
    Tag {
        /// The image: a name or an ID
        #[arg(value_name = "IMAGE", add = ArgValueCandidates::new(completion::images))]
        image: String,
        /// The new name
        #[arg(value_name = "NAME")]
        name: ImageName,
    },
    /// Remove container images, or one name of an image that has several
    Rm {
        /// Remove images with several names by their IDs, and images from which templates were created: these cannot be cloned any more
        #[arg(short = 'f', long)]
        force: bool,
        /// The images: names or IDs
        #[arg(value_name = "IMAGE", required = true, add = ArgValueCandidates::new(completion::images))]
        names: Vec<String>,
    },
    /// Remove container images without a name, and layers that no image has
    Prune {
        /// Remove all images from which no template was created
        #[arg(short = 'a', long)]
        all: bool,
        /// No effect: nothing is asked
        #[arg(short = 'f', long)]
        force: bool,
    },
    /// Write a root image, with all its content, to one file
    Build(BuildImage),
}

/// Options of `pando image load`.
#[derive(Debug, Args)]
pub(crate) struct LoadOptions {
    /// The archive, which may be compressed with gzip or zstd, or a directory with an OCI layout [default: standard input]
    #[arg(value_name = "FILE|DIR")]
    file: Option<PathBuf>,

    /// The same, as docker writes it
    #[arg(short = 'i', long, value_name = "FILE|DIR", conflicts_with = "file")]
    input: Option<PathBuf>,

    /// Name the image, instead of the names in the archive
    #[arg(short = 't', long = "tag", value_name = "NAME")]
    name: Option<ImageName>,

    /// Print only errors
    #[arg(short = 'q', long)]
    quiet: bool,
}

/// Options of `pando image import`.
#[derive(Debug, Args)]
pub(crate) struct ImportOptions {
    /// Set a part of the image's configuration (repeatable): CMD, ENTRYPOINT, ENV, EXPOSE, LABEL, STOPSIGNAL, USER, VOLUME or WORKDIR, as
    /// in a Dockerfile
    #[arg(short = 'c', long = "change", value_name = "INSTRUCTION")]
    changes: Vec<ConfigChange>,

    /// The archive, which may be compressed with gzip or zstd; `-` reads standard input
    #[arg(value_name = "FILE|-")]
    file: PathBuf,

    /// The image's name
    #[arg(value_name = "NAME")]
    name: ImageName,
}

/// Runs a subcommand.
///
/// # Errors
/// The subcommand fails.
pub(crate) fn command(command: &Command) -> Result<u8, Failure> {
    match command {
        Command::Pull(options) => pull::pull(options),
        Command::Load(options) => load(options),
        Command::Import(options) => import(options),
        Command::Ls { quiet, json } => list(*quiet, *json),
        Command::Inspect { names } => inspect(names),
        Command::Tag { image, name } => Ok(store()?.tag(image, name).map(|()| 0)?),
        Command::Rm { force, names } => remove(names, *force),
        Command::Prune { all, .. } => prune(*all),
        Command::Build(options) => image::build(options),
    }
}

/// This process's store of images.
fn store() -> Result<ImageStore, Failure> {
    Ok(image_store(&environment::caller())?)
}

fn load(options: &LoadOptions) -> Result<u8, Failure> {
    let store = store()?;
    let line = ProgressLine::some_bytes("loading");
    let mut progress = |progress: LoadProgress| show(&line, progress);
    let name = options.name.as_ref();
    let loaded = match options.file.as_ref().or(options.input.as_ref()).filter(|path| *path != Path::new("-")) {
        Some(path) => store.load(path, name, &mut progress)?,
        None if io::stdin().is_terminal() => return Err(Failure::NoArchive),
        None => store.load_stream("standard input", io::stdin().lock(), name, &mut progress)?,
    };
    line.end();
    for image in &loaded {
        prepare_image(&store, &image.id.to_string(), &observer::reporter())?;
    }
    if !options.quiet {
        loaded.iter().try_for_each(print_loaded)?;
    }
    Ok(0)
}

/// Prints what was loaded, as docker does.
fn print_loaded(image: &LoadedImage) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if image.names.is_empty() {
        writeln!(out, "Loaded image ID: {}", image.id)?;
    }
    image.names.iter().try_for_each(|name| writeln!(out, "Loaded image: {name}"))
}

fn show(line: &ProgressLine, LoadProgress { layer, layers, bytes }: LoadProgress) {
    line.detail(&format!("layer {layer} of {layers}"));
    line.set(bytes);
}

fn import(options: &ImportOptions) -> Result<u8, Failure> {
    let store = store()?;
    let line = ProgressLine::some_bytes("importing");
    let mut progress = |progress: LoadProgress| show(&line, progress);
    let ImportOptions { changes, file, name } = options;
    let image = match file == Path::new("-") {
        true => store.import("standard input", io::stdin().lock(), name, changes, &mut progress)?,
        false => {
            let source = std::fs::File::open(file).map_err(|source| Failure::File { path: file.clone(), source })?;
            store.import(&file.display().to_string(), source, name, changes, &mut progress)?
        }
    };
    line.end();
    prepare_image(&store, &image.id.to_string(), &observer::reporter())?;
    writeln!(io::stdout(), "{}", image.id)?;
    Ok(0)
}

fn list(quiet: bool, json: bool) -> Result<u8, Failure> {
    let store = store()?;
    let images = store.all()?;
    for DamagedImage { error, .. } in store.damaged()? {
        diagnostics::print_notice(&format!("{error}: pull or load the image again, or remove it by `pando image prune`"));
    }
    let mut out = io::stdout().lock();
    if quiet {
        images.iter().try_for_each(|image| writeln!(out, "{}", image.short_id()))?;
        return Ok(0);
    }
    if json {
        images.iter().try_for_each(|image| writeln!(out, "{}", summary(image)))?;
        return Ok(0);
    }
    writeln!(out, "{:<32} {:<16} {:<12} {:>18} {:>12}", "REPOSITORY", "TAG", "IMAGE ID", "LOADED", "SIZE")?;
    for image in &images {
        let age = SystemTime::now().duration_since(image.loaded).unwrap_or_default();
        let age = format!("{} ago", HumanDuration(age));
        let none = || ("<none>".into(), "<none>".into());
        let names = image.names.iter().map(ImageName::columns).chain(image.names.is_empty().then(none));
        for (repository, tag) in names {
            let (repository, tag) = (table::shortened(&escaped(repository), 32), table::shortened(&escaped(tag), 16));
            writeln!(out, "{repository:<32} {tag:<16} {:<12} {age:>18} {:>12}", image.short_id(), HumanBytes(image.size).to_string())?;
        }
    }
    Ok(0)
}

/// The description of an image in a list.
fn summary(image: &StoredImage) -> Value {
    let loaded = image.loaded.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let names: Vec<String> = image.names.iter().map(ImageName::familiar).collect();
    json!({ "id": image.id.to_string(), "names": names, "bytes": image.size, "loaded": loaded, "created": image.config.created })
}

fn inspect(names: &[String]) -> Result<u8, Failure> {
    let store = store()?;
    let described = names.iter().map(|name| {
        let image = store.find(name)?;
        let config: Value = serde_json::from_slice(&store.raw_config(image.id)?).unwrap_or_default();
        let names: Vec<String> = image.names.iter().map(ImageName::familiar).collect();
        let layers: Vec<String> = image.config.layers.iter().map(ToString::to_string).collect();
        Ok::<_, Failure>(json!({
            "Id": image.id.to_string(), "RepoTags": names, "Created": image.config.created, "Architecture": config["architecture"],
            "Os": config["os"], "Size": image.size, "Config": config["config"], "RootFS": { "Type": "layers", "Layers": layers },
        }))
    });
    let described: Vec<Value> = described.collect::<Result<_, _>>()?;
    writeln!(io::stdout(), "{:#}", Value::from(described))?;
    Ok(0)
}

fn remove(names: &[String], force: bool) -> Result<u8, Failure> {
    let (store, users) = (store()?, TemplateStore::of(&environment::caller())?.image_users()?);
    let mut status = 0;
    for name in names {
        match store.remove(name, &users, force) {
            Ok(removed) => print_removed(&removed)?,
            Err(error) => {
                diagnostics::print_error(&Failure::from(error));
                status = 1;
            }
        }
    }
    Ok(status)
}

fn prune(all: bool) -> Result<u8, Failure> {
    let users = TemplateStore::of(&environment::caller())?.image_users()?;
    let removed = store()?.prune(&users, all)?;
    print_removed(&removed)?;
    writeln!(io::stdout(), "Total reclaimed space: {}", HumanBytes(removed.bytes))?;
    Ok(0)
}

/// Prints what was removed, as docker does.
fn print_removed(removed: &Removal) -> io::Result<()> {
    let mut out = io::stdout().lock();
    removed.names.iter().try_for_each(|name| writeln!(out, "Untagged: {}", escaped(name)))?;
    removed.images.iter().chain(&removed.layers).try_for_each(|digest| writeln!(out, "Deleted: {digest}"))
}
