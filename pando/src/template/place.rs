// SPDX-License-Identifier: MIT OR Apache-2.0
//! The directory of templates: one file per variant, under the template's name.

use crate::failure::Failure;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The files' extension.
const EXTENSION: &str = "template";
/// Maximal bytes of a name.
const NAME_MAX: usize = 64;

/// The name of a template: letters, digits, dots, dashes and underlines, of which the first is a letter or a digit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TemplateName(String);

impl FromStr for TemplateName {
    type Err = String;

    fn from_str(text: &str) -> Result<TemplateName, String> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
        if text.starts_with(|first: char| first.is_ascii_alphanumeric()) && text.len() <= NAME_MAX && text.bytes().all(is_plain) {
            return Ok(TemplateName(text.into()));
        }
        Err(format!(
            "`{text}` is not a valid template name: give up to {NAME_MAX} letters, digits, dots, dashes and underlines, such as python-3.11"
        ))
    }
}

impl std::fmt::Display for TemplateName {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(&self.0)
    }
}

/// The directory of templates: `$XDG_DATA_HOME/pando/templates`, or `~/.local/share/pando/templates`.
///
/// # Errors
/// Neither variable is set.
pub(crate) fn directory() -> Result<PathBuf, Failure> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let data = absolute("XDG_DATA_HOME").or_else(|| Some(absolute("HOME")?.join(".local/share")));
    data.map(|data| data.join("pando/templates")).ok_or(Failure::NoHome)
}

/// The file of a template.
///
/// # Errors
/// The same.
pub(crate) fn file(name: &TemplateName) -> Result<PathBuf, Failure> {
    Ok(directory()?.join(format!("{name}.{EXTENSION}")))
}

/// Maximal number of a template's variants.
pub(crate) const VARIANTS_MAX: u32 = 64;

/// The file of one of a template's variants; the first has the template's name alone.
///
/// # Errors
/// The same.
pub(crate) fn variant(name: &TemplateName, number: u32) -> Result<PathBuf, Failure> {
    if number == 0 { file(name) } else { Ok(directory()?.join(format!("{name}~{number}.{EXTENSION}"))) }
}

/// The files of all variants of a template; none if there is no such template.
///
/// # Errors
/// The same.
pub(crate) fn variants(name: &TemplateName) -> Result<Vec<PathBuf>, Failure> {
    let all: Result<Vec<PathBuf>, Failure> = (0..VARIANTS_MAX).map(|number| variant(name, number)).collect();
    Ok(all?.into_iter().take_while(|path| path.exists()).collect())
}

/// Removes the variants after the first `count`, the last first.
///
/// # Errors
/// The host refuses.
pub(crate) fn keep_first(name: &TemplateName, count: u32) -> Result<(), Failure> {
    let surplus = variants(name)?.into_iter().skip(count as usize);
    surplus.rev().try_for_each(|path| std::fs::remove_file(&path).map_err(|source| Failure::Templates { path, source }))
}

/// The file of a random variant, or that of the first if there is none.
///
/// # Errors
/// The same.
pub(crate) fn draw(name: &TemplateName) -> Result<PathBuf, Failure> {
    let all = variants(name)?;
    match all.len() {
        0 => file(name),
        count => Ok(all[fastrand::usize(..count)].clone()),
    }
}

/// Creates a directory that only its owner may enter, unless it exists.
///
/// # Errors
/// It cannot be created.
pub(crate) fn make(directory: &Path) -> Result<(), Failure> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(directory);
    made.map_err(|source| Failure::Templates { path: directory.into(), source })
}

/// All stored templates, by name.
///
/// # Errors
/// The directory cannot be read.
pub(crate) fn all() -> Result<Vec<(TemplateName, PathBuf)>, Failure> {
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
    let mut all: Vec<(TemplateName, PathBuf)> = entries.flatten().filter_map(|entry| named(entry.path())).collect();
    all.sort_by(|(one, _), (other, _)| one.0.cmp(&other.0));
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::TemplateName;

    #[test]
    fn names_are_plain() {
        for name in ["python", "a", "3", "python-3.11_numpy"] {
            assert_eq!(name.parse::<TemplateName>().map(|name| name.to_string()), Ok(name.into()));
        }
        for name in ["", ".", "..", ".hidden", "-x", "a/b", "a b", "ä", &"a".repeat(65)] {
            assert!(name.parse::<TemplateName>().is_err(), "{name}");
        }
    }
}
