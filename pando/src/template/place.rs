// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where templates are kept: files in one directory of the user's, each under the template's name.

use crate::failure::Failure;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// What the files' names end with.
const EXTENSION: &str = "template";
/// Bytes of the longest name.
const NAME_MAX: usize = 64;

/// The name of a template: letters, digits, dots, dashes and underlines, of which the first is a letter or a digit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Name(String);

impl FromStr for Name {
    type Err = String;

    fn from_str(text: &str) -> Result<Name, String> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
        if text.starts_with(|first: char| first.is_ascii_alphanumeric()) && text.len() <= NAME_MAX && text.bytes().all(is_plain) {
            return Ok(Name(text.into()));
        }
        Err(format!(
            "`{text}` is no name for a template: give up to {NAME_MAX} letters, digits, dots, dashes and underlines, such as python-3.11"
        ))
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(&self.0)
    }
}

/// The directory of templates: `$XDG_DATA_HOME/pando/templates`, or `~/.local/share/pando/templates`.
///
/// # Errors
/// Nobody says where.
pub(crate) fn directory() -> Result<PathBuf, Failure> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let data = absolute("XDG_DATA_HOME").or_else(|| Some(absolute("HOME")?.join(".local/share")));
    data.map(|data| data.join("pando/templates")).ok_or(Failure::NoHome)
}

/// The file of a template.
///
/// # Errors
/// The same.
pub(crate) fn file(name: &Name) -> Result<PathBuf, Failure> {
    Ok(directory()?.join(format!("{name}.{EXTENSION}")))
}

/// The most variants that a template has.
pub(crate) const VARIANTS_MAX: u32 = 64;

/// The file of one of a template's variants; the first bears the template's name alone.
///
/// # Errors
/// The same.
pub(crate) fn variant(name: &Name, number: u32) -> Result<PathBuf, Failure> {
    if number == 0 { file(name) } else { Ok(directory()?.join(format!("{name}~{number}.{EXTENSION}"))) }
}

/// The files of all variants that a template has; none if there is no such template.
///
/// # Errors
/// The same.
pub(crate) fn variants(name: &Name) -> Result<Vec<PathBuf>, Failure> {
    let all: Result<Vec<PathBuf>, Failure> = (0..VARIANTS_MAX).map(|number| variant(name, number)).collect();
    Ok(all?.into_iter().take_while(|path| path.exists()).collect())
}

/// Removes the variants of a template that are behind the first so many, the last first.
///
/// # Errors
/// The host refuses.
pub(crate) fn keep_first(name: &Name, count: u32) -> Result<(), Failure> {
    let surplus = variants(name)?.into_iter().skip(count as usize);
    surplus.rev().try_for_each(|path| std::fs::remove_file(&path).map_err(|source| Failure::Templates { path, source }))
}

/// The file of a variant that is drawn by lot, or that of the first where there is none.
///
/// # Errors
/// The same.
pub(crate) fn draw(name: &Name) -> Result<PathBuf, Failure> {
    let all = variants(name)?;
    match all.len() {
        0 => file(name),
        count => Ok(all[fastrand::usize(..count)].clone()),
    }
}

/// Makes a directory that only its owner may enter, unless it is there.
///
/// # Errors
/// It cannot be made.
pub(crate) fn make(directory: &Path) -> Result<(), Failure> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(directory);
    made.map_err(|source| Failure::Templates { path: directory.into(), source })
}

/// All templates that are kept, by name.
///
/// # Errors
/// The directory cannot be read.
pub(crate) fn all() -> Result<Vec<(Name, PathBuf)>, Failure> {
    let directory = directory()?;
    let entries = match std::fs::read_dir(&directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(Failure::Templates { path: directory, source }),
    };
    let named = |path: PathBuf| {
        let name = path.file_stem()?.to_str()?.parse().ok()?;
        path.extension().is_some_and(|extension| extension == EXTENSION).then_some((name, path))
    };
    let mut all: Vec<(Name, PathBuf)> = entries.flatten().filter_map(|entry| named(entry.path())).collect();
    all.sort_by(|(one, _), (other, _)| one.0.cmp(&other.0));
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::Name;

    #[test]
    fn names_are_plain() {
        for name in ["python", "a", "3", "python-3.11_numpy"] {
            assert_eq!(name.parse::<Name>().map(|name| name.to_string()), Ok(name.into()));
        }
        for name in ["", ".", "..", ".hidden", "-x", "a/b", "a b", "ä", &"a".repeat(65)] {
            assert!(name.parse::<Name>().is_err(), "{name}");
        }
    }
}
