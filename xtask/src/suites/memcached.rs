// SPDX-License-Identifier: MIT OR Apache-2.0
//! memcached's own tests, files of `t/` from Debian's source package, with the installed memcached: programs in Perl that
//! start servers and query them over TCP. Each runs whole in a cell. Tests that accept a running server also query one
//! through the gateway.

use anyhow::{Context, Result};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use super::perl::verdict;
use super::served::RunningServer;
use super::{Runner, Unit, Verdict};
use crate::{sources, workspace};

/// A replacement for the server that the tests start. It hides the Unix socket option, so that the tests use TCP, and drops
/// an option that only debug builds know.
const SERVER: &str = r#"#!/bin/bash
[ "$*" != -h ] || { memcached -h | grep -v unix-socket; exit; }
words=" $*"
exec memcached ${words/ -o relaxed_privileges/}
"#;
/// The first port of running servers.
const FIRST_PORT: u16 = 22_000;
/// The number of files in parallel: mostly they wait.
const AT_ONCE: usize = 4;

/// The subject of the document.
pub(super) fn title() -> Result<String> {
    let version = workspace::run(Command::new("memcached").arg("-V"))?;
    Ok(format!(
        "memcached's own tests, files of `t/` over TCP with Debian's {}, whole in a cell and (`served`) through the gateway",
        version.trim()
    ))
}

/// Runs the named files, or all.
pub(super) fn run(runner: &Runner, names: &[String]) -> Result<Vec<Unit>> {
    let place = runner.scratch.path().join("memcached");
    workspace::run(Command::new("cp").arg("-r").args([&sources::source("memcached")?, &place]))?;
    fs::write(place.join("memcached-debug"), SERVER).context("naming the server")?;
    fs::set_permissions(place.join("memcached-debug"), fs::Permissions::from_mode(0o755)).context("naming the server")?;
    // A helper that terminates a server with the tests that started it.
    workspace::run(Command::new("cc").args(["-o", "timedrun", "timedrun.c"]).current_dir(&place))?;
    let found = workspace::run(Command::new("find").args(["t", "-maxdepth", "1", "-name", "*.t"]).current_dir(&place))?;
    let mut files: Vec<String> = found.lines().map(Into::into).collect();
    files.sort_unstable();
    let chosen = if names.is_empty() { files } else { names.to_vec() };
    runner.each(&chosen, AT_ONCE, |index, name| unit(runner, &place, index, name))
}

/// Runs a file, and again with a running server if the file starts only one, with default options.
fn unit(runner: &Runner, place: &Path, index: usize, name: &str) -> Result<Vec<Unit>> {
    let here = place.to_string_lossy();
    let whole = pair(
        name.to_owned(),
        || Ok(verdict(&runner.native(name, &["perl", name], Some(place))?)),
        || Ok(verdict(&runner.cell(name, &["-v", &here, "-w", &here], &["perl", name])?)),
    )?;
    let text = fs::read_to_string(place.join(name)).with_context(|| format!("reading {name}"))?;
    let starts: Vec<&str> = text.split("new_memcached(").skip(1).collect();
    if starts.len() != 1 || !starts[0].starts_with(')') {
        return Ok(vec![whole]);
    }
    let port = FIRST_PORT + u16::try_from(index).context("there are few files")?;
    let (asks, part) = (format!("T_MEMD_USE_DAEMON=127.0.0.1:{port} exec perl {name}"), format!("{name}-served"));
    let server = ["memcached", "-u", "nobody"];
    let served = RunningServer { port, server: &server, port_word: "-p", usual_port: 11211, in_cell: &[], tests: &["sh", "-c", &asks] };
    let through = pair(
        format!("{name} (served)"),
        || Ok(verdict(&served.native(runner, &part, place)?)),
        || Ok(verdict(&served.cell(runner, &part, place)?)),
    )?;
    Ok(vec![whole, through])
}

/// The result on both sides; in a cell only if it passes natively. A natively skipped file is skipped.
fn pair(name: String, native: impl Fn() -> Result<Option<Verdict>>, cell: impl Fn() -> Result<Option<Verdict>>) -> Result<Unit> {
    let native = native()?.unwrap_or(Verdict::Skipped);
    let cell = match native {
        Verdict::Passed => cell()?.unwrap_or_else(|| Verdict::Failed("it was skipped".into())),
        _ => Verdict::Skipped,
    };
    println!("{name}: natively {native:?}, in a cell {cell:?}");
    Ok(Unit { name, native, cell })
}
