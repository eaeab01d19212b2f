// SPDX-License-Identifier: MIT OR Apache-2.0
//! Static programs in C (glibc and musl) and Rust, part by part: system calls give the same results as on the host.

use crate::case::{Case, Input};
use crate::compile::{Linked, program};
use crate::data;
use pando_testing::lab::is_kvm_available;
use std::path::PathBuf;

const C: [Linked; 3] = [Linked::Glibc, Linked::GlibcPie, Linked::Musl];
const GLIBC: [Linked; 1] = [Linked::Glibc];
const MUSL: [Linked; 1] = [Linked::Musl];
const RUST: [Linked; 2] = [Linked::Rust, Linked::RustPie];
/// The mark in a C program's output where the host itself deviates from the author's expectation.
const UNEXPECTED: &str = "DOES NOT HOLD";

/// Compiles a program, and puts a file called `data` next to it.
fn with_data(name: &'static str, linked: Linked) -> (PathBuf, PathBuf) {
    let program = program(name, linked);
    let directory = program.parent().expect("a program lies in a directory").to_path_buf();
    let file = directory.join("data");
    if !file.exists() {
        std::fs::write(file, data::text(200_000)).expect("the target directory can be written");
    }
    (program, directory)
}

/// Runs a part of a program, with each kind of linkage, natively and in a cell.
fn check(name: &'static str, ways: &[Linked], words: &[&str], input: Input<'_>) {
    if !is_kvm_available() {
        return;
    }
    let mut problems = Vec::new();
    for &linked in ways {
        let (program, directory) = with_data(name, linked);
        let case = Case::new(&program, words).input(input).directory(&directory).file("data");
        let native = String::from_utf8_lossy(&case.native().output).into_owned();
        assert!(!native.contains(UNEXPECTED), "{name} {words:?} on the host: {native}");
        problems.extend(case.compare().err().map(|problem| format!("{linked:?}: {problem}")));
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// Linux takes samples of these times, which are too few on a busy machine to compare the two.
#[test]
fn user_and_system_time() {
    if !is_kvm_available() {
        return;
    }
    let (program, directory) = with_data("resources", Linked::Glibc);
    let outcome = Case::new(&program, &["times"]).directory(&directory).file("data").cell();
    let output = String::from_utf8_lossy(&outcome.output);
    assert!(outcome.status == 0 && output.contains("holds") && !output.contains(UNEXPECTED), "{outcome:?}");
}

macro_rules! parts {
    ($($test:ident: $name:literal $ways:ident $words:expr;)*) => {
        $(#[test]
        fn $test() {
            check($name, &$ways, &$words, Input::Nothing);
        })*
    };
}

parts! {
    small_blocks_of_heap: "memory" C ["heap-small"];
    large_blocks_of_heap: "memory" C ["heap-large"];
    mappings: "memory" C ["mapping"];
    protections: "memory" C ["protection"];
    mappings_that_move: "memory" C ["moving"];
    where_memory_ends: "memory" C ["edges"];
    the_break: "memory" C ["break"];
    the_stack: "memory" C ["stack"];
    memory_that_is_shared: "shared" C ["protecting"];
    shared_memory_that_moves: "shared" C ["moving"];
    address_space_in_large_pieces: "reserving" C ["reserving"];
    advice_on_memory: "reserving" C ["advising"];
    stacks_that_grow_with_their_limit: "reserving" C ["deepening"];
    what_a_program_starts_with: "reserving" C ["started", "word"];
    files: "files" C ["reading", "data"];
    names_and_directories: "files" C ["names", "data"];
    descriptors: "files" C ["descriptors", "data"];
    sending_and_gathering: "files" C ["sending", "data"];
    clocks: "system" C ["clocks"];
    identity: "system" C ["identity"];
    without_fsetid: "capable" GLIBC ["fsetid"];
    without_ipc_owner: "capable" GLIBC ["ipc-owner"];
    without_sys_ptrace: "capable" GLIBC ["ptrace"];
    without_sys_admin: "capable" GLIBC ["admin"];
    without_sys_resource: "capable" GLIBC ["resource"];
    without_ipc_lock: "capable" GLIBC ["ipc-lock"];
    tables_of_sockets: "listed" GLIBC ["all"];
    ends_of_what_proc_shows: "ends" GLIBC ["all"];
    arguments_and_capabilities_of_what_is_refused: "refused" GLIBC ["all"];
    memory_at_its_peak: "peak" GLIBC ["all"];
    watches_without_unlinked_files: "unlinked" GLIBC ["all"];
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
    handlers_of_signals: "signals" C ["handlers"];
    masks_of_signals: "signals" C ["masks"];
    waiting_for_signals: "signals" C ["waiting"];
    signals_that_queue: "signals" C ["queueing"];
    calls_that_signals_interrupt: "signals" C ["interrupted"];
    faults_that_handlers_see: "contexts" C ["faults"];
    registers_around_handlers: "contexts" C ["registers"];
    vector_registers_around_handlers: "contexts" C ["vectors"];
    alternate_stacks: "contexts" C ["stacks"];
    frames_that_programs_forge: "contexts" C ["forged"];
    timers_of_the_process: "timers" C ["intervals"];
    timers_that_programs_create: "timers" C ["created"];
    time_that_programs_run: "timers" C ["running"];
    standard_streams_that_are_no_terminals: "system" C ["terminal"];
    formats_and_buffers: "compute" C ["formats"];
    floating_point: "compute" C ["floats"];
    vector_registers: "compute" C ["vectors"];
    long_jumps: "compute" C ["jumps"];
    strings_and_sorting: "compute" C ["strings"];
    functions_at_exit: "compute" C ["leaving", "200"];
    memory_by_keys: "ipc" C ["segments"];
    semaphores_by_keys: "ipc" C ["semaphores"];
    messages_by_keys: "ipc" C ["messages"];
    who_may_use_what_has_keys: "ipc" GLIBC ["permissions"];
    what_has_keys_is_listed: "ipc" GLIBC ["limits"];
    processes_that_are_files: "pidfds" C ["ending"];
    signals_to_processes_that_are_files: "pidfds" C ["sending"];
    children_that_are_files: "pidfds" C ["cloning"];
    sequences_are_registered: "sequences" MUSL ["registering"];
    sequences_are_interrupted: "sequences" MUSL ["interrupting"];
    sequences_that_make_no_sense: "sequences" MUSL ["wrong"];
    locks_that_waiters_are_given: "requeued" C ["requeued"];
    waiting_that_gives_others_a_turn: "requeued" C ["slack"];
    time_that_others_run: "timers" C ["parked"];
    queues_with_names: "queues" C ["opening"];
    queues_that_are_waited_for: "queues" C ["waiting"];
    children_that_have_ended_neither_stop_nor_go_on: "processes" C ["waiting"];
    orphans_go_to_who_asked_for_them: "processes" C ["reaping"];
    threads_are_who_they_became: "processes" C ["identities"];
    files_are_asked_for_as_another: "processes" C ["files"];
    root_without_a_capability_is_refused: "processes" C ["powerless"];
    signals_go_to_threads_by_their_numbers: "processes" C ["naming"];
    policies_that_children_do_not_keep: "processes" C ["scheduling"];
    processes_that_use_the_cpu_too_long: "processes" GLIBC ["limited"];
    memory_that_was_used: "processes" C ["used"];
    pipes_that_break_tell_so: "exchanges" C ["broken"];
    what_cannot_be_spliced_is_refused: "exchanges" C ["spliced"];
    messages_are_told_by_signals_and_threads: "exchanges" C ["notified"];
    who_waits_exclusively_is_woken_alone: "exchanges" C ["exclusive"];
    senders_are_told_to_who_asks: "exchanges" C ["senders"];
    datagrams_are_put_together: "exchanges" C ["corked"];
    what_reaches_nobody: "exchanges" C ["nobody"];
    lines_that_nobody_reads_wait: "exchanges" C ["lines"];
    writers_go_on_when_input_is_dropped: "exchanges" C ["flushed"];
    segments_that_are_detached_are_out_of_reach: "attached" C ["detached"];
    shared_memory_that_was_unmapped_is_out_of_reach: "attached" C ["unmapped"];
    segments_are_found_among_many: "attached" C ["many"];
    mappings_grow_down: "attached" C ["growing"];
    files_that_grow_no_further: "bounds" C ["files"];
    memory_that_there_may_be_no_more_of: "bounds" C ["memory"];
    memory_that_children_do_not_get: "bounds" C ["given"];
    arguments_of_new_processes: "bounds" C ["cloning"];
    arguments_of_words_that_are_waited_on: "bounds" C ["words"];
    arguments_of_what_is_refused: "bounds" C ["refused"];
    memory_that_is_not_kept: "bounds" C ["kept"];
    rust_collections: "standard" RUST ["collections"];
    rust_files: "standard" RUST ["files", "data"];
    rust_clocks: "standard" RUST ["clocks"];
    rust_panics: "standard" RUST ["panic"];
    rust_exits: "standard" RUST ["exit", "9"];
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
fn standard_input() {
    let text = data::text(1 << 20);
    for bytes in [&text[..], b"", b"no newline", &[0; 5000]] {
        check("files", &C, &["input"], Input::Pipe(bytes));
    }
    check("standard", &RUST, &["input"], Input::Pipe(&text));
    let file = data::sets().iter().find(|set| set.name == "text").expect("it is one of the sets");
    check("files", &C, &["input"], Input::File(&file.file));
}

#[test]
fn what_a_program_changes_stays_in_its_cell() {
    if !is_kvm_available() {
        return;
    }
    for linked in C {
        let (program, directory) = with_data("files", linked);
        let before = std::fs::read(directory.join("data")).expect("it was written");
        let outcome = Case::new(&program, &["changing", "data"]).directory(&directory).file("data").cell();
        let output = String::from_utf8_lossy(&outcome.output);
        assert!(outcome.status == 0 && output.contains("holds: ") && !output.contains(UNEXPECTED), "{linked:?}: {output}");
        assert!(before == std::fs::read(directory.join("data")).expect("it is still there"));
        assert!(!directory.join("moved").exists() && !directory.join("hard").exists());
    }
}

#[test]
fn a_second_thread_runs() {
    if is_kvm_available() {
        let outcome = Case::new(program("standard", Linked::Rust), &["thread"]).cell();
        assert_eq!((outcome.status, &outcome.output[..], &outcome.errors[..]), (0, &b"Some(42)\n"[..], ""));
    }
}

#[test]
fn the_clock_is_that_of_the_host() {
    if !is_kvm_available() {
        return;
    }
    let now = || std::time::UNIX_EPOCH.elapsed().expect("the clock is set").as_secs();
    let before = now();
    let outcome = Case::new("busybox", &["date", "+%s"]).cell();
    let after = now();
    let shown: u64 = String::from_utf8_lossy(&outcome.output).trim().parse().expect("a number of seconds");
    // A tolerance of one second: the clocks are read at different places.
    assert!((before - 1..=after + 1).contains(&shown), "{before} {shown} {after}");
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
