// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `pando run --help` and its manual page say beside the options.

/// What `pando run` may end with.
pub(crate) const STATUS: [(&str, &str); 6] = [
    ("N", "the program's own"),
    ("128+N", "signal N or a fault ended it"),
    ("124", "its time was up"),
    ("125", "Pando itself failed, could not write a file back, or did not understand its command line"),
    ("126", "the program cannot be executed"),
    ("127", "the program was not found"),
];

/// Which signals reach the program, and what else they do.
pub(crate) const SIGNALS: &str = "Ctrl-C interrupts the program; a second one within a second ends the cell. SIGTERM, SIGHUP and SIGQUIT ask the program to end, and end the cell if \
it has not done so ten seconds later, or when they come again. Under -t the program reads Ctrl-C like any other key.";

/// What can be typed, and what for.
pub(crate) const EXAMPLES: [(&str, &str); 8] = [
    ("pando run echo hello", "a program that PATH leads to"),
    ("pando run -v data.txt -- sha256sum data.txt", "a file that it may read"),
    ("seq 1000 | pando run -v .:$PWD -- tee numbers", "the current directory, to be changed"),
    ("pando run -t bash", "a program at the terminal"),
    ("pando run --strace ls", "what it asks of the system"),
    ("pando run -p 8080:80 -- python3 -m http.server 80", "a server, for programs of this host at 127.0.0.1:8080"),
    ("pando run --allow '*.debian.org:443' -- curl https://www.debian.org", "a client that reaches what it needs, and nothing else"),
    ("seq 1000 | pando run --timeout 10s --memory 64M -- sort -n", "in a pipe, with limits"),
];

/// What follows the options in `pando run --help`.
pub(crate) fn after_help() -> String {
    let examples: String = EXAMPLES.iter().map(|(line, what)| format!("  {line:<70}{what}\n")).collect();
    let statuses: String = STATUS.iter().map(|(status, what)| format!("  {status:<8}{what}\n")).collect();
    format!("Examples:\n{examples}\nSignals: {SIGNALS}\n\nExit status:\n{statuses}")
}
