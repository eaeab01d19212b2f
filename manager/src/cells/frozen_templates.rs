// SPDX-License-Identifier: MIT OR Apache-2.0
//! The templates of a service in a cell: frozen children of this cell, kept by name in memory. They end with the service.

use super::ManagerError;
use super::loaded::{LoadState, LoadedTemplate, collect_output, with_output};
use super::origin::{CellOrigin, template_of};
use super::provider::{TemplateProvider, TemplateSummary};
use super::tasks::lock;
use crate::cell::CellSpec;
use crate::environment::HostEnvironment;
use crate::limits::Limits;
use crate::root::RootGuard;
use crate::template::{Manifest, TemplateError, TemplateName, TemplateSpec};
use crate::time_limits::TimeLimits;
use crate::view::{ViewSpec, program_in_same_view};
use pando_kernel::{CellId, OperatorError};
use pando_launch::{LaunchError, NestedCells, Operator, Program, Root};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::{Arc, Mutex, OnceLock};

/// Templates in memory.
pub(super) struct FrozenTemplates {
    operator: Arc<dyn Operator>,
    time_limits: TimeLimits,
    environment: HostEnvironment,
    all: Mutex<BTreeMap<TemplateName, Arc<LoadedTemplate>>>,
    /// The root of programs, once there was one.
    root: OnceLock<Arc<LoadedTemplate>>,
}

impl FrozenTemplates {
    pub(super) fn new(operator: Arc<dyn Operator>, time_limits: TimeLimits, environment: HostEnvironment) -> FrozenTemplates {
        // A template sees what this cell saw at its start, from the root directory on, as on a host.
        let environment = HostEnvironment { directory: None, ..environment };
        FrozenTemplates { operator, time_limits, environment, all: Mutex::default(), root: OnceLock::new() }
    }

    fn find(&self, name: &TemplateName) -> Option<Arc<LoadedTemplate>> {
        lock(&self.all).get(name).cloned()
    }

    /// Adds a template. One that it replaces is released with its last clone.
    fn add(&self, name: &TemplateName, root: Root, manifest: Manifest, is_forced: bool) {
        let loaded = LoadedTemplate::in_memory(RootGuard::new(Arc::clone(&self.operator), root), manifest, is_forced);
        let old = lock(&self.all).insert(name.clone(), Arc::new(loaded));
        drop(old);
    }

    /// Finds a program of this cell's files.
    fn find_program(&self, view: &ViewSpec, command: &[OsString]) -> Result<Program, TemplateError> {
        let program = command.first().map(OsString::as_os_str).unwrap_or_default();
        Ok(program_in_same_view(view, program, &self.environment.with_path_of(&view.variables), command)?)
    }

    /// Starts the template's program, and returns its cell once it is frozen.
    fn freeze(&self, spec: &TemplateSpec, program: Program, output: &mut Vec<u8>) -> Result<CellId, TemplateError> {
        let name: OsString = spec.command.first().cloned().unwrap_or_default();
        let cell = CellSpec { program, limits: spec.limits, host_name: None }.create(Arc::clone(&self.operator), &NestedCells::root())?;
        let port = cell.console()?;
        port.close_input();
        cell.start(&spec.limits, &self.time_limits)?;
        collect_output(&port, output);
        self.operator.wait_frozen(cell.id(), None).map_err(|error| match error {
            LaunchError::Kernel(OperatorError::Ended { end, .. }) => TemplateError::NotReady { program: name, end },
            error => error.into(),
        })?;
        // It is ready: the rest has no time limit.
        self.time_limits.lift(cell.id());
        Ok(cell.release())
    }
}

impl TemplateProvider for FrozenTemplates {
    fn find_loaded(&self, name: &TemplateName) -> Result<Option<Arc<LoadedTemplate>>, TemplateError> {
        Ok(self.find(name))
    }

    fn load(&self, name: &TemplateName) -> Result<LoadState, ManagerError> {
        Ok(self.find(name).map_or(LoadState::Missing, LoadState::Ready))
    }

    fn program(&self, view: &ViewSpec, command: &[OsString], name: TemplateName, limits: Limits) -> Result<CellOrigin, ManagerError> {
        let spec = template_of(view, command, name, limits);
        if let Some(option) = unsupported(&spec) {
            return Err(ManagerError::NotInside(option));
        }
        let program = self.find_program(view, command)?;
        let manifest = Manifest::in_memory(&spec, &Program { memory: limits.memory(), ..program.clone() })?;
        let root = self.root.get_or_init(|| {
            let root = RootGuard::new(Arc::clone(&self.operator), NestedCells::root());
            Arc::new(LoadedTemplate::in_memory(root, manifest.clone(), false))
        });
        Ok(CellOrigin::program(Arc::clone(root), manifest, program))
    }

    fn create(&self, spec: TemplateSpec) -> Result<(), ManagerError> {
        self.check_free(&spec.name, spec.replace)?;
        if let Some(option) = unsupported(&spec) {
            return Err(ManagerError::NotInside(option));
        }
        let program = self.find_program(&spec.view, &spec.command)?;
        let memory = spec.limits.memory();
        let program = Program { memory, is_template: true, ..program };
        let manifest = Manifest::in_memory(&spec, &program)?;
        let mut output = Vec::new();
        let cell = self.freeze(&spec, program, &mut output).map_err(|error| with_output(error, &output))?;
        self.add(&spec.name, Root::loaded(cell, Vec::new(), Vec::new()), manifest, false);
        Ok(())
    }

    fn nesting_root(&self, _template: &LoadedTemplate) -> Result<CellId, ManagerError> {
        // All see the files of this cell.
        Ok(NestedCells::root().cell())
    }

    fn check_free(&self, name: &TemplateName, replaces: bool) -> Result<(), TemplateError> {
        if self.find(name).is_some() && !replaces { Err(TemplateError::Exists(name.to_string())) } else { Ok(()) }
    }

    fn keep_clone(&self, origin: &CellOrigin, cell: CellId, name: &TemplateName, by_force: bool) -> Result<(), ManagerError> {
        // A clone that never starts: it has what the frozen cell has, which ends with its own outcome.
        let clone = self.operator.clone_cell(cell, origin.manifest.memory(), None)?;
        let is_forced = by_force || origin.loaded.is_forced();
        self.add(name, Root::loaded(clone, Vec::new(), Vec::new()), origin.manifest.renamed(name), is_forced);
        Ok(())
    }

    fn remove(&self, name: &TemplateName) -> Result<(), TemplateError> {
        let removed = lock(&self.all).remove(name);
        removed.map(drop).ok_or_else(|| TemplateError::Missing(name.to_string()))
    }

    fn all(&self) -> Result<Vec<TemplateSummary>, TemplateError> {
        let all: Vec<_> = lock(&self.all).iter().map(|(name, template)| (name.clone(), Arc::clone(template))).collect();
        Ok(all.into_iter().map(|(name, template)| summary(name, &template)).collect())
    }

    fn describe(&self, name: &TemplateName) -> Result<TemplateSummary, TemplateError> {
        let found = self.find(name).ok_or_else(|| TemplateError::Missing(name.to_string()))?;
        Ok(summary(name.clone(), &found))
    }
}

fn summary(name: TemplateName, template: &LoadedTemplate) -> TemplateSummary {
    let manifest = Manifest::clone(&template.manifest());
    TemplateSummary { name, manifest, variants: 1, file_bytes: 0, is_forced: template.is_forced() }
}

/// The first option that a template in a cell does not support.
fn unsupported(spec: &TemplateSpec) -> Option<&'static str> {
    let view = &spec.view;
    let options = [
        (!view.volumes.is_empty(), "volumes (-v)"),
        (view.root.is_some(), "root (--root)"),
        (view.image.is_some(), "image (--image)"),
        (!view.temporary.is_empty(), "--tmpfs"),
        (view.read_only, "--read-only"),
        (view.bare, "bare (--bare)"),
        (spec.variants > 1, "variants (--variants)"),
        // The built-in templates request training, which spares a host's clones reads of a file.
        (spec.training.is_requested && TemplateSpec::standard(&spec.name).is_none(), "train (--train)"),
    ];
    options.into_iter().find_map(|(is_given, name)| is_given.then_some(name))
}
