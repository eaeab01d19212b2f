// SPDX-License-Identifier: MIT OR Apache-2.0
//! The templates of a service on a host: one per template file and version, loaded when a clone first needed it.
//!
//! The directory of templates is authoritative, so `pando template` needs no server. A replaced file is another template; the
//! loaded old one is released when its last clone has ended.

use super::ManagerError;
use super::budget::Budget;
use super::loaded::{FileVersion, LoadState, LoadedTemplate, collect_output, with_output};
use super::origin::{CellOrigin, template_of};
use super::provider::{TemplateProvider, TemplateSummary};
use super::tasks::lock;
use crate::environment::HostEnvironment;
use crate::limits::Limits;
use crate::root::RootGuard;
use crate::template::{
    CreationContext, Manifest, OpenTemplate, Plan, TemplateError, TemplateName, TemplateRef, TemplateSpec, TemplateStore,
};
use crate::time_limits::TimeLimits;
use crate::view::{PreparedView, ViewSpec};
use crate::view_images::ViewImages;
use pando_kernel::{CellId, Kernel};
use pando_launch::{Root, Template};
use pando_machine::PageCount;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Instant;

/// Templates that stay loaded after they were frozen, and their most pages: 128 MiB in all.
const FROZEN_MAX: usize = 8;
const FROZEN_PAGES: PageCount = PageCount(4096);

/// The loaded templates. Its locks are held for short sections, one at a time.
pub(super) struct FileTemplates {
    kernel: Arc<Kernel>,
    libos: Template,
    time_limits: TimeLimits,
    environment: HostEnvironment,
    store: TemplateStore,
    loaded: Mutex<BTreeMap<PathBuf, Arc<LoadedTemplate>>>,
    /// The roots of programs that run, by the fingerprints of their views: programs that see the same share one.
    roots: Mutex<BTreeMap<u64, Weak<LoadedTemplate>>>,
    /// The budget of descriptors of all loaded templates and roots.
    descriptors: Arc<Budget>,
    /// Incremented at each use of a loaded template.
    uses: AtomicU64,
}

impl FileTemplates {
    pub(super) fn new(
        kernel: Arc<Kernel>,
        libos: Template,
        time_limits: TimeLimits,
        (environment, store): (HostEnvironment, TemplateStore),
        descriptors: usize,
    ) -> FileTemplates {
        let descriptors = Budget::new(descriptors as u64);
        let (loaded, roots, uses) = (Mutex::default(), Mutex::default(), AtomicU64::new(0));
        FileTemplates { kernel, libos, time_limits, environment, store, loaded, roots, descriptors, uses }
    }

    /// The loaded template of a file, if neither the file nor what it sees has changed.
    fn find(&self, path: &Path) -> Result<Option<Arc<LoadedTemplate>>, TemplateError> {
        let version = file_version(path)?;
        let ready = lock(&self.loaded).get(path).filter(|loaded| loaded.is_current(version)).cloned();
        if let Some(loaded) = &ready {
            loaded.used.store(self.uses.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        }
        Ok(ready)
    }

    /// The root of a view with this fingerprint, if programs run in it and none of its files has changed.
    fn find_root(&self, fingerprint: u64) -> Option<Arc<LoadedTemplate>> {
        let mut roots = lock(&self.roots);
        roots.retain(|_, root| root.strong_count() > 0);
        roots.get(&fingerprint).and_then(Weak::upgrade).filter(|root| !root.has_changed())
    }

    /// Makes the root of a view.
    fn add_root(&self, view: &mut PreparedView, fingerprint: u64, manifest: Manifest) -> Result<Arc<LoadedTemplate>, ManagerError> {
        let mut charge = self.descriptors.charge();
        charge.grow(view.volumes.len() as u64);
        if !self.free_descriptors() {
            return Err(ManagerError::TooManyFiles);
        }
        let root = Root::new(&self.kernel, &self.libos, std::mem::take(&mut view.volumes))?;
        let root = RootGuard::new(Arc::<Kernel>::clone(&self.kernel), root);
        let loaded = Arc::new(LoadedTemplate::of_view(root, manifest, Arc::clone(&view.changed), view.image.take(), charge));
        lock(&self.roots).insert(fingerprint, Arc::downgrade(&loaded));
        Ok(loaded)
    }

    /// Unloads templates without clones, the least recently used first, while all together exceed their budget of descriptors. Returns
    /// whether that suffices.
    fn free_descriptors(&self) -> bool {
        while self.descriptors.is_exceeded() {
            let mut all = lock(&self.loaded);
            let idle = all.iter().filter(|(_, loaded)| Arc::strong_count(loaded) == 1);
            let oldest = idle.min_by_key(|(_, loaded)| loaded.used.load(Ordering::Relaxed)).map(|(path, _)| path.clone());
            let Some(unloaded) = oldest.and_then(|path| all.remove(&path)) else { return false };
            // The drop is slow.
            drop(all);
            drop(unloaded);
        }
        true
    }

    /// Keeps a small template loaded that was just frozen, because it is often used soon. Others are read from their files.
    fn keep_loaded(
        &self,
        origin: &CellOrigin,
        cell: CellId,
        (path, version): (PathBuf, FileVersion),
        (manifest, by_force): (Manifest, bool),
    ) {
        // A copy keeps its base loaded, so that must be in use anyway.
        let base = std::ptr::from_ref(origin.loaded.base());
        if !lock(&self.loaded).values().any(|loaded| std::ptr::eq(Arc::as_ptr(loaded), base)) {
            return;
        }
        if self.kernel.inspect(cell).map_or(true, |(_, _, usage)| usage.used > FROZEN_PAGES) {
            return;
        }
        // A clone that never starts: it has what the frozen cell has, which ends.
        let Ok(clone) = self.kernel.clone_cell(cell, manifest.memory()) else { return };
        let root = RootGuard::new(Arc::<Kernel>::clone(&self.kernel), Root::loaded(clone, Vec::new(), Vec::new()));
        if self.kernel.set_prefetch_from_writes(cell, clone).is_err() {
            return;
        }
        let used = self.uses.fetch_add(1, Ordering::Relaxed);
        let is_forced = by_force || origin.loaded.is_forced();
        let loaded = Arc::new(LoadedTemplate::frozen(&origin.loaded, root, manifest, (version, used), is_forced));
        let old = lock(&self.loaded).insert(path, loaded);
        // This may be the last reference, and then the drop is slow.
        drop(old);
        while let Some(unloaded) = self.take_surplus_frozen() {
            drop(unloaded);
        }
    }

    /// Removes the least recently used one of the templates without clones that are loaded since they were frozen, if there are too many.
    fn take_surplus_frozen(&self) -> Option<Arc<LoadedTemplate>> {
        let mut all = lock(&self.loaded);
        let frozen = || all.iter().filter(|(_, loaded)| loaded.is_copy());
        if frozen().count() <= FROZEN_MAX {
            return None;
        }
        let idle = frozen().filter(|(_, loaded)| Arc::strong_count(loaded) == 1);
        let oldest = idle.min_by_key(|(_, loaded)| loaded.used.load(Ordering::Relaxed)).map(|(path, _)| path.clone());
        oldest.and_then(|path| all.remove(&path))
    }

    /// Unloads templates whose files were removed or replaced; their clones continue.
    fn unload_stale(&self) {
        let known: BTreeMap<PathBuf, Option<FileVersion>> =
            lock(&self.loaded).iter().map(|(path, loaded)| (path.clone(), loaded.version)).collect();
        let is_outdated = |path: &PathBuf, known: &Option<FileVersion>| file_version(path).is_ok_and(|version| version != *known);
        let known: BTreeMap<_, _> = known.into_iter().filter(|(path, known)| is_outdated(path, known)).collect();
        // It may have been reloaded meanwhile.
        let is_gone = |path: &PathBuf, loaded: &mut Arc<LoadedTemplate>| known.get(path) == Some(&loaded.version);
        let gone: Vec<_> = lock(&self.loaded).extract_if(.., is_gone).collect();
        drop(gone);
        // Copies whose base is not loaded any more.
        let mut all = lock(&self.loaded);
        let bases: Vec<_> = all.values().filter(|loaded| !loaded.is_copy()).map(Arc::as_ptr).collect();
        let is_alone = |_: &PathBuf, loaded: &mut Arc<LoadedTemplate>| {
            loaded.is_copy() && Arc::strong_count(loaded) == 1 && !bases.contains(&std::ptr::from_ref(loaded.base()))
        };
        let alone: Vec<_> = all.extract_if(.., is_alone).collect();
        drop(all);
        drop(alone);
    }
}

impl TemplateProvider for FileTemplates {
    fn find_loaded(&self, name: &TemplateName) -> Result<Option<Arc<LoadedTemplate>>, TemplateError> {
        self.find(&self.store.pick_variant(name))
    }

    /// Loads a random variant of the template of this name.
    fn load(&self, name: &TemplateName) -> Result<LoadState, ManagerError> {
        self.unload_stale();
        let path = self.store.pick_variant(name);
        if let Some(loaded) = self.find(&path)? {
            return Ok(LoadState::Ready(loaded));
        }
        let Some(version) = file_version(&path)? else { return Ok(LoadState::Missing) };
        let template = OpenTemplate::open(&path)?;
        let mut view = match template.find(&self.environment) {
            Err(TemplateError::Changed(_) | TemplateError::ChangedFile { .. }) if template.manifest().standard => {
                return Ok(LoadState::Outdated);
            }
            found => found?,
        };
        let mut charge = self.descriptors.charge();
        charge.grow(1 + view.volumes.len() as u64 + view.view_images.as_ref().map_or(0, |images| images.count() as u64));
        if !self.free_descriptors() {
            return Err(ManagerError::TooManyFiles);
        }
        let used = self.uses.fetch_add(1, Ordering::Relaxed);
        let root = template.load(&self.kernel, &mut view)?;
        let replaces = lock(&self.loaded).get(&path).is_some_and(|old| old.has_file(version) && old.has_changed());
        let reloaded = replaces.then(Instant::now);
        let loaded = Arc::new(LoadedTemplate::of_file(root, &template, version, view, (used, reloaded), charge));
        let old = lock(&self.loaded).insert(path, Arc::clone(&loaded));
        // This may be the last reference, and then the drop is slow.
        drop(old);
        Ok(LoadState::Ready(loaded))
    }

    fn program(&self, view: &ViewSpec, command: &[OsString], name: TemplateName, limits: Limits) -> Result<CellOrigin, ManagerError> {
        let environment = self.environment.with_path_of(&view.variables);
        view.check_unchanging().map_err(TemplateError::from)?;
        let (mut prepared, fingerprint) = PreparedView::for_template(view, command, &environment).map_err(TemplateError::from)?;
        let manifest = Manifest::new(&template_of(view, command, name, limits), &prepared, &environment, fingerprint)?;
        let program = prepared.program(view, &environment);
        let root = match self.find_root(fingerprint) {
            Some(root) => root,
            None => self.add_root(&mut prepared, fingerprint, manifest.clone())?,
        };
        Ok(CellOrigin::program(root, manifest, program))
    }

    fn create(&self, spec: TemplateSpec) -> Result<(), ManagerError> {
        let name = spec.name.clone();
        let plan = Plan::new(spec, &self.store, &self.environment)?;
        let mut output = Vec::new();
        let context = CreationContext { kernel: &self.kernel, libos: &self.libos, time_limits: &self.time_limits };
        let mut keep = |_, port: &pando_kernel::ConsolePort| {
            collect_output(port, &mut output);
            Ok(())
        };
        let replaced = self.store.view_images(&name);
        let created = plan.create(context, &mut keep, &|_| ());
        // A replaced template that is loaded needs its images until then.
        self.unload_stale();
        self.store.remove_unused_views(replaced);
        self.store.remove_leftover_views();
        created.map_err(|error| with_output(error, &output))
    }

    fn nesting_root(&self, template: &LoadedTemplate) -> Result<CellId, ManagerError> {
        let template = template.base();
        template.nesting_root(|| {
            let root = Root::for_nesting(&self.kernel, &self.libos, &template.root)?;
            Ok(RootGuard::new(Arc::<Kernel>::clone(&self.kernel), root))
        })
    }

    fn check_free(&self, name: &TemplateName, replaces: bool) -> Result<(), TemplateError> {
        self.store.check_free(name, replaces)
    }

    fn check_can_be_kept(&self, origin: &CellOrigin) -> Result<(), TemplateError> {
        let base = origin.loaded.base();
        if let Some(image) = base.view_images().and_then(ViewImages::missing) {
            return Err(TemplateError::ImageMissing { name: origin.manifest.name.clone(), image });
        }
        origin.manifest.check_files(base.root.volumes())
    }

    fn keep_clone(&self, origin: &CellOrigin, cell: CellId, name: &TemplateName, by_force: bool) -> Result<(), ManagerError> {
        // Its clones continue what it did.
        self.kernel.set_prefetch_from_writes(cell, cell)?;
        let manifest = origin.manifest.renamed(name);
        let volumes = origin.loaded.base().root.volumes();
        let (version, manifest) = self.store.save_clone((&manifest, volumes), &self.kernel, cell, name)?;
        self.keep_loaded(origin, cell, (self.store.file(name), version), (manifest, by_force));
        Ok(())
    }

    fn remove(&self, name: &TemplateName) -> Result<(), TemplateError> {
        self.store.remove(name, || self.unload_stale())?;
        self.store.remove_leftover_views();
        Ok(())
    }

    fn all(&self) -> Result<Vec<TemplateSummary>, TemplateError> {
        // A damaged template does not hide the others.
        Ok(self.store.all()?.into_iter().filter_map(|(name, _)| self.describe(&name).ok()).collect())
    }

    fn describe(&self, name: &TemplateName) -> Result<TemplateSummary, TemplateError> {
        let (found, files) = (self.store.open(&TemplateRef::Stored(name.clone()))?, self.store.variants(name));
        Ok(TemplateSummary {
            name: name.clone(),
            manifest: found.manifest().clone(),
            variants: files.len(),
            file_bytes: files.iter().map(|file| file.metadata().map_or(0, |metadata| metadata.len())).sum(),
            is_forced: found.is_forced(),
        })
    }
}

/// The identity of a template's file; `None`: there is none.
fn file_version(path: &Path) -> Result<Option<FileVersion>, TemplateError> {
    match std::fs::metadata(path) {
        Ok(found) => Ok(Some(pando_store::identity(&found))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(TemplateError::File { path: path.into(), source }),
    }
}
