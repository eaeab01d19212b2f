// SPDX-License-Identifier: MIT OR Apache-2.0
//! The measuring suite: figures of Pando and of the host's alternatives, measured side by side in one run.
//!
//! A benchmark reports [`Row`]s as it runs. It measures the two sides of a comparison alternately, on one core, many times.
//! A row gives medians and the spread, which reveals a busy machine. Benchmarks judge nothing: other programs check
//! promises against their rows.
//!
//! This crate may use `unsafe` and libc, because the references are native: it forks, pins threads, maps memory and runs
//! generated machine code. All such code is in `native`.

mod bare;
mod clone;
mod density;
mod exit_causes;
mod guest;
mod harness;
mod host_info;
mod kernel;
mod lines;
mod linux;
mod native;
mod nest;
mod net;
mod plot;
mod process_runs;
mod product;
mod program;
mod programs;
mod project;
mod row;
mod run;
mod sample;
mod scale;
mod service;

pub use host_info::HostInfo;
pub use row::{Row, Table};

use pando_kernel::{End, OperatorError};
use pando_launch::LaunchError;
use pando_machine::HostError;
use std::io;
use std::path::Path;

/// The benchmarks that [`run`] knows.
pub const NAMES: &[&str] = &["kernel", "run", "linux", "net", "clone", "programs", "nest", "scale", "product"];

/// How to measure.
#[derive(Clone, Copy, Debug, Default)]
pub struct BenchOptions<'a> {
    /// A few repetitions at small sizes, in seconds: shows that everything works; the figures mean little.
    pub brief: bool,
    /// The directory for plots as SVG, of benchmarks that have some; `None`: no plots.
    pub plots: Option<&'a Path>,
    /// The rows to report; empty: all. `programs` and `product` measure no others.
    pub only: &'a [String],
    /// The number of sleeping cells for `scale`; `None`: what a small machine allows.
    pub cells: Option<usize>,
}

impl BenchOptions<'_> {
    /// Whether a row is to be reported.
    fn includes(self, row: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| name == row)
    }

    /// The number of repetitions: `often`, or in a brief run just enough to see that the benchmark works.
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
        /// The requested name.
        name: String,
    },
    /// The machine failed.
    #[error(transparent)]
    Machine(#[from] HostError),
    /// The kernel refused an operation.
    #[error("the kernel refused the benchmark: {0}")]
    Kernel(#[from] OperatorError),
    /// A program could not be loaded into a cell.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// A template could not be stored or loaded.
    #[error(transparent)]
    Store(#[from] pando_store::Error),
    /// A program for a cell could not be compiled.
    #[error("cannot compile a small static C program (is the static C library installed?):\n{0}")]
    Compiler(String),
    /// The host refused an operation.
    #[error("cannot {action}: {source}")]
    Host {
        /// The attempted action.
        action: &'static str,
        /// The host's answer.
        source: io::Error,
    },
    /// A cell ended too early.
    #[error("a cell of the benchmark ended: {0}")]
    CellEnded(End),
    /// The host lacks a program, a library or a permission that a part of the benchmark needs.
    #[error("this host lacks {0}")]
    Absent(&'static str),
    /// A measured program failed.
    #[error("a program of the benchmark failed: {0}")]
    Failed(String),
    /// A cell did not run as its code says.
    #[error("a cell of the benchmark did not reach its next hypercall")]
    NoHypercall,
}

impl BenchError {
    fn host(action: &'static str) -> impl FnOnce(io::Error) -> BenchError {
        move |source| BenchError::Host { action, source }
    }
}

/// Skips a part of a benchmark that needs a missing package, and reports the package.
fn unless_absent(part: Result<(), BenchError>, absent: &mut dyn FnMut(&str)) -> Result<(), BenchError> {
    match part {
        Err(BenchError::Absent(what)) => {
            absent(what);
            Ok(())
        }
        other => other,
    }
}

/// Runs a benchmark on the calling thread and reports its rows as they come, and missing packages.
///
/// Pins the thread and its children to one core, except where a client loads servers. `pando` is the program that creates
/// cells, where whole programs are measured.
///
/// # Errors
/// If there is no such benchmark, or it failed. Rows that were reported remain valid.
pub fn run(
    name: &str,
    options: BenchOptions<'_>,
    pando: &Path,
    report: &mut dyn FnMut(Row),
    absent: &mut dyn FnMut(&str),
) -> Result<(), BenchError> {
    let pinned = native::cpu::PinnedThread::to_one_core().map_err(BenchError::host("pin the measuring thread to one core"))?;
    let report = &mut |row: Row| {
        if options.includes(row.name) {
            report(row);
        }
    };
    match name {
        "kernel" => kernel::run(options, report),
        "run" => run::run(options, pando, report, absent),
        "linux" => linux::run(options, pando, report, absent),
        "net" => net::run(options, pando, pinned, report, absent),
        "clone" => clone::run(options, pando, pinned, report, absent),
        "nest" => nest::run(options, pando, report),
        "scale" => scale::run(options, pando, pinned, report),
        "programs" => programs::run(options, pando, pinned, report, absent),
        "product" => product::run(options, pando, pinned, report, absent),
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
        let part = process_runs::needs("no-such-program", "a peer (Debian: no-such-package)");
        unless_absent(part, &mut absent).expect("the others run");
        unless_absent(process_runs::needs("sh", "a shell"), &mut absent).expect("it is there");
        unless_absent(Err(BenchError::NoHypercall), &mut absent).expect_err("what fails is no absence");
        assert_eq!(lacking, ["a peer (Debian: no-such-package)"]);
    }
}
