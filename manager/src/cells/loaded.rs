// SPDX-License-Identifier: MIT OR Apache-2.0
//! Templates and roots of views that can be cloned, and the errors of those that cannot be created.

use super::ManagerError;
use super::budget::Charge;
use crate::root::RootGuard;
use crate::template::{Manifest, OpenTemplate, TemplateError};
use crate::view::PreparedView;
use crate::view_images::ViewImages;
use pando_kernel::{CellId, ConsolePort, Stream};
use pando_oci::OpenImage;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Bytes of a starting program's output that are reported if it does not become ready.
const OUTPUT_KEPT: usize = 4096;

/// The least time between two loads of a template because files that it sees have changed.
const RELOAD_INTERVAL: Duration = Duration::from_secs(10);

/// A file's identity: device, inode, length, and time of change.
pub(super) type FileVersion = pando_store::FileIdentity;

/// The result of loading a template.
pub(super) enum LoadState {
    Ready(Arc<LoadedTemplate>),
    /// It does not exist.
    Missing,
    /// It is a built-in one, and the host's software has changed.
    Outdated,
}

/// A loaded template, or the root of a view in which programs start, as long as it is referenced.
pub(crate) struct LoadedTemplate {
    /// The root of its clones' nested cells, once a clone has had the right to some. It is dropped before the root whose disks it uses.
    nesting_root: OnceLock<RootGuard>,
    pub(crate) root: RootGuard,
    /// The template whose disks and files it uses, if it is a copy of a running clone.
    base: Option<Arc<LoadedTemplate>>,
    /// The recipe of the template, or that of the first program in the view.
    manifest: Arc<Manifest>,
    is_forced: bool,
    /// Differs if the file differs; `None`: it has none.
    pub(super) version: Option<FileVersion>,
    /// When it was last used, as a count of uses.
    pub(super) used: AtomicU64,
    /// The descriptors that it keeps: its file's, and one for each volume.
    _charge: Option<Charge>,
    /// Files on the host that it sees have changed: its next clones may not be able to read them.
    changed: Arc<AtomicBool>,
    /// When it was loaded again, because files had changed.
    reloaded: Option<Instant>,
    /// The container image of a view; held, so that it is not removed.
    _image: Option<OpenImage>,
    /// The kept images of a template, which are not removed meanwhile.
    view_images: Option<ViewImages>,
}

impl LoadedTemplate {
    /// A template of this version of its file, which was loaded again at this time, if it was.
    pub(super) fn of_file(
        root: RootGuard,
        template: &OpenTemplate,
        version: FileVersion,
        view: PreparedView,
        (used, reloaded): (u64, Option<Instant>),
        charge: Charge,
    ) -> LoadedTemplate {
        let PreparedView { changed, image, view_images, .. } = view;
        // Sessions are paused with the images only if these are there.
        let manifest = if view_images.is_some() { template.manifest().clone() } else { template.manifest().without_images() };
        let (manifest, is_forced) = (Arc::new(manifest), template.is_forced());
        let (version, used, _charge) = (Some(version), AtomicU64::new(used), Some(charge));
        LoadedTemplate {
            nesting_root: OnceLock::new(),
            root,
            base: None,
            manifest,
            is_forced,
            version,
            used,
            _charge,
            changed,
            reloaded,
            _image: image,
            view_images,
        }
    }

    /// A template without a file.
    pub(super) fn in_memory(root: RootGuard, manifest: Manifest, is_forced: bool) -> LoadedTemplate {
        let (nesting_root, used, changed, manifest) = (OnceLock::new(), AtomicU64::new(0), Arc::default(), Arc::new(manifest));
        LoadedTemplate {
            nesting_root,
            root,
            base: None,
            manifest,
            is_forced,
            version: None,
            used,
            _charge: None,
            changed,
            reloaded: None,
            _image: None,
            view_images: None,
        }
    }

    /// The root of a view.
    pub(super) fn of_view(
        root: RootGuard,
        manifest: Manifest,
        changed: Arc<AtomicBool>,
        image: Option<OpenImage>,
        charge: Charge,
    ) -> LoadedTemplate {
        LoadedTemplate { changed, _charge: Some(charge), _image: image, ..LoadedTemplate::in_memory(root, manifest, false) }
    }

    /// A copy of a running clone of `template`, which has a cell of its own and everything else of the template. Nothing names it: it is
    /// dropped with its last clone.
    pub(super) fn copy_of_clone(template: &Arc<LoadedTemplate>, root: RootGuard) -> LoadedTemplate {
        // A copy of a copy does not need the first copy.
        let base = Arc::clone(template.base.as_ref().unwrap_or(template));
        let held = LoadedTemplate::in_memory(root, Manifest::clone(&template.manifest), template.is_forced);
        LoadedTemplate { base: Some(base), ..held }
    }

    /// A template of this version of its file that was just frozen: a copy of a clone of `template`.
    pub(super) fn frozen(
        template: &Arc<LoadedTemplate>,
        root: RootGuard,
        manifest: Manifest,
        (version, used): (FileVersion, u64),
        is_forced: bool,
    ) -> LoadedTemplate {
        let copy = LoadedTemplate::copy_of_clone(template, root);
        let changed = Arc::clone(&copy.base().changed);
        let (version, used) = (Some(version), AtomicU64::new(used));
        LoadedTemplate { manifest: Arc::new(manifest), is_forced, version, used, changed, ..copy }
    }

    /// Whether it is a copy of a clone of another template, whose files it uses.
    pub(super) fn is_copy(&self) -> bool {
        self.base.is_some()
    }

    /// The template whose files it uses: itself, or the one of which it is a copy.
    pub(super) fn base(&self) -> &LoadedTemplate {
        self.base.as_deref().unwrap_or(self)
    }

    /// How it was created.
    pub(crate) fn manifest(&self) -> Arc<Manifest> {
        Arc::clone(&self.manifest)
    }

    /// The root of its clones' nested cells, which `make` makes at the first use.
    ///
    /// # Errors
    /// `make` fails.
    pub(super) fn nesting_root(&self, make: impl FnOnce() -> Result<RootGuard, ManagerError>) -> Result<CellId, ManagerError> {
        match self.nesting_root.get() {
            Some(root) => Ok(root.cell()),
            // If two threads make one, one of them is dropped.
            None => make().map(|made| self.nesting_root.get_or_init(|| made).cell()),
        }
    }

    /// Whether it, or an ancestor, was frozen by force.
    pub(super) fn is_forced(&self) -> bool {
        self.is_forced
    }

    /// Its kept images.
    pub(super) fn view_images(&self) -> Option<&ViewImages> {
        self.view_images.as_ref()
    }

    /// Whether it was loaded from this version of its file.
    pub(super) fn has_file(&self, version: FileVersion) -> bool {
        self.version == Some(version)
    }

    /// Whether neither its file, of this version, nor what it sees has changed. It is loaded again at most once in [`RELOAD_INTERVAL`],
    /// because a file that it sees may change all the time.
    pub(super) fn is_current(&self, version: Option<FileVersion>) -> bool {
        let is_new = || self.reloaded.is_some_and(|at| at.elapsed() < RELOAD_INTERVAL);
        version.is_some_and(|version| self.has_file(version)) && (!self.has_changed() || is_new())
    }

    /// Whether files that it sees have changed.
    pub(super) fn has_changed(&self) -> bool {
        self.changed.load(Ordering::Relaxed)
    }
}

/// Collects the last output of a program until it is ready or has ended.
pub(super) fn collect_output(port: &ConsolePort, output: &mut Vec<u8>) {
    while let Some((stream, bytes)) = port.receive() {
        if stream != Stream::Notes {
            output.extend(bytes);
            output.drain(..output.len().saturating_sub(OUTPUT_KEPT));
        }
    }
}

/// The error of a template that was not created, with the last output of its program.
pub(super) fn with_output(error: TemplateError, output: &[u8]) -> ManagerError {
    match String::from_utf8_lossy(output).trim_end() {
        "" => error.into(),
        output => ManagerError::Creation { error, output: output.into() },
    }
}
