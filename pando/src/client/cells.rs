// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pando ps`, `logs`, `kill`, `stats`: the cells of `pando serve`.

use super::lifecycle::each;
use crate::api::{self, CellState, DescendantState, Signal, Source};
use crate::completion;
use crate::connection::{Client, visit_cells, wait_for};
use crate::diagnostics;
use crate::failure::Failure;
use crate::options::TailLines;
use crate::table;
use clap::Args;
use clap_complete::ArgValueCandidates;
use hyper::Method;
use indicatif::{HumanBytes, HumanDuration};
use jiff::Timestamp;
use pando_image::escaped;
use pando_manager::template::TemplateName;
use std::io::Write;
use std::time::Duration;
use tokio::io::{AsyncWrite, AsyncWriteExt};

/// The width of the column of templates and images in the list of cells.
const SOURCE_WIDTH: usize = 24;
/// The width of the column of arguments.
const ARGUMENTS_WIDTH: usize = 24;

/// Options of `pando logs`.
#[derive(Debug, Args)]
pub(crate) struct LogsOptions {
    /// Follow the output until the cell has ended
    #[arg(short = 'f', long)]
    follow: bool,

    /// Print only the last LINES lines, and what follows with -f
    #[arg(short = 'n', long, value_name = "LINES", default_value = "all", value_parser = crate::options::lines)]
    tail: TailLines,

    /// The cell's number or name, as in `pando ps`
    #[arg(value_name = "CELL", value_parser = crate::options::cell, add = ArgValueCandidates::new(completion::all_cells))]
    cell: String,
}

/// Options of `pando kill`.
#[derive(Debug, Args)]
pub(crate) struct KillOptions {
    /// The signal to send, by name or number: TERM, SIGTERM, 15; the program cannot catch KILL
    #[arg(short = 's', long, default_value = "KILL")]
    signal: Signal,

    /// Remove the cell and its output, too
    #[arg(long)]
    rm: bool,

    /// The cells' numbers or names, as in `pando ps`
    #[arg(value_name = "CELL", value_parser = crate::options::cell, required = true, add = ArgValueCandidates::new(completion::cells))]
    cells: Vec<String>,
}

/// Options of `pando sleep` and `pando wake`.
#[derive(Debug, Args)]
pub(crate) struct SleepOptions {
    /// The cells' numbers or names, as in `pando ps`
    #[arg(value_name = "CELL", value_parser = crate::options::cell, required = true, add = ArgValueCandidates::new(completion::cells))]
    cells: Vec<String>,
}

/// Options of `pando ps`.
#[derive(Clone, Debug)]
pub(crate) struct PsOptions {
    /// Include cells that have ended.
    pub(crate) all: bool,
    /// Print only the numbers.
    pub(crate) quiet: bool,
    /// Print nested cells below their parents.
    pub(crate) tree: bool,
    /// Print an object of JSON for each cell of the service.
    pub(crate) json: bool,
    /// The labels that cells must have, and their values if they matter.
    pub(crate) filters: Vec<(String, Option<String>)>,
    /// Print only cells in this state.
    pub(crate) state: Option<CellState>,
    /// Print at most this many.
    pub(crate) limit: Option<usize>,
}

impl PsOptions {
    fn contains(&self, cell: &api::Cell) -> bool {
        let has = |(name, value): &(String, Option<String>)| {
            cell.labels.get(name).is_some_and(|own| value.as_ref().is_none_or(|value| own == value))
        };
        let is_wanted = self.state.map_or(self.all || cell.outcome.is_none(), |state| cell.state == state);
        is_wanted && self.filters.iter().all(has)
    }

    /// Prints a cell.
    fn print(&self, cell: &api::Cell, out: &mut impl Write) -> std::io::Result<()> {
        if self.quiet {
            return writeln!(out, "{}", cell.id);
        }
        if self.json {
            return writeln!(out, "{}", serde_json::to_string(cell)?);
        }
        Row::of(cell).print(out)?;
        cell.descendants.iter().try_for_each(|nested| Row::of_nested(nested).print(out))
    }
}

/// A line of the list of cells.
#[derive(Default)]
struct Row {
    cell: String,
    name: String,
    source: String,
    arguments: String,
    memory: String,
    cpu: String,
    age: String,
    state: String,
    ports: String,
}

/// Lists the cells.
///
/// # Errors
/// No server runs.
pub(crate) fn ps(listing: &PsOptions) -> Result<u8, Failure> {
    let mut out = std::io::stdout().lock();
    let mut left = listing.limit.unwrap_or(usize::MAX);
    let mut has_head = listing.quiet || listing.json;
    // Cells that the service does not select may precede the first ones.
    let is_selected_there = listing.filters.is_empty() && (listing.state.is_some() || listing.all);
    let page = if is_selected_there { left } else { usize::MAX };
    visit_cells(listing.tree, listing.state, page, |cell| {
        if !std::mem::replace(&mut has_head, true) {
            Row::head().print(&mut out)?;
        }
        if left > 0 && listing.contains(&cell) {
            left -= 1;
            listing.print(&cell, &mut out)?;
        }
        Ok(left > 0)
    })?;
    if !has_head {
        Row::head().print(&mut out)?;
    }
    Ok(0)
}

impl Row {
    fn head() -> Row {
        let [cell, name, source, arguments, memory, cpu, age, state, ports] =
            ["CELL", "NAME", "SOURCE", "ARGUMENTS", "MEMORY", "CPU", "AGE", "STATE", "PORTS"].map(String::from);
        Row { cell, name, source, arguments, memory, cpu, age, state, ports }
    }

    /// A cell of the service.
    fn of(cell: &api::Cell) -> Row {
        let ports: Vec<String> = cell.ports.iter().map(|port| format!("{}->{}/{}", port.host, port.cell, port.protocol)).collect();
        Row {
            cell: cell.id.to_string(),
            name: cell.name.clone(),
            source: table::shortened(&escaped(cell.source()), SOURCE_WIDTH),
            arguments: table::shortened(&escaped(cell.arguments.join(" ")), ARGUMENTS_WIDTH),
            memory: HumanBytes(cell.memory_bytes).to_string(),
            cpu: format!("{:.2}s", cell.cpu_seconds),
            age: age(cell.started).to_string(),
            state: match (&cell.outcome, cell.restarts) {
                (Some(outcome), _) => escaped(&outcome.message),
                (None, _) if cell.state != CellState::Running => cell.state.to_string(),
                (None, 0) => "running".into(),
                (None, restarts) => format!("running (restart {restarts})"),
            },
            ports: ports.join(", "),
        }
    }

    /// A nested cell. Its name comes from the cell around it.
    fn of_nested(nested: &api::Descendant) -> Row {
        let state = match nested.state {
            DescendantState::New => "new",
            DescendantState::Running => "running",
            DescendantState::Frozen => "frozen",
            DescendantState::Halted => "halted",
            DescendantState::Ended => "ended",
        };
        Row {
            name: format!("{:indent$}{}", "", escaped(&nested.name), indent = 2 * nested.depth as usize),
            memory: HumanBytes(nested.memory_bytes).to_string(),
            cpu: format!("{:.2}s", nested.cpu_seconds),
            state: state.into(),
            ..Row::default()
        }
    }

    fn print(&self, out: &mut impl Write) -> std::io::Result<()> {
        let Row { cell, name, source, arguments, memory, cpu, age, state, ports } = self;
        let line = format!(
            "{cell:>6}  {name:<16} {source:<SOURCE_WIDTH$} {arguments:<ARGUMENTS_WIDTH$} {memory:>10} {cpu:>9}  {age:<14} {state:<10} {ports}"
        );
        writeln!(out, "{}", line.trim_end())
    }
}

/// Prints a cell's output.
///
/// # Errors
/// There is no such cell, or no server runs.
pub(crate) fn logs(options: &LogsOptions) -> Result<u8, Failure> {
    let client = Client::find_or_fail()?;
    let tail = options.tail.0.map_or_else(String::new, |lines| format!("&tail={lines}"));
    let path = format!("/v1/cells/{}/output?follow={}{tail}", options.cell, options.follow);
    wait_for(client.follow(&path, async |piece| print(&piece).await))?;
    Ok(0)
}

/// Terminates cells.
///
/// # Errors
/// No server runs.
pub(crate) fn kill(options: &KillOptions) -> Result<u8, Failure> {
    each(&options.cells, false, async |client: &Client, cell: &str| {
        client.request::<()>(Method::POST, &format!("/v1/cells/{cell}/kill?signal={}", options.signal), &()).await?;
        if options.rm {
            client.request::<()>(Method::DELETE, &format!("/v1/cells/{cell}"), &()).await?;
        }
        Ok(())
    })
}

/// Puts cells to sleep.
///
/// # Errors
/// There is no such cell, one does not wait or cannot sleep, or no server runs.
pub(crate) fn sleep(options: &SleepOptions) -> Result<u8, Failure> {
    ask_each(&options.cells, "sleep")
}

/// Wakes cells up.
///
/// # Errors
/// There is no such cell, one has ended, or no server runs.
pub(crate) fn wake(options: &SleepOptions) -> Result<u8, Failure> {
    ask_each(&options.cells, "wake")
}

/// Makes a request without a body for each cell.
fn ask_each(cells: &[String], action: &str) -> Result<u8, Failure> {
    let client = Client::find_or_fail()?;
    wait_for(async {
        for cell in cells {
            client.request::<()>(Method::POST, &format!("/v1/cells/{cell}/{action}"), &()).await?;
        }
        Ok(0)
    })
}

/// Prints the server's state, or a cell's usage.
///
/// # Errors
/// There is no such cell, or no server runs.
pub(crate) fn stats(cell: Option<&str>, json: bool) -> Result<u8, Failure> {
    let client = Client::find_or_fail()?;
    let path = cell.map_or("/v1".into(), |cell| format!("/v1/cells/{cell}"));
    let values: serde_json::Value = wait_for(client.get(&path))?;
    let mut out = std::io::stdout().lock();
    if json {
        writeln!(out, "{values}")?;
    } else {
        print_values(&mut out, "", &values)?;
    }
    Ok(0)
}

/// Creates a template from a cell.
///
/// # Errors
/// The cell cannot be frozen, or no server runs.
pub(crate) fn freeze(cell: &str, name: &TemplateName, force: bool, replace: bool) -> Result<u8, Failure> {
    let client = Client::find_or_fail()?;
    // Checks that the server stores it where this process looks for it.
    client.server()?;
    let request = api::Freeze { name: name.to_string(), force, replace };
    let made: api::Template = wait_for(client.request(Method::POST, &format!("/v1/cells/{cell}/freeze"), &request))?;
    if made.forced {
        diagnostics::print_notice(&format_args!(
            "template `{name}`: random numbers that its programs generate themselves may be the same in all clones; those of the kernel are distinct"
        ));
    }
    Ok(0)
}

/// The time since a moment.
fn age(since: Timestamp) -> HumanDuration {
    HumanDuration(Duration::try_from(Timestamp::now().duration_since(since)).unwrap_or_default())
}

/// Prints one line for each value.
fn print_values(out: &mut impl Write, indent: &str, values: &serde_json::Value) -> std::io::Result<()> {
    for (name, value) in values.as_object().into_iter().flatten() {
        let label = name.replace('_', " ");
        match value {
            serde_json::Value::Object(_) => {
                writeln!(out, "{indent}{label}")?;
                print_values(out, "  ", value)?;
            }
            // In whole seconds: the fraction says nothing to people.
            serde_json::Value::String(text)
                if name == "started"
                    && let Ok(time) = text.parse() =>
            {
                writeln!(out, "{indent}{label:<16} {} ago ({time:.0})", age(time))?;
            }
            serde_json::Value::String(text) => writeln!(out, "{indent}{label:<16} {}", escaped(text))?,
            serde_json::Value::Null => {}
            value => match (value.as_u64(), label.strip_suffix(" bytes")) {
                (Some(bytes), Some(what)) => writeln!(out, "{indent}{what:<16} {}", HumanBytes(bytes))?,
                _ => writeln!(out, "{indent}{label:<16} {value}")?,
            },
        }
    }
    Ok(())
}

/// Prints a piece of a cell's output, and how many bytes before it are missing.
pub(super) async fn print(piece: &api::Piece) -> Result<(), Failure> {
    match piece {
        api::Piece::Output { stream, data, dropped_bytes, .. } => {
            if *dropped_bytes > 0 {
                diagnostics::print_notice(&format_args!(
                    "{dropped_bytes} bytes of earlier output are missing: the service keeps the last MiB, or as much as --output-limit allows"
                ));
            }
            show(*stream, data).await
        }
        api::Piece::Ended { .. } => Ok(()),
    }
}

/// Prints output. Waits for a slow reader without blocking other tasks of this thread.
///
/// # Errors
/// The stream cannot be written.
pub(super) async fn show(stream: Source, data: &api::TextOrBytes) -> Result<(), Failure> {
    let bytes = data.bytes().unwrap_or_default();
    let written = match stream {
        Source::Stdout => write(tokio::io::stdout(), &bytes).await,
        Source::Stderr => write(tokio::io::stderr(), &bytes).await,
        Source::Notes => Ok(()),
    };
    written.map_err(Failure::Output)
}

async fn write(mut out: impl AsyncWrite + Unpin, bytes: &[u8]) -> std::io::Result<()> {
    out.write_all(bytes).await?;
    out.flush().await
}
