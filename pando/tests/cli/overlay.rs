// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files that programs create and change: the same results in a cell as on the host.

use crate::case::Case;
use crate::compile::{Linked, program};
use pando_testing::lab::is_kvm_available;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Runs a part of a program in a new directory, natively and in a cell.
fn check(name: &'static str, part: &'static str) {
    check_with(name, &[part], |_| {});
}

/// Runs a program in a directory that `prepare` has filled, natively and in a cell.
fn check_with(name: &'static str, words: &[&str], prepare: impl Fn(&Path)) {
    // In its cell the program is root.
    if std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() != 0) {
        println!("left out: not run as root");
        return;
    }
    if is_kvm_available()
        && let Err(problem) = Case::new(program(name, Linked::Glibc), words).compare_in(prepare)
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
    bytes_go_through_pipes: "pipes" "pipes";
    packets_go_through_pipes: "pipes" "packets";
    bytes_go_through_fifos: "pipes" "fifos";
    events_are_counted: "pipes" "events";
    files_are_waited_for: "pipes" "waiting";
    descriptors_stand_for_files: "pipes" "descriptors";
    sockets_are_pairs: "sockets" "pairs";
    sockets_are_of_kinds: "sockets" "kinds";
    sockets_have_names: "sockets" "names";
    sockets_speak_tcp: "sockets" "tcp";
    sockets_speak_tcp_over_ipv6: "sockets" "six";
    sockets_speak_udp: "sockets" "udp";
    urgent_bytes_are_beside_a_stream: "urgent" "beside";
    urgent_bytes_are_in_a_stream: "urgent" "in-line";
    sets_of_select: "urgent" "sets";
    sockets_pass_descriptors: "messages" "passing";
    sockets_send_messages: "messages" "messages";
    packets_say_where_they_were_sent: "messages" "packets";
    sockets_have_options: "messages" "options";
    sockets_are_bound_to_interfaces: "messages" "bound";
    files_are_watched_for_what_is: "watched" "level";
    files_are_watched_for_what_happens: "watched" "edge";
    watches_are_watched: "watched" "nested";
    watches_refuse_what_cannot_be_watched: "watched" "mistakes";
    watches_wait: "watched" "waits";
    timers_are_files: "watched" "timers";
    files_are_locked_as_wholes: "locks" "whole";
    files_are_locked_in_parts: "locks" "ranges";
    changes_are_noticed: "noticed" "changes";
    watches_come_and_go: "noticed" "watches";
    signals_are_read: "noticed" "signals";
    bytes_are_spliced: "spliced" "splices";
    files_of_memory_are_sealed: "spliced" "seals";
    reads_and_writes_have_flags: "spliced" "flags";
    processes_wake_each_other_by_files: "woken" "files";
    processes_wake_each_other_by_locks: "woken" "locks";
    processes_wake_each_other_by_signals: "woken" "signals";
    threads_wake_each_other_by_files: "woken" "threads";
    files_are_mapped: "maps" "private";
    mappings_are_shared: "maps" "shared";
    parts_are_mapped_again: "maps" "again";
    mappings_that_are_apart_keep_what_was_written: "maps" "apart";
}

/// Writes a file whose size is not a multiple of the page size.
fn data(at: &Path) {
    let bytes: Vec<u8> = (0..3 * 4096 + 100).map(|byte| ((byte * 7 + byte / 4096) % 251) as u8).collect();
    std::fs::write(at.join("data"), bytes).expect("it is ours");
}

#[test]
fn files_of_volumes_are_mapped() {
    check_with("maps", &["private", "data"], data);
}

#[test]
fn mappings_change_at_random() {
    for seed in 1..=5 {
        check_with("maps", &["random", "data", &seed.to_string()], data);
    }
}

#[test]
fn a_directory_may_have_many_files() {
    check_with("room", &["many", "3000"], |_| {});
}

#[test]
fn a_full_overlay_keeps_what_it_has_and_can_be_cleared() {
    if !is_kvm_available() {
        return;
    }
    let directory = tempfile::tempdir().expect("the host has room");
    let case = Case::new(program("room", Linked::Glibc), &["full"]).directory(directory.path()).options(&["--memory", "32M"]);
    let outcome = case.cell();
    let output = String::from_utf8_lossy(&outcome.output);
    let holds = !output.contains("DOES NOT HOLD") && output.ends_with("there was room again\n");
    assert!(outcome.status == 0 && outcome.errors.is_empty() && holds, "{}: {output}{}", outcome.status, outcome.errors);
}
