// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ends of programs: the exit status is the host's, and one line reports a fault or an exceeded limit.

use crate::case::{Case, CaseOutcome};
use crate::compile::{Linkage, program};
use pando_testing::lab::is_kvm_available;
use pando_testing::needs_kvm;

/// Runs `die` in a cell and on the host: the same status and output. Returns the cell's outcome.
fn dies(words: &[&str]) -> CaseOutcome {
    let case = Case::new(program("die", Linkage::GLIBC), words);
    let (native, cell) = (case.native(), case.cell());
    assert_eq!(native.status, cell.status, "{words:?}: {}", cell.errors);
    assert_eq!(native.output, cell.output, "{words:?}");
    cell
}

/// Checks that standard error is one line with these words. If the instruction itself is at fault, the line names no other address.
fn assert_output(outcome: &CaseOutcome, wanted: &[&str]) {
    let errors = &outcome.errors;
    assert!(errors.starts_with("pando: ") && errors.ends_with('\n') && errors.lines().count() == 1, "{errors:?}");
    assert!(wanted.iter().all(|word| errors.contains(word)), "{errors:?} lacks one of {wanted:?}");
    assert!(!wanted.contains(&"instruction at 0x") || !errors.contains("touched"), "{errors:?}");
}

/// Checks a death by a signal, natively and in a cell, reported in a line with these words.
fn check(words: &[&str], status: i32, wanted: &[&str]) {
    needs_kvm!();
    let outcome = dies(words);
    assert_eq!(outcome.status, status, "{words:?}");
    assert_output(&outcome, wanted);
}

#[test]
fn segmentation_faults_name_the_address() {
    check(&["touch", "0"], 139, &["SIGSEGV", "address 0x0 "]);
    check(&["touch", "deadbeef000"], 139, &["SIGSEGV", "address 0xdeadbeef000 "]);
    check(&["look", "ffffffff81000000"], 139, &["SIGSEGV", "0xffffffff81000000 "]);
    check(&["look", "dead000000000000"], 139, &["SIGSEGV", "instruction at 0x"]);
    check(&["jump", "1234567000"], 139, &["SIGSEGV", "0x1234567000"]);
    check(&["jump", "0"], 139, &["SIGSEGV"]);
    check(&["beyond"], 139, &["SIGSEGV", "address 0x"]);
    check(&["unaligned"], 139, &["SIGSEGV", "instruction at 0x"]);
}

#[test]
fn permissions_are_kept() {
    check(&["write-code"], 139, &["SIGSEGV", "address 0x"]);
    check(&["run-data"], 139, &["SIGSEGV", "instruction at 0x"]);
    // The address of the root image in a cell.
    check(&["touch", "7e8000000000"], 139, &["SIGSEGV", "0x7e8000000000"]);
}

#[test]
fn privileged_instructions_end_the_program() {
    check(&["privileged"], 139, &["SIGSEGV", "instruction at 0x"]);
    check(&["port"], 139, &["SIGSEGV", "instruction at 0x"]);
}

#[test]
fn arithmetic_and_illegal_instructions() {
    check(&["divide"], 136, &["SIGFPE", "instruction at 0x"]);
    check(&["float-divide"], 136, &["SIGFPE", "instruction at 0x"]);
    check(&["illegal"], 132, &["SIGILL", "instruction at 0x"]);
    check(&["breakpoint"], 133, &["SIGTRAP", "instruction at 0x"]);
}

#[test]
fn stack_overflow() {
    check(&["overflow"], 139, &["SIGSEGV", "address 0x"]);
}

#[test]
fn aborts_and_signals_to_oneself() {
    check(&["abort"], 134, &["SIGABRT"]);
    for (signal, status, name) in
        [("1", 129, "SIGHUP"), ("2", 130, "SIGINT"), ("9", 137, "SIGKILL"), ("15", 143, "SIGTERM"), ("34", 162, "34")]
    {
        check(&["raise", signal], status, &[name]);
    }
    if is_kvm_available() {
        assert_eq!(dies(&["raise", "17"]).status, 0, "a signal that is ignored by default");
        assert_eq!(dies(&["raise", "13"]).errors, "", "a broken pipe is not reported");
        assert_eq!(Case::new(program("standard", Linkage::RUST), &["abort"]).cell().status, 134);
    }
}

#[test]
fn exit_statuses_from_0_to_255() {
    needs_kvm!();
    let all = std::env::var("PANDO_TESTS").as_deref() == Ok("all");
    let statuses =
        (0..=255).filter(|status| all || [0, 1, 2, 7, 42, 77, 100, 124, 125, 126, 127, 128, 137, 139, 254, 255].contains(status));
    for status in statuses {
        let outcome = dies(&["leave", &status.to_string()]);
        assert_eq!((outcome.status, &outcome.errors[..]), (status, ""));
    }
    assert_eq!(dies(&["leave", "256"]).status, 0);
    assert_eq!(dies(&["leave", "-1"]).status, 255);
}

#[test]
fn time_limits_end_whatever_the_program_does() {
    needs_kvm!();
    let die = program("die", Linkage::GLIBC);
    for words in [["spin"], ["pause"]] {
        let outcome = Case::new(&die, &words).options(&["--timeout", "300ms"]).cell();
        assert_eq!((outcome.status, &outcome.output[..]), (124, &b"before the end\n"[..]));
        assert_output(&outcome, &["time"]);
    }
    let outcome = Case::new("busybox", &["sleep", "1000"]).options(&["--timeout", "0.3"]).cell();
    assert_eq!(outcome.status, 124);
    for limit in ["1h", "10000000000000000000"] {
        let outcome = Case::new("busybox", &["true"]).options(&["--timeout", limit]).cell();
        assert_eq!((outcome.status, &outcome.errors[..]), (0, ""), "a program that ends in time is unaffected");
    }
}

#[test]
fn memory_limits_hold() {
    needs_kvm!();
    let outcome = Case::new(program("die", Linkage::GLIBC), &["hoard"]).options(&["--memory", "16M"]).cell();
    if outcome.status != 77 {
        assert_eq!(outcome.status, 137, "{outcome:?}");
        assert_output(&outcome, &["memory", "quota"]);
    }
    for linkage in [Linkage::GLIBC, Linkage::MUSL] {
        let outcome = Case::new(program("memory", linkage), &["exhaust"]).options(&["--memory", "16M"]).cell();
        match outcome.status {
            // `malloc` failed after most of the memory was allocated, and the program continued.
            0 => {
                let output = String::from_utf8_lossy(&outcome.output);
                let blocks = output.lines().find_map(|line| line.parse::<u32>().ok());
                assert!(blocks.is_some_and(|blocks| (8..16).contains(&blocks)) && !output.contains("DOES NOT"), "{output}");
            }
            137 => assert_output(&outcome, &["memory", "quota"]),
            _ => panic!("{}: {outcome:?}", linkage.name),
        }
    }
    let outcome = Case::new(program("memory", Linkage::GLIBC), &["heap-small"]).options(&["--memory", "64M"]).cell();
    assert_eq!((outcome.status, &outcome.errors[..]), (0, ""), "a program that needs less is unaffected");
}

#[test]
fn a_program_that_makes_a_mess_of_its_signals_ends_by_one() {
    needs_kvm!();
    let messes = ["nesting", "tiny", "wild", "nowhere", "outside", "restorer", "blocked", "ignored", "pointer", "return"];
    for (linkage, mess) in [Linkage::GLIBC, Linkage::MUSL].into_iter().flat_map(|linkage| messes.map(|mess| (linkage, mess))) {
        let case = Case::new(program("contexts", linkage), &["mess", mess]);
        let (native, cell) = (case.native(), case.cell());
        assert_eq!((native.status, cell.status), (139, 139), "{} {mess}: {}", linkage.name, cell.errors);
        assert_output(&cell, &["SIGSEGV"]);
    }
}
