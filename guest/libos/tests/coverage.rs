// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares `docs/system-calls.md` with the table of system calls. `UPDATE=1 cargo test -p pando-libos --test coverage` prints it anew.

use pando_libos::table::{TABLE, coverage};
use std::path::Path;
use syscalls::Sysno;

const OPENING: &str = "# Linux system calls in a cell

The system calls that the library OS serves, and how far:

- *full*: as on Linux, as far as programs in a cell can tell;
- *partial*: with the differences that the table names;
- *accepted*: succeeds without effect, for the reason that the table names;
- *refused*: always fails with an error.

Calls that are not in the table fail with `ENOSYS`, as on a Linux that does not know them. `pando run --strace` shows a
program's calls, and `--stats` counts those that are not served.

This page is printed from the table that serves the calls (`guest/libos/src/table.rs`); a test keeps both the same.

";

#[test]
fn the_coverage_table_matches_the_code() {
    let mut expected = String::from(OPENING);
    coverage(&mut expected).expect("a string takes everything");
    let committed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/system-calls.md");
    if std::env::var_os("UPDATE").is_some_and(|value| value == "1") {
        std::fs::write(&committed, &expected).expect("the document can be written");
    }
    let found = std::fs::read_to_string(&committed).unwrap_or_default();
    assert_eq!(
        found, expected,
        "docs/system-calls.md differs from the table: print it anew with UPDATE=1 cargo test -p pando-libos --test coverage"
    );
}

#[test]
fn calls_have_linux_s_names() {
    for call in TABLE {
        assert_eq!(Sysno::new(call.number.into()).map(|known| known.name()), Some(call.name()), "{}", call.number);
    }
}
