// SPDX-License-Identifier: MIT OR Apache-2.0
//! Paths of the repository, and commands to run its tools.

use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// A command prefix: the command gets SIGTERM when its parent ends, so that nothing is left running.
pub(crate) const DIES_WITH_PARENT: [&str; 3] = ["setpriv", "--pdeathsig", "TERM"];

/// The repository's root.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in a folder of the root").to_path_buf()
}

/// Cargo's output folder.
pub(crate) fn target() -> PathBuf {
    root().join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}

/// A `cargo` command for this repository, independent of the working directory.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(cargo_program());
    command.current_dir(root());
    without_package(&mut command);
    command
}

/// Removes the variables that describe xtask, which `cargo xtask` has set: build scripts of some dependencies run again when they change,
/// and with them everything above would be compiled again after each change between `cargo test` and `cargo xtask test`.
fn without_package(cargo: &mut Command) {
    let of_package =
        |name: &OsString| name.to_str().is_some_and(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| of_package(name)) {
        cargo.env_remove(name);
    }
}

/// A command prefix: signals that the caller ignores, as a shell's background jobs do, have their default effect. Tests send them.
const DEFAULT_SIGNALS: [&str; 2] = ["env", "--default-signal=HUP,INT,QUIT"];

/// Like [`cargo`], with default effects of signals, terminated with all its children after `limit`; the exit status is then [`TIMED_OUT`].
pub(crate) fn cargo_within(limit: Duration) -> Command {
    let mut command = Command::new(DIES_WITH_PARENT[0]);
    command.args(&DIES_WITH_PARENT[1..]).args(["timeout", "--kill-after=10", &limit.as_secs().to_string()]);
    command.args(DEFAULT_SIGNALS).arg(cargo_program());
    // `timeout` puts cargo into a process group of its own, which cannot read from the terminal.
    command.current_dir(root()).stdin(Stdio::null());
    without_package(&mut command);
    command
}

/// The exit status of `timeout` after the limit.
pub(crate) const TIMED_OUT: i32 = 124;

fn cargo_program() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// Runs a command that must succeed; returns its standard output.
///
/// # Errors
/// If it cannot be started or fails; the text has its standard error.
pub(crate) fn run(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("starting {name}"))?;
    if !output.status.success() {
        bail!("{name} failed ({}): {}", output.status, String::from_utf8_lossy(&output.stderr).trim_end());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// The packages that cargo compiles for a selection of packages, with their features.
    fn compiled(selection: &[&str]) -> BTreeSet<String> {
        let mut tree = cargo();
        tree.args(["tree", "--offline", "--edges", "normal,build,dev", "--prefix", "none", "--format", "{p} {f}"]).args(selection);
        let lines = run(&mut tree).expect("cargo prints the packages");
        lines.lines().map(|line| line.trim_end_matches(" (*)").to_owned()).collect()
    }

    #[test]
    fn xtask_shares_its_dependencies_with_the_tests() {
        let (own, all) = (compiled(&["--package", "xtask"]), compiled(&["--workspace"]));
        let different: Vec<_> = own.difference(&all).collect();
        assert!(different.is_empty(), "compiled twice, because the workspace has other features: adapt xtask/Cargo.toml: {different:?}");
    }
}
