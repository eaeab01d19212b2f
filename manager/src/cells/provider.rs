// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where templates are kept: in files on a host, in memory in a cell.

use super::ManagerError;
use super::loaded::{LoadState, LoadedTemplate};
use super::origin::CellOrigin;
use crate::limits::Limits;
use crate::template::{Manifest, TemplateError, TemplateName, TemplateSpec};
use crate::view::ViewSpec;
use pando_kernel::CellId;
use std::ffi::OsString;
use std::sync::Arc;

/// A template for front ends.
#[derive(Clone, Debug)]
pub struct TemplateSummary {
    /// Its name.
    pub name: TemplateName,
    /// How it was created.
    pub manifest: Manifest,
    /// The number of its variants.
    pub variants: usize,
    /// The size of its files; 0 if it has none.
    pub file_bytes: u64,
    /// Whether it, or an ancestor, was frozen by force.
    pub is_forced: bool,
}

/// Keeps templates by name. All calls may block. Callers hold the lock of a name that they change.
pub(super) trait TemplateProvider: Send + Sync {
    /// The template of a name, if it can be cloned without waiting for long.
    ///
    /// # Errors
    /// It cannot be looked for.
    fn find_loaded(&self, name: &TemplateName) -> Result<Option<Arc<LoadedTemplate>>, TemplateError>;

    /// The template of a name, loaded if necessary.
    ///
    /// # Errors
    /// It cannot be loaded.
    fn load(&self, name: &TemplateName) -> Result<LoadState, ManagerError>;

    /// Finds a program, and the root in which it starts. `name` and `limits` are those of a template that is created from its cell.
    ///
    /// # Errors
    /// There is no such program, or a file cannot be shown.
    fn program(&self, view: &ViewSpec, command: &[OsString], name: TemplateName, limits: Limits) -> Result<CellOrigin, ManagerError>;

    /// Creates a template, and waits until it is kept.
    ///
    /// # Errors
    /// The name exists and is not to be replaced, or the template cannot be created.
    fn create(&self, spec: TemplateSpec) -> Result<(), ManagerError>;

    /// The root that nested cells of a template's clones are cloned from.
    ///
    /// # Errors
    /// There is not enough memory.
    fn nesting_root(&self, template: &LoadedTemplate) -> Result<CellId, ManagerError>;

    /// Checks that a template of this name can be created.
    ///
    /// # Errors
    /// It exists, and `replaces` is not set.
    fn check_free(&self, name: &TemplateName, replaces: bool) -> Result<(), TemplateError>;

    /// Checks that a cell of this origin can be kept as a template.
    ///
    /// # Errors
    /// It cannot.
    fn check_can_be_kept(&self, _origin: &CellOrigin) -> Result<(), TemplateError> {
        Ok(())
    }

    /// Keeps a frozen cell as a template. `by_force`: it was frozen by force.
    ///
    /// # Errors
    /// It cannot be kept.
    fn keep_clone(&self, origin: &CellOrigin, cell: CellId, name: &TemplateName, by_force: bool) -> Result<(), ManagerError>;

    /// Removes a template; its clones continue.
    ///
    /// # Errors
    /// There is none, or the host refuses.
    fn remove(&self, name: &TemplateName) -> Result<(), TemplateError>;

    /// All templates. Damaged ones are left out.
    ///
    /// # Errors
    /// They cannot be listed.
    fn all(&self) -> Result<Vec<TemplateSummary>, TemplateError>;

    /// The template of a name.
    ///
    /// # Errors
    /// There is none, or it is damaged.
    fn describe(&self, name: &TemplateName) -> Result<TemplateSummary, TemplateError>;
}
