// SPDX-License-Identifier: MIT OR Apache-2.0
//! Patched system calls are transparent to programs. Each case runs natively, in a cell, and in a cell in which every call traps.

use crate::case::{Case, CaseOutcome};
use crate::compile::{Linkage, program};
use pando_testing::lab::{is_kvm_available, repetitions};
use serde_json::Value;

/// Makes every call trap, as without patches.
const TRAP: &[&str] = &["--trap-calls"];
/// Addresses of generated code: low, where displacements reach nearly everything, and high.
const PLACES: [&str; 3] = ["20000000", "1234567000", "700000000000"];

/// Compares a part of the program `patched` with the host, with and without patches.
fn check(part: &str) {
    if is_kvm_available() {
        for linkage in [Linkage::GLIBC, Linkage::MUSL] {
            let case = Case::new(program("patched", linkage), &[part]);
            case.check();
            case.options(TRAP).check();
        }
    }
}

#[test]
fn registers_flags_and_memory_match_the_instruction() {
    check("registers");
}

#[test]
fn every_byte_of_a_patched_site_can_be_jumped_to() {
    check("into");
}

#[test]
fn a_loop_may_come_back_to_just_behind_a_call() {
    check("loops");
}

#[test]
fn sites_at_the_end_of_executable_memory() {
    check("ends");
}

#[test]
fn code_that_is_written_run_and_written_again() {
    check("written");
}

#[test]
fn a_program_may_take_all_the_room_there_is() {
    check("taken");
}

#[test]
fn single_steps_lead_through_the_programs_own_instructions() {
    check("steps");
}

#[test]
fn signals_find_the_program_in_its_own_code() {
    check("interrupted");
}

#[test]
fn instructions_behind_a_call_fault_where_they_stand() {
    check("faulting");
}

/// The numbers of trapped calls and of all calls, in a program that makes some thousands.
fn counts(options: &[&str]) -> [u64; 2] {
    let options: Vec<&str> = options.iter().copied().chain(["--stats"]).collect();
    let outcome = Case::new(program("patched", Linkage::GLIBC), &["counted", "3000"]).options(&options).cell();
    assert_eq!(outcome.status, 0, "{outcome:?}");
    ["  system call ", "system calls made"].map(|name| {
        let line = outcome.errors.lines().find(|line| line.contains(name)).unwrap_or_else(|| panic!("no {name}: {}", outcome.errors));
        line.split_whitespace().last().and_then(|word| word.parse().ok()).expect("a number")
    })
}

#[test]
fn after_a_few_times_a_call_does_not_trap_any_more() {
    if is_kvm_available() {
        let [trapped, made] = counts(&[]);
        assert!(made >= 3000 && trapped < 100, "{trapped} of {made}");
        let [trapped, made] = counts(TRAP);
        assert!(made >= 3000 && trapped == made, "{trapped} of {made}");
    }
}

/// A shell runs a program this often. Returns the number of calls that trapped.
fn traps_of_runs(count: u32) -> u64 {
    let script = format!("i=0; while [ $i -lt {count} ]; do /bin/true; i=$((i + 1)); done");
    let outcome = Case::new("/bin/sh", &["-c", &script]).options(&["--stats=json"]).cell();
    assert_eq!(outcome.status, 0, "{outcome:?}");
    let stats: Value = serde_json::from_str(outcome.errors.lines().last().expect("statistics")).expect("they are JSON");
    stats["exit_causes"]["system_call"].as_u64().expect("a number")
}

/// Each run leaves its patches to the next one. After a few runs, one call traps in each: the shell's return from the handler of the signal
/// that announces the child's end. Unwinders know it by its bytes, so it is never patched.
#[test]
fn a_program_that_runs_again_and_again_soon_traps_as_little_as_it_can() {
    if is_kvm_available() {
        let (few, many) = (traps_of_runs(20), traps_of_runs(60));
        assert!(many - few <= 40 + 4, "{few} traps in 20 runs, {many} in 60");
    }
}

/// Patches are visible only to programs that read their own code, and not with `--trap-calls`.
#[test]
fn code_that_reads_itself_sees_the_jump_unless_calls_trap() {
    if is_kvm_available() {
        let case = Case::new(program("patched", Linkage::GLIBC), &["reading"]);
        let said = |outcome: CaseOutcome| String::from_utf8_lossy(&outcome.output).into_owned();
        assert_eq!(said(case.native()), "as it was written: yes\n");
        assert_eq!(said(case.cell()), "as it was written: no\n");
        assert_eq!(said(case.options(TRAP).cell()), "as it was written: yes\n");
    }
}

#[test]
fn random_surroundings() {
    if is_kvm_available() {
        let program = program("surroundings", Linkage::GLIBC);
        for seed in 0..repetitions(1, 4, 40) {
            for place in PLACES {
                Case::new(&program, &[&seed.to_string(), "syscall", place]).check();
            }
        }
    }
}

/// `cpuid` answers differently in a cell and on the host, so only the two ways to answer it are compared.
#[test]
fn random_surroundings_of_cpuid() {
    if is_kvm_available() {
        let program = program("surroundings", Linkage::GLIBC);
        for seed in 0..repetitions(1, 2, 20) {
            for place in PLACES {
                let case = Case::new(&program, &[&seed.to_string(), "cpuid", place]);
                let said = |outcome: CaseOutcome| (outcome.status, String::from_utf8_lossy(&outcome.output).into_owned());
                let (patched, trapped) = (said(case.cell()), said(case.options(TRAP).cell()));
                let same = patched.1.lines().zip(trapped.1.lines()).take_while(|(patched, trapped)| patched == trapped).count();
                assert!(patched.0 == 0 && patched == trapped, "seed {seed} at {place}: only the first {same} lines are the same");
            }
        }
    }
}
