// SPDX-License-Identifier: MIT OR Apache-2.0
//! Helpers that every root gets, with which programs report that they are ready to be cloned: a program for shells, modules for Python
//! and one for Node, a header for C. Those of Python include the program of the template `python`.
//!
//! They are in each language's default search path, so that no setup is needed.

use pando_image::{Attributes, Builder, Error};
use std::hash::{Hash, Hasher};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

const SHELL: &str = include_str!("parts/pando-ready");
/// Python's modules, by path beside its `os.py`.
const PYTHON: [(&str, &str); 8] = [
    ("pando/__init__.py", include_str!("parts/pando/__init__.py")),
    ("pando/__main__.py", include_str!("parts/pando/__main__.py")),
    ("_pando_code.py", include_str!("parts/_pando_code.py")),
    ("_pando_display.py", include_str!("parts/_pando_display.py")),
    ("_pando_languages.py", include_str!("parts/_pando_languages.py")),
    ("_pando_matplotlib.py", include_str!("parts/_pando_matplotlib.py")),
    ("_pando_session.py", include_str!("parts/_pando_session.py")),
    ("_pando_session.js", include_str!("parts/_pando_session.js")),
];
const NODE: &str = include_str!("parts/pando.js");
const HEADER: &str = include_str!("parts/pando.h");

/// Adds all of them to a root.
///
/// # Errors
/// The image is full.
pub fn add(builder: &mut Builder) -> Result<(), Error> {
    put(builder, Path::new("/usr/bin/pando-ready"), 0o755, SHELL)?;
    put(builder, Path::new("/usr/include/pando.h"), 0o644, HEADER)?;
    add_modules(builder)
}

/// Adds the modules of languages that are installed somewhere in a tree.
///
/// # Errors
/// The image is full.
pub(super) fn add_modules(builder: &mut Builder) -> Result<(), Error> {
    for module in builder.named("os.py") {
        let library = module.parent().and_then(Path::file_name);
        if library.is_some_and(|library| library.as_encoded_bytes().starts_with(b"python3.")) {
            for (name, text) in PYTHON {
                put(builder, &module.with_file_name(name), 0o644, text)?;
            }
        }
    }
    for program in builder.named("node") {
        if let Some((prefix, true)) = program.parent().and_then(|bin| Some((bin.parent()?, bin.ends_with("bin")))) {
            // Debian's node searches the second one only.
            for directory in ["lib/node", "share/nodejs"] {
                put(builder, &prefix.join(directory).join("pando.js"), 0o644, NODE)?;
            }
        }
    }
    Ok(())
}

/// Adds the helpers' version to a fingerprint.
pub(super) fn version(hasher: &mut impl Hasher) {
    (SHELL, PYTHON, NODE, HEADER).hash(hasher);
}

/// Adds a file unless the image has one at its path.
fn put(builder: &mut Builder, path: &Path, permissions: u16, text: &str) -> Result<(), Error> {
    match builder.file(path.as_os_str().as_bytes(), Attributes::root(permissions), text) {
        Err(Error::Duplicate { .. } | Error::NotADirectory { .. }) => Ok(()),
        done => done,
    }
}
