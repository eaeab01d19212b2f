// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files, names, locks and watches: each part of a static program gives the same results as on the host.

use crate::case::{Case, Input};
use crate::compile::{Linkage, program};
use crate::parts::{C, GLIBC, RUST, UNEXPECTED, check, check_in_directory, with_data};
use crate::{data, data_sets};
use pando_testing::needs_kvm;

parts! {
    files: "files" C ["reading", "data"];
    names_and_directories: "files" C ["names", "data"];
    descriptors: "files" C ["descriptors", "data"];
    sending_and_gathering: "files" C ["sending", "data"];
    ends_of_what_proc_shows: "ends" GLIBC ["all"];
    watches_without_unlinked_files: "unlinked" GLIBC ["all"];
}

parts_in_directory! {
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
    files_are_locked_as_wholes: "locks" "whole";
    files_are_locked_in_parts: "locks" "ranges";
    changes_are_noticed: "noticed" "changes";
    watches_come_and_go: "noticed" "watches";
    signals_are_read: "noticed" "signals";
    bytes_are_spliced: "spliced" "splices";
    files_of_memory_are_sealed: "spliced" "seals";
    reads_and_writes_have_flags: "spliced" "flags";
}

#[test]
fn standard_input() {
    let text = data::text(1 << 20);
    for bytes in [&text[..], b"", b"no newline", &[0; 5000]] {
        check("files", &C, &["input"], Input::Pipe(bytes));
    }
    check("standard", &RUST, &["input"], Input::Pipe(&text));
    let file = data_sets::sets().iter().find(|set| set.name == "text").expect("it is one of the sets");
    check("files", &C, &["input"], Input::File(&file.file));
}

#[test]
fn changes_of_a_program_stay_in_its_cell() {
    needs_kvm!();
    for linkage in C {
        let (program, directory) = with_data("files", linkage);
        let before = std::fs::read(directory.join("data")).expect("it was written");
        let outcome = Case::new(&program, &["changing", "data"]).directory(&directory).file("data").cell();
        let output = String::from_utf8_lossy(&outcome.output);
        assert!(outcome.status == 0 && output.contains("holds: ") && !output.contains(UNEXPECTED), "{}: {output}", linkage.name);
        assert!(before == std::fs::read(directory.join("data")).expect("it is still there"));
        assert!(!directory.join("moved").exists() && !directory.join("hard").exists());
    }
}

#[test]
fn a_directory_may_have_many_files() {
    check_in_directory("room", &["many", "3000"], |_| {});
}

#[test]
fn a_full_overlay_keeps_its_files_and_can_be_cleared() {
    needs_kvm!();
    let directory = tempfile::tempdir().expect("the host has room");
    let case = Case::new(program("room", Linkage::GLIBC), &["full"]).directory(directory.path()).options(&["--memory", "32M"]);
    let outcome = case.cell();
    let output = String::from_utf8_lossy(&outcome.output);
    let holds = !output.contains("DOES NOT HOLD") && output.ends_with("there was room again\n");
    assert!(outcome.status == 0 && outcome.errors.is_empty() && holds, "{}: {output}{}", outcome.status, outcome.errors);
}
