// SPDX-License-Identifier: MIT OR Apache-2.0
//! The directory of templates: one file per variant, under the template's name.

use super::manifest::template_directory;
use super::{Manifest, OpenTemplate, TemplateError, TemplateName, TemplateRef};
use crate::environment::HostEnvironment;
use crate::report::Reporter;
use crate::view_images::{images_to_search, remove_unused};
use pando_kernel::{CellId, Kernel};
use pando_launch::Volume;
use pando_oci::Users;
use pando_store::FileIdentity;
use std::collections::BTreeSet;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// The files' extension.
const EXTENSION: &str = "template";
/// Maximal number of a template's variants.
pub const VARIANTS_MAX: u32 = 64;

/// The directory of templates.
#[derive(Clone, Debug)]
pub struct TemplateStore {
    directory: PathBuf,
}

impl TemplateStore {
    /// The caller's directory of templates, which may not exist yet.
    ///
    /// # Errors
    /// The environment does not name one.
    pub fn of(environment: &HostEnvironment) -> Result<TemplateStore, TemplateError> {
        Ok(TemplateStore { directory: template_directory(environment).ok_or(TemplateError::NoDirectory)? })
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Creates the directory unless it exists.
    ///
    /// # Errors
    /// It cannot be created.
    pub fn create_directory(&self) -> Result<(), TemplateError> {
        create_private_directory(&self.directory).map_err(|source| TemplateError::File { path: self.directory.clone(), source })
    }

    /// The file of a template: that of its first variant.
    pub fn file(&self, name: &TemplateName) -> PathBuf {
        self.variant(name, 0)
    }

    /// The file of one of a template's variants; the first has the template's name alone.
    pub(super) fn variant(&self, name: &TemplateName, number: u32) -> PathBuf {
        let suffix = if number == 0 { String::new() } else { format!("~{number}") };
        self.directory.join(format!("{name}{suffix}.{EXTENSION}"))
    }

    /// The files of all variants of a template; none if there is no such template.
    pub fn variants(&self, name: &TemplateName) -> Vec<PathBuf> {
        (0..VARIANTS_MAX).map(|number| self.variant(name, number)).take_while(|path| path.exists()).collect()
    }

    /// The file of a random variant, or that of the first if there is none.
    pub fn pick_variant(&self, name: &TemplateName) -> PathBuf {
        let mut all = self.variants(name);
        match all.len() {
            0 => self.file(name),
            count => all.swap_remove(fastrand::usize(..count)),
        }
    }

    /// The file of a template, or of a random variant of a stored one.
    ///
    /// # Errors
    /// There is no stored template of this name.
    pub fn pick(&self, template: &TemplateRef) -> Result<PathBuf, TemplateError> {
        match template {
            TemplateRef::File(path) => Ok(path.clone()),
            TemplateRef::Stored(name) => {
                Some(self.pick_variant(name)).filter(|path| path.exists()).ok_or_else(|| TemplateError::Missing(name.to_string()))
            }
        }
    }

    /// Opens a template, or a random variant of a stored one.
    ///
    /// # Errors
    /// There is none, its file is damaged, or another user could have written it.
    pub fn open(&self, template: &TemplateRef) -> Result<OpenTemplate, TemplateError> {
        OpenTemplate::open(&self.pick(template)?)
    }

    /// Removes the variants after the first `count`, the last first.
    ///
    /// # Errors
    /// The host refuses.
    fn remove_variants_after(&self, name: &TemplateName, count: u32) -> Result<(), TemplateError> {
        self.variants(name).into_iter().skip(count as usize).rev().try_for_each(remove_file)
    }

    /// All stored templates, by name, with the file of each's first variant.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn all(&self) -> Result<Vec<(TemplateName, PathBuf)>, TemplateError> {
        let entries = match std::fs::read_dir(&self.directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(source) => return Err(TemplateError::File { path: self.directory.clone(), source }),
        };
        let named = |path: PathBuf| {
            let name = path.file_stem()?.to_str()?.parse().ok()?;
            path.extension().is_some_and(|extension| extension == EXTENSION).then_some((name, path))
        };
        let mut all: Vec<(TemplateName, PathBuf)> = entries.flatten().filter_map(|entry| named(entry.path())).collect();
        all.sort();
        Ok(all)
    }

    /// The container images that templates use, with sentences that name the templates.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn image_users(&self) -> Result<Users, TemplateError> {
        let mut users = Users::new();
        for (name, path) in self.all()? {
            // A template that cannot be read uses nothing that could be found.
            let template = OpenTemplate::open(&path).ok();
            let image = template.and_then(|template| template.manifest().image.as_ref().and_then(|(id, _)| id.parse().ok()));
            users.extend(image.map(|id| (id, format!("template `{name}` was created from it"))));
        }
        Ok(users)
    }

    /// Checks that a template of this name can be created.
    ///
    /// # Errors
    /// It exists, and `replaces` is not set.
    pub fn check_free(&self, name: &TemplateName, replaces: bool) -> Result<(), TemplateError> {
        if self.file(name).exists() && !replaces { Err(TemplateError::Exists(name.to_string())) } else { Ok(()) }
    }

    /// A temporary file in the directory for an uploaded template; removed when it is dropped.
    ///
    /// # Errors
    /// It cannot be created.
    pub fn temporary_file(&self) -> Result<NamedTempFile, TemplateError> {
        self.create_directory()?;
        let file = tempfile::Builder::new().prefix(".pando-").tempfile_in(&self.directory);
        file.map_err(|source| TemplateError::File { path: self.directory.clone(), source })
    }

    /// Stores such a file as a template after verifying every page's checksum.
    ///
    /// # Errors
    /// It is no template, is damaged, or the name exists and `replaces` is not set.
    pub fn adopt(&self, file: NamedTempFile, name: &TemplateName, replaces: bool, reporter: &Reporter) -> Result<(), TemplateError> {
        self.check_free(name, replaces)?;
        OpenTemplate::open(file.path())?.check(reporter)?;
        let to = self.file(name);
        let failed = |source| TemplateError::File { path: to.clone(), source };
        file.as_file().sync_all().map_err(failed)?;
        self.replace(name, 1, || file.persist(&to).map(drop).map_err(|error| failed(error.error)))
    }

    /// Stores a frozen clone of a template, which sees these volumes, as a template of its own, with this recipe; see
    /// [`pando_store::save`]. Returns the identity of its file, and the recipe that is in it.
    ///
    /// # Errors
    /// The file cannot be written, or an image of the view is damaged.
    pub(crate) fn save_clone(
        &self,
        (manifest, volumes): (&Manifest, &[Volume]),
        kernel: &Kernel,
        clone: CellId,
        name: &TemplateName,
    ) -> Result<(FileIdentity, Manifest), TemplateError> {
        let mut manifest = manifest.clone();
        let saved = self.replace(name, 1, || {
            pando_store::save(kernel, clone, &self.file(name), |image| {
                manifest = manifest.with_files_of(volumes, image, false).map_err(io::Error::other)?;
                Ok(manifest.encode())
            })
            .map_err(TemplateError::from)
        })?;
        Ok((saved.file, manifest))
    }

    /// Writes a template's files with `write`, removes the variants after the first `count`, and then what only the replaced template
    /// needed.
    ///
    /// # Errors
    /// Those of `write`; the host refuses.
    pub fn replace<T, E: From<TemplateError>>(
        &self,
        name: &TemplateName,
        count: u32,
        write: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let replaced = self.view_images(name);
        let written = write()?;
        self.remove_variants_after(name, count)?;
        self.remove_unused_views(replaced);
        Ok(written)
    }

    /// Removes a template. `unload` gives up what this process has loaded of it.
    ///
    /// # Errors
    /// There is none, or the host refuses.
    pub fn remove(&self, name: &TemplateName, unload: impl FnOnce()) -> Result<(), TemplateError> {
        let (all, names) = (self.variants(name), self.view_images(name));
        if all.is_empty() {
            return Err(TemplateError::Missing(name.to_string()));
        }
        // The first variant is removed last: it marks that the template exists.
        all.into_iter().rev().try_for_each(remove_file)?;
        unload();
        self.remove_unused_views(names);
        Ok(())
    }

    /// The names of the kept images of a template, if it exists.
    pub(crate) fn view_images(&self, name: &TemplateName) -> BTreeSet<String> {
        let opened = self.variants(name).into_iter().filter_map(|file| OpenTemplate::open(&file).ok());
        opened.flat_map(|template| template.manifest().view_images.clone()).map(|image| image.name).collect()
    }

    /// Removes those images of views that no template needs any more.
    pub(crate) fn remove_unused_views(&self, names: BTreeSet<String>) {
        remove_unused(&self.directory, names, |unused| self.subtract_used(unused).is_ok());
    }

    /// Removes images that are left over if the last search was long ago: of processes that were killed, and of templates that were removed
    /// while cells used them.
    pub fn remove_leftover_views(&self) {
        self.remove_unused_views(images_to_search(&self.directory));
    }

    /// Removes the names of images that templates need.
    fn subtract_used(&self, unused: &mut BTreeSet<String>) -> Result<(), TemplateError> {
        for (name, _) in self.all()? {
            for file in self.variants(&name) {
                match OpenTemplate::open(&file) {
                    Ok(template) => template.manifest().view_images.iter().for_each(|image| _ = unused.remove(&image.name)),
                    // No start can ever use it.
                    Err(TemplateError::Store(pando_store::Error::Damaged { .. } | pando_store::Error::Other { .. })) => {}
                    // It was removed meanwhile.
                    Err(TemplateError::Store(pando_store::Error::Read { source, .. }) | TemplateError::File { source, .. })
                        if source.kind() == io::ErrorKind::NotFound => {}
                    // It may need any of them, as soon as it can be used.
                    Err(error) => return Err(error),
                }
            }
            if unused.is_empty() {
                break;
            }
        }
        Ok(())
    }
}

/// Creates a directory that only its owner may enter, unless it exists.
///
/// # Errors
/// It cannot be created.
pub fn create_private_directory(directory: &Path) -> std::io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)
}

fn remove_file(path: PathBuf) -> Result<(), TemplateError> {
    std::fs::remove_file(&path).map_err(|source| TemplateError::File { path, source })
}
