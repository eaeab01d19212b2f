// SPDX-License-Identifier: MIT OR Apache-2.0
//! The report on a suite that was run.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::results::SuiteResults;
use super::{CELL_TIMEOUT_FACTOR, Unit, Verdict};
use crate::tidy::language::LINE_COLUMNS;

/// Results, with the known causes of differences.
pub(super) struct SuiteReport<'a> {
    found: &'a SuiteResults,
    causes: BTreeMap<&'a str, &'a str>,
}

impl<'a> SuiteReport<'a> {
    /// Creates a report; `causes` has lines of `NAME -- CAUSE`.
    pub(super) fn new(found: &'a SuiteResults, causes: &'a str) -> SuiteReport<'a> {
        SuiteReport { found, causes: causes.lines().filter_map(|line| line.split_once(" -- ")).collect() }
    }

    fn native(&self, verdict: impl Fn(&Verdict) -> bool) -> impl Iterator<Item = &Unit> {
        self.found.units.iter().filter(move |unit| verdict(&unit.native))
    }

    /// The tests that pass natively and not in a cell.
    fn different(&self) -> impl Iterator<Item = &Unit> {
        self.native(|verdict| *verdict == Verdict::Passed).filter(|unit| unit.cell != Verdict::Passed)
    }

    /// The number of differences without a known cause.
    pub(super) fn unexplained(&self) -> usize {
        self.different().filter(|unit| !self.causes.contains_key(&unit.name[..])).count()
    }

    /// The report in one line.
    pub(super) fn summary(&self) -> String {
        let native = self.native(|verdict| *verdict == Verdict::Passed).count();
        let cell = native - self.different().count();
        format!("{cell} of {native} that pass natively pass in a cell: {:.1} %", 100.0 * cell as f64 / native.max(1) as f64)
    }

    /// The document in Markdown.
    pub(super) fn document(&self, title: &str) -> String {
        let SuiteResults { limit, again, .. } = self.found;
        let mut text = format!(
            "# {title}\n\n`cargo xtask suites` runs the suite natively and in a cell of one machine and writes this page. Time limits of a part: {limit} s\nnatively, {} s in a cell.\n\n",
            CELL_TIMEOUT_FACTOR * limit
        );
        if !again.is_empty() {
            let again: Vec<String> = again.iter().map(|(part, limit)| format!("{part} (at most {limit} s natively)")).collect();
            let _ = writeln!(text, "{}\n", paragraph(&format!("One whole run, and after it these again: {}.", again.join(", "))));
        }
        let _ = writeln!(text, "**{}**", self.summary());
        let _ = writeln!(text, "\n## Fail in a cell\n");
        if self.different().next().is_none() {
            let _ = writeln!(text, "None.");
        } else {
            let _ = writeln!(text, "| test | failure | cause |\n|---|---|---|");
        }
        for unit in self.different() {
            let failed = match &unit.cell {
                Verdict::Failed(named) => named,
                _ => "took too long",
            };
            let _ = writeln!(text, "| {} | {failed} | {} |", unit.name, self.causes.get(&unit.name[..]).unwrap_or(&"not known yet"));
        }
        let mut list = |title: &str, names: Vec<String>| {
            let names = paragraph(&names.join(", "));
            let _ = writeln!(text, "\n## {title}\n\n{}", if names.is_empty() { "None.".into() } else { names });
        };
        let name = |unit: &Unit| unit.name.clone();
        list("Left out: fail natively", self.native(|verdict| matches!(verdict, Verdict::Failed(_))).map(name).collect());
        list("Left out: skipped natively", self.native(|verdict| *verdict == Verdict::Skipped).map(name).collect());
        list("Left out: take too long natively", self.native(|verdict| *verdict == Verdict::Late).map(name).collect());
        list("Pass", parts(self.found.units.iter().filter(|unit| unit.cell == Verdict::Passed)));
        text
    }
}

/// Wraps a paragraph at the width of a Markdown line.
fn paragraph(text: &str) -> String {
    textwrap::fill(text, textwrap::Options::new(LINE_COLUMNS).break_words(false))
}

/// Names; those of the form `PART: TEST` are grouped by part with the number of tests.
fn parts<'a>(units: impl Iterator<Item = &'a Unit>) -> Vec<String> {
    let mut parts: Vec<(&str, usize)> = Vec::new();
    for unit in units {
        let part = unit.name.split_once(": ").map_or(&unit.name[..], |(part, _)| part);
        match parts.last_mut().filter(|(last, _)| *last == part) {
            Some((_, count)) => *count += 1,
            None => parts.push((part, 1)),
        }
    }
    parts.into_iter().map(|(part, count)| if count == 1 { part.into() } else { format!("{part} ({count} tests)") }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_counts_and_explains() {
        let unit = |name: &str, native, cell| Unit { name: name.into(), native, cell };
        let failed = || Verdict::Failed("test_a, test_b".into());
        let units = [
            unit("one", Verdict::Passed, Verdict::Passed),
            unit("two", Verdict::Passed, failed()),
            unit("three", failed(), Verdict::Skipped),
            unit("four", Verdict::Late, Verdict::Skipped),
            unit("five", Verdict::Passed, Verdict::Late),
            unit("six: a, b", Verdict::Passed, Verdict::Passed),
            unit("six: c", Verdict::Passed, Verdict::Passed),
        ];
        let found = SuiteResults { units: units.into(), limit: 60, again: vec![("five".into(), 300)] };
        let report = SuiteReport::new(&found, "# Causes\ntwo -- nobody has one");
        assert_eq!((report.summary().as_str(), report.unexplained()), ("3 of 5 that pass natively pass in a cell: 60.0 %", 1));
        let text = report.document("Numbers");
        for line in [
            "| two | test_a, test_b | nobody has one |",
            "| five | took too long | not known yet |",
            "three",
            "four",
            "one, six (2 tests)",
            "One whole run, and after it these again: five (at most 300 s natively).",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}: {text}");
        }
    }
}
