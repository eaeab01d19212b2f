// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask suites`: the test suites of others, natively and in cells, and the documents that say how they went.
//!
//! Natively comes first: what does not pass on this machine, or takes too long, is left out and said. What passes natively and not in a cell has its
//! cause in a file beside the suite's source, or stands in the document without one.

mod cpython;
mod go;
mod report;

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::workspace::{self, DIES_WITH_PARENT, TIMED_OUT};

/// Seconds that a cell may take: a busy machine may need many times what it needs alone.
const CELL_LIMIT: u64 = 300;

/// Which suite, and how.
#[derive(Debug, Args)]
pub(crate) struct Options {
    suite: Suite,
    /// Only these parts of it; then no document is written.
    names: Vec<String>,
    /// Seconds that a part may take natively.
    #[arg(long, default_value_t = 60)]
    limit: u64,
}

/// The suites that are known.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Suite {
    /// Those of CPython, from Debian's libpython3.11-testsuite.
    Cpython,
    /// Those of some packages of Go's standard library.
    Go,
}

/// How a test went.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    Passed,
    /// It failed, with what it named.
    Failed(String),
    /// It took too long.
    Late,
    /// It was not run.
    Skipped,
}

/// A test, or a part of a suite, with how it went.
#[derive(Debug)]
struct Unit {
    name: String,
    native: Verdict,
    cell: Verdict,
}

/// How commands are run: from a directory of their own, with little around them.
struct Runner {
    pando: PathBuf,
    scratch: tempfile::TempDir,
    limit: u64,
}

/// What a command left: its exit status as `timeout` tells it, and all that it said.
struct Outcome {
    status: i32,
    said: String,
}

impl Runner {
    fn new(limit: u64) -> Result<Runner> {
        workspace::run(workspace::cargo().args(["build", "--release", "--package", "pando"]))?;
        let scratch = tempfile::tempdir().context("making a directory")?;
        Ok(Runner { pando: workspace::target().join("release/pando"), scratch, limit })
    }

    /// Runs words natively, standing in a directory, or in a fresh one.
    fn native(&self, words: &[&str], directory: Option<&Path>) -> Result<Outcome> {
        self.finish(self.limit, words, directory)
    }

    /// Runs words in a cell, with options for `pando run`.
    fn cell(&self, options: &[&str], words: &[&str]) -> Result<Outcome> {
        let (pando, limit) = (self.pando.to_string_lossy(), format!("{CELL_LIMIT}s"));
        let words = [&[&*pando, "run", "--timeout", &limit], options, &["--"], words].concat();
        self.finish(CELL_LIMIT + 30, &words, None)
    }

    fn finish(&self, limit: u64, words: &[&str], directory: Option<&Path>) -> Result<Outcome> {
        let fresh = self.scratch.path().join("work");
        fs::create_dir_all(&fresh)?;
        let said = self.scratch.path().join("said");
        let file = fs::File::create(&said)?;
        let mut command = Command::new(DIES_WITH_PARENT[0]);
        // Whoever starts this may ignore signals, which programs inherit.
        command.args(&DIES_WITH_PARENT[1..]).args(["env", "--default-signal", "timeout", "--kill-after=5", &limit.to_string()]).args(words);
        command.env_clear().envs([("LANG", "C.UTF-8"), ("PATH", "/usr/local/bin:/usr/bin:/bin"), ("TERM", "dumb"), ("TZ", "UTC0")]);
        command.env("HOME", workspace::target()).env("TMPDIR", &fresh);
        command.current_dir(directory.unwrap_or(&fresh)).stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let status = command.status().with_context(|| format!("starting {}", words[0]))?.code().unwrap_or(-1);
        let said = String::from_utf8_lossy(&fs::read(said)?).into_owned();
        fs::remove_dir_all(&fresh).context("removing what tests left")?;
        Ok(Outcome { status, said })
    }
}

impl Outcome {
    fn is_late(&self) -> bool {
        // What does not end when it is told to is killed.
        [TIMED_OUT, 128 + 9].contains(&self.status)
    }
}

/// Runs a suite; `false` if something that passes natively fails in a cell without a known cause.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let runner = Runner::new(options.limit)?;
    let (name, title, causes, units) = match options.suite {
        Suite::Cpython => ("cpython", cpython::title()?, include_str!("suites/cpython.txt"), cpython::run(&runner, &options.names)?),
        Suite::Go => ("go", go::title()?, include_str!("suites/go.txt"), go::run(&runner, &options.names)?),
    };
    ensure!(!units.is_empty(), "nothing was run");
    let report = report::Report::new(&units, causes);
    if options.names.is_empty() {
        let file = workspace::root().join("docs/suites").join(name).with_extension("md");
        fs::create_dir_all(file.parent().context("a document lies in a folder")?)?;
        fs::write(&file, report.document(&title, options.limit)).context("writing the document")?;
        println!("written: {}", file.display());
    }
    println!("{}", report.summary());
    Ok(report.unexplained() == 0)
}
