// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes a template: starts the program, waits until it is ready, and writes what it is then.

use super::{Create, Recipe, place};
use crate::failure::Failure;
use crate::laps::Laps;
use crate::machine;
use crate::progress::Progress;
use crate::run::told;
use crate::say;
use crate::signals::Signals;
use crate::view::Asked;
use crate::watch::Watch;
use pando_confine::Needs;
use pando_kernel::{CellId, End, Kernel, OperatorError};
use pando_launch::{LaunchError, Program, Root, carry_output};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// Makes a template and keeps it.
///
/// # Errors
/// The program cannot be started, ends before it is ready, or what it is cannot be written.
pub(super) fn create(options: &Create) -> Result<u8, Failure> {
    let Create { seen, limits, replace, name, words, .. } = options;
    if let Some(volume) = seen.volumes.iter().find(|volume| volume.writable) {
        return Err(Failure::Volume { file: volume.host.clone(), why: "clones have no way back to the host: add `:ro`".into() });
    }
    let file = place::file(name)?;
    if file.exists() && !replace {
        return Err(Failure::TemplateThere(name.to_string()));
    }
    let directory = place::directory()?;
    place::make(&directory)?;
    pando_confine::forbid_dumps()?;
    let (mut asked, fingerprint) = Asked::for_template(seen, &words[0])?;
    let recipe = Recipe::new(name, options, &asked, fingerprint)?;
    asked.reach.change.push(directory.clone());
    remove_leftovers(&directory, &file);
    // Before the process is confined: it cannot ask the host then.
    let memory = limits.memory();
    let mut laps = Laps::start();
    let kernel = Arc::new(machine::start(memory, &asked.reach, &mut laps)?);
    let root = machine::root(&kernel, std::mem::take(&mut asked.volumes), &mut laps)?;
    let program = Program { memory, is_template: true, ..asked.program(seen, words) };
    let cell = program.prepare(&kernel, &root)?;
    limits.apply(&kernel, cell)?;
    // Both have threads, which a confined process starts no more.
    let watch = Watch::start(&kernel).map_err(Failure::Thread)?;
    let signals = Signals::pass_on(&kernel, cell, &watch)?;
    wait(options, &kernel, cell, &watch)?;
    if options.train || !options.train_arg.is_empty() {
        let arguments = options.train_arg.iter().map(|argument| argument.as_bytes().to_vec()).collect();
        train(
            options,
            &kernel,
            &root.frozen(cell),
            &Program { arguments, environment: Vec::new(), is_template: false, ..program },
            (&watch, &signals),
        )?;
    }
    // Who interrupts the saving leaves what was there before.
    signals.aim(None);
    save(&kernel, cell, &file, &recipe)?;
    Ok(0)
}

/// Removes what a process left that was killed while it saved this template.
fn remove_leftovers(directory: &Path, file: &Path) {
    let Some(name) = file.file_name() else { return };
    let begins = [b".", name.as_bytes(), b"."].concat();
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let left = entry.file_name();
        if left.as_bytes().starts_with(&begins) && left.as_bytes().ends_with(b".new") {
            // What cannot be removed is in nobody's way.
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// Runs the program until it is ready. What it says meanwhile is for whoever makes the template.
fn wait(options: &Create, kernel: &Kernel, cell: CellId, watch: &Watch) -> Result<(), Failure> {
    let port = kernel.console(cell).map_err(LaunchError::from)?;
    port.close_input();
    // Compressing does not need a thread, writing the file needs what writing back needs.
    pando_confine::limit_calls(Needs { writing_back: true, connecting: false })?;
    kernel.start(cell).map_err(LaunchError::from)?;
    if let Some(time) = options.limits.timeout {
        watch.limit(cell, time, End::TimedOut);
    }
    carry_output(kernel, cell, &port, std::io::stdout().lock(), std::io::stderr()).map_err(Failure::Output)?;
    kernel.wait_frozen(cell).map_err(|error| match error {
        OperatorError::Ended(end) => Failure::NotReady { program: options.words[0].clone(), end },
        error => LaunchError::from(error).into(),
    })?;
    // It is ready: what comes now takes as long as it takes.
    watch.lift(cell);
    Ok(())
}

/// Runs a clone to its end, from which the template learns.
fn train(
    options: &Create,
    kernel: &Kernel,
    template: &Root,
    program: &Program,
    (watch, signals): (&Watch, &Signals),
) -> Result<(), Failure> {
    let clone = program.prepare(kernel, template)?;
    kernel.teach(template.cell(), clone).map_err(LaunchError::from)?;
    let port = kernel.console(clone).map_err(LaunchError::from)?;
    port.close_input();
    signals.aim(Some(clone));
    kernel.start(clone).map_err(LaunchError::from)?;
    if let Some(time) = options.limits.timeout {
        watch.limit(clone, time, End::TimedOut);
    }
    while port.receive().is_some() {}
    let outcome = kernel.wait(clone).map_err(LaunchError::from)?;
    if told(&outcome).0 != 0 {
        say::problem(&format_args!("the clone to learn from: {}: what it did until then was learned", outcome.end));
    }
    Ok(())
}

fn save(kernel: &Kernel, cell: CellId, file: &Path, recipe: &Recipe) -> Result<(), Failure> {
    let progress = Progress::bytes("saving", 0);
    pando_store::save(kernel, cell, file, &recipe.encode())?;
    progress.end();
    Ok(())
}
