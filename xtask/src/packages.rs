// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the tests need from the system: found, installed on Debian as root, or named in one line. The crate `pando-packages` declares it.
//!
//! A package counts as present when the files that the tests want from it are there, so the check holds on any Linux.

use anyhow::{Context, Result, bail, ensure};
use pando_packages::{NEEDED, OPTIONAL, Package};
use std::path::Path;
use std::process::Command;

use crate::workspace;

/// Sees to it that everything is there.
///
/// # Errors
/// If something is missing and cannot be installed; the text names the packages in one line.
pub(crate) fn ensure_installed() -> Result<()> {
    let missing = missing();
    if missing.is_empty() {
        return Ok(());
    }
    for package in &missing {
        println!("missing: {} ({})", package.name, package.purpose);
    }
    let names: Vec<&str> = missing.iter().map(|package| package.name).collect();
    if !Path::new("/etc/debian_version").exists() {
        bail!("install what these Debian packages hold: {}", names.join(" "));
    }
    if !is_root()? {
        bail!("as root: apt-get install --no-install-recommends {}", names.join(" "));
    }
    apt_get(&["update", "-qq"])?;
    apt_get(&[&["install", "-qq", "--yes", "--no-install-recommends"], names.as_slice()].concat())?;
    let still = |package: &Package| format!("{} ({})", package.name, package.missing().collect::<Vec<_>>().join(", "));
    let still: Vec<String> = incomplete(NEEDED).map(still).collect();
    ensure!(still.is_empty(), "installed, and yet not where it was looked for: {}", still.join(", "));
    Ok(())
}

/// The packages that the tests need and that are not all there.
pub(crate) fn missing() -> Vec<&'static Package> {
    incomplete(NEEDED).collect()
}

/// Installs what not every Debian has; returns what cannot be had, in words.
pub(crate) fn install_optional() -> Vec<String> {
    let install = |package: &Package| apt_get(&["install", "-qq", "--yes", "--no-install-recommends", package.name]);
    incomplete(OPTIONAL).filter_map(|package| Some(format!("{}: {:#}", package.purpose, install(package).err()?))).collect()
}

/// The packages of which something is missing.
fn incomplete(packages: &'static [Package]) -> impl Iterator<Item = &'static Package> {
    packages.iter().filter(|package| package.missing().next().is_some())
}

fn is_root() -> Result<bool> {
    Ok(workspace::run(Command::new("id").arg("--user"))?.trim() == "0")
}

fn apt_get(arguments: &[&str]) -> Result<()> {
    // Somebody else may be installing, and a mirror may fail once.
    let patient = ["--option=DPkg::Lock::Timeout=120", "--option=Acquire::Retries=3"];
    // Servers are installed to be run by tests, not by the system.
    let status =
        Command::new("apt-get").args(patient).args(arguments).env("DEBIAN_FRONTEND", "noninteractive").env("RUNLEVEL", "1").status();
    let status = status.context("starting apt-get")?;
    ensure!(status.success(), "apt-get {} failed ({status})", arguments.join(" "));
    Ok(())
}
