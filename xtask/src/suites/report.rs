// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is said of a suite that was run.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::kept::Found;
use super::{CELL_PATIENCE, Unit, Verdict};

/// Results, with the causes that are known.
pub(super) struct Report<'a> {
    found: &'a Found,
    causes: BTreeMap<&'a str, &'a str>,
}

impl<'a> Report<'a> {
    /// `causes`: lines of `NAME -- CAUSE`.
    pub(super) fn new(found: &'a Found, causes: &'a str) -> Report<'a> {
        Report { found, causes: causes.lines().filter_map(|line| line.split_once(" -- ")).collect() }
    }

    fn native(&self, verdict: impl Fn(&Verdict) -> bool) -> impl Iterator<Item = &Unit> {
        self.found.units.iter().filter(move |unit| verdict(&unit.native))
    }

    /// What passes natively and not in a cell.
    fn different(&self) -> impl Iterator<Item = &Unit> {
        self.native(|verdict| *verdict == Verdict::Passed).filter(|unit| unit.cell != Verdict::Passed)
    }

    /// How many differences have no known cause.
    pub(super) fn unexplained(&self) -> usize {
        self.different().filter(|unit| !self.causes.contains_key(&unit.name[..])).count()
    }

    /// One line.
    pub(super) fn summary(&self) -> String {
        let native = self.native(|verdict| *verdict == Verdict::Passed).count();
        let cell = native - self.different().count();
        format!("{cell} of {native} that pass natively pass in a cell: {:.1} %", 100.0 * cell as f64 / native.max(1) as f64)
    }

    /// The document.
    pub(super) fn document(&self, title: &str) -> String {
        let Found { limit, again, .. } = self.found;
        let mut text = format!(
            "# {title}\n\nWhat `cargo xtask suites` runs and writes: natively and in a cell on one machine, each part at most {limit} s natively and {} s in a cell.\n\n",
            CELL_PATIENCE * limit
        );
        if !again.is_empty() {
            let again: Vec<String> = again.iter().map(|(part, limit)| format!("{part} (at most {limit} s natively)")).collect();
            let _ = writeln!(text, "One whole run, and after it these again: {}.\n", again.join(", "));
        }
        let _ = writeln!(text, "**{}**", self.summary());
        let _ = writeln!(text, "\n## Not in a cell\n");
        if self.different().next().is_none() {
            let _ = writeln!(text, "None.");
        } else {
            let _ = writeln!(text, "| what | what failed | cause |\n|---|---|---|");
        }
        for unit in self.different() {
            let failed = match &unit.cell {
                Verdict::Failed(named) => named,
                _ => "took too long",
            };
            let _ = writeln!(text, "| {} | {failed} | {} |", unit.name, self.causes.get(&unit.name[..]).unwrap_or(&"not known yet"));
        }
        let mut list = |title: &str, names: Vec<String>| {
            let names = names.join(", ");
            let _ = writeln!(text, "\n## {title}\n\n{}", if names.is_empty() { "None.".into() } else { names });
        };
        let name = |unit: &Unit| unit.name.clone();
        list("Left out: fail natively", self.native(|verdict| matches!(verdict, Verdict::Failed(_))).map(name).collect());
        list("Left out: skip themselves natively", self.native(|verdict| *verdict == Verdict::Skipped).map(name).collect());
        list("Left out: take too long natively", self.native(|verdict| *verdict == Verdict::Late).map(name).collect());
        list("Pass", parts(self.found.units.iter().filter(|unit| unit.cell == Verdict::Passed)));
        text
    }
}

/// Names, those of the form `PART: TEST` as parts with the number of their tests.
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
        let found = Found { units: units.into(), limit: 60, again: vec![("five".into(), 300)] };
        let report = Report::new(&found, "# Causes\ntwo -- nobody has one");
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
