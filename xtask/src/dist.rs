// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask dist`: the files of a release, in `target/dist/`: an archive, a Debian package and a Python wheel.
//!
//! All three carry the same program, without debug information; its symbols stay, so that a backtrace names functions. The same tree
//! and toolchain give the same bytes: times come from `SOURCE_DATE_EPOCH`, by default the time of the last commit.

mod archive;
mod debian;
mod glibc;
mod release;
mod wheel;

use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::workspace;
use release::Release;

/// The files that were made.
#[derive(Debug)]
pub(crate) struct Distribution {
    /// The compressed archive of the program and the files around it.
    pub(crate) archive: PathBuf,
    /// The Debian package, if this machine has `dpkg-deb`.
    pub(crate) package: Option<PathBuf>,
    /// The Python wheel.
    pub(crate) wheel: PathBuf,
}

/// Builds the program and makes all files of a release.
///
/// # Errors
/// The build fails, the program needs a newer glibc than [`glibc::BASELINE`], or a file cannot be written.
pub(crate) fn make() -> Result<Distribution> {
    let status = workspace::cargo().args(["build", "--release", "--package", "pando"]).status().context("starting cargo")?;
    anyhow::ensure!(status.success(), "cargo build --release failed ({status})");
    let folder = folder();
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("removing {}", folder.display()))?;
    }
    fs::create_dir_all(&folder)?;
    let program = without_debug_information(&workspace::target().join("release/pando"), &folder)?;
    let content = fs::read(&program)?;
    let needed = glibc::check(&content, glibc::BASELINE).with_context(|| format!("checking {}", program.display()))?;
    let release = Release::collect(&program, content)?;
    fs::remove_file(&program)?;
    let made = write(&release, &folder)?;
    for file in [Some(&made.archive), made.package.as_ref(), Some(&made.wheel)].into_iter().flatten() {
        println!("{} ({} MB)", file.display(), fs::metadata(file)?.len() / 1_000_000);
    }
    println!("the program runs with glibc {} and later; it uses symbols up to {needed}", glibc::BASELINE);
    Ok(made)
}

/// The folder of the files that are made.
pub(crate) fn folder() -> PathBuf {
    workspace::target().join("dist")
}

/// Writes the files of a release.
fn write(release: &Release, folder: &Path) -> Result<Distribution> {
    let package = if pando_packages::find("dpkg-deb").is_some() {
        Some(debian::write(release, folder).context("making the Debian package")?)
    } else {
        println!("left out: the Debian package: dpkg-deb is not installed");
        None
    };
    Ok(Distribution {
        archive: archive::write(release, folder).context("making the archive")?,
        package,
        wheel: wheel::write(release, &workspace::root().join("clients/python"), folder).context("making the wheel")?,
    })
}

/// Copies the program without its debug information, which is two thirds of it.
fn without_debug_information(program: &Path, folder: &Path) -> Result<PathBuf> {
    let stripped = folder.join("pando");
    workspace::run(Command::new("strip").args(["--strip-debug", "-o"]).arg(&stripped).arg(program))
        .context("install binutils, which has `strip`")?;
    Ok(stripped)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// A release whose program is a script.
    fn release() -> Release {
        let folder = tempfile::tempdir().expect("there is room");
        let program = folder.path().join("pando");
        let script = "#!/bin/sh\necho \"$@\"\n";
        fs::write(&program, script).expect("the folder is ours");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("the file is ours");
        Release::collect(&program, script.into()).expect("a script prints pages, too")
    }

    #[test]
    fn the_same_release_gives_the_same_bytes() {
        let release = release();
        let [first, second] = [(); 2].map(|()| tempfile::tempdir().expect("there is room"));
        let made = [&first, &second].map(|folder| write(&release, folder.path()).expect("it can be made"));
        let bytes = |made: &Distribution| {
            [Some(&made.archive), Some(&made.wheel), made.package.as_ref()]
                .map(|file| file.map(|file| fs::read(file).expect("it is there")))
        };
        assert!(bytes(&made[0]) == bytes(&made[1]));
    }

    #[test]
    fn the_documents_state_the_baseline() {
        for document in ["README.md", "docs/install.md"] {
            let text = fs::read_to_string(workspace::root().join(document)).expect("it is there");
            assert!(text.contains(&format!("glibc {} ", glibc::BASELINE)), "{document}");
        }
    }
}
