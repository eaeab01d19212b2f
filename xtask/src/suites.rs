// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask suites`: the test suites of others, natively and in cells, and the documents that say how they went.
//!
//! Natively comes first: what does not pass on this machine, or takes too long, is left out and said. What passes natively and not in a cell has its
//! cause in a file beside the suite's source, or stands in the document without one.

mod busybox;
mod cpython;
mod go;
mod kept;
mod memcached;
mod perl;
mod redis;
mod redis_served;
mod report;
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

/// How much longer a cell may take: a busy machine may need many times what it needs alone.
const CELL_PATIENCE: u64 = 5;

/// Which suite, and how.
#[derive(Debug, Args)]
pub(crate) struct Options {
    suite: Suite,
    /// Only these parts of it; then no document is written, but with `--again`.
    names: Vec<String>,
    /// After a whole run: these parts take the place of what they were in it, and in its document, which says so.
    #[arg(long, requires = "names")]
    again: bool,
    /// Seconds that a part may take natively: 60, or 300 where parts are large.
    #[arg(long)]
    limit: Option<u64>,
}

/// The suites that are known.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Suite {
    /// busybox's own, from Debian's source package.
    Busybox,
    /// Those of CPython, from Debian's libpython3.11-testsuite.
    Cpython,
    /// Those of some packages of Go's standard library.
    Go,
    /// perl's core tests, from Debian's source package.
    Perl,
    /// redis's own, from Debian's source package.
    Redis,
    /// Those of redis that ask a server that runs already, which is in a cell, through the gateway.
    RedisServed,
    /// memcached's own, from Debian's source package: in a cell, and through the gateway.
    Memcached,
}

impl Suite {
    /// Seconds that a part of it may take natively if nobody says otherwise.
    fn limit(self) -> u64 {
        match self {
            Suite::Cpython | Suite::Perl => 60,
            Suite::Busybox | Suite::Go | Suite::Redis | Suite::RedisServed | Suite::Memcached => 300,
        }
    }
}

/// How a test went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Debug, Serialize, Deserialize)]
struct Unit {
    name: String,
    native: Verdict,
    cell: Verdict,
}

/// How commands are run: from a directory of their own, with little around them.
struct Runner {
    pando: PathBuf,
    /// Where what they say is kept, for whoever looks for causes.
    kept: PathBuf,
    scratch: tempfile::TempDir,
    limit: u64,
}

/// What a command left: its exit status as `timeout` tells it, and all that it said.
struct Outcome {
    status: i32,
    said: String,
}

impl Runner {
    fn new(limit: u64, kept: PathBuf) -> Result<Runner> {
        workspace::run(workspace::cargo().args(["build", "--release", "--package", "pando"]))?;
        let scratch = tempfile::tempdir().context("making a directory")?;
        Ok(Runner { pando: workspace::target().join("release/pando"), kept, scratch, limit })
    }

    /// Runs a part's words natively, standing in a directory, or in a fresh one.
    fn native(&self, part: &str, words: &[&str], directory: Option<&Path>) -> Result<Outcome> {
        self.finish(&self.file("native", part)?, self.limit, words, directory)
    }

    /// Runs a part's words in a cell, with options for `pando run`.
    fn cell(&self, part: &str, options: &[&str], words: &[&str]) -> Result<Outcome> {
        let cell_limit = CELL_PATIENCE * self.limit;
        let (pando, limit) = (self.pando.to_string_lossy(), format!("{cell_limit}s"));
        let words = [&[&*pando, "run", "--timeout", &limit], options, &["--"], words].concat();
        self.finish(&self.file("cell", part)?, cell_limit + 30, &words, None)
    }

    /// Where what a part says is kept.
    fn file(&self, side: &str, part: &str) -> Result<PathBuf> {
        let folder = self.kept.join(side);
        fs::create_dir_all(&folder).context("making a folder for what is said")?;
        Ok(folder.join(part.replace('/', "-")))
    }

    fn finish(&self, said: &Path, limit: u64, words: &[&str], directory: Option<&Path>) -> Result<Outcome> {
        let fresh = tempfile::tempdir_in(self.scratch.path()).context("making a directory")?;
        let file = fs::File::create(said).context("keeping what is said")?;
        let mut command = Command::new(DIES_WITH_PARENT[0]);
        // Whoever starts this may ignore signals, which programs inherit.
        command.args(&DIES_WITH_PARENT[1..]).args(["env", "--default-signal", "timeout", "--kill-after=5", &limit.to_string()]).args(words);
        command.env_clear().envs([("LANG", "C.UTF-8"), ("PATH", "/usr/local/bin:/usr/bin:/bin"), ("TERM", "dumb"), ("TZ", "UTC0")]);
        command.env("HOME", workspace::target()).env("TMPDIR", fresh.path());
        command.current_dir(directory.unwrap_or(fresh.path())).stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let status = command.status().with_context(|| format!("starting {}", words[0]))?.code().unwrap_or(-1);
        let said = String::from_utf8_lossy(&fs::read(said)?).into_owned();
        fresh.close().context("removing what tests left")?;
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
    ensure!(!units.is_empty(), "nothing was run");
    let found = kept::Found { limit, units, again: Vec::new() };
    let found = if options.again { kept::Found::read(&kept)?.with(found, &options.names) } else { found };
    let report = report::Report::new(&found, causes);
    if options.names.is_empty() || options.again {
        found.write(&kept)?;
        let file = workspace::root().join("docs/suites").join(&name).with_extension("md");
        fs::create_dir_all(file.parent().context("a document lies in a folder")?)?;
        fs::write(&file, report.document(&title)).context("writing the document")?;
        println!("written: {}", file.display());
    }
    println!("{}", report.summary());
    Ok(report.unexplained() == 0)
}
