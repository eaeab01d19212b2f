// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keeps `docs/system-calls.md` in step with the table of system calls; `UPDATE=1 cargo test -p pando-libos --test coverage` prints it anew.

use pando_libos::table::{TABLE, coverage};
use std::path::Path;
use syscalls::Sysno;

const OPENING: &str = "# Linux system calls in a cell

Which system calls the library OS serves, and how far: *full* is as on Linux, as far as programs in a cell can tell; *partial* says what is missing;
*accepted* changes nothing, and says why; *refused* is always answered with an error. What is not in the table is answered with `ENOSYS`, as by a Linux
that does not know the call. `pando run --strace` shows what a program asks for, and `--stats` counts what was not there.

Printed from the table that the calls are served from (`guest/libos/src/table.rs`); a test keeps it in step.

";

#[test]
fn the_coverage_table_is_what_the_code_says() {
    let mut expected = String::from(OPENING);
    coverage(&mut expected).expect("a string takes everything");
    let committed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/system-calls.md");
    if std::env::var_os("UPDATE").is_some_and(|value| value == "1") {
        std::fs::write(&committed, &expected).expect("the document can be written");
    }
    let found = std::fs::read_to_string(&committed).unwrap_or_default();
    assert_eq!(found, expected, "out of step: print it anew with UPDATE=1 cargo test -p pando-libos --test coverage");
}

#[test]
fn calls_have_linux_s_names() {
    for call in TABLE {
        assert_eq!(Sysno::new(call.number.into()).map(|known| known.name()), Some(call.name()), "{}", call.number);
    }
}
