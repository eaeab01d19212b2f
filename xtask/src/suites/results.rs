// SPDX-License-Identifier: MIT OR Apache-2.0
//! The results of a whole run of a suite, stored in the target directory, so that parts of it can be run again.

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;

use super::Unit;

const FILE: &str = "found.json";

/// The results of a whole run.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SuiteResults {
    /// The limit of each part's native run, in seconds.
    pub(super) limit: u64,
    pub(super) units: Vec<Unit>,
    /// The parts that were run again later, with their limit in seconds.
    pub(super) again: Vec<(String, u64)>,
}

impl SuiteResults {
    /// Reads the results from a folder.
    pub(super) fn read(folder: &Path) -> Result<SuiteResults> {
        let text = fs::read(folder.join(FILE)).context("there are no results of a whole run: run the suite without names first")?;
        serde_json::from_slice(&text).context("parsing the results of a whole run")
    }

    /// Writes the results to a folder.
    pub(super) fn write(&self, folder: &Path) -> Result<()> {
        fs::write(folder.join(FILE), serde_json::to_vec(self)?).context("writing the results")
    }

    /// Replaces all results of parts that were run again: a part that takes too long has one result, otherwise it has one of each test.
    pub(super) fn with(mut self, later: SuiteResults, parts: &[String]) -> SuiteResults {
        let mut units = later.units;
        for part in parts {
            let (again, others): (Vec<Unit>, Vec<Unit>) = units.into_iter().partition(|unit| is_of(unit, part));
            units = others;
            if let Some(first) = self.units.iter().position(|unit| is_of(unit, part)).filter(|_| !again.is_empty()) {
                self.units.retain(|unit| !is_of(unit, part));
                drop(self.units.splice(first..first, again));
            } else {
                self.units.extend(again);
            }
        }
        // The names of a part's results need not begin with the part's.
        for unit in units {
            match self.units.iter_mut().find(|known| known.name == unit.name) {
                Some(known) => *known = unit,
                None => self.units.push(unit),
            }
        }
        self.again.retain(|(part, _)| !parts.contains(part));
        self.again.extend(parts.iter().map(|part| (part.clone(), later.limit)));
        self
    }
}

/// Whether this is the result of a part, or of a test in it.
fn is_of(unit: &Unit, part: &str) -> bool {
    unit.name.strip_prefix(part).is_some_and(|rest| rest.is_empty() || rest.starts_with(": ") || rest.starts_with('.'))
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    #[test]
    fn parts_that_are_run_again_take_their_places() {
        let unit = |name: &str, cell| Unit { name: name.into(), native: Verdict::Passed, cell };
        let found = |limit, units| SuiteResults { limit, units, again: Vec::new() };
        let (whole, later) =
            (found(60, vec![unit("a", Verdict::Late), unit("b", Verdict::Passed)]), found(300, vec![unit("a", Verdict::Passed)]));
        let folder = tempfile::tempdir().expect("a temporary directory");
        assert!(SuiteResults::read(folder.path()).is_err());
        whole.write(folder.path()).expect("the folder is ours");
        let found = SuiteResults::read(folder.path()).expect("it was written").with(later, &["a".into()]);
        let names: Vec<_> = found.units.iter().map(|unit| (&unit.name[..], unit.cell == Verdict::Passed)).collect();
        assert_eq!((names, found.limit, found.again), (vec![("a", true), ("b", true)], 60, vec![("a".to_owned(), 300)]));
    }

    #[test]
    fn a_part_that_took_too_long_has_only_the_results_of_its_later_run() {
        let unit = |name: &str, cell| Unit { name: name.into(), native: Verdict::Passed, cell };
        let found = |units| SuiteResults { limit: 60, units, again: Vec::new() };
        let names = |found: &SuiteResults| found.units.iter().map(|unit| unit.name.clone()).collect::<Vec<_>>();
        let whole = found(vec![unit("ash", Verdict::Late), unit("net/http.One", Verdict::Passed), unit("net", Verdict::Late)]);
        let later = found(vec![unit("ash: one", Verdict::Passed), unit("ash: two", Verdict::Passed), unit("net.One", Verdict::Passed)]);
        let whole = whole.with(later, &["ash".into(), "net".into()]);
        assert_eq!(names(&whole), ["ash: one", "ash: two", "net/http.One", "net.One"]);
        let whole = whole.with(found(vec![unit("ash", Verdict::Late)]), &["ash".into()]);
        assert_eq!(names(&whole), ["ash", "net/http.One", "net.One"], "its tests were not run to their end");
    }
}
