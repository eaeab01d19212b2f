// SPDX-License-Identifier: MIT OR Apache-2.0
//! A template in a file: from opening the file to the first instruction of a clone, in a kernel that has not loaded it before.

use super::fixture::FrozenTemplate;
use super::size::{self, OVERHEAD, ROOM};
use crate::harness::Harness;
use crate::program::program;
use crate::sample::Sample;
use crate::{BenchError, BenchOptions, Row};
use pando_launch::{Program, Root, Volume};
use pando_machine::PageCount;
use pando_store::{TemplateFile, save};
use std::path::Path;
use std::time::Instant;

const MEBIBYTES: u64 = 1 << 10;
const BRIEF: u64 = 16;

pub(super) fn run(options: BenchOptions<'_>, report: &mut dyn FnMut(Row)) -> Result<(), BenchError> {
    let mebibytes = if options.brief { BRIEF } else { MEBIBYTES };
    let memory = PageCount::covering(mebibytes << 20) + OVERHEAD;
    let program = Program { memory, ..program(&[&mebibytes.to_string()]) };
    let directory = tempfile::tempdir().map_err(BenchError::host("make a temporary directory"))?;
    let file = directory.path().join("template");
    let compiled = size::compile()?;
    let volume = compiled.volume()?;
    {
        let mut harness = Harness::new(memory + ROOM)?;
        let root = compiled.booted(&mut harness)?;
        let template = FrozenTemplate::trained(&mut harness, &root, program.clone())?;
        save(&harness.kernel, template.root.cell(), &file, |_| Ok(Vec::new()))?;
    }
    let times = Sample::take(options.rounds(10), || load(&file, &volume, &program, memory))?;
    let milliseconds = Row::of("load-1g-ms", times.median() / 1e6, "ms");
    let note = format!("a template of {mebibytes} MiB, from its file's opening to a clone's first instruction; the file is cached");
    report(Row { spread: Some(times.spread()), ..milliseconds }.noting(note));
    Ok(())
}

/// Nanoseconds of one load, on an existing machine.
fn load(file: &Path, volume: &Volume, program: &Program, memory: PageCount) -> Result<f64, BenchError> {
    let mut harness = Harness::new(memory + ROOM)?;
    let start = Instant::now();
    let saved = TemplateFile::open(file)?;
    let disk = harness.kernel.add_disk(volume.disk.clone())?;
    let (cell, contents) = saved.load(&harness.kernel, &[disk], memory)?;
    harness.kernel.prefetch(cell)?;
    let loaded = start.elapsed().as_nanos() as f64;
    Ok(loaded
        + FrozenTemplate::of(Root::loaded(cell, vec![volume.clone()], vec![disk, contents]), program.clone())
            .first_instruction(&mut harness)?)
}
