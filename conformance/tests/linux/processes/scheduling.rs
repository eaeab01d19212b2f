// SPDX-License-Identifier: MIT OR Apache-2.0
//! The order in which the threads of a cell run.

use crate::case::Case;
use crate::compile::{Linkage, program};
use pando_testing::needs_kvm;

/// On the host the number of polls depends on other processes, so the program runs in a cell only.
#[test]
fn a_thread_that_polls_for_what_another_takes_lets_it_run() {
    needs_kvm!();
    for linkage in [Linkage::GLIBC, Linkage::MUSL] {
        let outcome = Case::new(program("polling", linkage), &["polls"]).cell();
        assert_eq!((outcome.status, String::from_utf8_lossy(&outcome.output).as_ref()), (0, "few polls\n"), "{outcome:?}");
    }
}
