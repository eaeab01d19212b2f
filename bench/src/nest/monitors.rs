// SPDX-License-Identifier: MIT OR Apache-2.0
//! `fw05-libos`: a chain of five forks under six monitors, compared with the same under one.
//!
//! The paper on recursive virtual machines measures such a chain under six nesters. Here the library OS forks, and no monitor takes part.

use super::{CELLS, compare_commands};
use crate::program::CompiledProgram;
use crate::{BenchError, BenchOptions, Row};
use std::path::Path;
use std::process::{Command, Stdio};

/// The monitors, the outermost first. Each has a cell of its own.
const MONITORS: [&str; 6] = ["page", "trace", "page", "trace", "page", "trace"];
/// Chains in one measurement.
const CHAINS: u32 = 12;
/// MiB of memory under the outermost pager, and by how many an inner monitor has less.
const MEMORY: [usize; 2] = [1024, 64];

/// Measures the row.
pub(super) fn measure(options: BenchOptions<'_>, pando: &Path, program: &CompiledProgram) -> Result<Row, BenchError> {
    let directory = tempfile::tempdir().map_err(BenchError::host("make a temporary directory"))?;
    let swap = directory.path().join("swap");
    let [all, one] = [&MONITORS[..], &MONITORS[5..]].map(|monitors| under(monitors, pando, program, &swap));
    let chains = if options.brief { 1 } else { CHAINS };
    let pairs = compare_commands(all, one, options.rounds(50), chains)?;
    let note = format!("a chain of five forks under {}; 4.49 in the paper", MONITORS.join(", "));
    Ok(Row::pairs("fw05-libos", "the same under one of them", &pairs).noting(note))
}

/// The command for the chain of forks under monitors. `swap` is the swap file of the outermost one, if that is a pager.
fn under(monitors: &[&str], pando: &Path, program: &CompiledProgram, swap: &Path) -> Command {
    let mut command = Command::new(pando);
    for (level, monitor) in monitors.iter().enumerate() {
        if level > 0 {
            command.arg("--").arg(pando);
        }
        command.arg(monitor).args(["--nest", &(CELLS - level as u32).to_string()]);
        if *monitor == "page" {
            let inner = Path::new("/tmp").join(format!("swap-{level}"));
            let memory = format!("{}M", MEMORY[0] - MEMORY[1] * level);
            command.args(["-m", &memory, "--swap"]).arg(if level == 0 { swap } else { &inner });
        } else {
            // The tracer watches a call that the program does not make.
            command.args(["-q", "--deny", "reboot"]);
        }
        // A monitor shows the program that it starts. That of the innermost one is shown by the outermost one.
        if level == 0 && monitors.len() > 1 {
            let path = program.path().display();
            command.args(["-v", &format!("{path}:{path}:ro")]);
        }
    }
    command.arg("--").arg(program.path()).arg("fork-chain").stderr(Stdio::inherit());
    command
}
