// SPDX-License-Identifier: MIT OR Apache-2.0
//! A template in a file: from its opening to the first instruction of a clone, in a kernel that has never seen it.

use super::grove::Template;
use super::size::{self, OVERHEAD, ROOM};
use crate::program::program;
use crate::sample::Sample;
use crate::stage::Stage;
use crate::{BenchError, Options, Row};
use pando_launch::{Program, Root, Volume};
use pando_machine::PageCount;
use pando_store::{Saved, save};
use std::path::Path;
use std::time::Instant;

const MEBIBYTES: u64 = 1 << 10;
const BRIEF: u64 = 16;

pub(super) fn run(options: Options<'_>, report: &mut dyn FnMut(Row)) -> Result<(), BenchError> {
    let mebibytes = if options.brief { BRIEF } else { MEBIBYTES };
    let memory = PageCount::covering(mebibytes << 20) + OVERHEAD;
    let program = Program { memory, ..program(&[&mebibytes.to_string()]) };
    let directory = tempfile::tempdir().map_err(BenchError::host("make a temporary directory"))?;
    let file = directory.path().join("template");
    let compiled = size::compile()?;
    let volume = compiled.volume()?;
    {
        let mut stage = Stage::new(memory + ROOM)?;
        let root = compiled.booted(&mut stage)?;
        let template = Template::trained(&mut stage, &root, program.clone())?;
        save(&stage.kernel, template.root.cell(), &file, b"")?;
    }
    let times = Sample::take(options.rounds(10), || load(&file, &volume, &program, memory))?;
    let milliseconds = Row::of("load-1g-ms", times.median() / 1e6, "ms");
    let note = format!("a template of {mebibytes} MiB, from its file's opening to a clone's first instruction; the file is cached");
    report(Row { spread: Some(times.spread()), ..milliseconds }.noting(note));
    Ok(())
}

/// Nanoseconds of one load, on a machine that is there already.
fn load(file: &Path, volume: &Volume, program: &Program, memory: PageCount) -> Result<f64, BenchError> {
    let mut stage = Stage::new(memory + ROOM)?;
    let start = Instant::now();
    let saved = Saved::open(file)?;
    let disk = stage.kernel.add_disk(volume.disk.clone())?;
    let (cell, _) = saved.load(&stage.kernel, &[disk], memory)?;
    stage.kernel.foresee(cell)?;
    let loaded = start.elapsed().as_nanos() as f64;
    Ok(loaded + Template::of(Root::loaded(cell, vec![volume.clone()], Vec::new()), program.clone()).first_instruction(&mut stage)?)
}
