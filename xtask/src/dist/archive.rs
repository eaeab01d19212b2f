// SPDX-License-Identifier: MIT OR Apache-2.0
//! The archive of a release: one folder, to be copied to `/usr/local`.

use super::release::{Release, compress};
use anyhow::Result;
use std::fs;
use std::path::{Path, PathBuf};
use tar::{Builder, Header};

/// Writes the archive and returns its path.
pub(super) fn write(release: &Release, folder: &Path) -> Result<PathBuf> {
    let name = format!("pando-{}-x86_64-linux", release.version);
    let mut archive = Builder::new(Vec::new());
    for file in &release.files {
        let mut header = Header::new_gnu();
        header.set_mode(file.mode());
        header.set_mtime(release.time);
        header.set_size(file.content.len() as u64);
        archive.append_data(&mut header, format!("{name}/{}", file.path), &file.content[..])?;
    }
    let path = folder.join(format!("{name}.tar.gz"));
    fs::write(&path, compress(&archive.into_inner()?)?)?;
    Ok(path)
}
