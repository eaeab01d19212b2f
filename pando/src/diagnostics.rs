// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pando's own messages on standard error: in colour on a terminal unless `NO_COLOR` is set.

use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use pando_image::escaped_lines;
use pando_kernel::End;
use pando_manager::host;
use pando_manager::outcome::{PANDO_FAILURE_STATUS, is_chosen};
use std::ffi::OsStr;
use std::fmt::Display;
use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Prints an error in one line that starts with `pando:`. Control characters in it are escaped, so that no name affects the terminal.
pub(crate) fn print_error(what: &dyn Display) {
    let what = escaped_lines(&without_numbers(&what.to_string()));
    let style = Style::new().bold().fg_color(Some(AnsiColor::Red.into()));
    // In one write: the program may use the same stream.
    let line = match AutoStream::choice(&std::io::stderr()) {
        ColorChoice::Never => format!("pando: {what}\n"),
        _ => format!("{style}pando:{style:#} {what}\n"),
    };
    // A failure to write to standard error cannot be reported.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// Prints a notice.
pub(crate) fn print_notice(what: &dyn Display) {
    // A failure to write to standard error cannot be reported.
    let _ = std::io::stderr().write_all(format!("pando: {}\n", escaped_lines(&what.to_string())).as_bytes());
}

/// Reports an end that the program did not choose.
pub(crate) fn report_end(name: &OsStr, end: &End) {
    if is_chosen(end) {
        return;
    }
    let advice = if *end == End::Quota { ": give it more with --memory" } else { "" };
    print_error(&format_args!("{}: {end}{advice}", name.display()));
}

/// Returns a function that reports that standard input could not be read, and sets the flag.
pub(crate) fn input_reporter(unread: &Arc<AtomicBool>) -> impl FnOnce(std::io::Error) + Send + use<> {
    let unread = Arc::clone(unread);
    move |error| {
        print_error(&format_args!("cannot read standard input: {}", host::plain(&error)));
        unread.store(true, Ordering::Relaxed);
    }
}

/// Removes the numbers of system errors from a text.
fn without_numbers(text: &str) -> String {
    let mut pieces = text.split(" (os error ");
    let mut plain = pieces.next().unwrap_or_default().to_owned();
    pieces.for_each(|piece| plain.push_str(piece.split_once(')').map_or("", |(_, rest)| rest)));
    plain
}

/// Prints the requested help, or a command-line error.
pub(crate) fn print_clap_error(mut answer: clap::Error) -> ExitCode {
    replace_tip(&mut answer);
    // A failure to write cannot be reported.
    let _ = answer.print();
    ExitCode::from(if answer.use_stderr() { PANDO_FAILURE_STATUS } else { 0 })
}

/// Replaces clap's advice to write `--` before an unknown option: no command takes an option as a value, and a program's options
/// follow its name.
fn replace_tip(answer: &mut clap::Error) {
    if answer.kind() != ErrorKind::UnknownArgument || answer.remove(ContextKind::Suggested).is_none() {
        return;
    }
    let takes_program = answer.get(ContextKind::Usage).is_some_and(|usage| usage.to_string().contains("[ARGS]"));
    let unknown = answer.get(ContextKind::InvalidArg).map(ToString::to_string);
    if let (true, Some(unknown)) = (takes_program, unknown) {
        let tip = format!("options of the program follow its name: write '{unknown}' there");
        answer.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
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
