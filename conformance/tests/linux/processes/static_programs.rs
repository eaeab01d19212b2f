// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes, their identities, limits and capabilities: each part of a static program gives the same results as on the host.

use crate::case::{Case, Input};
use crate::compile::Linkage;
use crate::parts::{C, GLIBC, RUST, UNEXPECTED, check, with_data};
use pando_testing::lab::is_kvm_available;
use pando_testing::needs_kvm;

parts! {
    clocks: "system" C ["clocks"];
    identity: "system" C ["identity"];
    without_fsetid: "capable" GLIBC ["fsetid"];
    without_ipc_owner: "capable" GLIBC ["ipc-owner"];
    without_sys_ptrace: "capable" GLIBC ["ptrace"];
    without_sys_admin: "capable" GLIBC ["admin"];
    without_sys_resource: "capable" GLIBC ["resource"];
    without_ipc_lock: "capable" GLIBC ["ipc-lock"];
    arguments_and_capabilities_of_refused_calls: "refused" GLIBC ["all"];
    priorities_and_policies: "resources" C ["scheduling"];
    limits_of_resources: "resources" C ["limits"];
    limits_of_other_processes: "resources" C ["others"];
    more_files_than_at_first: "resources" C ["many"];
    memory_that_stays: "resources" C ["memory"];
    personalities: "resources" C ["personality"];
    settings_of_the_process: "resources" C ["settings"];
    capabilities_and_children: "resources" C ["capabilities"];
    capabilities_that_are_kept: "resources" C ["kept"];
    randomness: "system" C ["randomness"];
    bookkeeping_of_signals: "system" C ["signals"];
    standard_streams_that_are_no_terminals: "system" C ["terminal"];
    processes_that_are_files: "pidfds" C ["ending"];
    signals_to_processes_that_are_files: "pidfds" C ["sending"];
    children_that_are_files: "pidfds" C ["cloning"];
    children_that_have_ended_neither_stop_nor_go_on: "processes" C ["waiting"];
    orphans_go_to_the_nearest_subreaper: "processes" C ["reaping"];
    threads_are_who_they_became: "processes" C ["identities"];
    files_are_asked_for_as_another: "processes" C ["files"];
    root_without_a_capability_is_refused: "processes" C ["powerless"];
    signals_go_to_threads_by_their_numbers: "processes" C ["naming"];
    policies_that_children_do_not_keep: "processes" C ["scheduling"];
    processes_that_use_the_cpu_too_long: "processes" GLIBC ["limited"];
    memory_that_was_used: "processes" C ["used"];
    files_that_grow_no_further: "bounds" C ["files"];
    memory_that_there_may_be_no_more_of: "bounds" C ["memory"];
    memory_that_children_do_not_get: "bounds" C ["given"];
    pages_that_a_moved_mapping_leaves_behind: "bounds" C ["left"];
    arguments_of_new_processes: "bounds" C ["cloning"];
    arguments_of_words_that_are_waited_on: "bounds" C ["words"];
    arguments_of_refused_calls: "bounds" C ["refused"];
    memory_that_is_not_kept: "bounds" C ["kept"];
}

/// Arguments that need quoting in a shell, and many arguments.
fn odd_arguments() -> Vec<String> {
    let odd = ["surroundings", "", " ", "two words", "\u{e9}\u{1f333}\u{202e}", "-v", "--", "--help", "a\nb", "\"quoted\" $HOME `x` \\"];
    odd.iter().map(ToString::to_string).chain((0..2000).map(|number| format!("argument {number}"))).chain(["x".repeat(100_000)]).collect()
}

#[test]
fn arguments_and_environment() {
    let words = odd_arguments();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    check("system", &C, &words, Input::Nothing);
    check("standard", &RUST, &words, Input::Nothing);
}

#[test]
fn a_program_knows_itself_as_the_first_process_of_root() {
    if is_kvm_available() {
        let outcome = Case::new("busybox", &["sh", "-c", "echo $$ $PPID"]).cell();
        assert_eq!(String::from_utf8_lossy(&outcome.output), "1 0\n");
        assert_eq!(Case::new("busybox", &["id", "-u"]).cell().output, b"0\n");
        let outcome = Case::new("busybox", &["uname", "-sm"]).cell();
        assert_eq!(String::from_utf8_lossy(&outcome.output), "Linux x86_64\n");
    }
}

/// Linux takes samples of these times, which are too few on a busy machine to compare the two.
#[test]
fn user_and_system_time() {
    needs_kvm!();
    let (program, directory) = with_data("resources", Linkage::GLIBC);
    let outcome = Case::new(&program, &["times"]).directory(&directory).file("data").cell();
    let output = String::from_utf8_lossy(&outcome.output);
    assert!(outcome.status == 0 && output.contains("holds") && !output.contains(UNEXPECTED), "{outcome:?}");
}
