// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of templates.

use crate::host;
use crate::view::ViewError;
use pando_image::escaped;
use pando_kernel::End;
use pando_launch::LaunchError;
use std::ffi::OsString;
use std::path::PathBuf;

/// Why a template cannot be created, opened, loaded or removed.
#[derive(Debug, thiserror::Error)]
pub enum TemplateError {
    /// It does not exist.
    #[error("there is no template `{0}`")]
    Missing(String),
    /// It exists already.
    #[error("template `{0}` exists already")]
    Exists(String),
    /// The directory of templates is unknown.
    #[error("cannot find the directory of templates: set HOME or XDG_DATA_HOME")]
    NoDirectory,
    /// A file cannot be created, read or removed.
    #[error("{}: {}", escaped(path), host::plain(source))]
    File {
        /// The file.
        path: PathBuf,
        /// The host's error.
        source: std::io::Error,
    },
    /// A file without a valid recipe.
    #[error("{} has no valid recipe", escaped(.0))]
    NoRecipe(PathBuf),
    /// A file that other users could have written.
    #[error("cannot use {}: another user owns it or may write it, and it controls which of your files its clones see: copy it if you trust it", escaped(.0))]
    Foreign(PathBuf),
    /// The files that it sees have changed.
    #[error("the files that template `{0}` sees have changed since it was created")]
    Changed(String),
    /// A file of the host that it has read has changed.
    #[error("{}, which template `{name}` uses, has changed since it was created", escaped(path))]
    ChangedFile {
        /// The template.
        name: String,
        /// The file.
        path: PathBuf,
    },
    /// A session of it could not be resumed, because a file of the host has changed that the template has read or shows.
    #[error(
        "cannot freeze a session of template `{name}`: {}, which it uses, has changed; the session keeps running: fork it, or restore the file",
        escaped(path)
    )]
    FileOfSession {
        /// The template.
        name: String,
        /// The file.
        path: PathBuf,
    },
    /// An image of its view has been removed.
    #[error(
        "image {image} of template `{name}` is missing or damaged in its directory `views`: a session of it can be forked, but not paused"
    )]
    ImageMissing {
        /// The template.
        name: String,
        /// The image's file.
        image: String,
    },
    /// Its program ended before it was ready.
    #[error("{}: {end} before it reported that it is ready", escaped(program))]
    NotReady {
        /// The program.
        program: OsString,
        /// How it ended.
        end: End,
    },
    /// A path or an argument is not UTF-8.
    #[error("{} is not valid UTF-8, which templates require", escaped(.0))]
    NotUtf8(OsString),
    /// The output of its program cannot be written.
    #[error("cannot write the program's output: {}", host::plain(.0))]
    Output(std::io::Error),
    /// The files that it sees cannot be shown.
    #[error(transparent)]
    View(#[from] ViewError),
    /// Its file cannot be saved or loaded.
    #[error(transparent)]
    Store(#[from] pando_store::Error),
    /// A cell cannot be created.
    #[error(transparent)]
    Launch(#[from] LaunchError),
}
