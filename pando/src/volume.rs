// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pando volume`: named volumes, with docker's names and formats.

use crate::completion;
use crate::diagnostics;
use crate::environment;
use crate::failure::Failure;
use clap::Subcommand;
use clap_complete::ArgValueCandidates;
use pando_manager::view::VolumeName;
use pando_manager::volumes::{StoredVolume, VolumeStore};
use serde_json::{Value, json};
use std::io::{self, IsTerminal, Write};

/// The subcommands of `pando volume`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Create an empty volume and print its name
    Create {
        /// Its name
        #[arg(value_name = "NAME")]
        name: VolumeName,
    },
    /// List the volumes
    #[command(visible_alias = "list")]
    Ls {
        /// Print only the names
        #[arg(short = 'q', long, conflicts_with = "json")]
        quiet: bool,
        /// Print one JSON object per line
        #[arg(long)]
        json: bool,
    },
    /// Print descriptions of volumes as a JSON array
    Inspect {
        /// The volumes
        #[arg(value_name = "NAME", required = true, add = ArgValueCandidates::new(completion::volumes))]
        names: Vec<VolumeName>,
    },
    /// Remove volumes with their files, and print their names
    Rm {
        /// The volumes
        #[arg(value_name = "NAME", required = true, add = ArgValueCandidates::new(completion::volumes))]
        names: Vec<VolumeName>,
    },
    /// Remove all volumes that no cell uses, with their files, and print their names
    Prune {
        /// Do not ask for a confirmation
        #[arg(short = 'f', long)]
        force: bool,
    },
}

/// The question before volumes are removed.
const QUESTION: &str = "pando: remove all volumes that no cell uses, with their files? [y/N] ";

/// Runs a subcommand.
///
/// # Errors
/// The subcommand fails.
pub(crate) fn command(command: &Command) -> Result<u8, Failure> {
    let store = VolumeStore::of(&environment::caller())?;
    let mut out = io::stdout().lock();
    match command {
        Command::Create { name } => {
            store.create(name)?;
            writeln!(out, "{name}")?;
        }
        Command::Ls { quiet, json } => list(&store, *quiet, *json, &mut out)?,
        Command::Inspect { names } => {
            let found: Vec<Value> = names.iter().map(|name| store.find(name).map(|found| described(&found))).collect::<Result<_, _>>()?;
            writeln!(out, "{:#}", Value::from(found))?;
        }
        Command::Rm { names } => return remove(&store, names, &mut out),
        Command::Prune { force } => return prune(&store, *force, &mut out),
    }
    Ok(0)
}

fn list(store: &VolumeStore, quiet: bool, json: bool, out: &mut impl Write) -> Result<(), Failure> {
    let all = store.all()?;
    if quiet {
        all.iter().try_for_each(|volume| writeln!(out, "{}", volume.name))?;
    } else if json {
        all.iter().try_for_each(|volume| writeln!(out, "{}", described(volume)))?;
    } else {
        writeln!(out, "{:<32} {:<7} MOUNTPOINT", "VOLUME NAME", "IN USE")?;
        for StoredVolume { name, directory, is_used } in &all {
            let used = if *is_used { "yes" } else { "no" };
            writeln!(out, "{:<32} {used:<7} {}", name.to_string(), directory.display())?;
        }
    }
    Ok(())
}

fn described(StoredVolume { name, directory, is_used }: &StoredVolume) -> Value {
    json!({ "name": name.to_string(), "mountpoint": directory.display().to_string(), "in_use": is_used })
}

fn remove(store: &VolumeStore, names: &[VolumeName], out: &mut impl Write) -> Result<u8, Failure> {
    let mut status = 0;
    for name in names {
        match store.remove(name) {
            Ok(()) => writeln!(out, "{name}")?,
            Err(error) => {
                diagnostics::print_error(&Failure::from(error));
                status = 1;
            }
        }
    }
    Ok(status)
}

fn prune(store: &VolumeStore, force: bool, out: &mut impl Write) -> Result<u8, Failure> {
    if !force && !is_confirmed()? {
        return Ok(1);
    }
    let unused: Vec<VolumeName> = store.all()?.into_iter().filter(|volume| !volume.is_used).map(|volume| volume.name).collect();
    remove(store, &unused, out)
}

/// Asks at the terminal whether volumes may be removed.
fn is_confirmed() -> Result<bool, Failure> {
    if !io::stdin().is_terminal() {
        return Err(Failure::NotConfirmed);
    }
    io::stderr().write_all(QUESTION.as_bytes())?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
