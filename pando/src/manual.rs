// SPDX-License-Identifier: MIT OR Apache-2.0
//! Manual pages.

use crate::cli::Cli;
use crate::failure::Failure;
use crate::help::{EXAMPLES, SIGNALS, STATUS};
use clap::CommandFactory;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use std::io::Write;

/// Prints the manual page of a command, or of Pando as a whole.
pub(crate) fn print(command: Option<&str>) -> Result<u8, Failure> {
    let page = page(command).ok_or_else(|| Failure::NoManual(command.unwrap_or_default().into()))?;
    std::io::stdout().write_all(&page).map_err(Failure::Output)?;
    Ok(0)
}

/// A manual page; `None` if there is no such command.
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

/// The sections that only the page of `run` has.
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
