// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pando stop`, `rm` and `inspect`: cells of `pando serve`, with docker's names and formats.

use crate::api;
use crate::completion;
use crate::connection::{Client, wait_for};
use crate::diagnostics;
use crate::failure::Failure;
use clap::Args;
use clap_complete::ArgValueCandidates;
use hyper::Method;
use serde_json::Value;
use std::io::Write;

/// Options of `pando stop`.
#[derive(Debug, Args)]
pub(crate) struct StopOptions {
    /// Terminate a cell that has not ended after this time; -1 waits without a limit
    #[arg(short = 't', long = "timeout", visible_alias = "time", value_name = "SECONDS", default_value = "10", allow_hyphen_values = true)]
    seconds: i32,

    /// The cells' numbers or names, as in `pando ps`
    #[arg(value_name = "CELL", value_parser = crate::options::cell, required = true, add = ArgValueCandidates::new(completion::cells))]
    cells: Vec<String>,
}

/// Options of `pando rm`.
#[derive(Debug, Args)]
pub(crate) struct RemoveOptions {
    /// Terminate cells that run
    #[arg(short = 'f', long)]
    force: bool,

    /// The cells' numbers or names, as in `pando ps -a`
    #[arg(value_name = "CELL", value_parser = crate::options::cell, required = true, add = ArgValueCandidates::new(completion::all_cells))]
    cells: Vec<String>,
}

/// Options of `pando inspect`.
#[derive(Debug, Args)]
pub(crate) struct InspectOptions {
    /// The cells' numbers or names, as in `pando ps -a`
    #[arg(value_name = "CELL", value_parser = crate::options::cell, required = true, add = ArgValueCandidates::new(completion::all_cells))]
    cells: Vec<String>,
}

/// Asks cells to end, and terminates them if they do not. Prints their names as they were given.
///
/// # Errors
/// No server runs.
pub(crate) fn stop(options: &StopOptions) -> Result<u8, Failure> {
    each(&options.cells, true, async |client: &Client, cell: &str| {
        client.request::<()>(Method::POST, &format!("/v1/cells/{cell}/stop?timeout={}", options.seconds), &()).await
    })
}

/// Removes cells that have ended, with their output. Prints their names as they were given.
///
/// # Errors
/// No server runs.
pub(crate) fn remove(options: &RemoveOptions) -> Result<u8, Failure> {
    each(&options.cells, true, async |client: &Client, cell: &str| {
        let path = format!("/v1/cells/{cell}");
        if !options.force && client.get::<api::Cell>(&path).await?.outcome.is_none() {
            return Err(Failure::Running(cell.into()));
        }
        client.request::<()>(Method::DELETE, &path, &()).await
    })
}

/// Prints descriptions of cells as a JSON array.
///
/// # Errors
/// There is no such cell, or no server runs.
pub(crate) fn inspect(options: &InspectOptions) -> Result<u8, Failure> {
    let client = Client::find_or_fail()?;
    let described = wait_for(async {
        let mut described: Vec<Value> = Vec::new();
        for cell in &options.cells {
            described.push(client.get(&format!("/v1/cells/{cell}")).await?);
        }
        Ok(described)
    })?;
    writeln!(std::io::stdout(), "{:#}", Value::from(described))?;
    Ok(0)
}

/// Does something with each cell, and continues after failures; the status is then 1. With `prints`, prints the names of the others.
pub(super) fn each(cells: &[String], prints: bool, action: impl AsyncFn(&Client, &str) -> Result<(), Failure>) -> Result<u8, Failure> {
    let client = Client::find_or_fail()?;
    wait_for(async {
        let mut status = 0;
        for cell in cells {
            match action(&client, cell).await {
                Ok(()) if prints => writeln!(std::io::stdout(), "{cell}")?,
                Ok(()) => {}
                Err(error @ Failure::ConnectionLost(_)) => return Err(error),
                Err(error) => {
                    diagnostics::print_error(&error);
                    status = 1;
                }
            }
        }
        Ok(status)
    })
}
