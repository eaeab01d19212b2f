// SPDX-License-Identifier: MIT OR Apache-2.0
//! The origins of cells: templates, and programs that start in a view.

use super::loaded::LoadedTemplate;
use super::spec::{CellSource, ManagedCellSpec};
use crate::limits::Limits;
use crate::root::RootGuard;
use crate::template::{Manifest, TemplateName, TemplateSpec, TrainingSpec};
use crate::view::ViewSpec;
use pando_launch::{Nesting, Program};
use pando_machine::PageCount;
use std::ffi::OsString;
use std::sync::Arc;

/// The name of a program whose own name is no valid name of a template.
const UNNAMED: &str = "program";

/// A loaded root to clone, and what the clone runs.
#[derive(Clone)]
pub(crate) struct CellOrigin {
    /// The root.
    pub(super) loaded: Arc<LoadedTemplate>,
    /// The recipe of the template, or that of one which the cell would become.
    pub(super) manifest: Arc<Manifest>,
    /// The program that the clone starts; `None`: it continues the template's.
    program: Option<Arc<Program>>,
}

impl CellOrigin {
    /// A template.
    pub(super) fn template(loaded: Arc<LoadedTemplate>) -> CellOrigin {
        CellOrigin { manifest: loaded.manifest(), loaded, program: None }
    }

    /// A program that starts in the root of its view.
    pub(super) fn program(loaded: Arc<LoadedTemplate>, manifest: Manifest, program: Program) -> CellOrigin {
        CellOrigin { loaded, manifest: Arc::new(manifest), program: Some(Arc::new(program)) }
    }

    /// The origin of copies of a running cell of this origin, whose root is the copy.
    pub(super) fn copy(&self, root: RootGuard) -> CellOrigin {
        let loaded = LoadedTemplate::copy_of_clone(&self.loaded, root);
        CellOrigin { loaded: Arc::new(loaded), manifest: Arc::clone(&self.manifest), program: None }
    }

    /// Whether nothing else uses it but the pool, which holds those of templates.
    pub(super) fn is_last(&self) -> bool {
        Arc::strong_count(&self.loaded) <= 1 + usize::from(self.program.is_none())
    }

    /// The memory limit of a cell that has none of its own.
    pub(super) fn memory(&self) -> PageCount {
        self.manifest.memory()
    }

    /// The description of the program for a cell of this origin. In a clone of a template its path is unused: the program runs already.
    pub(super) fn describe(&self, spec: &ManagedCellSpec, nesting: Option<Nesting>) -> Program {
        let memory = spec.limits.memory.unwrap_or(self.memory());
        match &self.program {
            Some(program) => Program { memory, nesting, ..Program::clone(program) },
            None => Program {
                arguments: spec.arguments.iter().map(|argument| argument.clone().into_bytes()).collect(),
                environment: spec.environment.clone(),
                memory,
                nesting,
                ..Program::default()
            },
        }
    }
}

impl CellSource {
    /// The start of the names of its cells.
    pub(super) fn name(&self, arguments: &[String]) -> TemplateName {
        let view = match self {
            CellSource::Template(name) => return name.clone(),
            CellSource::Program(view) => view,
        };
        let name = view.image.as_ref().map(|image| &image.name).or(arguments.first()).map_or("", String::as_str);
        // Without directories or a registry, and without the tag or digest of an image.
        let last = name.rsplit('/').next().unwrap_or_default();
        let plain = last.split([':', '@']).next().unwrap_or_default();
        plain.parse().unwrap_or_else(|_| UNNAMED.parse().expect("it is plain"))
    }
}

/// The specification of the template that a cell with this program would become.
pub(super) fn template_of(view: &ViewSpec, command: &[OsString], name: TemplateName, limits: Limits) -> TemplateSpec {
    TemplateSpec {
        name,
        command: command.to_vec(),
        view: view.clone(),
        limits,
        replace: false,
        variants: 1,
        training: TrainingSpec { clones: 0, arguments: Vec::new(), is_requested: false },
        is_standard: false,
    }
}
