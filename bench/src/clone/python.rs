// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clones of Debian's Python that has loaded numpy or Pillow, beside the start of such a program.

use super::grove::{Fresh, Template};
use crate::density::{self, Kind};
use crate::program::{Process, boot};
use crate::sample::{Sample, Side, alternate};
use crate::stage::Stage;
use crate::{BenchError, Options, Row, unless_absent, whole};
use pando_image::{Attributes, Builder, Readable, Walk};
use pando_kernel::Counters;
use pando_launch::{LaunchError, Program, Root, Volume};
use pando_machine::PageCount;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

pub(super) const PYTHON: &str = "/usr/bin/python3";
/// What Python programs say that they are ready with, and the directory that it lies in.
const MODULE: &str = include_str!("../../../pando/src/view/parts/pando.py");
const MODULES: &str = "/pando";
/// Directories that hold the host's software, where they are there.
const SOFTWARE: [&str; 5] = ["/usr", "/bin", "/lib", "/lib64", "/etc"];
/// Files that those may hold.
const FILES_MAX: u64 = 8_000_000;
/// 4 GiB: taken from the host as it is used.
const ARENA: PageCount = PageCount(1 << 20);
/// What a program may have: 512 MiB.
const QUOTA: PageCount = PageCount(1 << 17);

/// What says a line, in a clone and on the host, and what waits then.
const LINE: &str = "import numpy\n";
const SAY: &str = "print(numpy.arange(1000).sum(), flush=True)\n";
const READY: &str = "import pando; pando.ready()\n";
const WAIT: &str = "import sys; sys.stdin.read()\n";
/// What runs what it is given.
pub(super) const EXECUTE: &str = "import sys, numpy, pando; pando.ready(); exec(sys.argv[1])";
const GIVEN: &str = "print(1)";
pub(super) const LEAVING: &str = "print(1, flush=True); import os; os._exit(0)";
/// How many such clones live one after the other.
const LIVES: usize = 100;
/// What works on a picture.
const PICTURE: &str = include_str!("picture.py");

const ALIVE: Kind = Kind {
    cells: 400,
    note: "Python with numpy, each of which has said a line and waits",
    total: "python-clone-bytes",
    pages: "python-clone-pages-bytes",
    tables: "python-clone-tables-bytes",
    objects: "python-clone-objects-bytes",
    kvm: "python-clone-kvm-bytes",
};

/// Python's figures.
pub(super) fn run(options: Options<'_>, report: &mut dyn FnMut(Row), absent: &mut dyn FnMut(&str)) -> Result<(), BenchError> {
    let [numpy, pillow] = [NUMPY, PILLOW].map(needs);
    if numpy.is_err() && pillow.is_err() {
        unless_absent(numpy, absent)?;
        return pillow;
    }
    let software = software()?;
    let mut stage = Stage::new(ARENA)?;
    let root = boot(&mut stage, vec![software.clone()])?;
    let numpy = numpy.and_then(|()| line(options, &mut stage, &root, report)).and_then(|()| short(options, &mut stage, &root, report));
    unless_absent(numpy, absent)?;
    pillow.and_then(|()| picture(options, &mut stage, &root, report))
}

/// A line said: a clone of a program that has loaded numpy, beside one that starts.
fn line(options: Options<'_>, stage: &mut Stage, root: &Root, report: &mut dyn FnMut(Row)) -> Result<(), BenchError> {
    let template = Template::trained(stage, root, python(&[LINE, READY, SAY, WAIT].concat()))?;
    let pairs = alternate(options.rounds(20), |side| match side {
        Side::Ours => template.first_line(stage),
        Side::Theirs => natively(&[LINE, SAY].concat()),
    })?;
    report(
        Row::pairs("python-cold", "python3 that starts on the host, files cached", &pairs).noting("numpy loaded, until it has said a line"),
    );
    density::count(
        options,
        stage,
        &ALIVE,
        |stage| {
            let clone = template.clone(stage)?;
            clone.say(stage)?;
            Ok(clone.cell)
        },
        report,
    )
}

/// Whole lives of clones that run a line of Python, one after the other.
struct Lives {
    /// How many in a second.
    rate: f64,
    times: Sample,
    each: Vec<Counters>,
}

impl Lives {
    /// Of clones of a template that has learned from one.
    fn of(options: Options<'_>, stage: &mut Stage, root: &Root, given: &str) -> Result<Lives, BenchError> {
        let template = Template::new(stage, root, python(EXECUTE))?.giving(&[given]);
        template.train(stage, Template::end)?;
        let mut each: Vec<Counters> = Vec::new();
        let start = Instant::now();
        let times = Sample::take(options.rounds(LIVES), || {
            let start = Instant::now();
            each.push(template.clone(stage)?.finish(stage)?);
            Ok(start.elapsed().as_nanos() as f64)
        })?;
        let rate = each.len() as f64 / start.elapsed().as_secs_f64();
        Ok(Lives { rate, times, each })
    }

    fn median(&self, of: fn(&Counters) -> u64) -> Sample {
        Sample::of(self.each.iter().map(|life| of(life) as f64).collect())
    }

    fn row(&self, name: &'static str, given: &str) -> Row {
        let note = format!("Python with numpy cloned, `{given}`, ended; on one core");
        Row { spread: Some(self.times.spread()), ..Row::of(name, self.rate, "/s") }.noting(note)
    }
}

/// Lives that end as programs do, and such as end at once.
fn short(options: Options<'_>, stage: &mut Stage, root: &Root, report: &mut dyn FnMut(Row)) -> Result<(), BenchError> {
    let lives = Lives::of(options, stage, root, GIVEN)?;
    report(lives.row("clones-per-second", GIVEN));
    let exits = lives.median(|life| life.exits);
    let [faults, preemptions] = [lives.median(|life| life.faults).median(), lives.median(|life| life.preemptions).median()];
    let note = format!("of such a clone in its whole life, {faults} of them page faults and {preemptions} for the time that it took");
    report(Row { spread: Some(exits.spread()), ..Row::of("python-clone-exits", exits.median(), "exits") }.noting(note));
    let lives = Lives::of(options, stage, root, LEAVING)?;
    report(lives.row("clones-per-second-at-once", LEAVING));
    Ok(())
}

/// Work on a picture: clones of a program that is ready to, beside cells in which it starts (HyperFork, section 4.1).
fn picture(options: Options<'_>, stage: &mut Stage, root: &Root, report: &mut dyn FnMut(Row)) -> Result<(), BenchError> {
    let program = python(PICTURE);
    let template = Template::new(stage, root, program.clone())?;
    template.train(stage, Template::end)?;
    let pairs = alternate(options.rounds(10), |side| {
        let start = Instant::now();
        let cell = if side == Side::Ours { template.clone(stage)? } else { Fresh::new(stage, root, &program)? };
        cell.finish(stage)?;
        Ok(start.elapsed().as_nanos() as f64)
    })?;
    report(
        Row::pairs("pillow", "the same in a cell of its own from the start", &pairs)
            .noting("a picture drawn, scaled, blurred and turned, from the wish to the end"),
    );
    Ok(())
}

/// A module of Python, by what loads it and what it is called.
pub(super) type Module = (&'static str, &'static str);
pub(super) const NUMPY: Module = ("import numpy", "numpy of /usr/bin/python3 (Debian: python3-numpy)");
const PILLOW: Module = ("import PIL", "Pillow of /usr/bin/python3 (Debian: python3-pil)");

/// Checks that Python is there with a module.
pub(super) fn needs((statement, what): Module) -> Result<(), BenchError> {
    whole::needs(PYTHON, what)?;
    let status = Command::new(PYTHON).args(["-c", statement]).stderr(Stdio::null()).status();
    let has_it = status.map_err(BenchError::host("start /usr/bin/python3"))?.success();
    has_it.then_some(()).ok_or(BenchError::Absent(what))
}

/// Nanoseconds from the start of a program on the host until it has said a line.
fn natively(script: &str) -> Result<f64, BenchError> {
    let start = Instant::now();
    let mut command = Command::new(PYTHON);
    command.args(["-c", script]);
    Process::start(command)?.line()?;
    Ok(start.elapsed().as_nanos() as f64)
}

/// The host's software, as far as everyone may read it, and the module. Walks through it.
fn software() -> Result<Volume, BenchError> {
    let refused = LaunchError::from;
    let mut files = Builder::new();
    let walk = Walk { readable: Readable::ByEveryone, limit: FILES_MAX, parallel: false, progress: &|_| () };
    for top in SOFTWARE.map(Path::new).into_iter().filter(|top| top.exists()) {
        files.host(top.as_os_str().as_encoded_bytes(), top, &walk).map_err(refused)?;
    }
    files.file(format!("{MODULES}/pando.py"), Attributes::root(0o644), MODULE).map_err(refused)?;
    files.directory("/tmp", Attributes::root(0o1777)).map_err(refused)?;
    Ok(Volume::new("/", files.image().map_err(refused)?))
}

/// Python with a script.
fn python(script: &str) -> Program {
    Program {
        path: PYTHON.into(),
        directory: b"/".to_vec(),
        arguments: [PYTHON, "-c", script].map(Into::into).into(),
        environment: vec![format!("PYTHONPATH={MODULES}").into_bytes()],
        memory: QUOTA,
        ..Program::default()
    }
}
