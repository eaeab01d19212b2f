// SPDX-License-Identifier: MIT OR Apache-2.0
//! A small static C program in a cell, run until it waits for input: what idle clones are made of.

use crate::BenchError;
use crate::stage::Stage;
use pando_image::{Builder, HostFile};
use pando_kernel::CellId;
use pando_kernel::cell::State;
use pando_launch::{Calls, LaunchError, Program, Root, Template, Terminals, Volume};
use pando_machine::PageCount;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The program's source.
const SOURCE: &str = include_str!("idle.c");
/// Where cells find it.
const PATH: &[u8] = b"/idle";
/// What a cell with it may have.
pub(super) const QUOTA: PageCount = PageCount(4096);

/// The program in a cell that waits for input.
pub(super) fn waiting(stage: &mut Stage) -> Result<CellId, BenchError> {
    let directory = tempfile::tempdir().map_err(BenchError::host("make a temporary directory"))?;
    let file = compile(directory.path())?;
    let template = Template::boot(&stage.kernel)?;
    stage.turn_until(template.cell(), |state| state == State::Frozen)?;
    let file = HostFile::new(&file).map_err(LaunchError::from)?;
    let mut files = Builder::new();
    files.file(PATH, file.attributes(), file).map_err(LaunchError::from)?;
    let root = Root::new(&stage.kernel, template, vec![Volume::new("/", files.image().map_err(LaunchError::from)?)])?;
    let program = Program {
        path: PATH.to_vec(),
        directory: b"/".to_vec(),
        arguments: vec![PATH.to_vec()],
        environment: Vec::new(),
        exports: Vec::new(),
        terminals: Terminals::default(),
        calls: Calls::default(),
        user: 0,
        group: 0,
        memory: QUOTA,
    };
    let cell = program.prepare(&stage.kernel, &root)?;
    stage.kernel.start(cell)?;
    stage.turn_until(cell, is_idle)?;
    Ok(cell)
}

/// Whether a cell waits.
pub(super) fn is_idle(state: State) -> bool {
    matches!(state, State::Idle { .. })
}

/// Compiles the program with the host's C compiler.
fn compile(directory: &Path) -> Result<PathBuf, BenchError> {
    let [source, program] = ["idle.c", "idle"].map(|name| directory.join(name));
    std::fs::write(&source, SOURCE).map_err(BenchError::host("write a C program"))?;
    let output = Command::new("cc").args(["-O2", "-static", "-o"]).arg(&program).arg(&source).output();
    let output = output.map_err(BenchError::host("start the C compiler `cc`, which makes the small program"))?;
    if output.status.success() { Ok(program) } else { Err(BenchError::Compiler(String::from_utf8_lossy(&output.stderr).trim().into())) }
}
