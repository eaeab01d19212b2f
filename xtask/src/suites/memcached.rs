// SPDX-License-Identifier: MIT OR Apache-2.0
//! memcached's own tests, files of `t/` from Debian's source package, with the memcached that is installed: programs in Perl that start servers and ask them over TCP. Each runs whole in a
//! cell; those that can ask a server which runs already do so once more, through the gateway.

use anyhow::{Context, Result};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use super::perl::verdict;
use super::served::Served;
use super::{Runner, Unit, Verdict};
use crate::{sources, workspace};

/// Where the tests look for the server. They would ask it over a Unix socket, if it said that it has some; and they give it a word that only servers built for looking into know.
const SERVER: &str = r#"#!/bin/bash
[ "$*" != -h ] || { memcached -h | grep -v unix-socket; exit; }
words=" $*"
exec memcached ${words/ -o relaxed_privileges/}
"#;
/// Where servers that run already are asked.
const FIRST_PORT: u16 = 22_000;
/// Files at once: mostly they wait.
const AT_ONCE: usize = 4;

/// What the document is about.
pub(super) fn title() -> Result<String> {
    let version = workspace::run(Command::new("memcached").arg("-V"))?;
    Ok(format!(
        "memcached's own tests, files of `t/` over TCP with Debian's {}, whole in a cell and (`served`) through the gateway",
        version.trim()
    ))
}

/// Runs files, or all of them.
pub(super) fn run(runner: &Runner, names: &[String]) -> Result<Vec<Unit>> {
    let place = runner.scratch.path().join("memcached");
    workspace::run(Command::new("cp").arg("-r").args([&sources::source("memcached")?, &place]))?;
    fs::write(place.join("memcached-debug"), SERVER).context("naming the server")?;
    fs::set_permissions(place.join("memcached-debug"), fs::Permissions::from_mode(0o755)).context("naming the server")?;
    // What ends a server with the tests that started it.
    workspace::run(Command::new("cc").args(["-o", "timedrun", "timedrun.c"]).current_dir(&place))?;
    let found = workspace::run(Command::new("find").args(["t", "-maxdepth", "1", "-name", "*.t"]).current_dir(&place))?;
    let mut files: Vec<String> = found.lines().map(Into::into).collect();
    files.sort_unstable();
    let chosen = if names.is_empty() { files } else { names.to_vec() };
    runner.each(&chosen, AT_ONCE, |index, name| unit(runner, &place, index, name))
}

/// A file, and the same of a server that runs already if it leaves to others how that is started.
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
    let served = Served { port, server: &server, port_word: "-p", usual_port: 11211, in_cell: &[], tests: &["sh", "-c", &asks] };
    let through = pair(
        format!("{name} (served)"),
        || Ok(verdict(&served.native(runner, &part, place)?)),
        || Ok(verdict(&served.cell(runner, &part, place)?)),
    )?;
    Ok(vec![whole, through])
}

/// How something went on both sides; in a cell only if it passes natively. What is skipped natively says nothing.
fn pair(name: String, native: impl Fn() -> Result<Option<Verdict>>, cell: impl Fn() -> Result<Option<Verdict>>) -> Result<Unit> {
    let native = native()?.unwrap_or(Verdict::Skipped);
    let cell = match native {
        Verdict::Passed => cell()?.unwrap_or_else(|| Verdict::Failed("it was skipped".into())),
        _ => Verdict::Skipped,
    };
    println!("{name}: natively {native:?}, in a cell {cell:?}");
    Ok(Unit { name, native, cell })
}
