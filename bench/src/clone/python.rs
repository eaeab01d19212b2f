// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clones of Debian's Python after it has loaded numpy or Pillow, compared with the start of such a program.

use super::fixture::{FrozenTemplate, UnstartedCell};
use crate::density::{self, DensityRows};
use crate::harness::Harness;
use crate::process_runs::{self, PYTHON};
use crate::program::{Process, boot};
use crate::sample::{Sample, Side, alternate};
use crate::{BenchError, BenchOptions, Row, unless_absent};
use pando_image::{Attributes, Builder, Readable, Scan};
use pando_kernel::Counters;
use pando_launch::{LaunchError, Program, Root, Volume};
use pando_machine::PageCount;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

/// The module with which Python programs report that they are ready, and its directory in cells.
const MODULE: &str = include_str!("../../../manager/src/view/parts/pando/__init__.py");
const MODULES: &str = "/pando";
/// Directories of the host's software; missing ones are skipped.
const SOFTWARE: [&str; 5] = ["/usr", "/bin", "/lib", "/lib64", "/etc"];
/// The maximum number of files in them.
const FILES_MAX: u64 = 8_000_000;
/// 4 GiB, which the host allocates on demand.
pub(super) const ARENA: PageCount = PageCount(1 << 20);
/// The quota of a program: 512 MiB.
const QUOTA: PageCount = PageCount(1 << 17);

/// The parts of a program that prints a line, in a clone and on the host, and then waits.
const LINE: &str = "import numpy\n";
const SAY: &str = "print(numpy.arange(1000).sum(), flush=True)\n";
const READY: &str = "import pando; pando.ready()\n";
const WAIT: &str = "import sys; sys.stdin.read()\n";
/// A program that executes its argument.
pub(super) const EXECUTE: &str = "import sys, numpy, pando; pando.ready(); exec(sys.argv[1])";
const GIVEN: &str = "print(1)";
pub(super) const LEAVING: &str = "print(1, flush=True); import os; os._exit(0)";
/// The number of such clones, one after the other.
const LIVES: usize = 100;
/// A program that processes a picture.
const PICTURE: &str = include_str!("picture.py");

const ALIVE: DensityRows = DensityRows {
    cells: 400,
    note: "Python with numpy, each of which has printed a line and waits",
    total: "python-clone-bytes",
    pages: "python-clone-pages-bytes",
    tables: "python-clone-tables-bytes",
    objects: "python-clone-objects-bytes",
    kvm: "python-clone-kvm-bytes",
};

/// Measures Python's figures.
pub(super) fn run(options: BenchOptions<'_>, report: &mut dyn FnMut(Row), absent: &mut dyn FnMut(&str)) -> Result<(), BenchError> {
    let [numpy, pillow] = [NUMPY, PILLOW].map(needs);
    if numpy.is_err() && pillow.is_err() {
        unless_absent(numpy, absent)?;
        return pillow;
    }
    let software = software()?;
    let mut harness = Harness::new(ARENA)?;
    let root = boot(&mut harness, vec![software.clone()])?;
    let numpy = numpy.and_then(|()| line(options, &mut harness, &root, report)).and_then(|()| short(options, &mut harness, &root, report));
    unless_absent(numpy, absent)?;
    pillow.and_then(|()| picture(options, &mut harness, &root, report))
}

/// `line`: a clone that prints a line after its template has loaded numpy, compared with a program that starts.
fn line(options: BenchOptions<'_>, harness: &mut Harness, root: &Root, report: &mut dyn FnMut(Row)) -> Result<(), BenchError> {
    let template = FrozenTemplate::trained(harness, root, python(&[LINE, READY, SAY, WAIT].concat()))?;
    let pairs = alternate(options.rounds(20), |side| match side {
        Side::Ours => template.first_line(harness),
        Side::Theirs => natively(&[LINE, SAY].concat()),
    })?;
    report(
        Row::pairs("python-cold", "python3 that starts on the host, files cached", &pairs)
            .noting("numpy loaded, until it has printed a line"),
    );
    density::count(
        options,
        harness,
        &ALIVE,
        |harness| {
            let clone = template.clone(harness)?;
            clone.say(harness)?;
            Ok(clone.cell)
        },
        report,
    )
}

/// Complete runs of clones that execute a line of Python, one after the other.
struct CloneRate {
    /// Runs per second.
    rate: f64,
    times: Sample,
    each: Vec<Counters>,
}

impl CloneRate {
    /// Measures clones of a template that was trained with one.
    fn of(options: BenchOptions<'_>, harness: &mut Harness, root: &Root, argument: &str) -> Result<CloneRate, BenchError> {
        let template = FrozenTemplate::new(harness, root, python(EXECUTE))?.with_arguments(&[argument]);
        template.train(harness, FrozenTemplate::end)?;
        let mut each: Vec<Counters> = Vec::new();
        let start = Instant::now();
        let times = Sample::take(options.rounds(LIVES), || {
            let start = Instant::now();
            each.push(template.clone(harness)?.finish(harness)?);
            Ok(start.elapsed().as_nanos() as f64)
        })?;
        let rate = each.len() as f64 / start.elapsed().as_secs_f64();
        Ok(CloneRate { rate, times, each })
    }

    fn median(&self, of: fn(&Counters) -> u64) -> Sample {
        Sample::of(self.each.iter().map(|life| of(life) as f64).collect())
    }

    fn row(&self, name: &'static str, argument: &str) -> Row {
        let note = format!("Python with numpy cloned, `{argument}`, ended; on one core");
        Row { spread: Some(self.times.spread()), ..Row::of(name, self.rate, "/s") }.noting(note)
    }
}

/// Runs that end with Python's finalisation, and runs that end at once.
fn short(options: BenchOptions<'_>, harness: &mut Harness, root: &Root, report: &mut dyn FnMut(Row)) -> Result<(), BenchError> {
    let lives = CloneRate::of(options, harness, root, GIVEN)?;
    report(lives.row("clones-per-second", GIVEN));
    let exits = lives.median(|life| life.exits);
    let [faults, preemptions] = [lives.median(|life| life.faults).median(), lives.median(|life| life.preemptions).median()];
    let note = format!("of such a clone in total, {faults} of them page faults and {preemptions} preemptions");
    report(Row { spread: Some(exits.spread()), ..Row::of("python-clone-exits", exits.median(), "exits") }.noting(note));
    let lives = CloneRate::of(options, harness, root, LEAVING)?;
    report(lives.row("clones-per-second-at-once", LEAVING));
    Ok(())
}

/// Picture processing: clones of a program that is ready for it, compared with cells in which it starts (HyperFork, section 4.1).
fn picture(options: BenchOptions<'_>, harness: &mut Harness, root: &Root, report: &mut dyn FnMut(Row)) -> Result<(), BenchError> {
    let program = python(PICTURE);
    let template = FrozenTemplate::new(harness, root, program.clone())?;
    template.train(harness, FrozenTemplate::end)?;
    let pairs = alternate(options.rounds(10), |side| {
        let start = Instant::now();
        let cell = if side == Side::Ours { template.clone(harness)? } else { UnstartedCell::new(harness, root, &program)? };
        cell.finish(harness)?;
        Ok(start.elapsed().as_nanos() as f64)
    })?;
    report(
        Row::pairs("pillow", "the same in a cell of its own from the start", &pairs)
            .noting("a picture drawn, scaled, blurred and rotated, from the start of cloning to the exit"),
    );
    Ok(())
}

/// A module of Python: the statement that loads it, and its name.
pub(super) type Module = (&'static str, &'static str);
pub(super) const NUMPY: Module = ("import numpy", "numpy of /usr/bin/python3 (Debian: python3-numpy)");
const PILLOW: Module = ("import PIL", "Pillow of /usr/bin/python3 (Debian: python3-pil)");

/// Checks that Python and a module are installed.
pub(super) fn needs((statement, what): Module) -> Result<(), BenchError> {
    process_runs::needs(PYTHON, what)?;
    let status = Command::new(PYTHON).args(["-c", statement]).stderr(Stdio::null()).status();
    let has_it = status.map_err(BenchError::host("start /usr/bin/python3"))?.success();
    has_it.then_some(()).ok_or(BenchError::Absent(what))
}

/// Nanoseconds from the start of a program on the host until it has printed a line.
fn natively(script: &str) -> Result<f64, BenchError> {
    let start = Instant::now();
    let mut command = Command::new(PYTHON);
    command.args(["-c", script]);
    Process::start(command)?.line()?;
    Ok(start.elapsed().as_nanos() as f64)
}

/// A volume of the host's software, as far as everyone may read it, and the module. Scans the directories.
pub(super) fn software() -> Result<Volume, BenchError> {
    let refused = LaunchError::from;
    let mut files = Builder::new();
    let walk = Scan { readable: Readable::ByEveryone, limit: FILES_MAX, parallel: false, progress: &|_| () };
    for top in SOFTWARE.map(Path::new).into_iter().filter(|top| top.exists()) {
        files.host(top.as_os_str().as_encoded_bytes(), top, &walk).map_err(refused)?;
    }
    files.file(format!("{MODULES}/pando.py"), Attributes::root(0o644), MODULE).map_err(refused)?;
    files.directory("/tmp", Attributes::root(0o1777)).map_err(refused)?;
    Ok(Volume::new("/", files.image().map_err(refused)?))
}

/// Python with a script.
pub(super) fn python(script: &str) -> Program {
    Program {
        path: PYTHON.into(),
        directory: b"/".to_vec(),
        arguments: [PYTHON, "-c", script].map(Into::into).into(),
        environment: vec![format!("PYTHONPATH={MODULES}").into_bytes()],
        memory: QUOTA,
        ..Program::default()
    }
}
