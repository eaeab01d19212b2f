// SPDX-License-Identifier: MIT OR Apache-2.0
//! The Debian package, made by `dpkg-deb`.
//!
//! A Debian system has this program, and it builds reproducibly. The alternative, cargo-deb, is some minutes of compilation for a control
//! file and a list of files.

use super::glibc;
use super::release::{DOCUMENTS, Release};
use crate::workspace;
use anyhow::{Context, Result};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The prefix of a package's files.
const PREFIX: &str = "usr";
const COPYRIGHT: &str = "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: pando

Files: *
Copyright: the contributors to Pando
License: MIT or Apache-2.0
 The texts are in the files LICENSE-MIT and LICENSE-APACHE beside this one.
";

/// Writes the package and returns its path.
pub(super) fn write(release: &Release, folder: &Path) -> Result<PathBuf> {
    let tree = tempfile::tempdir_in(folder)?;
    let root = tree.path();
    let mut bytes = 0;
    for file in release.below(&format!("/{PREFIX}")) {
        bytes += file.content.len();
        add(root, &format!("{PREFIX}/{}", file.path), &file.content, file.mode())?;
    }
    add(root, &format!("{PREFIX}/{DOCUMENTS}/copyright"), COPYRIGHT.as_bytes(), 0o644)?;
    add(root, "DEBIAN/control", control(&release.version, bytes).as_bytes(), 0o644)?;
    let path = folder.join(format!("pando_{}_amd64.deb", release.version));
    let mut build = Command::new("dpkg-deb");
    // Level 2 of xz takes a quarter of the time of the default and a few percent more space.
    build.args(["--root-owner-group", "-Zxz", "-z2", "--build"]).arg(root).arg(&path);
    workspace::run(build.env("SOURCE_DATE_EPOCH", release.time.to_string()))?;
    Ok(path)
}

/// Adds a file to the package's tree.
fn add(root: &Path, name: &str, content: &[u8], mode: u32) -> Result<()> {
    let path = root.join(name);
    let mut above = path.parent().context("a file lies in a folder")?;
    fs::create_dir_all(above)?;
    // The folders of a package have these permissions, whatever the umask here.
    while above.starts_with(root) {
        fs::set_permissions(above, Permissions::from_mode(0o755))?;
        above = above.parent().context("the root lies in a folder")?;
    }
    fs::write(&path, content).with_context(|| format!("writing {}", path.display()))?;
    Ok(fs::set_permissions(&path, Permissions::from_mode(mode))?)
}

/// The control file of the package.
fn control(version: &str, bytes: usize) -> String {
    format!(
        "Package: pando
Version: {version}
Architecture: amd64
Maintainer: The Pando contributors <pando@localhost>
Installed-Size: {}
Depends: libc6 (>= {}), libgcc-s1
Section: admin
Priority: optional
Description: runs Linux programs in cells, tiny virtual machines
 Pando runs unmodified Linux programs in cells: tiny virtual machines that are
 cloned in constant time. It needs a CPU with virtualisation and /dev/kvm.
",
        bytes.div_ceil(1024),
        glibc::BASELINE
    )
}
