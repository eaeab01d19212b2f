// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names of images: registry, repository and tag, with docker's defaults.

use crate::Error;
use crate::digest::Digest;
use oci_spec::distribution::Reference;
use std::fmt;
use std::str::FromStr;

/// A name of an image, such as `python:3.12`, which is short for `docker.io/library/python:3.12`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageName(Reference);

impl ImageName {
    /// The whole name: registry, repository, and tag or digest.
    #[must_use]
    pub fn whole(&self) -> String {
        self.0.whole()
    }

    /// The name as docker shows it: without the parts that it adds.
    #[must_use]
    pub fn familiar(&self) -> String {
        familiar(&self.whole())
    }

    /// The repository without its registry, as docker shows it, and the tag.
    #[must_use]
    pub fn columns(&self) -> (String, String) {
        let tag = self.0.tag().unwrap_or("<none>").to_string();
        let repository = familiar(&format!("{}/{}", self.0.registry(), self.0.repository()));
        (repository, tag)
    }

    /// The reference.
    #[must_use]
    pub fn reference(&self) -> &Reference {
        &self.0
    }

    /// The name that an archive or layout gives to an image that has only a tag: that of its file, such as `app:v1` for `v1` in `app.tar`.
    pub(crate) fn of_tag(file: &str, tag: &str) -> Option<ImageName> {
        let stem = file.split('.').next().unwrap_or_default().to_lowercase();
        let plain: String = stem.chars().filter(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_')).collect();
        format!("localhost/{}:{tag}", plain.trim_matches(['-', '_'])).parse().ok()
    }
}

/// A whole name without the parts that docker adds.
fn familiar(whole: &str) -> String {
    let short = whole.strip_prefix("docker.io/library/").or_else(|| whole.strip_prefix("docker.io/")).unwrap_or(whole);
    // `docker.io/localhost/x` would be another image when it is read again.
    match short.parse::<Reference>() {
        Ok(reference) if reference.whole().starts_with(whole) => short.into(),
        _ => whole.into(),
    }
}

impl FromStr for ImageName {
    type Err = Error;

    fn from_str(name: &str) -> Result<ImageName, Error> {
        let refused = |reason: String| Error::Name { name: name.into(), reason };
        if name.len() > 1024 {
            return Err(refused("it is too long".into()));
        }
        let reference: Reference = name.parse().map_err(|error| refused(format!("{error}; give one such as python:3.12")))?;
        // As docker has it: such a name would be taken for the ID of another image.
        let repository = reference.repository().strip_prefix("library/").unwrap_or(reference.repository());
        if repository == "sha256" || Digest::from_hex(repository).is_some() {
            return Err(refused("it looks like the ID of an image".into()));
        }
        // Nothing else could be checked.
        if reference.digest().is_some_and(|digest| digest.parse::<Digest>().is_err()) {
            return Err(refused("its digest must be sha256: and 64 hexadecimal digits in lower case".into()));
        }
        Ok(ImageName(reference))
    }
}

impl fmt::Display for ImageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.familiar())
    }
}
