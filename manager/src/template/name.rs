// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names of templates, and references to templates.

use crate::host;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// The name of a template: letters, digits, dots, dashes and underlines, of which the first is a letter or a digit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TemplateName(String);

impl FromStr for TemplateName {
    type Err = String;

    fn from_str(text: &str) -> Result<TemplateName, String> {
        if host::is_plain_name(text) {
            return Ok(TemplateName(text.into()));
        }
        Err(format!(
            "`{text}` is not a valid template name: give up to 64 letters, digits, dots, dashes and underlines, such as python-3.11"
        ))
    }
}

impl fmt::Display for TemplateName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// A reference to a template: its name or its file.
#[derive(Clone, Debug)]
pub enum TemplateRef {
    /// A stored template.
    Stored(TemplateName),
    /// A path, which contains a slash.
    File(PathBuf),
}

impl FromStr for TemplateRef {
    type Err = String;

    fn from_str(text: &str) -> Result<TemplateRef, String> {
        if text.contains('/') { Ok(TemplateRef::File(text.into())) } else { text.parse().map(TemplateRef::Stored) }
    }
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
