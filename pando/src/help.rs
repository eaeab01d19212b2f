// SPDX-License-Identifier: MIT OR Apache-2.0
//! The parts of `pando run --help` and of its manual page that follow the options.

/// The exit statuses of `pando run`.
pub(crate) const STATUS: [(&str, &str); 6] = [
    ("N", "the program's own"),
    ("128+N", "signal N or a fault ended it"),
    ("124", "its time limit expired"),
    ("125", "Pando itself failed, could not write a file back, or did not understand its command line"),
    ("126", "the program cannot be executed"),
    ("127", "the program was not found"),
];

/// The handling of signals.
pub(crate) const SIGNALS: &str = "Ctrl-C interrupts the program; a second one within a second ends the cell. SIGTERM, SIGHUP and SIGQUIT ask the program to end, and end the cell if \
it has not done so ten seconds later, or when they come again. Under -t the program reads Ctrl-C like any other key.";

/// Example command lines and their purposes.
pub(crate) const EXAMPLES: [(&str, &str); 8] = [
    ("pando run echo hello", "a program in PATH"),
    ("pando run -v data.txt -- sha256sum data.txt", "a file that it may read"),
    ("seq 1000 | pando run -v .:$PWD -- tee numbers", "the current directory, writable"),
    ("pando run -t bash", "a program at the terminal"),
    ("pando run --strace ls", "its system calls"),
    ("pando run -p 8080:80 -- python3 -m http.server 80", "a server, published at 127.0.0.1:8080"),
    ("pando run --allow '*.debian.org:443' -- curl https://www.debian.org", "a client that may reach one destination"),
    ("seq 1000 | pando run --timeout 10s --memory 64M -- sort -n", "in a pipe, with limits"),
];

/// The text after the options in `pando run --help`.
pub(crate) fn after_help() -> String {
    let examples: String = EXAMPLES.iter().map(|(line, what)| format!("  {line:<70}{what}\n")).collect();
    let statuses: String = STATUS.iter().map(|(status, what)| format!("  {status:<8}{what}\n")).collect();
    format!("Examples:\n{examples}\nSignals: {SIGNALS}\n\nExit status:\n{statuses}")
}
