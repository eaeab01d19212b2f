// SPDX-License-Identifier: MIT OR Apache-2.0
//! The overlay against Linux: the same random operations on an image with an overlay above it and on a directory of the host, the same answers after each,
//! and the same tree at the end.

mod export;
mod operation;
mod twins;
mod watched;

use operation::{Operation, operations, trees};
use proptest::prelude::*;
use twins::Twins;

pub(crate) fn config() -> ProptestConfig {
    let cases = if std::env::var("PANDO_TESTS").as_deref() == Ok("all") { 4096 } else { 192 };
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn the_overlay_answers_as_linux(tree in trees(), operations in operations()) {
        let mut twins = Twins::new(&tree);
        for operation in &operations {
            let (overlay, host) = twins.perform(operation);
            prop_assert_eq!(overlay, host, "{:?}", operation);
        }
        let (overlay, host) = twins.trees();
        prop_assert_eq!(overlay, host);
    }
}

#[test]
fn a_hundred_thousand_names_are_listed_once_each_while_half_of_them_go() {
    const COUNT: usize = 100_000;
    let mut twins = Twins::new(&[]);
    let mut seen = std::collections::BTreeSet::new();
    for number in 0..COUNT {
        assert_eq!(twins.overlay(&Operation::Write(format!("/{number}"), 0, 1)), Ok(()));
    }
    // A reader of a hundred names at a time, while what it has read goes, every second name of it.
    let (mut position, mut ended) = (0, false);
    while !ended {
        let names = twins.names(position, 100);
        ended = names.len() < 100;
        position = names.last().map_or(position, |(_, next)| *next);
        for (name, _) in names.into_iter().filter(|(name, _)| !name.starts_with('.')) {
            let number: usize = name.parse().expect("all names are numbers");
            assert!(seen.insert(number), "{number} is listed twice");
            if number.is_multiple_of(2) {
                assert_eq!(twins.overlay(&Operation::Unlink(format!("/{name}"))), Ok(()));
            }
        }
    }
    assert_eq!(seen.len(), COUNT);
    assert_eq!(twins.names(0, usize::MAX).len(), COUNT / 2 + 2);
}
