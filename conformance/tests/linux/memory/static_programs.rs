// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory, mappings and shared memory: each part of a static program gives the same results as on the host.

use crate::case::Input;
use crate::parts::{C, GLIBC, check, check_in_directory};
use std::path::Path;

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
    shared_memory_that_one_process_moves: "shared" C ["remapping"];
    address_space_in_large_pieces: "reserving" C ["reserving"];
    advice_on_memory: "reserving" C ["advising"];
    stacks_that_grow_with_their_limit: "reserving" C ["deepening"];
    what_a_program_starts_with: "reserving" C ["started", "word"];
    memory_at_its_peak: "peak" GLIBC ["all"];
    segments_that_are_detached_are_out_of_reach: "attached" C ["detached"];
    shared_memory_that_was_unmapped_is_out_of_reach: "attached" C ["unmapped"];
    segments_are_found_among_many: "attached" C ["many"];
    mappings_grow_down: "attached" C ["growing"];
    mappings_that_are_left_behind: "attached" C ["left"];
}

parts_in_directory! {
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
    check_in_directory("maps", &["private", "data"], data);
}

#[test]
fn mappings_change_at_random() {
    for seed in 1..=5 {
        check_in_directory("maps", &["random", "data", &seed.to_string()], data);
    }
}
