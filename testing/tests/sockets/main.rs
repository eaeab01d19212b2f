// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sockets compared with Linux: the same random operations on sockets of the libOS and of the host must give the same answers.

mod compare;
mod operation;
mod sharing;

use compare::ComparedSockets;
use operation::operations;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

fn config() -> ProptestConfig {
    // The same cases each time; random ones in long runs.
    let (cases, rng_seed) =
        if std::env::var("PANDO_TESTS").as_deref() == Ok("all") { (4096, RngSeed::Random) } else { (96, RngSeed::Fixed(6)) };
    ProptestConfig { cases, rng_seed, failure_persistence: None, max_shrink_iters: 300, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn sockets_answer_as_linux_s(operations in operations()) {
        let mut trees = ComparedSockets::default();
        for (index, operation) in operations.iter().enumerate() {
            let (ours, theirs) = trees.perform(operation);
            prop_assert_eq!(ours, theirs, "{}: {:?} of {:?}", index, operation, operations);
        }
    }
}
