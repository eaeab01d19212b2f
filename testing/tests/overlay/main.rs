// SPDX-License-Identifier: MIT OR Apache-2.0
//! The overlay compared with Linux: the same random operations on an image with an overlay and on a directory of the host.
//! Each must give the same answer, and the trees at the end must be equal.

mod compare;
mod export;
mod operation;
mod watched;

use compare::ComparedTrees;
use operation::{Operation, operations, trees};
use proptest::prelude::*;

pub(crate) fn config() -> ProptestConfig {
    let cases = if std::env::var("PANDO_TESTS").as_deref() == Ok("all") { 4096 } else { 192 };
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn the_overlay_answers_as_linux(tree in trees(), operations in operations()) {
        let mut trees = ComparedTrees::new(&tree);
        for operation in &operations {
            let (overlay, host) = trees.perform(operation);
            prop_assert_eq!(overlay, host, "{:?}", operation);
        }
        let (overlay, host) = trees.trees();
        prop_assert_eq!(overlay, host);
    }
}

#[test]
fn a_hundred_thousand_names_are_listed_once_each_while_half_of_them_go() {
    const COUNT: usize = 100_000;
    let mut trees = ComparedTrees::new(&[]);
    let mut seen = std::collections::BTreeSet::new();
    for number in 0..COUNT {
        assert_eq!(trees.overlay(&Operation::Write(format!("/{number}"), 0, 1)), Ok(()));
    }
    // A reader that gets a hundred names at a time, while every second name that it has read is removed.
    let (mut position, mut ended) = (0, false);
    while !ended {
        let names = trees.names(position, 100);
        ended = names.len() < 100;
        position = names.last().map_or(position, |(_, next)| *next);
        for (name, _) in names.into_iter().filter(|(name, _)| !name.starts_with('.')) {
            let number: usize = name.parse().expect("all names are numbers");
            assert!(seen.insert(number), "{number} is listed twice");
            if number.is_multiple_of(2) {
                assert_eq!(trees.overlay(&Operation::Unlink(format!("/{name}"))), Ok(()));
            }
        }
    }
    assert_eq!(seen.len(), COUNT);
    assert_eq!(trees.names(0, usize::MAX).len(), COUNT / 2 + 2);
}
