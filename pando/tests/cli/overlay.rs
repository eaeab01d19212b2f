// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files that programs make and change: the same answers in a cell as on the host.

use crate::case::Case;
use crate::compile::{Linked, program};
use pando_testing::lab::kvm_is_there;
use std::os::unix::fs::MetadataExt;

/// Runs a part of a program in a fresh directory, natively and in a cell.
fn check(name: &'static str, part: &'static str) {
    // In its cell the program is root.
    if std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() != 0) {
        println!("left out: not run as root");
        return;
    }
    if kvm_is_there()
        && let Err(problem) = Case::new(program(name, Linked::Glibc), &[part]).compare_in(|_| {})
    {
        panic!("{problem}");
    }
}

macro_rules! parts {
    ($($test:ident: $name:literal $part:literal;)*) => {
        $(#[test]
        fn $test() {
            check($name, $part);
        })*
    };
}

parts! {
    files_are_made: "named" "making";
    files_are_removed: "named" "removing";
    files_are_renamed: "named" "renaming";
    files_get_other_names: "named" "linking";
    files_are_written: "overlay" "writing";
    files_have_holes: "overlay" "holes";
    files_are_copied: "overlay" "copying";
    files_belong_to_somebody: "overlay" "permissions";
    files_know_when: "overlay" "times";
    files_have_attributes: "overlay" "attributes";
}
