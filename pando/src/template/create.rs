// SPDX-License-Identifier: MIT OR Apache-2.0
//! Creates a template: starts the program, waits until it is ready, and writes its state.
//!
//! It works in steps, because a confined process cannot look for files: a [`Plan`] finds everything on the host, a [`PreparedProgram`] is the cell
//! before it has run.

use super::{Create, Manifest, Training, place};
use crate::diagnostics;
use crate::failure::Failure;
use crate::guards::{CellGuard, RootGuard};
use crate::machine;
use crate::progress::Progress;
use crate::run::told;
use crate::signals::Signals;
use crate::size::Size;
use crate::time_limits::TimeLimits;
use crate::timings::Timings;
use crate::view::ViewRequest;
use pando_confine::Needs;
use pando_kernel::{CellId, ConsolePort, End, Kernel, OperatorError};
use pando_launch::{LaunchError, Program, Root, Template, carry_output};
use pando_machine::PageCount;
use pando_store::TemplateFile;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use tempfile::TempPath;

/// Reads a program's output to its end.
pub(crate) type OutputSink<'a> = &'a mut dyn FnMut(CellId, &ConsolePort) -> std::io::Result<()>;
/// Receives the cell that runs at present.
pub(crate) type CellObserver<'a> = &'a dyn Fn(Option<CellId>);

/// A validated request for a template.
pub(crate) struct Plan {
    options: Create,
    manifest: Manifest,
    pub(crate) asked: ViewRequest,
    memory: PageCount,
}

/// A program that is not started yet, with its view.
struct PreparedProgram {
    cell: CellGuard,
    program: Program,
    /// Dropped after its clone.
    _root: RootGuard,
}

/// Creates and stores a template.
///
/// # Errors
/// The program cannot be started, ends before it is ready, or its state cannot be written.
pub(crate) fn create(options: &Create) -> Result<u8, Failure> {
    let mut plan = Plan::new(options.clone())?;
    pando_confine::forbid_dumps()?;
    plan.asked.reach.change.push(place::directory()?);
    let mut timings = Timings::start();
    let kernel = Arc::new(machine::start(plan.memory, &plan.asked.reach, &mut timings)?);
    let libos = machine::libos(&kernel, &mut timings)?;
    // Both start threads, which a confined process cannot.
    let watch = TimeLimits::start(&kernel).map_err(Failure::Thread)?;
    let signals = Signals::pass_on(&kernel, None, &watch)?;
    // Compression starts no thread; writing the file needs the same calls as a write-back.
    machine::limit_calls(Needs { writing_back: true, ..Needs::default() })?;
    let most = options.limits.output_limit.map(Size::in_bytes);
    let mut tell = |cell, port: &ConsolePort| carry_output(&kernel, cell, port, (std::io::stdout().lock(), std::io::stderr()), most);
    plan.grow(&kernel, &libos, &watch, &mut tell, &|cell| signals.aim(cell))?;
    Ok(0)
}

impl Plan {
    /// Finds the files for a template on the host, and creates the directory of templates.
    ///
    /// # Errors
    /// A file cannot be found, or the template exists already.
    pub(crate) fn new(options: Create) -> Result<Plan, Failure> {
        let Create { seen, limits, replace, name, words, .. } = &options;
        if let Some(volume) = seen.volumes.iter().find(|volume| volume.writable) {
            return Err(Failure::Volume { file: volume.host.clone(), why: "clones cannot write to the host: add `:ro`".into() });
        }
        super::check_free(name, *replace)?;
        place::make(&place::directory()?)?;
        let (asked, fingerprint) = ViewRequest::for_template(seen, &words[0])?;
        let manifest = Manifest::new(name, &options, &asked, fingerprint)?;
        // Read before the process is confined: it cannot query the host then.
        let memory = limits.memory();
        Ok(Plan { options, manifest, asked, memory })
    }

    /// Creates all variants of the template: runs the program until it is ready, trains with clones if requested, and writes its state.
    /// `tell` reads the program's output meanwhile, to its end. `aim` receives the cell that runs, or `None` while the state is written.
    ///
    /// # Errors
    /// The program ends before it is ready, there is not enough memory, or the state cannot be written.
    pub(crate) fn grow(
        &self,
        kernel: &Arc<Kernel>,
        libos: &Template,
        watch: &TimeLimits,
        tell: OutputSink<'_>,
        aim: CellObserver<'_>,
    ) -> Result<(), Failure> {
        for number in 0..self.options.variants {
            let file = place::variant(&self.options.name, number)?;
            remove_leftovers(&place::directory()?, &file);
            let prepared = self.plant(kernel, libos)?;
            self.tend(kernel, (&prepared, &file), watch, tell, aim)?;
        }
        // The replaced template may have had more variants.
        place::keep_first(&self.options.name, self.options.variants)
    }

    /// Creates the program's cell.
    fn plant(&self, kernel: &Arc<Kernel>, libos: &Template) -> Result<PreparedProgram, Failure> {
        let Plan { options: Create { seen, limits, words, .. }, asked, memory, .. } = self;
        let root = RootGuard::new(kernel, Root::new(kernel, libos, asked.volumes.clone())?);
        let program = Program { memory: *memory, is_template: true, ..asked.program(seen, words) };
        let cell = CellGuard::new(kernel, program.prepare(kernel, &root)?);
        limits.apply(kernel, cell.cell())?;
        Ok(PreparedProgram { cell, program, _root: root })
    }

    /// Creates one variant.
    fn tend(
        &self,
        kernel: &Arc<Kernel>,
        (prepared, file): (&PreparedProgram, &Path),
        watch: &TimeLimits,
        tell: OutputSink<'_>,
        aim: CellObserver<'_>,
    ) -> Result<(), Failure> {
        let cell = prepared.cell.cell();
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
        // It is ready: the rest has no time limit.
        watch.lift(cell);
        // An interrupt while saving leaves the previous template.
        aim(None);
        let training = self.options.training();
        if training.clones == 0 {
            return self.save(kernel, cell, file);
        }
        // Clones are loaded from a file, of which nothing is in memory at first. The training clone is, too.
        let untrained = unfinished(file)?;
        self.save(kernel, cell, &untrained)?;
        kernel.end(cell, End::Killed).map_err(LaunchError::from)?;
        let template = super::load_volumes(&TemplateFile::open(&untrained)?, kernel, self.asked.volumes.clone(), self.memory)?;
        let learned = (0..training.clones).try_for_each(|_| train(kernel, (&prepared.program, &template), self.lesson(), training, watch));
        // The template is usable without training.
        if let Err(failure) = learned
            && training.is_asked
        {
            diagnostics::problem(&format_args!("training clone: {failure}"));
        }
        self.save(kernel, template.cell(), file)
    }

    fn save(&self, kernel: &Kernel, cell: CellId, file: &Path) -> Result<(), Failure> {
        let progress = Progress::bytes("saving", 0);
        pando_store::save(kernel, cell, file, &self.manifest.encode())?;
        progress.end();
        Ok(())
    }

    /// The arguments of training clones.
    fn lesson(&self) -> Vec<Vec<u8>> {
        self.options.train_arg.iter().map(|argument| argument.as_bytes().to_vec()).collect()
    }
}

/// Runs a training clone to its end, or to its time limit.
fn train(
    kernel: &Arc<Kernel>,
    (program, template): (&Program, &Root),
    arguments: Vec<Vec<u8>>,
    training: Training,
    watch: &TimeLimits,
) -> Result<(), Failure> {
    let program = Program { arguments, environment: Vec::new(), is_template: false, ..program.clone() };
    let guard = CellGuard::new(kernel, program.prepare(kernel, template)?);
    let clone = guard.cell();
    kernel.train(template.cell(), clone).map_err(LaunchError::from)?;
    let port = kernel.console(clone).map_err(LaunchError::from)?;
    port.close_input();
    kernel.start(clone).map_err(LaunchError::from)?;
    if let Some(time) = training.most {
        watch.limit(clone, time, End::TimedOut);
    }
    while port.receive().is_some() {}
    let outcome = match kernel.wait(clone) {
        // It has frozen itself without a request.
        Err(OperatorError::Froze) => kernel.end(clone, End::Killed).and_then(|()| kernel.wait(clone)),
        ended => ended,
    };
    let outcome = outcome.map_err(LaunchError::from)?;
    if training.most.is_some() {
        watch.lift(clone);
    }
    if training.is_asked && told(&outcome).0 != 0 {
        diagnostics::problem(&format_args!("training clone: {}: the trace until then is used", outcome.end));
    }
    Ok(())
}

/// The suffix of unfinished files' names.
const SUFFIX: &str = ".new";

/// The prefix of the names of unfinished versions of this file.
fn prefix(file: &Path) -> OsString {
    let mut prefix = OsString::from(".");
    prefix.push(file.file_name().unwrap_or_default());
    prefix.push(".");
    prefix
}

/// An unfinished file beside the final one; removed when it is dropped.
fn unfinished(file: &Path) -> Result<TempPath, Failure> {
    let directory = file.parent().unwrap_or(Path::new("."));
    let made = tempfile::Builder::new().prefix(&prefix(file)).suffix(SUFFIX).tempfile_in(directory);
    let made = made.map_err(|source| Failure::Templates { path: directory.into(), source })?;
    Ok(made.into_temp_path())
}

/// Removes unfinished files of this template that a killed process left.
fn remove_leftovers(directory: &Path, file: &Path) {
    let begins = prefix(file);
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let left = entry.file_name();
        if left.as_bytes().starts_with(begins.as_bytes()) && left.as_bytes().ends_with(SUFFIX.as_bytes()) {
            // A file that cannot be removed does no harm.
            let _ = std::fs::remove_file(entry.path());
        }
    }
}
