// SPDX-License-Identifier: MIT OR Apache-2.0
//! The measuring suite: figures of Pando beside what the host does for the same purpose, taken side by side in one run.
//!
//! A benchmark reports [`Row`]s as it goes. Two things that are compared are measured alternately, on one core, many times; a row gives medians and
//! the spread, so that a busy machine shows and does not mislead. Benchmarks judge nothing: promises are held against their rows elsewhere.
//!
//! This crate may use `unsafe` and libc, because the references are native: it forks, pins, maps memory and runs machine code that it wrote itself. All
//! of that stands in `native`.

mod about;
mod bare;
mod clone;
mod density;
mod guest;
mod kernel;
mod lines;
mod linux;
mod native;
mod net;
mod plot;
mod program;
mod row;
mod run;
mod sample;
mod stage;
mod whole;

pub use about::About;
pub use row::{Row, Table};

use pando_kernel::{End, OperatorError};
use pando_launch::LaunchError;
use pando_machine::HostError;
use std::io;
use std::path::Path;

/// The benchmarks that [`run`] knows.
pub const NAMES: &[&str] = &["kernel", "run", "linux", "net", "clone"];

/// How to measure.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options<'a> {
    /// A few repetitions at small sizes, in seconds: shows that everything works, and figures that mean little.
    pub brief: bool,
    /// Where to put plots as SVG, of benchmarks that have some; `None`: nowhere.
    pub plots: Option<&'a Path>,
}

impl Options<'_> {
    /// How often to repeat something: `often`, or just enough to see that it works.
    fn rounds(self, often: usize) -> usize {
        if self.brief { 2 } else { often }
    }
}

/// Why a benchmark could not be finished.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// No benchmark has this name.
    #[error("there is no benchmark {name:?}; there are: {}", NAMES.join(", "))]
    NoSuchBenchmark {
        /// The name that was asked for.
        name: String,
    },
    /// The machine failed.
    #[error(transparent)]
    Machine(#[from] HostError),
    /// The kernel refused something.
    #[error("the kernel refused the benchmark: {0}")]
    Kernel(#[from] OperatorError),
    /// A program could not be brought into a cell.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// A template could not be kept or loaded.
    #[error(transparent)]
    Store(#[from] pando_store::Error),
    /// A program for a cell could not be made.
    #[error("could not compile a small static C program (is the C library there in its static form?):\n{0}")]
    Compiler(String),
    /// The host refused something.
    #[error("could not {action}: {source}")]
    Host {
        /// What was tried.
        action: &'static str,
        /// The host's answer.
        source: io::Error,
    },
    /// A cell ended that should have gone on.
    #[error("a cell of the benchmark ended: {0}")]
    CellEnded(End),
    /// The host lacks a program or a library that a part of the benchmark compares with or measures.
    #[error("{0} is not installed")]
    Absent(&'static str),
    /// A program that was measured did not end as it should.
    #[error("a program of the benchmark failed: {0}")]
    Failed(String),
    /// A cell did not do what its code says.
    #[error("a cell of the benchmark did not reach its next hypercall")]
    Astray,
}

impl BenchError {
    fn host(action: &'static str) -> impl FnOnce(io::Error) -> BenchError {
        move |source| BenchError::Host { action, source }
    }
}

/// Goes on after a part of a benchmark that needs what this host lacks, and reports what that is.
fn unless_absent(part: Result<(), BenchError>, absent: &mut dyn FnMut(&str)) -> Result<(), BenchError> {
    match part {
        Err(BenchError::Absent(what)) => {
            absent(what);
            Ok(())
        }
        other => other,
    }
}

/// Runs a benchmark on the calling thread and reports its rows as they come, and what this host lacks for others; pinned to one core meanwhile with all that it starts, but where servers are loaded by a client beside them. Where whole
/// programs are measured, `pando` is the one that makes cells.
///
/// # Errors
/// There is no such benchmark, or it failed. Rows that were reported stand.
pub fn run(
    name: &str,
    options: Options<'_>,
    pando: &Path,
    report: &mut dyn FnMut(Row),
    absent: &mut dyn FnMut(&str),
) -> Result<(), BenchError> {
    let pinned = native::cpu::Pinned::to_one_core().map_err(BenchError::host("pin the measuring thread to one core"))?;
    match name {
        "kernel" => kernel::run(options, report),
        "run" => run::run(options, pando, report, absent),
        "linux" => linux::run(options, pando, report, absent),
        "net" => net::run(options, pando, pinned, report, absent),
        "clone" => clone::run(options, pando, pinned, report, absent),
        _ => Err(BenchError::NoSuchBenchmark { name: name.into() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_whose_programs_are_absent_are_left_out_and_named() {
        let mut lacking = Vec::new();
        let mut absent = |what: &str| lacking.push(what.to_owned());
        let part = whole::needs("no-such-program", "a peer (Debian: no-such-package)");
        unless_absent(part, &mut absent).expect("the others run");
        unless_absent(whole::needs("sh", "a shell"), &mut absent).expect("it is there");
        unless_absent(Err(BenchError::Astray), &mut absent).expect_err("what fails is no absence");
        assert_eq!(lacking, ["a peer (Debian: no-such-package)"]);
    }
}
