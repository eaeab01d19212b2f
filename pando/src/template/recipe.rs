// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a template was made: what must be shown to its clones again.

use super::place::Name;
use crate::cli::Seen;
use crate::failure::Failure;
use crate::host;
use crate::options::{User, Volume};
use crate::view::Asked;
use pando_machine::PageCount;
use pando_store::Saved;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// How a template was made. Stands in its file, as JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Recipe {
    /// Its name when it was made.
    pub(crate) name: String,
    /// The program, as it was found on the host or in its root.
    pub(crate) program: PathBuf,
    /// What it was given; the first is its own name.
    pub(crate) arguments: Vec<String>,
    /// What it sees instead of the host's software.
    pub(crate) root: Option<PathBuf>,
    /// It sees nothing but itself.
    pub(crate) bare: bool,
    /// What of the host it sees besides, and where.
    pub(crate) volumes: Vec<(PathBuf, PathBuf)>,
    /// User and group.
    user: (u32, u32),
    /// Another where it sees something else.
    fingerprint: u64,
    /// The memory that it had, in pages of 4 KiB.
    memory: u64,
    /// Seconds since 1970.
    pub(crate) made: u64,
    /// It is one of the standard ones, as it is made when nobody says otherwise.
    #[serde(default)]
    pub(crate) standard: bool,
}

impl Recipe {
    /// The recipe of what is about to be made.
    ///
    /// # Errors
    /// A path or an argument is no text.
    pub(super) fn new(name: &Name, options: &super::Create, asked: &Asked, fingerprint: u64) -> Result<Recipe, Failure> {
        let text = |word: &OsString| word.clone().into_string().map_err(Failure::NoText);
        let path = |path: &Path| text(&path.as_os_str().into()).map(PathBuf::from);
        let Seen { user: User { user, group }, bare, .. } = options.seen;
        let real = |path: &Path| path.canonicalize().map_err(|source| Failure::Templates { path: path.into(), source });
        let root = options.seen.root.as_deref().map(|root| path(&real(root)?)).transpose()?;
        Ok(Recipe {
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

    /// That of a clone which has become a template of its own.
    pub(super) fn renamed(&self, name: &Name) -> Recipe {
        Recipe { name: name.to_string(), made: now(), standard: false, ..self.clone() }
    }

    /// Reads the recipe of a saved template.
    ///
    /// # Errors
    /// It is none.
    pub(crate) fn of(saved: &Saved, path: &Path) -> Result<Recipe, Failure> {
        let recipe: Option<Recipe> = serde_json::from_slice(saved.metadata()).ok();
        // A file says what it likes.
        let recipe = recipe.filter(|recipe| recipe.name.parse::<Name>().is_ok()).ok_or_else(|| Failure::NoRecipe(path.into()))?;
        Ok(Recipe { memory: recipe.memory.min(host::memory().0), ..recipe })
    }

    /// The bytes that stand in the file.
    pub(super) fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("text and numbers can be written")
    }

    /// Finds what the template sees.
    ///
    /// # Errors
    /// It is not there, or not what it was.
    pub(super) fn find(&self) -> Result<Asked, Failure> {
        let volumes = self.volumes.iter().map(|(host, cell)| Volume { host: host.clone(), cell: cell.clone(), writable: false });
        let seen = Seen {
            variables: Vec::new(),
            directory: None,
            user: User { user: self.user.0, group: self.user.1 },
            root: self.root.clone(),
            bare: self.bare,
            volumes: volumes.collect(),
        };
        let (asked, fingerprint) = Asked::for_template(&seen, self.program.as_os_str())?;
        if fingerprint == self.fingerprint { Ok(asked) } else { Err(Failure::Changed(self.name.clone())) }
    }

    /// The memory that it had.
    pub(crate) fn memory(&self) -> PageCount {
        PageCount(self.memory)
    }
}

/// Seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
