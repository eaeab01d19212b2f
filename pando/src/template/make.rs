// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes a template: starts the program, waits until it is ready, and writes what it is then.
//!
//! In steps, because a confined process does not look for what it needs: a [`Plan`] finds all on the host, a [`Sprout`] is its cell before it has run.

use super::{Create, Recipe, Training, place};
use crate::failure::Failure;
use crate::guard::{CellGuard, RootGuard};
use crate::laps::Laps;
use crate::machine;
use crate::progress::Progress;
use crate::run::told;
use crate::say;
use crate::signals::Signals;
use crate::size::Size;
use crate::view::Asked;
use crate::watch::Watch;
use pando_confine::Needs;
use pando_kernel::{CellId, ConsolePort, End, Kernel, OperatorError};
use pando_launch::{LaunchError, Program, Root, Template, carry_output};
use pando_machine::PageCount;
use pando_store::Saved;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use tempfile::TempPath;

/// Takes what a program says, to its end.
pub(crate) type Tell<'a> = &'a mut dyn FnMut(CellId, &ConsolePort) -> std::io::Result<()>;
/// Is told which cell is the one that runs.
pub(crate) type Aim<'a> = &'a dyn Fn(Option<CellId>);

/// What is to become a template.
pub(crate) struct Plan {
    options: Create,
    recipe: Recipe,
    pub(crate) asked: Asked,
    memory: PageCount,
}

/// A program that has not been started yet, and what it sees.
struct Sprout {
    cell: CellGuard,
    program: Program,
    /// Goes after its clone.
    _root: RootGuard,
}

/// Makes a template and keeps it.
///
/// # Errors
/// The program cannot be started, ends before it is ready, or what it is cannot be written.
pub(crate) fn create(options: &Create) -> Result<u8, Failure> {
    let mut plan = Plan::new(options.clone())?;
    pando_confine::forbid_dumps()?;
    plan.asked.reach.change.push(place::directory()?);
    let mut laps = Laps::start();
    let kernel = Arc::new(machine::start(plan.memory, &plan.asked.reach, &mut laps)?);
    let libos = machine::libos(&kernel, &mut laps)?;
    // Both have threads, which a confined process starts no more.
    let watch = Watch::start(&kernel).map_err(Failure::Thread)?;
    let signals = Signals::pass_on(&kernel, None, &watch)?;
    // Compressing does not need a thread, writing the file needs what writing back needs.
    machine::limit_calls(Needs { writing_back: true, ..Needs::default() })?;
    let most = options.limits.output_limit.map(Size::in_bytes);
    let mut tell = |cell, port: &ConsolePort| carry_output(&kernel, cell, port, (std::io::stdout().lock(), std::io::stderr()), most);
    plan.grow(&kernel, &libos, &watch, &mut tell, &|cell| signals.aim(cell))?;
    Ok(0)
}

impl Plan {
    /// Finds on the host what a template is made of, and makes the directory in which it will be kept.
    ///
    /// # Errors
    /// It cannot be found, or there is such a template already.
    pub(crate) fn new(options: Create) -> Result<Plan, Failure> {
        let Create { seen, limits, replace, name, words, .. } = &options;
        if let Some(volume) = seen.volumes.iter().find(|volume| volume.writable) {
            return Err(Failure::Volume { file: volume.host.clone(), why: "clones have no way back to the host: add `:ro`".into() });
        }
        super::check_free(name, *replace)?;
        place::make(&place::directory()?)?;
        let (asked, fingerprint) = Asked::for_template(seen, &words[0])?;
        let recipe = Recipe::new(name, &options, &asked, fingerprint)?;
        // Before the process is confined: it cannot ask the host then.
        let memory = limits.memory();
        Ok(Plan { options, recipe, asked, memory })
    }

    /// Makes the template in all of its variants: runs the program until it is ready, lets it learn from a clone if that is wanted, and writes what it is. `tell` takes what the program says
    /// meanwhile, to its end; `aim` is told which cell is the one that runs, none while it is written.
    ///
    /// # Errors
    /// The program ends before it is ready, there is not enough memory, or it cannot be written.
    pub(crate) fn grow(&self, kernel: &Arc<Kernel>, libos: &Template, watch: &Watch, tell: Tell<'_>, aim: Aim<'_>) -> Result<(), Failure> {
        for number in 0..self.options.variants {
            let file = place::variant(&self.options.name, number)?;
            remove_leftovers(&place::directory()?, &file);
            let sprout = self.plant(kernel, libos)?;
            self.tend(kernel, (&sprout, &file), watch, tell, aim)?;
        }
        // What was replaced may have had more.
        place::keep_first(&self.options.name, self.options.variants)
    }

    /// Makes the cell of the program.
    fn plant(&self, kernel: &Arc<Kernel>, libos: &Template) -> Result<Sprout, Failure> {
        let Plan { options: Create { seen, limits, words, .. }, asked, memory, .. } = self;
        let root = RootGuard::new(kernel, Root::new(kernel, libos, asked.volumes.clone())?);
        let program = Program { memory: *memory, is_template: true, ..asked.program(seen, words) };
        let cell = CellGuard::new(kernel, program.prepare(kernel, &root)?);
        limits.apply(kernel, cell.cell())?;
        Ok(Sprout { cell, program, _root: root })
    }

    /// Makes one variant.
    fn tend(
        &self,
        kernel: &Arc<Kernel>,
        (sprout, file): (&Sprout, &Path),
        watch: &Watch,
        tell: Tell<'_>,
        aim: Aim<'_>,
    ) -> Result<(), Failure> {
        let cell = sprout.cell.cell();
        aim(Some(cell));
        let port = kernel.console(cell).map_err(LaunchError::from)?;
        port.close_input();
        kernel.start(cell).map_err(LaunchError::from)?;
        if let Some(time) = self.options.limits.timeout {
            watch.limit(cell, time, End::TimedOut);
        }
        tell(cell, &port).map_err(Failure::Output)?;
        kernel.wait_frozen(cell).map_err(|error| match error {
            OperatorError::Ended(end) => Failure::NotReady { program: self.options.words[0].clone(), end },
            error => LaunchError::from(error).into(),
        })?;
        // It is ready: what comes now takes as long as it takes.
        watch.lift(cell);
        // Who interrupts the saving leaves what was there before.
        aim(None);
        let training = self.options.training();
        if training.clones == 0 {
            return self.save(kernel, cell, file);
        }
        // Clones will be made of what a file holds, of which nothing is in memory at first: so is the first one to learn from.
        let untrained = unfinished(file)?;
        self.save(kernel, cell, &untrained)?;
        kernel.end(cell, End::Killed).map_err(LaunchError::from)?;
        let template = super::load_volumes(&Saved::open(&untrained)?, kernel, self.asked.volumes.clone(), self.memory)?;
        let learned = (0..training.clones).try_for_each(|_| train(kernel, (&sprout.program, &template), self.lesson(), training, watch));
        // It is a template without that, too.
        if let Err(failure) = learned
            && training.is_asked
        {
            say::problem(&format_args!("the clone to learn from: {failure}"));
        }
        self.save(kernel, template.cell(), file)
    }

    fn save(&self, kernel: &Kernel, cell: CellId, file: &Path) -> Result<(), Failure> {
        let progress = Progress::bytes("saving", 0);
        pando_store::save(kernel, cell, file, &self.recipe.encode())?;
        progress.end();
        Ok(())
    }

    /// What clones to learn from are given.
    fn lesson(&self) -> Vec<Vec<u8>> {
        self.options.train_arg.iter().map(|argument| argument.as_bytes().to_vec()).collect()
    }
}

/// Runs a clone to its end, or as long as it may, from which the template learns.
fn train(
    kernel: &Arc<Kernel>,
    (program, template): (&Program, &Root),
    arguments: Vec<Vec<u8>>,
    training: Training,
    watch: &Watch,
) -> Result<(), Failure> {
    let program = Program { arguments, environment: Vec::new(), is_template: false, ..program.clone() };
    let guard = CellGuard::new(kernel, program.prepare(kernel, template)?);
    let clone = guard.cell();
    kernel.teach(template.cell(), clone).map_err(LaunchError::from)?;
    let port = kernel.console(clone).map_err(LaunchError::from)?;
    port.close_input();
    kernel.start(clone).map_err(LaunchError::from)?;
    if let Some(time) = training.most {
        watch.limit(clone, time, End::TimedOut);
    }
    while port.receive().is_some() {}
    let outcome = match kernel.wait(clone) {
        // It has frozen itself, which nobody asked it to.
        Err(OperatorError::Froze) => kernel.end(clone, End::Killed).and_then(|()| kernel.wait(clone)),
        ended => ended,
    };
    let outcome = outcome.map_err(LaunchError::from)?;
    if training.most.is_some() {
        watch.lift(clone);
    }
    if training.is_asked && told(&outcome).0 != 0 {
        say::problem(&format_args!("the clone to learn from: {}: what it did until then was learned", outcome.end));
    }
    Ok(())
}

/// How the names of files end that are not whole yet.
const SUFFIX: &str = ".new";

/// How the names begin of those that will be this one.
fn prefix(file: &Path) -> OsString {
    let mut prefix = OsString::from(".");
    prefix.push(file.file_name().unwrap_or_default());
    prefix.push(".");
    prefix
}

/// A file beside another, for what is not whole yet; removed when it is dropped.
fn unfinished(file: &Path) -> Result<TempPath, Failure> {
    let directory = file.parent().unwrap_or(Path::new("."));
    let made = tempfile::Builder::new().prefix(&prefix(file)).suffix(SUFFIX).tempfile_in(directory);
    let made = made.map_err(|source| Failure::Templates { path: directory.into(), source })?;
    Ok(made.into_temp_path())
}

/// Removes what a process left that was killed while it saved this template.
fn remove_leftovers(directory: &Path, file: &Path) {
    let begins = prefix(file);
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let left = entry.file_name();
        if left.as_bytes().starts_with(begins.as_bytes()) && left.as_bytes().ends_with(SUFFIX.as_bytes()) {
            // What cannot be removed is in nobody's way.
            let _ = std::fs::remove_file(entry.path());
        }
    }
}
