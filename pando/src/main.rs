// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command line: `pando run`, `pando doctor`, `pando bench`.
#![forbid(unsafe_code)]

mod bench;
mod cli;
mod doctor;
mod host;
mod run;
mod size;
mod stats;

use clap::Parser;
use std::process::ExitCode;

/// Exit status of Pando's own failures, as container tools use it.
const OWN_FAILURE: u8 = 125;

fn main() -> ExitCode {
    let outcome = match cli::Cli::parse().command {
        cli::Command::Run(options) => run::run(&options),
        cli::Command::Doctor(options) => doctor::doctor(&options),
        cli::Command::Bench(options) => bench::bench(&options),
        cli::Command::Completions { shell } => {
            cli::print_completions(shell);
            Ok(0)
        }
    };
    match outcome {
        Ok(status) => ExitCode::from(status),
        Err(failure) => {
            eprintln!("pando: {failure}");
            ExitCode::from(failure.status())
        }
    }
}
