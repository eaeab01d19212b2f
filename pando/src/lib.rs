// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command line: `pando run`, `pando template`, `pando clone`, `pando image`, `pando doctor`, `pando bench`.
//!
//! It is a library so that `conformance` can build the program for its tests, and the fuzzer can read requests as the service does.
#![forbid(unsafe_code)]

pub mod api;
mod arguments;
mod bench;
mod checkpoint;
mod checkpointed_program;
mod cli;
mod client;
mod clone;
mod completion;
mod connection;
mod debug;
mod diagnostics;
mod doctor;
mod environment;
mod failure;
mod help;
mod image;
mod images;
mod manual;
mod messages;
mod migration;
mod monitor;
mod nested;
mod network_options;
mod observer;
mod options;
mod page;
mod progress;
mod pull;
mod registry_login;
mod restore;
mod run;
mod service;
mod signals;
mod size;
mod socket;
mod stats;
mod table;
mod templates;
mod terminal;
mod token;
mod trace;
mod volume;

use clap::{CommandFactory, Parser};
use failure::Failure;
use pando_manager::descriptors;
use std::process::ExitCode;

/// Runs the program `pando` with the arguments of this process, and returns its exit status.
#[must_use]
pub fn main() -> ExitCode {
    completion::complete_and_exit(cli::Cli::command);
    let command = match cli::Cli::try_parse() {
        Ok(cli) => cli.command,
        Err(answer) => return diagnostics::print_clap_error(answer),
    };
    descriptors::raise();
    let outcome = match command {
        cli::Command::Run(options) => run::run(&options),
        cli::Command::Clone(options) => clone::clone(&options),
        cli::Command::Template { command } => templates::command(&command),
        cli::Command::Ps { all, quiet, tree, json, filters, state, limit } => {
            client::ps(&client::PsOptions { all, quiet, tree, json, filters, state, limit })
        }
        cli::Command::Logs(options) => client::logs(&options),
        cli::Command::Exec(options) => client::exec(&options),
        cli::Command::Kill(options) => client::kill(&options),
        cli::Command::Stop(options) => client::stop(&options),
        cli::Command::Rm(options) => client::remove(&options),
        cli::Command::Inspect(options) => client::inspect(&options),
        cli::Command::Attach(options) => client::attach(&options),
        cli::Command::Commit(options) => client::commit(&options),
        cli::Command::Token { command } => token::command(&command),
        cli::Command::Sleep(options) => client::sleep(&options),
        cli::Command::Wake(options) => client::wake(&options),
        cli::Command::Stats { cell, json } => client::stats(cell.as_deref(), json),
        cli::Command::Serve(options) => service::serve(&options),
        cli::Command::Pull(options) => pull::pull(&options),
        cli::Command::Image { command } => images::command(&command),
        cli::Command::Volume { command } => volume::command(&command),
        cli::Command::Debug(options) => debug::debug(&options),
        cli::Command::Trace(options) => trace::trace(&options),
        cli::Command::Page(options) => page::page(&options),
        cli::Command::Checkpoint(options) => checkpoint::checkpoint(&options),
        cli::Command::Restore(options) => restore::restore(&options),
        cli::Command::Doctor(options) => doctor::doctor(&options),
        cli::Command::Bench(options) => bench::bench(&options),
        cli::Command::Completions { shell } => cli::print_completions(shell).map(|()| 0).map_err(Failure::Print),
        cli::Command::Manual { command } => manual::print(command.as_deref()),
        cli::Command::Version => cli::print_version().map(|()| 0).map_err(Failure::Print),
    };
    match outcome {
        Ok(status) => ExitCode::from(status),
        Err(failure) => {
            diagnostics::print_error(&failure);
            ExitCode::from(failure.status())
        }
    }
}
