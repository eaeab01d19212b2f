// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parses the output of test programs and keeps count, so that no skipped test looks green.
//!
//! Test programs run with `--show-output`. A test that cannot run on this machine prints a line `left out: REASON` and
//! returns. It is then counted as left out, not as passed. All other output of passing tests is parsed but not printed.

use std::collections::{BTreeMap, BTreeSet};

/// The mark that a left-out test prints.
pub(crate) const LEFT_OUT: &str = "left out: ";

/// Lines kept of each failing test's output: its message comes before its backtrace.
const FAILURE_LINES: usize = 25;

/// Counts of one or more test programs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Tests that ran and passed.
    pub(crate) passed: usize,
    /// Tests that ran and failed, and programs that ended without a result.
    pub(crate) failed: usize,
    /// The beginning of each failing test's output.
    pub(crate) failures: Vec<String>,
    /// Test programs that gave a result.
    pub(crate) programs: usize,
    /// Left-out tests by reason: ignored, or left out by themselves.
    pub(crate) left_out: BTreeMap<String, Vec<String>>,
}

impl Tally {
    /// Adds the counts of another tally.
    pub(crate) fn add(&mut self, other: Tally) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.programs += other.programs;
        self.failures.extend(other.failures);
        for (reason, mut tests) in other.left_out {
            self.left_out.entry(reason).or_default().append(&mut tests);
        }
    }
}

/// Parts of a test program's output, in order. libtest announces the output of tests and the list of their names with the same word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    /// One line per test, as they end.
    #[default]
    Progress,
    /// The output of passing tests: none of it is libtest's, even if it looks so.
    Successes,
    /// Their names.
    PassedNames,
    /// The output of failing tests, likewise.
    Failures,
    /// Their names.
    FailedNames,
}

impl Place {
    /// The part that follows a line.
    fn after(self, line: &str) -> Place {
        match (line, self) {
            ("successes:", Place::Progress) => Place::Successes,
            ("successes:", Place::Successes) => Place::PassedNames,
            ("failures:", Place::Failures) => Place::FailedNames,
            ("failures:", Place::Progress | Place::PassedNames) => Place::Failures,
            _ => self,
        }
    }
}

/// Parses libtest's output line by line.
#[derive(Debug, Default)]
pub(crate) struct OutputParser {
    tally: Tally,
    /// The part of a program's output that the line belongs to.
    place: Place,
    /// The test whose output is being repeated, until its mark that it was left out.
    speaker: Option<String>,
    /// Tests of the present program that were left out: libtest counts them as passed.
    not_really_passed: usize,
    /// Lines that the present failing test may still add to [`Tally::failures`].
    failure_room: usize,
    /// Tests that libtest reports as slow, and that have not ended since.
    slow: BTreeSet<String>,
}

impl OutputParser {
    /// Parses a line; `true` if it should be printed.
    pub(crate) fn take_line(&mut self, line: &str) -> bool {
        let line = line.trim_end();
        let place = self.place;
        self.place = place.after(line);
        match place {
            Place::Successes => self.repeated(line),
            Place::Failures => self.failure(line),
            Place::Progress | Place::PassedNames | Place::FailedNames => match line.strip_prefix("test result: ") {
                Some(result) => self.result(result),
                None => self.progress(line),
            },
        }
        !matches!(self.place, Place::Successes | Place::PassedNames)
    }

    /// The counts so far.
    pub(crate) fn finish(self) -> Tally {
        self.tally
    }

    /// The number of test programs with a result so far.
    pub(crate) fn programs(&self) -> usize {
        self.tally.programs
    }

    /// The number of failed tests so far.
    pub(crate) fn failed(&self) -> usize {
        self.tally.failed
    }

    /// Slow tests that have not ended.
    pub(crate) fn unfinished(&self) -> Vec<String> {
        self.slow.iter().cloned().collect()
    }

    /// Counts a program or a build that ended without naming a failed test.
    pub(crate) fn fail(&mut self) {
        self.tally.failed += 1;
    }

    /// `ok. 16 passed; 1 failed; 0 ignored; 0 measured; 3 filtered out; finished in 0.13s`
    fn result(&mut self, result: &str) {
        let count = |what: &str| -> usize {
            let words: Vec<&str> = result.split([' ', ';']).filter(|word| !word.is_empty()).collect();
            words.windows(2).find(|pair| pair[1] == what).and_then(|pair| pair[0].parse().ok()).unwrap_or(0)
        };
        self.tally.programs += 1;
        self.tally.passed += count("passed").saturating_sub(self.not_really_passed);
        self.tally.failed += count("failed");
        (self.place, self.speaker, self.not_really_passed) = (Place::Progress, None, 0);
    }

    fn repeated(&mut self, line: &str) {
        if let Some(name) = line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" stdout ----")) {
            self.speaker = Some(name.to_string());
        } else if let Some(reason) = line.strip_prefix(LEFT_OUT)
            && let Some(name) = self.speaker.take()
        {
            self.not_really_passed += 1;
            self.tally.left_out.entry(reason.to_string()).or_default().push(name);
        }
    }

    fn failure(&mut self, line: &str) {
        if line.starts_with("---- ") && line.ends_with(" stdout ----") {
            self.failure_room = FAILURE_LINES;
        }
        if self.failure_room > 0 && !line.is_empty() && line != "failures:" {
            self.failure_room -= 1;
            self.tally.failures.push(line.to_string());
        }
    }

    /// `test NAME ... ok`, `test NAME ... ignored, REASON`, `test NAME has been running for over 60 seconds`
    fn progress(&mut self, line: &str) {
        let Some(line) = line.strip_prefix("test ") else { return };
        if let Some((name, _)) = line.split_once(" has been running for over") {
            self.slow.insert(name.to_string());
        } else if let Some((name, state)) = line.split_once(" ... ") {
            self.slow.remove(name);
            if let Some(reason) = state.strip_prefix("ignored") {
                let reason = reason.strip_prefix(", ").unwrap_or("ignored");
                self.tally.left_out.entry(reason.to_string()).or_default().push(name.to_string());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "
running 5 tests
test a::one ... ok
test a::two ... ok
test a::three ... FAILED
test a::four ... ignored, takes an hour
test a::five ... ok

successes:

---- a::one stdout ----
left out: no KVM
left out: no KVM
---- a::two stdout ----
chatter
test result: FAILED. 2 passed; 3 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.1s
test b ... ignored, says a test

successes:
    a::one
    a::two
    a::five

failures:

---- a::three stdout ----
left out: of a failing test this is no news
test result: ok. 7 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.1s

failures:
    a::three

test result: FAILED. 3 passed; 1 failed; 1 ignored; 0 measured; 7 filtered out; finished in 0.00s
";

    fn taken(times: usize) -> (Vec<&'static str>, Tally) {
        let mut listener = OutputParser::default();
        let lines = OUTPUT.lines().cycle().take(OUTPUT.lines().count() * times);
        let shown = lines.filter(|line| listener.take_line(line)).collect();
        (shown, listener.finish())
    }

    #[test]
    fn counts_passed_failed_and_left_out() {
        let (_, tally) = taken(1);
        assert_eq!((tally.passed, tally.failed, tally.programs), (2, 1, 1));
        let left_out: Vec<_> = tally.left_out.into_iter().collect();
        assert_eq!(left_out, [("no KVM".into(), vec!["a::one".into()]), ("takes an hour".into(), vec!["a::four".to_string()])]);
    }

    #[test]
    fn several_programs_add_up() {
        let (_, mut tally) = taken(2);
        assert_eq!((tally.passed, tally.failed, tally.programs), (4, 2, 2));
        tally.add(taken(1).1);
        assert_eq!((tally.passed, tally.failed, tally.programs), (6, 3, 3));
        assert_eq!(tally.left_out["no KVM"].len(), 3);
    }

    #[test]
    fn tests_that_do_not_end_are_known_by_name() {
        let mut listener = OutputParser::default();
        for line in ["test a has been running for over 60 seconds", "test b has been running for over 60 seconds", "test a ... ok"] {
            listener.take_line(line);
        }
        assert_eq!(listener.unfinished(), ["b"]);
    }

    #[test]
    fn the_output_of_failing_tests_is_kept_but_for_long_ends() {
        let (_, tally) = taken(1);
        assert_eq!(tally.failures[..2], ["---- a::three stdout ----", "left out: of a failing test this is no news"]);
        let mut listener = OutputParser::default();
        let long = ["failures:", "---- a stdout ----"].into_iter().chain(["more"; 100]).chain(["---- b stdout ----", "", "its message"]);
        long.for_each(|line| assert!(listener.take_line(line)));
        let kept = listener.finish().failures;
        assert_eq!((kept.len(), kept.last().map(String::as_str)), (FAILURE_LINES + 2, Some("its message")));
    }

    #[test]
    fn output_of_passing_tests_is_not_shown() {
        let (shown, _) = taken(1);
        assert!(!shown.contains(&"chatter") && shown.contains(&"---- a::three stdout ----"), "{shown:?}");
    }
}
