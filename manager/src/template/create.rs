// SPDX-License-Identifier: MIT OR Apache-2.0
//! Creates a template: starts the program, waits until it is ready, and writes its state.
//!
//! It works in steps, because a confined process cannot look for files: a [`Plan`] finds everything on the host, a [`PreparedProgram`] is
//! the cell before it has run.

use super::{Manifest, TemplateError, TemplateSpec, TemplateStore, load_volumes};
use crate::cell::{CellGuard, CellSpec};
use crate::environment::HostEnvironment;
use crate::limits::Limits;
use crate::outcome::exit_status;
use crate::report::Warning;
use crate::root::RootGuard;
use crate::time_limits::TimeLimits;
use crate::view::PreparedView;
use crate::view_images::ViewImages;
use pando_kernel::{CellId, ConsolePort, End, Kernel, OperatorError};
use pando_launch::{LaunchError, Program, Root, Template};
use pando_machine::PageCount;
use pando_store::TemplateFile;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use tempfile::TempPath;

/// Reads a program's output to its end.
pub type OutputSink<'a> = &'a mut dyn FnMut(CellId, &ConsolePort) -> std::io::Result<()>;
/// Receives the cell that runs at present, or `None` while the state is written.
pub type CellObserver<'a> = &'a dyn Fn(Option<CellId>);

/// A validated specification of a template, with the files that it needs.
pub struct Plan {
    spec: TemplateSpec,
    store: TemplateStore,
    environment: HostEnvironment,
    manifest: Manifest,
    memory: PageCount,
    /// The files that its program sees.
    pub view: PreparedView,
}

/// The kernel in which a template is created, and the watcher of its time limits.
#[derive(Clone, Copy)]
pub struct CreationContext<'a> {
    /// The kernel.
    pub kernel: &'a Arc<Kernel>,
    /// The booted libOS.
    pub libos: &'a Template,
    /// Terminates the program and the training clones when their time limits expire.
    pub time_limits: &'a TimeLimits,
}

/// A program that is not started yet, with its view.
struct PreparedProgram {
    cell: CellGuard,
    spec: CellSpec,
    /// Dropped after its clone.
    _root: RootGuard,
}

impl Plan {
    /// Finds the files for a template on the host, and creates the directory of templates.
    ///
    /// # Errors
    /// A file cannot be found, or the template exists already.
    pub fn new(spec: TemplateSpec, store: &TemplateStore, environment: &HostEnvironment) -> Result<Plan, TemplateError> {
        spec.view.check_unchanging()?;
        store.check_free(&spec.name, spec.replace)?;
        store.create_directory()?;
        let view_images = Some(ViewImages::for_new(store.directory()));
        let environment = &HostEnvironment { view_images, ..environment.clone() };
        let (view, fingerprint) = PreparedView::for_template(&spec.view, &spec.command, environment)?;
        let manifest = Manifest::new(&spec, &view, environment, fingerprint)?;
        // Read before the process is confined: it cannot query the host then.
        let memory = spec.limits.memory();
        Ok(Plan { spec, store: store.clone(), environment: environment.clone(), manifest, memory, view })
    }

    /// Its memory limit.
    pub fn memory(&self) -> PageCount {
        self.memory
    }

    /// Creates all variants of the template: runs the program until it is ready, trains with clones if requested, and writes its state.
    /// `output` reads the program's output meanwhile, to its end. `observer` receives the cell that runs.
    ///
    /// # Errors
    /// The program ends before it is ready, there is not enough memory, or the state cannot be written.
    pub fn create(&self, context: CreationContext<'_>, output: OutputSink<'_>, observer: CellObserver<'_>) -> Result<(), TemplateError> {
        // The replaced template may have had more variants.
        self.store.replace(&self.spec.name, self.spec.variants, || {
            (0..self.spec.variants).try_for_each(|number| {
                let file = self.store.variant(&self.spec.name, number);
                remove_leftovers(self.store.directory(), &file);
                let prepared = self.prepare(context)?;
                self.create_variant(context, (&prepared, &file), output, observer)
            })
        })
    }

    /// Creates the program's cell.
    fn prepare(&self, CreationContext { kernel, libos, .. }: CreationContext<'_>) -> Result<PreparedProgram, TemplateError> {
        let Plan { spec: TemplateSpec { view, limits, .. }, environment, .. } = self;
        let root = RootGuard::new(Arc::<Kernel>::clone(kernel), Root::new(kernel, libos, self.view.volumes.clone())?);
        let program = Program { memory: self.memory, is_template: true, ..self.view.program(view, environment) };
        let spec = CellSpec { program, limits: *limits, host_name: None };
        let cell = spec.create(Arc::<Kernel>::clone(kernel), &root)?;
        Ok(PreparedProgram { cell, spec, _root: root })
    }

    /// Creates one variant.
    fn create_variant(
        &self,
        context: CreationContext<'_>,
        (prepared, file): (&PreparedProgram, &Path),
        output: OutputSink<'_>,
        observer: CellObserver<'_>,
    ) -> Result<(), TemplateError> {
        let CreationContext { kernel, time_limits, .. } = context;
        let cell = prepared.cell.id();
        observer(Some(cell));
        let port = prepared.cell.console()?;
        port.close_input();
        prepared.cell.start(&self.spec.limits, time_limits)?;
        output(cell, &port).map_err(TemplateError::Output)?;
        kernel.wait_frozen(cell).map_err(|error| match error {
            OperatorError::Ended { end, .. } => TemplateError::NotReady { program: self.view.arguments[0].clone(), end },
            error => LaunchError::from(error).into(),
        })?;
        // It is ready: the rest has no time limit.
        time_limits.lift(cell);
        // An interrupt while saving leaves the previous template.
        observer(None);
        if self.spec.training.clones == 0 {
            return self.save(kernel, cell, file);
        }
        // Clones are loaded from a file, of which nothing is in memory at first. The training clone is, too.
        let untrained = unfinished(file)?;
        self.save(kernel, cell, &untrained)?;
        prepared.cell.end(End::Killed);
        let template = load_volumes(&TemplateFile::open(&untrained)?, kernel, self.view.volumes.clone(), self.memory)?;
        let trained = (0..self.spec.training.clones).try_for_each(|_| self.train(context, &prepared.spec, &template));
        // The template is usable without training.
        if let Err(error) = trained
            && self.spec.training.is_requested
        {
            self.environment.reporter.warn(Warning::TrainingFailed(error.to_string()));
        }
        self.save(kernel, template.cell(), file)
    }

    /// Runs a training clone to its end, or to its time limit.
    fn train(
        &self,
        CreationContext { kernel, time_limits, .. }: CreationContext<'_>,
        spec: &CellSpec,
        template: &Root,
    ) -> Result<(), LaunchError> {
        let training = &self.spec.training;
        let arguments = training.arguments.iter().map(|argument| argument.as_bytes().to_vec()).collect();
        let program = Program { arguments, environment: Vec::new(), is_template: false, ..spec.program.clone() };
        let limits = Limits { cpu_limit: None, time: training.time(&self.spec.limits), ..self.spec.limits };
        let clone = CellSpec { program, limits, host_name: None }.create(Arc::<Kernel>::clone(kernel), template)?;
        kernel.train(template.cell(), clone.id())?;
        let port = clone.console()?;
        port.close_input();
        clone.start(&limits, time_limits)?;
        while port.receive().is_some() {}
        let outcome = clone.wait()?;
        time_limits.lift(clone.id());
        if training.is_requested && exit_status(&outcome.end) != 0 {
            self.environment.reporter.warn(Warning::TrainingEnded(outcome.end));
        }
        Ok(())
    }

    fn save(&self, kernel: &Kernel, cell: CellId, file: &Path) -> Result<(), TemplateError> {
        pando_store::save(kernel, cell, file, |image| {
            let manifest = self.manifest.with_files_of(&self.view.volumes, image, true).map_err(io::Error::other)?;
            Ok(manifest.encode())
        })?;
        Ok(())
    }
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
fn unfinished(file: &Path) -> Result<TempPath, TemplateError> {
    let directory = file.parent().unwrap_or(Path::new("."));
    let file = tempfile::Builder::new().prefix(&prefix(file)).suffix(SUFFIX).tempfile_in(directory);
    let file = file.map_err(|source| TemplateError::File { path: directory.into(), source })?;
    Ok(file.into_temp_path())
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
