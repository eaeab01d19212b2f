// SPDX-License-Identifier: MIT OR Apache-2.0
//! System packages of the tests: detected, installed on Debian as root, or listed in one line. The crate `pando-packages`
//! declares them.
//!
//! A package counts as present when the files that the tests use exist, so the check works on any Linux.

use anyhow::{Context, Result, bail, ensure};
use pando_packages::{NEEDED, OPTIONAL, Package};
use std::path::Path;
use std::process::Command;

use crate::workspace;

/// Ensures that all needed packages are present.
///
/// # Errors
/// If a package is missing and cannot be installed; the text lists the missing ones in one line.
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
        bail!("install the files of these Debian packages: {}", names.join(" "));
    }
    if !is_root()? {
        bail!("packages are missing; as root, run: apt-get install --no-install-recommends {}", names.join(" "));
    }
    apt_get(&["update", "-qq"])?;
    apt_get(&[&["install", "-qq", "--yes", "--no-install-recommends"], names.as_slice()].concat())?;
    let still = |package: &Package| format!("{} ({})", package.name, package.missing().collect::<Vec<_>>().join(", "));
    let still: Vec<String> = incomplete(NEEDED).map(still).collect();
    ensure!(still.is_empty(), "installed, but files are missing at their expected paths: {}", still.join(", "));
    Ok(())
}

/// The packages that the tests need and that are missing or incomplete.
pub(crate) fn missing() -> Vec<&'static Package> {
    incomplete(NEEDED).collect()
}

/// Installs packages that not every Debian has; returns descriptions of those that are not available.
pub(crate) fn install_optional() -> Vec<String> {
    let install = |package: &Package| apt_get(&["install", "-qq", "--yes", "--no-install-recommends", package.name]);
    incomplete(OPTIONAL).filter_map(|package| Some(format!("{}: {:#}", package.purpose, install(package).err()?))).collect()
}

/// The packages with missing files.
fn incomplete(packages: &'static [Package]) -> impl Iterator<Item = &'static Package> {
    packages.iter().filter(|package| package.missing().next().is_some())
}

fn is_root() -> Result<bool> {
    Ok(workspace::run(Command::new("id").arg("--user"))?.trim() == "0")
}

fn apt_get(arguments: &[&str]) -> Result<()> {
    // Another process may be installing, and a mirror may fail once.
    let patient = ["--option=DPkg::Lock::Timeout=120", "--option=Acquire::Retries=3"];
    // Tests start the servers themselves; the system must not.
    let status =
        Command::new("apt-get").args(patient).args(arguments).env("DEBIAN_FRONTEND", "noninteractive").env("RUNLEVEL", "1").status();
    let status = status.context("starting apt-get")?;
    ensure!(status.success(), "apt-get {} failed ({status})", arguments.join(" "));
    Ok(())
}
