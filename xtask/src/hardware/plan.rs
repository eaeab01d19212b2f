// SPDX-License-Identifier: MIT OR Apache-2.0
//! Selects the tests that run in the emulated machine, from `hardware.toml` and the built test programs.

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::Kind;
use crate::workspace;

/// The folders of the crates whose tests depend on the machine, from the bottom up.
const TESTED: [&str; 3] = ["machine", "kernel", "testing"];

/// One kind's part of `hardware.toml`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Settings {
    /// CPUs of the emulated machine.
    pub(crate) cpus: u32,
    /// Its memory in MiB.
    pub(crate) memory_mib: u32,
    /// Seconds after which it is killed; unfinished tests have then failed.
    pub(crate) limit_seconds: u64,
    /// The same limit when all tests were requested.
    pub(crate) limit_of_all_seconds: u64,
    /// Seconds without console output after which it is killed.
    pub(crate) quiet_seconds: u64,
    /// Filters of tests that never run there, by test program.
    #[serde(default)]
    skip: BTreeMap<String, Vec<String>>,
    /// Filters of the tests that run there unless all are requested, by test program.
    only: Option<BTreeMap<String, Vec<String>>>,
}

impl Settings {
    /// Reads the part of `kind` from the repository's `xtask/hardware.toml`.
    ///
    /// # Errors
    /// If the file is missing or malformed.
    pub(crate) fn read(kind: Kind) -> Result<Settings> {
        let text = std::fs::read_to_string(workspace::root().join("xtask/hardware.toml")).context("reading xtask/hardware.toml")?;
        let mut all: BTreeMap<String, Settings> = toml::from_str(&text).context("xtask/hardware.toml")?;
        all.remove(kind.name()).with_context(|| format!("xtask/hardware.toml has no section [{kind}]"))
    }
}

/// A built test program, with the names of its tests.
#[derive(Clone, Debug)]
pub(crate) struct TestProgram {
    /// Its name in `hardware.toml`.
    pub(crate) name: String,
    /// The executable.
    pub(crate) file: PathBuf,
    /// Its tests.
    pub(crate) tests: Vec<String>,
}

/// A run of a test program in the emulated machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// Its name in `hardware.toml`.
    pub(crate) name: String,
    /// The executable.
    pub(crate) file: PathBuf,
    /// Its arguments, filters among them.
    pub(crate) arguments: Vec<String>,
    /// The number of tests that it will run.
    pub(crate) tests: usize,
}

/// The selected runs, and the number of tests left out.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    /// The programs, in order.
    pub(crate) runs: Vec<Run>,
    /// The number of tests that `only` leaves to `--all`.
    pub(crate) left_to_all: usize,
    /// The number of tests that `skip` excludes.
    pub(crate) skipped: usize,
}

/// Builds the test programs and lists the tests of each.
///
/// # Errors
/// If the build fails.
pub(crate) fn build() -> Result<Vec<TestProgram>> {
    // The whole workspace: a part of it would be built with other features of its dependencies, and thus built again.
    let mut cargo = workspace::cargo();
    cargo.args(["test", "--workspace", "--no-run", "--message-format=json-render-diagnostics"]).stdout(Stdio::piped());
    let mut child = cargo.spawn().context("starting cargo")?;
    let output = child.stdout.take().context("cargo has no output")?;
    let mut built = Vec::new();
    for line in BufReader::new(output).lines() {
        let program = test_program(&line?, &workspace::root());
        if let Some((name, file)) = program.filter(|(name, _)| rank(name).is_some()) {
            let list = workspace::run(Command::new(&file).args(["--list", "--format=terse"]))?;
            let tests = list.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_string).collect();
            built.push(TestProgram { name, file, tests });
        }
    }
    ensure!(child.wait()?.success(), "the tests do not build");
    built.sort_by_key(|built| (rank(&built.name), built.name.clone()));
    Ok(built)
}

/// The position of a test program's crate in [`TESTED`]; `None` if it is not among them.
fn rank(name: &str) -> Option<usize> {
    TESTED.iter().position(|folder| name.split('/').next() == Some(folder))
}

/// Name and executable of a test program, if a line of cargo's JSON describes one.
fn test_program(line: &str, root: &Path) -> Option<(String, PathBuf)> {
    let message: Value = serde_json::from_str(line).ok()?;
    if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
        return None;
    }
    let file = message["executable"].as_str()?;
    let folder = Path::new(message["manifest_path"].as_str()?).parent()?.strip_prefix(root).ok()?.to_str()?;
    let target = &message["target"];
    let is_unit = !target["kind"].as_array()?.iter().any(|kind| kind == "test");
    let name = if is_unit { folder.to_string() } else { format!("{folder}/{}", target["name"].as_str()?) };
    Some((name, file.into()))
}

/// Selects the runs. With `filter`, only the tests that it matches; else the table's selection, without its `only` if `all`.
///
/// # Errors
/// If the table names a program that does not exist or a filter that matches nothing: it has gone stale.
pub(crate) fn plan(settings: &Settings, built: &[TestProgram], all: bool, filter: Option<&str>) -> Result<Plan> {
    for (table, filters) in [("skip", Some(&settings.skip)), ("only", settings.only.as_ref())] {
        for (name, filters) in filters.into_iter().flatten() {
            let Some(program) = built.iter().find(|program| program.name == *name) else {
                bail!("hardware.toml: {table} names the test program `{name}`, which does not exist");
            };
            if let Some(stale) = filters.iter().find(|filter| !program.tests.iter().any(|test| test.contains(filter.as_str()))) {
                bail!("hardware.toml: {table}: no test of `{name}` matches \"{stale}\"");
            }
        }
    }
    let mut plan = Plan::default();
    for program in built {
        let (only, skip) = match filter {
            Some(filter) => (vec![filter.to_string()], Vec::new()),
            None => {
                let only = settings.only.as_ref().filter(|_| !all).map(|only| only.get(&program.name).cloned().unwrap_or_default());
                (only.unwrap_or_else(|| vec![String::new()]), settings.skip.get(&program.name).cloned().unwrap_or_default())
            }
        };
        let matches = |filters: &[String], test: &String| filters.iter().any(|filter| test.contains(filter.as_str()));
        let wanted = program.tests.iter().filter(|test| !matches(&skip, test)).count();
        let tests = program.tests.iter().filter(|test| matches(&only, test) && !matches(&skip, test)).count();
        plan.skipped += program.tests.len() - wanted;
        plan.left_to_all += if filter.is_some() { 0 } else { wanted - tests };
        if tests > 0 {
            let filters = only.into_iter().filter(|filter| !filter.is_empty());
            let skips = skip.into_iter().flat_map(|filter| ["--skip".to_string(), filter]);
            let arguments = ["--test-threads=1", "--show-output"].map(str::to_string).into_iter().chain(skips).chain(filters).collect();
            plan.runs.push(Run { name: program.name.clone(), file: program.file.clone(), arguments, tests });
        }
    }
    ensure!(!plan.runs.is_empty(), "no test matches");
    Ok(plan)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(text: &str) -> Settings {
        let machine = "cpus = 1\nmemory_mib = 1\nlimit_seconds = 1\nlimit_of_all_seconds = 1\nquiet_seconds = 1\n";
        toml::from_str(&format!("{machine}{text}")).expect("the example is well formed")
    }

    fn built() -> Vec<TestProgram> {
        let program = |name: &str, tests: &[&str]| TestProgram {
            name: name.into(),
            file: format!("/built/{name}").into(),
            tests: tests.iter().map(ToString::to_string).collect(),
        };
        vec![program("machine", &["kvm::boots", "kvm::slow", "sim::walks"]), program("machine/hostile", &["ports"]), program("kernel", &[])]
    }

    fn chosen(text: &str, all: bool, filter: Option<&str>) -> Vec<(String, Vec<String>, usize)> {
        let plan = plan(&settings(text), &built(), all, filter).expect("a plan");
        plan.runs.into_iter().map(|run| (run.name, run.arguments[2..].to_vec(), run.tests)).collect()
    }

    #[test]
    fn without_a_table_everything_runs() {
        assert_eq!(chosen("", false, None), [("machine".into(), vec![], 3), ("machine/hostile".into(), vec![], 1)]);
    }

    #[test]
    fn skip_keeps_out_and_only_chooses() {
        let table = "skip.machine = [\"slow\"]\nonly.machine = [\"kvm\"]\n";
        let arguments = ["--skip", "slow", "kvm"].map(str::to_string).to_vec();
        assert_eq!(chosen(table, false, None), [("machine".into(), arguments, 1)]);
        let plan = plan(&settings(table), &built(), false, None).expect("a plan");
        assert_eq!((plan.skipped, plan.left_to_all), (1, 2));
    }

    #[test]
    fn all_lifts_only_but_not_skip() {
        let table = "skip.machine = [\"slow\"]\nonly.machine = [\"kvm\"]\n";
        let arguments = ["--skip", "slow"].map(str::to_string).to_vec();
        assert_eq!(chosen(table, true, None), [("machine".into(), arguments, 2), ("machine/hostile".into(), vec![], 1)]);
    }

    #[test]
    fn a_filter_overrides_the_table() {
        let table = "skip.machine = [\"slow\"]\nonly.machine = [\"boots\"]\n";
        assert_eq!(chosen(table, false, Some("slow")), [("machine".into(), vec!["slow".into()], 1)]);
        assert!(plan(&settings(table), &built(), false, Some("nothing")).is_err());
    }

    #[test]
    fn a_stale_table_is_an_error() {
        for table in ["skip.machine = [\"gone\"]", "only.gone = [\"\"]", "skip.kernel = [\"\"]"] {
            let error = plan(&settings(table), &built(), false, None).expect_err(table).to_string();
            assert!(error.starts_with("hardware.toml: "), "{error}");
        }
    }

    #[test]
    fn test_programs_are_found_in_cargos_messages() {
        let message = |kind: &str, test: bool| {
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"/r/guest/rt/Cargo.toml","target":{{"kind":["{kind}"],"name":"hostile"}},
                "profile":{{"test":{test}}},"executable":"/t/x"}}"#
            )
        };
        let root = Path::new("/r");
        assert_eq!(test_program(&message("lib", true), root), Some(("guest/rt".into(), "/t/x".into())));
        assert_eq!(test_program(&message("test", true), root), Some(("guest/rt/hostile".into(), "/t/x".into())));
        assert_eq!(test_program(&message("bin", false), root), None);
        assert_eq!(test_program("{\"reason\":\"build-finished\",\"success\":true}", root), None);
    }

    #[test]
    fn the_projects_own_table_is_well_formed() {
        for kind in [Kind::Svm, Kind::Vmx] {
            let settings = Settings::read(kind).expect("hardware.toml");
            assert!(settings.cpus >= 1 && settings.quiet_seconds <= settings.limit_seconds, "{settings:?}");
        }
    }
}
