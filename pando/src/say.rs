// SPDX-License-Identifier: MIT OR Apache-2.0
//! What Pando itself says, on standard error: in colour where that is a terminal, and nobody asked for none (`NO_COLOR`).

use crate::failure::OWN_FAILURE;
use anstyle::{AnsiColor, Style};
use std::fmt::Display;
use std::process::ExitCode;

/// Says what is wrong, in one line that begins with who speaks.
pub(crate) fn problem(what: &dyn Display) {
    let style = Style::new().bold().fg_color(Some(AnsiColor::Red.into()));
    anstream::eprintln!("{style}pando:{style:#} {what}");
}

/// Prints help where it was asked for, and what is wrong with the command line otherwise.
pub(crate) fn answer(answer: &clap::Error) -> ExitCode {
    // Nobody is left to be told that this could not be written.
    let _ = answer.print();
    ExitCode::from(if answer.use_stderr() { OWN_FAILURE } else { 0 })
}
