// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs that allocate as much as they can. They end with an error that they understand, or with the cell's quota, which
//! Pando reports in one line; nothing else fails.

use crate::case::{Case, CaseOutcome, text};
use crate::compile::{Linkage, program};
use pando_testing::needs_kvm;

const QUOTA: &str = "its memory quota is used up: give it more with --memory\n";
const TIME: &str = "its time limit expired\n";
const OUTPUT: &str = "it exceeded its output limit\n";

/// Runs a part of `bomb` in a cell with this memory limit and timeout.
fn explode(words: &[&str], memory: &str, time: &str) -> CaseOutcome {
    Case::new(program("bomb", Linkage::GLIBC), words).options(&["--memory", memory, "--timeout", time]).cell()
}

/// Whether standard error is this one line, for any program name.
fn is_only_error(outcome: &CaseOutcome, wanted: &str) -> bool {
    let errors = &outcome.errors;
    errors.starts_with("pando: ") && errors.ends_with(wanted) && errors.lines().count() == 1
}

#[test]
fn programs_that_exhaust_memory_get_errors_or_end() {
    needs_kvm!();
    for (words, stopped) in [
        (&["heap"][..], "malloc: stopped by ENOMEM\n"),
        (&["shared"], "mmap: stopped by ENOMEM\n"),
        (&["mapped", "/tmp/file"], "mmap: stopped by ENOMEM\n"),
        (&["mapped", "/dev/shm/file"], "mmap: stopped by ENOMEM\n"),
        (&["regions"], "mmap: stopped by ENOMEM\n"),
        (&["files", "/tmp"], "write: stopped by ENOSPC\n"),
        (&["files", "/dev/shm"], "write: stopped by ENOSPC\n"),
        (&["names", "/tmp"], "mkdir: stopped by ENOSPC\n"),
        (&["queued"], "sigqueue: stopped by EAGAIN\n"),
        (&["timers"], "timer_create: stopped by EAGAIN\n"),
        (&["threads"], "thread: stopped by EAGAIN\n"),
        (&["filled"], ""),
    ] {
        let outcome = explode(words, "16M", "60s");
        let ended = match outcome.status {
            0 => outcome.errors.is_empty() && text(&outcome.output) == stopped,
            137 => outcome.output.is_empty() && is_only_error(&outcome, QUOTA),
            _ => false,
        };
        assert!(ended, "{words:?}: {outcome:?}");
    }
}

#[test]
fn output_beyond_its_limit_ends_the_program_even_if_it_has_exited() {
    needs_kvm!();
    for script in ["echo 0123456789abcdef", "yes"] {
        let outcome = Case::new("sh", &["-c", script]).options(&["--output-limit", "10"]).cell();
        assert!(outcome.status == 137 && outcome.output.len() == 10 && is_only_error(&outcome, OUTPUT), "{outcome:?}");
    }
}

#[test]
fn there_are_as_many_descriptors_and_processes_as_the_limits_say() {
    needs_kvm!();
    let outcome = explode(&["descriptors"], "16M", "60s");
    assert_eq!(text(&outcome.output), "eventfd: stopped by EMFILE\nholds: last + 1 == (int)limit.rlim_cur\n", "{outcome:?}");
    let outcome = explode(&["children"], "64M", "60s");
    assert_eq!(text(&outcome.output), "fork: stopped by EAGAIN\nholds: made == limit.rlim_cur\n", "{outcome:?}");
    // The limit also holds for users other than root.
    let outcome = Case::new(program("bomb", Linkage::GLIBC), &["children", "5"]).options(&["-u", "7"]).cell();
    assert_eq!(text(&outcome.output), "fork: stopped by EAGAIN\nholds: made == limit.rlim_cur\n", "{outcome:?}");
}

#[test]
fn processes_without_end_last_as_long_as_their_time() {
    needs_kvm!();
    let outcome = explode(&["forks"], "32M", "2s");
    let is_refused = text(&outcome.output).lines().all(|line| line == "fork: stopped by EAGAIN");
    let is_ended = outcome.status == 124 && is_only_error(&outcome, TIME) || outcome.status == 137 && is_only_error(&outcome, QUOTA);
    assert!(is_refused && is_ended, "{outcome:?}");
    // A shell that cannot fork gives up; other output may interleave with its last message.
    let options = ["--memory", "32M", "--timeout", "2s"];
    let outcome = Case::new("sh", &["-c", "bomb() { bomb | bomb & bomb; }; bomb"]).options(&options).cell();
    let wanted = match outcome.status {
        2 => "Cannot fork",
        124 => TIME,
        137 => QUOTA,
        _ => panic!("{outcome:?}"),
    };
    assert!(outcome.errors.contains(wanted) && !outcome.errors.contains("libOS"), "{outcome:?}");
}
