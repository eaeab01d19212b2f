// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sockets against Linux: the same random operations on sockets of the libOS and of the host, the same answers after each.

mod operation;
mod sharing;
mod twins;

use operation::operations;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use twins::Twins;

fn config() -> ProptestConfig {
    // The same cases each time, unless as many are wanted as there is time for.
    let (cases, rng_seed) =
        if std::env::var("PANDO_TESTS").as_deref() == Ok("all") { (4096, RngSeed::Random) } else { (96, RngSeed::Fixed(6)) };
    ProptestConfig { cases, rng_seed, failure_persistence: None, max_shrink_iters: 300, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn sockets_answer_as_linux_s(operations in operations()) {
        let mut twins = Twins::default();
        for (index, operation) in operations.iter().enumerate() {
            let (ours, theirs) = twins.perform(operation);
            prop_assert_eq!(ours, theirs, "{}: {:?} of {:?}", index, operation, operations);
        }
    }
}
