// SPDX-License-Identifier: MIT OR Apache-2.0
//! A clone is exactly its template, whatever its siblings do.

use crate::fixture::{CloneFixture, PYTHON, program};
use pando_machine::PageCount;
use pando_testing::lab::repetitions;

#[test]
fn a_clone_equals_its_template_and_keeps_its_changes_private() {
    let Some(mut fixture) = CloneFixture::new(PageCount(1 << 18), &[PYTHON]) else { return };
    let root = fixture.root.clone();
    let template = fixture.freeze(&root, &program(PYTHON, &["-c", include_str!("programs/same.py")]));
    // They live at the same time.
    let clones: Vec<_> = (0..repetitions(2, 4, 50)).map(|_| fixture.clone(&template, &[])).collect();
    for clone in &clones {
        assert_eq!(fixture.output_until_end(clone), "changed\n");
    }
}
