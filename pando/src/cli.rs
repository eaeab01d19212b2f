// SPDX-License-Identifier: MIT OR Apache-2.0
//! What can be typed.

use crate::size::Size;
use clap::{Args, CommandFactory, Parser, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Runs programs in cells: tiny virtual machines that are cloned in constant time.
#[derive(Debug, Parser)]
#[command(name = "pando", version, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a static Linux program in a cell of its own
    #[command(after_help = EXAMPLES)]
    Run(Run),
    /// Look at this host and say whether and how Pando runs on it
    Doctor(Doctor),
    /// Measure Pando against the host, side by side in one run
    Bench(Bench),
    /// Print completions for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

const EXAMPLES: &str = "Examples:
  pando run busybox echo hello
  pando run -v data.txt -- busybox sha256sum data.txt
  seq 1000 | pando run --timeout 10s --memory 64M -- busybox sort -n

Exit status: the program's own; 128+N if signal N or a fault ended it; 124 if its time was up; 125 if Pando itself
failed; 126 if the program cannot be executed; 127 if it was not found.";

#[derive(Debug, Args)]
pub(crate) struct Run {
    /// Show this file of the host to the program, under its own path, read-only (repeat for more)
    #[arg(short = 'v', long = "volume", value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,

    /// The most memory that the cell may have, tables included: bytes, or with K, M or G [default: a quarter of the host's]
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory: Option<Size>,

    /// End the program after this long: seconds, or with ms, s, m or h
    #[arg(long, value_name = "TIME", value_parser = crate::size::duration)]
    pub(crate) timeout: Option<Duration>,

    /// Say at the end, on standard error, what the cell did and what it took
    #[arg(long)]
    pub(crate) stats: bool,

    /// The program: a path, or a name to look for in PATH
    #[arg(value_name = "PROGRAM")]
    pub(crate) program: OsString,

    /// Its arguments
    #[arg(value_name = "ARGS", trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) arguments: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Bench {
    /// Which: without a name, those there are
    pub(crate) name: Option<String>,

    /// A few seconds at small sizes: shows that all works; the figures mean little
    #[arg(long)]
    pub(crate) brief: bool,

    /// Print one JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
}

/// Prints the completions that a shell loads.
pub(crate) fn print_completions(shell: clap_complete::Shell) {
    clap_complete::generate(shell, &mut Cli::command(), "pando", &mut std::io::stdout());
}
