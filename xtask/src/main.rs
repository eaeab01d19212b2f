// SPDX-License-Identifier: MIT OR Apache-2.0
//! The project's own tools, called as `cargo xtask NAME`.

mod dist;
mod fresh;
mod fuzz;
mod hardware;
mod leftovers;
mod packages;
mod sources;
mod suite;
mod suites;
mod tally;
mod tidy;
mod workspace;

use anyhow::Result;
use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// The project's own tools.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    tool: Tool,
}

#[derive(Debug, Subcommand)]
enum Tool {
    /// Checks the house rules: layers, unsafe, openings, lengths (CONTRIBUTING.md explains them).
    Tidy {
        /// Prints the floors of the modules of a crate or a module (`stack`, `kernel/memory`) instead, as lines of layers.toml.
        #[arg(long)]
        floors: Option<String>,
    },
    /// Runs the whole suite, after installing its system packages where that is possible.
    Test {
        /// Adds the long runs.
        #[arg(long)]
        all: bool,
    },
    /// Runs the targets of `fuzz/` with libFuzzer; without cargo-fuzz or a C++ compiler, prints that and does nothing.
    Fuzz(fuzz::Options),
    /// Makes the files of a release in `target/dist`: an archive, a Debian package and a Python wheel.
    Dist,
    /// Runs the README's first command in a minimal Debian, and checks which packages the tests would install there.
    Fresh,
    /// Prints the Debian packages that the tests need and that are missing here.
    Packages,
    /// Runs a third-party test suite natively and in cells, and writes `docs/suites/`.
    Suites(suites::Options),
    /// Runs tests, or any program, on KVM with emulated hardware virtualisation.
    Hardware(hardware::Options),
}

fn main() -> ExitCode {
    match run(Arguments::parse().tool) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs one tool; `false` means that it ran and found a fault.
fn run(tool: Tool) -> Result<bool> {
    match tool {
        Tool::Tidy { floors: Some(scope) } => {
            print!("{}", tidy::floors(&workspace::root(), &scope)?);
            Ok(true)
        }
        Tool::Tidy { floors: None } => {
            let findings = tidy::check(&workspace::root())?;
            findings.iter().for_each(|finding| println!("{finding}"));
            println!("tidy: {} findings", findings.len());
            Ok(findings.is_empty())
        }
        Tool::Test { all } => suite::run(all),
        Tool::Fuzz(options) => fuzz::run(&options),
        Tool::Dist => dist::make().map(|_| true),
        Tool::Fresh => fresh::run().map(|()| true),
        Tool::Packages => {
            packages::missing().iter().for_each(|package| println!("{}", package.name));
            Ok(true)
        }
        Tool::Suites(options) => suites::run(&options),
        Tool::Hardware(options) => {
            let report = hardware::run(&options)?;
            report.left_out.iter().for_each(|what| println!("left out: {what}"));
            if options.command.is_empty() {
                println!("{} passed, {} failed", report.tally.passed, report.tally.failed);
            }
            Ok(report.tally.failed == 0)
        }
    }
}
