// SPDX-License-Identifier: MIT OR Apache-2.0
//! The recipe of a template: how it was created, and the host files that its clones need.

use super::place::TemplateName;
use crate::cli::ViewOptions;
use crate::failure::Failure;
use crate::host;
use crate::options::{User, VolumeArgument};
use crate::view::ViewRequest;
use pando_machine::PageCount;
use pando_store::TemplateFile;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// How a template was created. Stored in its file, as JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Manifest {
    /// Its name when it was created.
    pub(crate) name: String,
    /// The program, as it was found on the host or in its root.
    pub(crate) program: PathBuf,
    /// Its arguments, its own name first.
    pub(crate) arguments: Vec<String>,
    /// Its `--root`.
    pub(crate) root: Option<PathBuf>,
    /// `--bare`: it sees nothing but the program.
    pub(crate) bare: bool,
    /// Its volumes: paths on the host and in the cell.
    pub(crate) volumes: Vec<(PathBuf, PathBuf)>,
    /// User and group.
    user: (u32, u32),
    /// Differs if its view of the host differs.
    fingerprint: u64,
    /// Its memory limit, in pages of 4 KiB.
    memory: u64,
    /// When it was created: seconds since 1970.
    pub(crate) made: u64,
    /// It is a built-in one with its default options.
    #[serde(default)]
    pub(crate) standard: bool,
}

impl Manifest {
    /// The recipe of a new template.
    ///
    /// # Errors
    /// A path or an argument is not UTF-8.
    pub(super) fn new(name: &TemplateName, options: &super::Create, asked: &ViewRequest, fingerprint: u64) -> Result<Manifest, Failure> {
        let text = |word: &OsString| word.clone().into_string().map_err(Failure::NoText);
        let path = |path: &Path| text(&path.as_os_str().into()).map(PathBuf::from);
        let ViewOptions { user: User { user, group }, bare, .. } = options.seen;
        let real = |path: &Path| path.canonicalize().map_err(|source| Failure::Templates { path: path.into(), source });
        let root = options.seen.root.as_deref().map(|root| path(&real(root)?)).transpose()?;
        Ok(Manifest {
            name: name.to_string(),
            program: path(&asked.program)?,
            arguments: options.words.iter().map(text).collect::<Result<_, _>>()?,
            root,
            bare,
            volumes: options
                .seen
                .volumes
                .iter()
                .map(|volume| Ok((path(&volume.host)?, path(&volume.cell)?)))
                .collect::<Result<_, Failure>>()?,
            user: (user, group),
            fingerprint,
            memory: options.limits.memory().0,
            made: now(),
            standard: options.standard,
        })
    }

    /// The recipe of a clone that becomes a template of its own.
    pub(super) fn renamed(&self, name: &TemplateName) -> Manifest {
        Manifest { name: name.to_string(), made: now(), standard: false, ..self.clone() }
    }

    /// Reads the recipe of a saved template.
    ///
    /// # Errors
    /// The file has no valid recipe.
    pub(crate) fn of(saved: &TemplateFile, path: &Path) -> Result<Manifest, Failure> {
        let manifest: Option<Manifest> = serde_json::from_slice(saved.metadata()).ok();
        // The file is not trusted.
        let manifest =
            manifest.filter(|manifest| manifest.name.parse::<TemplateName>().is_ok()).ok_or_else(|| Failure::NoRecipe(path.into()))?;
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
    pub(super) fn find(&self) -> Result<ViewRequest, Failure> {
        let volumes = self.volumes.iter().map(|(host, cell)| VolumeArgument { host: host.clone(), cell: cell.clone(), writable: false });
        let seen = ViewOptions {
            variables: Vec::new(),
            directory: None,
            user: User { user: self.user.0, group: self.user.1 },
            root: self.root.clone(),
            bare: self.bare,
            volumes: volumes.collect(),
        };
        let (asked, fingerprint) = ViewRequest::for_template(&seen, self.program.as_os_str())?;
        if fingerprint == self.fingerprint { Ok(asked) } else { Err(Failure::Changed(self.name.clone())) }
    }

    /// Its memory limit.
    pub(crate) fn memory(&self) -> PageCount {
        PageCount(self.memory)
    }
}

/// The current time in seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
