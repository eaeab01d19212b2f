// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask suites`: third-party test suites, natively and in cells, and the documents of their results.
//!
//! The native run comes first. Tests that fail on this machine, or take too long, are left out and listed. If a test passes
//! natively and fails in a cell, a file beside the suite's source names the cause; otherwise the document lists the test
//! without one.

mod busybox;
mod cpython;
mod go;
mod memcached;
mod perl;
mod redis;
mod redis_served;
mod report;
mod results;
mod served;

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::workspace::{self, DIES_WITH_PARENT, TIMED_OUT};

/// The factor by which a cell may take longer: a busy machine may need many times its unloaded time.
const CELL_TIMEOUT_FACTOR: u64 = 5;

/// The options of `cargo xtask suites`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    suite: Suite,
    /// Runs only these parts; writes no document without `--again`.
    names: Vec<String>,
    /// Replaces the results of these parts in the last whole run and in its document, which mentions that.
    #[arg(long, requires = "names")]
    again: bool,
    /// Seconds that a part may take natively: 60, or 300 for suites with large parts.
    #[arg(long)]
    limit: Option<u64>,
}

/// The known suites.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Suite {
    /// busybox's tests, from Debian's source package.
    Busybox,
    /// CPython's tests, from Debian's libpython3.11-testsuite.
    Cpython,
    /// The tests of some packages of Go's standard library.
    Go,
    /// perl's core tests, from Debian's source package.
    Perl,
    /// redis's tests, from Debian's source package.
    Redis,
    /// redis's tests for a running server, which is in a cell, through the gateway.
    RedisServed,
    /// memcached's tests, from Debian's source package: in a cell, and through the gateway.
    Memcached,
}

impl Suite {
    /// The default limit of seconds that a part may take natively.
    fn limit(self) -> u64 {
        match self {
            Suite::Cpython | Suite::Perl => 60,
            Suite::Busybox | Suite::Go | Suite::Redis | Suite::RedisServed | Suite::Memcached => 300,
        }
    }
}

/// The result of a test.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Verdict {
    Passed,
    /// It failed, with the names that it reported.
    Failed(String),
    /// It took too long.
    Late,
    /// It was not run.
    Skipped,
}

/// The result of a test, or of a part of a suite.
#[derive(Debug, Serialize, Deserialize)]
struct Unit {
    name: String,
    native: Verdict,
    cell: Verdict,
}

/// Runs commands in a directory of their own, with a minimal environment.
struct Runner {
    pando: PathBuf,
    /// The folder of the commands' output, for later analysis.
    kept: PathBuf,
    scratch: tempfile::TempDir,
    limit: u64,
}

/// The result of a command: the exit status of `timeout`, and all output.
struct Outcome {
    status: i32,
    output: String,
}

impl Runner {
    fn new(limit: u64, kept: PathBuf) -> Result<Runner> {
        workspace::run(workspace::cargo().args(["build", "--release", "--package", "pando"]))?;
        let scratch = tempfile::tempdir().context("making a directory")?;
        Ok(Runner { pando: workspace::target().join("release/pando"), kept, scratch, limit })
    }

    /// Runs a part's command natively, in `directory` or in a new one.
    fn native(&self, part: &str, words: &[&str], directory: Option<&Path>) -> Result<Outcome> {
        self.finish(&self.file("native", part)?, self.limit, words, directory)
    }

    /// Runs a part's command in a cell, with options for `pando run`.
    fn cell(&self, part: &str, options: &[&str], words: &[&str]) -> Result<Outcome> {
        let cell_limit = CELL_TIMEOUT_FACTOR * self.limit;
        let (pando, limit) = (self.pando.to_string_lossy(), format!("{cell_limit}s"));
        let words = [&[&*pando, "run", "--timeout", &limit], options, &["--"], words].concat();
        self.finish(&self.file("cell", part)?, cell_limit + 30, &words, None)
    }

    /// The file for a part's output.
    fn file(&self, side: &str, part: &str) -> Result<PathBuf> {
        let folder = self.kept.join(side);
        fs::create_dir_all(&folder).context("making a folder for output")?;
        Ok(folder.join(part.replace('/', "-")))
    }

    fn finish(&self, output: &Path, limit: u64, words: &[&str], directory: Option<&Path>) -> Result<Outcome> {
        let fresh = tempfile::tempdir_in(self.scratch.path()).context("making a directory")?;
        let file = fs::File::create(output).context("creating a file for output")?;
        let mut command = Command::new(DIES_WITH_PARENT[0]);
        // The parent process may ignore signals, and children inherit that.
        command.args(&DIES_WITH_PARENT[1..]).args(["env", "--default-signal", "timeout", "--kill-after=5", &limit.to_string()]).args(words);
        command.env_clear().envs([("LANG", "C.UTF-8"), ("PATH", "/usr/local/bin:/usr/bin:/bin"), ("TERM", "dumb"), ("TZ", "UTC0")]);
        command.env("HOME", workspace::target()).env("TMPDIR", fresh.path());
        command.current_dir(directory.unwrap_or(fresh.path())).stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let status = command.status().with_context(|| format!("starting {}", words[0]))?.code().unwrap_or(-1);
        let output = String::from_utf8_lossy(&fs::read(output)?).into_owned();
        fresh.close().context("removing files of tests")?;
        Ok(Outcome { status, output })
    }

    /// Runs parts of a suite, `at_once` of them in parallel; `run` gets a part's index and the part. Returns their results, in order.
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
        // `timeout` kills a program that ignores its signal.
        [TIMED_OUT, 128 + 9].contains(&self.status)
    }
}

/// Runs a suite; `false` if a test passes natively and fails in a cell without a known cause.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let limit = options.limit.unwrap_or(options.suite.limit());
    let name = options.suite.to_possible_value().context("every suite has a name")?.get_name().to_owned();
    let kept = workspace::target().join("suites").join(&name);
    let runner = Runner::new(limit, kept.clone())?;
    let (title, causes, units) = match options.suite {
        Suite::Busybox => (busybox::title()?, include_str!("suites/busybox.txt"), busybox::run(&runner, &options.names)?),
        Suite::Cpython => (cpython::title()?, include_str!("suites/cpython.txt"), cpython::run(&runner, &options.names)?),
        Suite::Go => (go::title()?, include_str!("suites/go.txt"), go::run(&runner, &options.names)?),
        Suite::Perl => (perl::title()?, include_str!("suites/perl.txt"), perl::run(&runner, &options.names)?),
        Suite::Redis => (redis::title()?, include_str!("suites/redis.txt"), redis::run(&runner, &options.names)?),
        Suite::RedisServed => {
            (redis_served::title()?, include_str!("suites/redis-served.txt"), redis_served::run(&runner, &options.names)?)
        }
        Suite::Memcached => (memcached::title()?, include_str!("suites/memcached.txt"), memcached::run(&runner, &options.names)?),
    };
    ensure!(!units.is_empty() || !options.names.is_empty(), "no test was run: the suite printed no result");
    ensure!(!units.is_empty(), "no test was run: the suite has no part named {}", options.names.join(", "));
    let found = results::SuiteResults { limit, units, again: Vec::new() };
    let found = if options.again { results::SuiteResults::read(&kept)?.with(found, &options.names) } else { found };
    let report = report::SuiteReport::new(&found, causes);
    if options.names.is_empty() || options.again {
        found.write(&kept)?;
        let file = workspace::root().join("docs/suites").join(&name).with_extension("md");
        fs::create_dir_all(file.parent().context("a document has a folder")?)?;
        fs::write(&file, report.document(&title)).context("writing the document")?;
        println!("written: {}", file.display());
    }
    println!("{}", report.summary());
    Ok(report.unexplained() == 0)
}
