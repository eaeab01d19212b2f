// SPDX-License-Identifier: MIT OR Apache-2.0
//! Manual pages, and what `--help` of `run` says beside its options: both from the same tables.

use crate::cli::Cli;
use crate::failure::Failure;
use clap::CommandFactory;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use std::io::Write;

/// What `pando run` may end with.
const STATUS: [(&str, &str); 6] = [
    ("N", "the program's own"),
    ("128+N", "signal N or a fault ended it"),
    ("124", "its time was up"),
    ("125", "Pando itself failed, or did not understand its command line"),
    ("126", "the program cannot be executed"),
    ("127", "the program was not found"),
];

const SIGNALS: &str = "Ctrl-C interrupts the program; a second one within a second ends the cell. SIGTERM, SIGHUP and SIGQUIT ask the program to end, and end the cell if \
it has not done so ten seconds later, or when they come again. Under -t the program reads Ctrl-C like any other key.";

/// What can be typed, and what for.
const EXAMPLES: [(&str, &str); 3] = [
    ("pando run busybox echo hello", "a program that PATH leads to"),
    ("pando run -v data.txt -- busybox sha256sum data.txt", "a file that it may read"),
    ("seq 1000 | pando run --timeout 10s --memory 64M -- busybox sort -n", "in a pipe, with limits"),
];

/// What follows the options in `pando run --help`.
pub(crate) fn after_help() -> String {
    let examples: String = EXAMPLES.iter().map(|(line, what)| format!("  {line:<70}{what}\n")).collect();
    let statuses: String = STATUS.iter().map(|(status, what)| format!("  {status:<8}{what}\n")).collect();
    format!("Examples:\n{examples}\nSignals: {SIGNALS}\n\nExit status:\n{statuses}")
}

/// Prints the manual page of a command, or of Pando as a whole.
pub(crate) fn print(command: Option<&str>) -> Result<u8, Failure> {
    let page = page(command).ok_or_else(|| Failure::NoManual(command.unwrap_or_default().into()))?;
    std::io::stdout().write_all(&page).map_err(Failure::Output)?;
    Ok(0)
}

/// A manual page; `None`: there is no such command.
fn page(command: Option<&str>) -> Option<Vec<u8>> {
    let mut whole = Cli::command();
    whole.build();
    let subject = match command {
        None => whole,
        Some(name) => whole.find_subcommand(name)?.clone(),
    };
    let source = format!("pando {}", env!("CARGO_PKG_VERSION"));
    let man = Man::new(subject.clone()).source(source).manual("Pando");
    let mut page = Vec::new();
    let mut section = |render: &dyn Fn(&Man, &mut dyn Write) -> std::io::Result<()>| {
        render(&man, &mut page).expect("a vector can be written");
    };
    section(&|man, out| man.render_title(out));
    section(&|man, out| man.render_name_section(out));
    section(&|man, out| man.render_synopsis_section(out));
    section(&|man, out| man.render_description_section(out));
    section(&|man, out| man.render_options_section(out));
    if subject.has_subcommands() {
        section(&|man, out| man.render_subcommands_section(out));
    }
    if command == Some("run") {
        page.extend(run_sections().to_roff().into_bytes());
    }
    Some(page)
}

/// What only the page of `run` has.
fn run_sections() -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["SIGNALS"]).text([roman(SIGNALS)]);
    roff.control("SH", ["EXIT STATUS"]);
    for (status, what) in STATUS {
        roff.control("TP", []).text([bold(status)]).text([roman(what)]);
    }
    roff.control("SH", ["EXAMPLES"]);
    for (line, what) in EXAMPLES {
        roff.control("TP", []).text([bold(line)]).text([roman(what)]);
    }
    roff
}
