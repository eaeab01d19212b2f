// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command line's grammar.

use crate::api::CellState;
use crate::arguments::RunOptions;
use crate::bench::BenchArguments;
use crate::checkpoint::CheckpointOptions;
use crate::client::{
    AttachOptions, CommitOptions, ExecOptions, InspectOptions, KillOptions, LogsOptions, RemoveOptions, SleepOptions, StopOptions,
};
use crate::clone::CloneOptions;
use crate::completion;
use crate::debug::DebugOptions;
use crate::doctor::DoctorOptions;
use crate::help;
use crate::images;
use crate::page::PageOptions;
use crate::pull::PullOptions;
use crate::restore::RestoreOptions;
use crate::service::ServeOptions;
use crate::templates;
use crate::token;
use crate::trace::TraceOptions;
use crate::volume;
use clap::{Parser, Subcommand};
use clap_complete::ArgValueCandidates;
use clap_complete::env::Shells;
use std::io::Write;

/// Runs programs in cells: tiny virtual machines that are cloned in constant time.
#[derive(Debug, Parser)]
#[command(name = "pando", version, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a Linux program in a cell of its own
    #[command(after_help = help::after_help(), override_usage = "pando run [OPTIONS] PROGRAM [ARGS]...")]
    Run(Box<RunOptions>),
    /// Clone a template: its program continues where it was frozen, without starting again
    #[command(override_usage = "pando clone [OPTIONS] TEMPLATE [ARGS]...")]
    Clone(Box<CloneOptions>),
    /// Create and manage templates: started programs to be cloned
    Template {
        #[command(subcommand)]
        command: templates::Command,
    },
    /// Serve templates and cells to programs on a Unix socket (HTTP and JSON)
    Serve(ServeOptions),
    /// List the cells of `pando serve`
    Ps {
        /// Include cells that have ended
        #[arg(short = 'a', long)]
        all: bool,
        /// Print only the cells' numbers
        #[arg(short = 'q', long, conflicts_with_all = ["json", "tree"])]
        quiet: bool,
        /// Print the nested cells of each cell below it; with --json, as its `descendants`
        #[arg(long)]
        tree: bool,
        /// Print one JSON object per line
        #[arg(long)]
        json: bool,
        /// Print only the cells with this label: `label=NAME` or `label=NAME=VALUE` (repeatable: with all of them)
        #[arg(short = 'f', long = "filter", value_name = "FILTER", value_parser = crate::options::filter)]
        filters: Vec<(String, Option<String>)>,
        /// Print only the cells in this state
        #[arg(long, value_enum, value_name = "STATE")]
        state: Option<CellState>,
        /// Print at most this many cells
        #[arg(long, value_name = "NUMBER")]
        limit: Option<usize>,
    },
    /// Start another program in a cell of `pando serve`
    #[command(override_usage = "pando exec [OPTIONS] CELL PROGRAM [ARGS]...")]
    Exec(ExecOptions),
    /// Print the output of a cell of `pando serve`
    Logs(LogsOptions),
    /// Connect to the output, the input and the signals of a cell of `pando serve`
    Attach(AttachOptions),
    /// Terminate cells of `pando serve`, or send their programs a signal
    Kill(KillOptions),
    /// Ask cells of `pando serve` to end, and terminate them if they do not
    Stop(StopOptions),
    /// Remove cells of `pando serve` that have ended, with their output
    Rm(RemoveOptions),
    /// Print descriptions of cells of `pando serve` as a JSON array
    Inspect(InspectOptions),
    /// Make a container image of the files of a cell of `pando serve`
    Commit(CommitOptions),
    /// Put idle cells of `pando serve` to sleep: their memory is compressed and moved to swap space
    Sleep(SleepOptions),
    /// Wake up sleeping cells of `pando serve`
    Wake(SleepOptions),
    /// Print the state of `pando serve`, or what one of its cells used
    Stats {
        /// The cell's number or name, as in `pando ps`
        #[arg(value_name = "CELL", value_parser = crate::options::cell, add = ArgValueCandidates::new(completion::all_cells))]
        cell: Option<String>,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Create and manage tokens for `pando serve --control`: credentials for some of the cells
    Token {
        #[command(subcommand)]
        command: token::Command,
    },
    /// Pull a container image from a registry
    Pull(PullOptions),
    /// Get and manage container images, and build root images
    Image {
        #[command(subcommand)]
        command: images::Command,
    },
    /// Create and manage named volumes: directories that cells share, `pando run -v NAME:/data`
    Volume {
        #[command(subcommand)]
        command: volume::Command,
    },
    /// Debug a program in a cell, or a running cell, with gdb: `gdb PROGRAM -ex 'target remote | pando debug PROGRAM'`
    #[command(override_usage = "pando debug [OPTIONS] CELL\n       pando debug [OPTIONS] PROGRAM [ARGS]...")]
    Debug(DebugOptions),
    /// Print the system calls of a program in a cell, and refuse some
    #[command(override_usage = "pando trace [OPTIONS] PROGRAM [ARGS]...")]
    Trace(TraceOptions),
    /// Run a program in a cell with less memory than it needs, and keep the rest in a swap file
    #[command(override_usage = "pando page [OPTIONS] --memory SIZE --swap FILE PROGRAM [ARGS]...")]
    Page(PageOptions),
    /// Run a program in a cell, and write its whole state to a directory at intervals, for `pando restore`, or let it move there
    #[command(
        override_usage = "pando checkpoint [OPTIONS] --every TIME -o DIR PROGRAM [ARGS]...\n       pando checkpoint [OPTIONS] --port PORT PROGRAM [ARGS]..."
    )]
    Checkpoint(CheckpointOptions),
    /// Continue a program from a checkpoint that `pando checkpoint` has written, or take over a running one
    #[command(override_usage = "pando restore [OPTIONS] DIR[@NUMBER]\n       pando restore [OPTIONS] ADDR:PORT")]
    Restore(RestoreOptions),
    /// Check whether and how Pando runs on this host
    Doctor(DoctorOptions),
    /// Measure Pando against the host, side by side in one run
    Bench(BenchArguments),
    /// Print the completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print a manual page: `pando manual run | man -l -`
    Manual {
        /// The command [default: Pando as a whole]
        command: Option<String>,
    },
    /// Print the version
    Version,
}

/// Prints the completion script that a shell loads.
///
/// # Errors
/// Standard output cannot be written.
pub(crate) fn print_completions(shell: clap_complete::Shell) -> std::io::Result<()> {
    let shells = Shells::builtins();
    let completer = shells.completer(&shell.to_string()).ok_or(std::io::ErrorKind::Unsupported)?;
    // In one write, so that no part of it arrives alone.
    let mut text = Vec::new();
    completer.write_registration(completion::VARIABLE, "pando", "pando", "pando", &mut text)?;
    std::io::stdout().write_all(&text)
}

/// Prints the version, as `--version` does.
///
/// # Errors
/// Standard output cannot be written.
pub(crate) fn print_version() -> std::io::Result<()> {
    writeln!(std::io::stdout(), "pando {}", env!("CARGO_PKG_VERSION"))
}
