// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the repository lies, and how its tools are called.

use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Runs what follows so that it is told to end when whoever started it is gone: nothing is left running behind our back.
pub(crate) const DIES_WITH_PARENT: [&str; 3] = ["setpriv", "--pdeathsig", "TERM"];

/// The repository's root.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in a folder of the root").to_path_buf()
}

/// Where cargo puts what it builds.
pub(crate) fn target() -> PathBuf {
    root().join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}

/// A `cargo` command that works on this repository, wherever it is called from.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(cargo_program());
    command.current_dir(root());
    command
}

/// The same, ended with all that it started after `limit`; the exit status is then [`TIMED_OUT`].
pub(crate) fn cargo_within(limit: Duration) -> Command {
    let mut command = Command::new(DIES_WITH_PARENT[0]);
    command.args(&DIES_WITH_PARENT[1..]).args(["timeout", "--kill-after=10", &limit.as_secs().to_string()]).arg(cargo_program());
    // `timeout` puts cargo into a group of its own, which cannot read from the terminal.
    command.current_dir(root()).stdin(Stdio::null());
    command
}

/// What `timeout` exits with when the time was up.
pub(crate) const TIMED_OUT: i32 = 124;

fn cargo_program() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// Runs a command that must succeed and has nothing to say otherwise; returns its standard output.
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
