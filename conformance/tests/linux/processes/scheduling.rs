// SPDX-License-Identifier: MIT OR Apache-2.0
//! The order in which the threads of a cell run.

use crate::case::Case;
use crate::compile::{Linkage, program};
use pando_testing::needs_kvm;

/// On the host the number of polls depends on other processes, so the program runs in a cell only.
#[test]
fn a_thread_that_polls_for_what_another_takes_lets_it_run() {
    needs_kvm!();
    let calls = ["poll", "epoll_wait", "epoll_pwait2"];
    for (linkage, call) in [Linkage::GLIBC, Linkage::MUSL].into_iter().flat_map(|linkage| calls.map(|call| (linkage, call))) {
        let outcome = Case::new(program("polling", linkage), &[call]).cell();
        assert_eq!((outcome.status, String::from_utf8_lossy(&outcome.output).as_ref()), (0, "few polls\n"), "{call}: {outcome:?}");
    }
}
