// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keeps `COVERAGE.md` in step with the table of system calls.

use std::path::Path;

use pando_libos::table::coverage;

const OPENING: &str = "# Linux system calls in a cell

Printed from `src/table.rs`; a test keeps it in step. What is not listed is answered with `ENOSYS` and counted in `pando run --stats`.

";

#[test]
fn the_coverage_table_is_what_the_code_says() {
    let mut expected = String::from(OPENING);
    coverage(&mut expected).expect("a string takes everything");
    let committed = Path::new(env!("CARGO_MANIFEST_DIR")).join("COVERAGE.md");
    if std::fs::read_to_string(&committed).unwrap_or_default() != expected {
        let printed = Path::new(env!("CARGO_TARGET_TMPDIR")).join("COVERAGE.md");
        std::fs::write(&printed, &expected).expect("the target directory can be written");
        panic!("{} is out of step: copy {} over it", committed.display(), printed.display());
    }
}
