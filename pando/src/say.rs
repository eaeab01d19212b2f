// SPDX-License-Identifier: MIT OR Apache-2.0
//! What Pando itself says, on standard error: in colour where that is a terminal, and nobody asked for none (`NO_COLOR`).

use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};
use pando_image::escaped_lines;
use std::fmt::Display;
use std::io::Write;
use std::process::ExitCode;

/// Exit status of Pando's own failures, as container tools use it.
pub(crate) const OWN_FAILURE: u8 = 125;

/// Says what is wrong, in one line that begins with who speaks. Whatever names and other people's words are in it, a terminal obeys none of it.
pub(crate) fn problem(what: &dyn Display) {
    let what = escaped_lines(&without_numbers(&what.to_string()));
    let style = Style::new().bold().fg_color(Some(AnsiColor::Red.into()));
    // In one piece: the program may be speaking on the same stream.
    let line = match AutoStream::choice(&std::io::stderr()) {
        ColorChoice::Never => format!("pando: {what}\n"),
        _ => format!("{style}pando:{style:#} {what}\n"),
    };
    // Nobody is left to be told that this could not be said.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// Says what is going on.
pub(crate) fn note(what: &dyn Display) {
    // Nobody is left to be told that this could not be said.
    let _ = std::io::stderr().write_all(format!("pando: {}\n", escaped_lines(&what.to_string())).as_bytes());
}

/// The same without the system's numbers of errors, which mean nothing to people.
fn without_numbers(text: &str) -> String {
    let mut pieces = text.split(" (os error ");
    let mut plain = pieces.next().unwrap_or_default().to_owned();
    pieces.for_each(|piece| plain.push_str(piece.split_once(')').map_or("", |(_, rest)| rest)));
    plain
}

/// Prints help where it was asked for, and what is wrong with the command line otherwise.
pub(crate) fn answer(answer: &clap::Error) -> ExitCode {
    // Nobody is left to be told that this could not be written.
    let _ = answer.print();
    ExitCode::from(if answer.use_stderr() { OWN_FAILURE } else { 0 })
}

#[cfg(test)]
mod tests {
    use super::without_numbers;

    #[test]
    fn numbers_of_errors_are_left_out() {
        assert_eq!(
            without_numbers("cannot read 'a': Is a directory (os error 21); go on (os error 1)"),
            "cannot read 'a': Is a directory; go on"
        );
        assert_eq!(without_numbers("as it is"), "as it is");
    }
}
