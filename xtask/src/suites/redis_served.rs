// SPDX-License-Identifier: MIT OR Apache-2.0
//! redis's own tests for a running server: those units of `./runtest --host --port` that fit one, with a new server each.

use anyhow::{Context, Result};
use std::fs;
use std::path::Path;
use std::process::Command;

use super::redis::{AT_ONCE, RUN, TCL, assemble, chosen, compare, counts, verdicts};
use super::served::RunningServer;
use super::{Runner, Unit};
use crate::workspace;

/// The first port of the units' servers.
const FIRST_PORT: u16 = 21_000;
/// The base ports of the tests' own coordination.
const FIRST_BASE: usize = 11_000;
const PORTS: usize = 100;
/// The server's command line, as redis's own project uses it for these tests.
const SERVER: [&str; 9] =
    ["redis-server", "--save", "", "--enable-protected-configs", "yes", "--enable-debug-command", "yes", "--enable-module-command", "yes"];

/// The subject of the document.
pub(super) fn title() -> Result<String> {
    let title =
        super::redis::title()?.replace("units of `./runtest` with Debian's", "`./runtest --host HOST --port PORT --tags -slow` with");
    Ok(title + ", in a cell behind the gateway")
}

/// Runs the named units, or all.
pub(super) fn run(runner: &Runner, names: &[String]) -> Result<Vec<Unit>> {
    let place = assemble(runner)?;
    runner.each(&chosen(&place, names)?, AT_ONCE, |index, name| unit(runner, &place, index, name))
}

/// Runs the tests of a unit, in a copy of the test tree.
fn unit(runner: &Runner, place: &Path, index: usize, name: &str) -> Result<Vec<Unit>> {
    let port = FIRST_PORT + u16::try_from(index).context("there are few units")?;
    // The ports for the tests' own coordination, which parallel runs must not share.
    let base = (FIRST_BASE + index * PORTS).to_string();
    let text = port.to_string();
    let asked = [TCL, RUN, "--host", "127.0.0.1", "--port", &text, "--baseport", &base, "--portcount", &PORTS.to_string()];
    let tests = [&asked[..], &["--durable", "--clients", "1", "--tags", "-slow", "--single", name]].concat();
    let in_cell = ["--protected-mode", "no"];
    let served = RunningServer { port, server: &SERVER, port_word: "--port", usual_port: 6379, in_cell: &in_cell, tests: &tests };
    let own = runner.scratch.path().join(format!("redis-{index}"));
    workspace::run(Command::new("cp").arg("-r").args([place, &own]))?;
    let native = served.native(runner, name, &own)?;
    let whole = served.cell(runner, name, &own)?;
    fs::remove_dir_all(&own).context("removing files of tests")?;
    let units = compare(verdicts(name, &native), &verdicts(name, &whole), &whole);
    println!("{name}: {}", counts(&units));
    Ok(units)
}
