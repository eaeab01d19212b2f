// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask suites`: the test suites of others, natively and in cells, and the documents that say how they went.
//!
//! Natively comes first: what does not pass on this machine, or takes too long, is left out and said. What passes natively and not in a cell has its
//! cause in a file beside the suite's source, or stands in the document without one.

mod cpython;
mod go;
mod perl;
mod redis;
mod report;

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::workspace::{self, DIES_WITH_PARENT, TIMED_OUT};

/// How much longer a cell may take: a busy machine may need many times what it needs alone.
const CELL_PATIENCE: u64 = 5;

/// Which suite, and how.
#[derive(Debug, Args)]
pub(crate) struct Options {
    suite: Suite,
    /// Only these parts of it; then no document is written.
    names: Vec<String>,
    /// Seconds that a part may take natively: 60, or 300 where parts are large.
    #[arg(long)]
    limit: Option<u64>,
}

/// The suites that are known.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Suite {
    /// Those of CPython, from Debian's libpython3.11-testsuite.
    Cpython,
    /// Those of some packages of Go's standard library.
    Go,
    /// perl's core tests, from Debian's source package.
    Perl,
    /// redis's own, from Debian's source package.
    Redis,
}

impl Suite {
    /// Seconds that a part of it may take natively if nobody says otherwise.
    fn limit(self) -> u64 {
        match self {
            Suite::Cpython | Suite::Perl => 60,
            Suite::Go | Suite::Redis => 300,
        }
    }
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
        let cell_limit = CELL_PATIENCE * self.limit;
        let (pando, limit) = (self.pando.to_string_lossy(), format!("{cell_limit}s"));
        let words = [&[&*pando, "run", "--timeout", &limit], options, &["--"], words].concat();
        self.finish(cell_limit + 30, &words, None)
    }

    fn finish(&self, limit: u64, words: &[&str], directory: Option<&Path>) -> Result<Outcome> {
        let own = tempfile::tempdir_in(self.scratch.path()).context("making a directory")?;
        let (fresh, said) = (own.path().join("work"), own.path().join("said"));
        fs::create_dir(&fresh)?;
        let file = fs::File::create(&said)?;
        let mut command = Command::new(DIES_WITH_PARENT[0]);
        // Whoever starts this may ignore signals, which programs inherit.
        command.args(&DIES_WITH_PARENT[1..]).args(["env", "--default-signal", "timeout", "--kill-after=5", &limit.to_string()]).args(words);
        command.env_clear().envs([("LANG", "C.UTF-8"), ("PATH", "/usr/local/bin:/usr/bin:/bin"), ("TERM", "dumb"), ("TZ", "UTC0")]);
        command.env("HOME", workspace::target()).env("TMPDIR", &fresh);
        command.current_dir(directory.unwrap_or(&fresh)).stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let status = command.status().with_context(|| format!("starting {}", words[0]))?.code().unwrap_or(-1);
        let said = String::from_utf8_lossy(&fs::read(said)?).into_owned();
        own.close().context("removing what tests left")?;
        Ok(Outcome { status, said })
    }

    /// Runs parts of a suite, some of them at once; `run` gets a part's index and the part. Returns what they found, in order.
    fn each<T: Sync>(&self, parts: &[T], at_once: usize, run: impl Fn(usize, &T) -> Result<Vec<Unit>> + Sync) -> Result<Vec<Unit>> {
        let (next, results) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        thread::scope(|scope| {
            for _ in 0..at_once {
                scope.spawn(|| {
                    while let index = next.fetch_add(1, Ordering::Relaxed)
                        && let Some(part) = parts.get(index)
                    {
                        let result = run(index, part);
                        results.lock().expect("nobody panics with it").push((index, result));
                    }
                });
            }
        });
        let mut results = results.into_inner().expect("nobody panics with it");
        results.sort_by_key(|(index, _)| *index);
        let all: Vec<Vec<Unit>> = results.into_iter().map(|(_, result)| result).collect::<Result<_>>()?;
        Ok(all.into_iter().flatten().collect())
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
    let limit = options.limit.unwrap_or(options.suite.limit());
    let runner = Runner::new(limit)?;
    let (name, title, causes, units) = match options.suite {
        Suite::Cpython => ("cpython", cpython::title()?, include_str!("suites/cpython.txt"), cpython::run(&runner, &options.names)?),
        Suite::Go => ("go", go::title()?, include_str!("suites/go.txt"), go::run(&runner, &options.names)?),
        Suite::Perl => ("perl", perl::title()?, include_str!("suites/perl.txt"), perl::run(&runner, &options.names)?),
        Suite::Redis => ("redis", redis::title()?, include_str!("suites/redis.txt"), redis::run(&runner, &options.names)?),
    };
    ensure!(!units.is_empty(), "nothing was run");
    let report = report::Report::new(&units, causes);
    if options.names.is_empty() {
        let file = workspace::root().join("docs/suites").join(name).with_extension("md");
        fs::create_dir_all(file.parent().context("a document lies in a folder")?)?;
        fs::write(&file, report.document(&title, limit)).context("writing the document")?;
        println!("written: {}", file.display());
    }
    println!("{}", report.summary());
    Ok(report.unexplained() == 0)
}
