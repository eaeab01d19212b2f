// SPDX-License-Identifier: MIT OR Apache-2.0
//! The recipe of a template: how it was created, and the host files that its clones need.

use super::{TemplateError, TemplateName, TemplateSpec};
use crate::environment::HostEnvironment;
use crate::host;
use crate::view::ViewError;
use crate::view::{ImageSpec, PreparedView, User, ViewSpec, VolumeSpec};
use crate::view_images::{ImageUse, TemplateImage, ViewImages, changed_file, record_files};
use pando_abi::limits::MAX_DISKS;
use pando_image::BlockError;
use pando_kernel::CellImage;
use pando_launch::{Program, Volume};
use pando_machine::PageCount;
use pando_store::TemplateFile;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// How a template was created. Stored in its file, as JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Manifest {
    /// Its name when it was created.
    pub name: String,
    /// The program, as it was found on the host or in its root.
    pub program: PathBuf,
    /// Its arguments, its own name first.
    pub arguments: Vec<String>,
    /// Its `--root`.
    pub root: Option<PathBuf>,
    /// The ID of its container image, and the name that the image had.
    #[serde(default)]
    pub image: Option<(String, String)>,
    /// Its directories that were empty, with their permissions.
    #[serde(default)]
    temporary: Vec<(PathBuf, u16)>,
    /// `--bare`: it sees nothing but the program.
    pub bare: bool,
    /// Its volumes: paths on the host and in the cell.
    pub volumes: Vec<(PathBuf, PathBuf)>,
    /// User and group.
    user: (u32, u32),
    /// Its environment, each as NAME=VALUE, without what is not UTF-8.
    #[serde(default)]
    environment: Vec<String>,
    /// Its working directory in the cell; `None` in templates of earlier versions.
    #[serde(default)]
    directory: Option<PathBuf>,
    /// Differs if its view of the host differs.
    fingerprint: u64,
    /// The images that are kept with it, with what its memory depends on in them; none in templates of earlier versions.
    #[serde(default)]
    pub(crate) view_images: Vec<TemplateImage>,
    /// Its memory limit, in pages of 4 KiB.
    memory: u64,
    /// When it was created: seconds since 1970.
    #[serde(alias = "made")]
    pub created: u64,
    /// It is a built-in one with its default options.
    #[serde(default)]
    pub standard: bool,
}

impl Manifest {
    /// The recipe of a new template.
    ///
    /// # Errors
    /// A path or an argument is not UTF-8.
    pub(crate) fn new(
        spec: &TemplateSpec,
        view: &PreparedView,
        environment: &HostEnvironment,
        fingerprint: u64,
    ) -> Result<Manifest, TemplateError> {
        let text = |word: &OsString| word.clone().into_string().map_err(TemplateError::NotUtf8);
        let path = |path: &Path| text(&path.as_os_str().into()).map(PathBuf::from);
        let (User { user, group }, bare) = (view.user, spec.view.bare);
        let image = view.image.as_ref().map(|open| (open.image.id.to_string(), open.image.label()));
        let temporary = spec.view.temporary.iter().map(|(empty, permissions)| Ok((path(empty)?, *permissions)));
        let real = |path: &Path| path.canonicalize().map_err(|source| TemplateError::File { path: path.into(), source });
        let program = view.program(&spec.view, environment);
        let root = spec.view.root.as_deref().map(|root| path(&real(root)?)).transpose()?;
        Ok(Manifest {
            name: spec.name.to_string(),
            program: path(&view.program)?,
            arguments: view.arguments.iter().map(text).collect::<Result<_, _>>()?,
            root,
            image,
            temporary: temporary.collect::<Result<_, TemplateError>>()?,
            bare,
            volumes: spec
                .view
                .volumes
                .iter()
                .map(|volume| Ok((path(&volume.host)?, path(&volume.cell)?)))
                .collect::<Result<_, TemplateError>>()?,
            user: (user, group),
            environment: program.environment.into_iter().filter_map(|line| String::from_utf8(line).ok()).collect(),
            directory: Some(view.directory.clone()),
            fingerprint,
            view_images: environment.view_images.as_ref().map(ViewImages::images).unwrap_or_default(),
            memory: spec.limits.memory().0,
            created: now(),
            standard: spec.is_standard,
        })
    }

    /// The recipe of a template in a cell, which sees the files that the cell sees.
    ///
    /// # Errors
    /// A path or an argument is not UTF-8.
    pub(crate) fn in_memory(spec: &TemplateSpec, program: &Program) -> Result<Manifest, TemplateError> {
        let text = |word: &Vec<u8>| {
            String::from_utf8(word.clone()).map_err(|error| TemplateError::NotUtf8(OsString::from_vec(error.into_bytes())))
        };
        Ok(Manifest {
            name: spec.name.to_string(),
            program: text(&program.path)?.into(),
            arguments: program.arguments.iter().map(text).collect::<Result<_, _>>()?,
            root: None,
            image: None,
            temporary: Vec::new(),
            bare: false,
            volumes: Vec::new(),
            user: (program.user, program.group),
            environment: program.environment.iter().filter_map(|line| String::from_utf8(line.clone()).ok()).collect(),
            directory: Some(text(&program.directory)?.into()),
            fingerprint: 0,
            view_images: Vec::new(),
            memory: program.memory.0,
            created: now(),
            standard: spec.is_standard,
        })
    }

    /// The recipe of a clone that becomes a template of its own.
    pub(crate) fn renamed(&self, name: &TemplateName) -> Manifest {
        Manifest { name: name.to_string(), created: now(), standard: false, ..self.clone() }
    }

    /// The recipe of a template with this state, which also depends on files of these volumes. `is_new`: nothing but its creation has read
    /// them.
    ///
    /// # Errors
    /// An image is damaged.
    pub(super) fn with_files_of(&self, volumes: &[Volume], cell: &CellImage, is_new: bool) -> Result<Manifest, BlockError> {
        let mut manifest = self.clone();
        match record_files(&mut manifest.view_images, volumes, cell, is_new) {
            // It depends on the host then. It knows no later versions of files, because its view is the host's.
            Ok(false) | Err(_) if is_new => Ok(self.without_images()),
            Ok(_) => Ok(manifest),
            Err(error) => Err(error),
        }
    }

    /// Checks that a session of the template can be resumed after a pause, so far as that is known before: the files are there on which the
    /// template depends.
    ///
    /// # Errors
    /// One has changed, or an image is damaged.
    pub(crate) fn check_files(&self, volumes: &[Volume]) -> Result<(), TemplateError> {
        match changed_file(&self.view_images, volumes).map_err(|error| ViewError::Image(error.into()))? {
            Some(path) => Err(TemplateError::FileOfSession { name: self.name.clone(), path }),
            None => Ok(()),
        }
    }

    /// Without its images: it depends on the host.
    pub(crate) fn without_images(&self) -> Manifest {
        Manifest { view_images: Vec::new(), ..self.clone() }
    }

    /// Reads the recipe of a saved template.
    ///
    /// # Errors
    /// The file has no valid recipe.
    pub fn read(saved: &TemplateFile, path: &Path) -> Result<Manifest, TemplateError> {
        let manifest: Option<Manifest> = serde_json::from_slice(saved.metadata()).ok();
        // The file is not trusted.
        let manifest = manifest
            .filter(|manifest| manifest.name.parse::<TemplateName>().is_ok())
            .filter(|manifest| manifest.view_images.len() <= MAX_DISKS as usize)
            .filter(|manifest| manifest.view_images.iter().all(TemplateImage::is_valid))
            .ok_or_else(|| TemplateError::NoRecipe(path.into()))?;
        Ok(Manifest { memory: manifest.memory.min(host::memory().0), ..manifest })
    }

    /// The bytes in the file.
    pub(super) fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("text and numbers can be written")
    }

    /// Finds the files that the template sees.
    ///
    /// # Errors
    /// They are missing or have changed.
    pub(super) fn find(&self, environment: &HostEnvironment) -> Result<PreparedView, TemplateError> {
        let images = self.open_view_images(environment)?;
        if images.is_none() && self.standard && !self.view_images.is_empty() {
            // Created again, it has images for sessions that are paused.
            return Err(TemplateError::Changed(self.name.clone()));
        }
        let can_do_without = !self.standard && images.is_some();
        match self.find_in(environment, images) {
            // As if the template had none: an image is damaged, or it is not the one of the creation.
            Err(TemplateError::View(ViewError::Image(_)) | TemplateError::Changed(_)) if can_do_without => self.find_in(environment, None),
            found => found,
        }
    }

    /// Finds the files that the template sees: in these images, or on the host.
    fn find_in(&self, environment: &HostEnvironment, view_images: Option<ViewImages>) -> Result<PreparedView, TemplateError> {
        let environment = &HostEnvironment { view_images, ..environment.clone() };
        let volumes = self.volumes.iter().map(|(host, cell)| VolumeSpec {
            host: host.clone(),
            cell: cell.clone(),
            writable: false,
            read_only: false,
            live: false,
            name: None,
        });
        let entrypoint = Some(self.program.clone().into_os_string());
        let image = self.image.as_ref().map(|(id, _)| ImageSpec { name: id.clone(), entrypoint, has_terminal: false });
        let command = if image.is_some() { Vec::new() } else { vec![self.program.clone().into_os_string()] };
        let spec = ViewSpec {
            variables: Vec::new(),
            // The working directory is added to a container image that lacks it.
            directory: self.directory.clone().filter(|_| self.image.is_some()),
            user: Some(User { user: self.user.0, group: self.user.1 }.into()),
            root: self.root.clone(),
            image,
            temporary: self.temporary.clone(),
            // The program's cell was frozen with this.
            read_only: false,
            bare: self.bare,
            volumes: volumes.collect(),
        };
        let (view, fingerprint) = PreparedView::for_template(&spec, &command, environment)?;
        // Blocks of later versions have their numbers in the kept images only.
        let has_blocks = !self.view_images.iter().any(TemplateImage::has_later_versions)
            || view.view_images.as_ref().is_some_and(ViewImages::are_all_taken);
        if fingerprint == self.fingerprint && has_blocks { Ok(view) } else { Err(TemplateError::Changed(self.name.clone())) }
    }

    /// Its kept images. `None`: the view is made of the host as it is.
    fn open_view_images(&self, environment: &HostEnvironment) -> Result<Option<ViewImages>, TemplateError> {
        let Some(directory) = template_directory(environment).filter(|_| !self.view_images.is_empty()) else { return Ok(None) };
        // A built-in template is created again when the host's software changes.
        let mode = if self.standard { ImageUse::Pause } else { ImageUse::Clone };
        ViewImages::open(&directory, &self.view_images, mode).map_err(|error| match error {
            BlockError::Changed(path) => TemplateError::ChangedFile { name: self.name.clone(), path },
            error => ViewError::Image(error.into()).into(),
        })
    }

    /// The user that the program runs as.
    pub fn user(&self) -> User {
        User { user: self.user.0, group: self.user.1 }
    }

    /// The environment with which the program was started, each as NAME=VALUE.
    pub fn environment(&self) -> &[String] {
        &self.environment
    }

    /// The working directory in which the program was started.
    pub fn directory(&self) -> &Path {
        self.directory.as_deref().unwrap_or(Path::new("/"))
    }

    /// Its memory limit.
    pub fn memory(&self) -> PageCount {
        PageCount(self.memory)
    }
}

/// The caller's directory of templates, which may not exist.
pub(super) fn template_directory(environment: &HostEnvironment) -> Option<PathBuf> {
    Some(environment.data.as_ref()?.join("templates"))
}

/// The current time in seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_session_that_knows_later_versions_is_refused_without_the_images_that_have_them() {
        // It has no directory of data, so no images are opened.
        let environment = HostEnvironment::default();
        let directory = tempfile::tempdir().expect("there is room");
        let program = directory.path().canonicalize().expect("it is there").join("program");
        fs::write(&program, "program").expect("there is room");
        fs::set_permissions(&program, Permissions::from_mode(0o755)).expect("it is ours");
        let user = Some(User { user: 0, group: 0 }.into());
        let spec = ViewSpec { bare: true, user, ..ViewSpec::default() };
        let (_, fingerprint) = PreparedView::for_template(&spec, &[program.clone().into()], &environment).expect("it is there");
        let finds = |allocated_blocks: u32| {
            let image =
                json!({ "name": format!("{:016x}-{:016x}.image", 1, 2), "used": [], "allocated_blocks": allocated_blocks, "later": [] });
            let manifest = json!({
                "name": "paused", "program": program, "arguments": ["program"], "root": null, "bare": true, "volumes": [],
                "user": [0, 0], "fingerprint": fingerprint, "view_images": [image], "memory": 1, "created": 0,
            });
            serde_json::from_value::<Manifest>(manifest).expect("it is a recipe").find(&environment)
        };
        assert!(finds(0).is_ok());
        assert!(matches!(finds(1), Err(TemplateError::Changed(name)) if name == "paused"));
    }
}
