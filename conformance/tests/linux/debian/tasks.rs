// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs of Debian, each with its basic task. `tasks.toml` and `languages.toml` list them, `docs/programs.md` is
//! generated from these, and the programs that are installed here are run.

use crate::case::{Case, CaseOutcome, long_runs};
use pando_testing::{host_program, needs_kvm};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

const OPENING: &str = "# Programs of Debian in a cell

Programs of Debian 12 ran the jobs below natively and under `pando run`, without options. *The same* means that both printed the same bytes
on standard output and standard error and ended with the same status. Refused programs end with the quoted message.

This page is printed from `tasks.toml` and `languages.toml` in `conformance/tests/linux/debian/`, which hold the jobs as scripts. A test
keeps it in step and runs the jobs whose programs the machine has.

| program | package | what was done | result | remark |
|---|---|---|---|---|
";

#[derive(Deserialize)]
struct Table {
    program: Vec<Program>,
}

/// A program and its task.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Program {
    name: String,
    package: String,
    /// Files that must exist.
    needs: Vec<PathBuf>,
    does: String,
    /// A script that is run natively before.
    #[serde(default)]
    setup: String,
    run: String,
    #[serde(default)]
    long: bool,
    /// The expected message in a cell, if the task is impossible there.
    refused: Option<String>,
    #[serde(default)]
    remark: String,
}

fn programs() -> Vec<Program> {
    let tables = [include_str!("tasks.toml"), include_str!("languages.toml")];
    tables.into_iter().flat_map(|table| toml::from_str::<Table>(table).expect("the table is well formed").program).collect()
}

impl Program {
    /// Performs its task both ways. Returns a description of the difference.
    fn check(&self) -> Option<String> {
        let script = format!("export HOME=$PWD\n{}", self.run);
        let case = Case::new("sh", &["-c", &script]);
        let prepare = |directory: &Path| {
            let status = Command::new(host_program("sh")).args(["-c", &self.setup]).current_dir(directory).status();
            assert!(status.is_ok_and(|status| status.success()), "{}: its setup fails", self.name);
        };
        let problem = match &self.refused {
            None => case.compare_in(prepare),
            Some(words) => {
                let directory = tempfile::tempdir().expect("the host has room");
                prepare(directory.path());
                let CaseOutcome { status, errors, .. } = case.directory(directory.path()).cell();
                if status != 0 && errors.contains(words) { Ok(()) } else { Err(format!("is not refused: {status} {errors}")) }
            }
        };
        problem.err().map(|problem| format!("{}: {problem}", self.name))
    }
}

#[test]
fn programs_of_debian_do_their_jobs() {
    needs_kvm!();
    let chosen: Vec<Program> = programs().into_iter().filter(|program| long_runs() || !program.long).collect();
    let (present, missing): (Vec<&Program>, Vec<&Program>) =
        chosen.iter().partition(|program| program.needs.iter().all(|file| file.exists()));
    let problems: Vec<String> = present.into_iter().filter_map(Program::check).collect();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    if let Some(line) = left_out(&missing, chosen.len()) {
        println!("{line}");
    }
}

/// The message about programs that this machine lacks. Without it, the suite would count the test as passed.
fn left_out(missing: &[&Program], chosen: usize) -> Option<String> {
    let packages: BTreeSet<&str> = missing.iter().flat_map(|program| program.package.split(' ')).collect();
    let list = packages.into_iter().collect::<Vec<_>>().join(" ");
    (!missing.is_empty()).then(|| format!("left out: {} of {chosen} programs are not there: install Debian's {list}", missing.len()))
}

#[test]
fn missing_programs_are_reported_as_left_out() {
    let programs = programs();
    let missing: Vec<&Program> = programs.iter().filter(|program| program.name == "gawk" || program.name == "numpy").collect();
    let line = left_out(&missing, 9).expect("two are missing");
    assert_eq!(line, "left out: 2 of 9 programs are not there: install Debian's gawk python3-numpy");
    assert_eq!(left_out(&[], 9), None);
}

/// Classes of stress, with a number of operations of each that takes about a second at most.
const CLASSES: [(&str, u32); 14] = [
    ("cpu", 100),
    ("vm", 2000),
    ("fork", 100),
    ("pipe", 10_000),
    ("timer", 1000),
    ("signal", 10_000),
    ("sigfd", 5000),
    ("sigq", 5000),
    ("switch", 3000),
    ("pthread", 20),
    ("mq", 5000),
    ("eventfd", 2000),
    ("poll", 2000),
    ("hdd", 50),
];
/// Classes that do not end after that many operations. One waits for five microseconds at a time, in which one core does
/// not get from one process to the other.
const ENDLESS: [&str; 1] = ["futex"];

/// Stresses a cell with one process of each class, which verifies its results.
fn stress(words: &[String]) {
    let all = ["--vm-bytes", "16M", "--hdd-bytes", "8M", "--temp-path", "/tmp", "--verify"].map(String::from);
    let outcome = Case::new("/usr/bin/stress-ng", &[words, &all].concat()).cell();
    assert!(outcome.status == 0 && outcome.errors.contains("successful run completed"), "{words:?}: {outcome:?}");
}

#[test]
fn stress_is_borne() {
    needs_kvm!(&["stress-ng"]);
    let operations = |(class, count)| [format!("--{class}"), "1".into(), format!("--{class}-ops"), format!("{count}")];
    stress(&CLASSES.into_iter().flat_map(operations).collect::<Vec<_>>());
    if long_runs() {
        for class in CLASSES.into_iter().map(|(class, _)| class).chain(ENDLESS) {
            stress(&[format!("--{class}"), "1".into(), "--timeout".into(), "60s".into()]);
        }
    }
}

#[test]
fn the_published_table_matches_the_programs() {
    let mut expected = String::from(OPENING);
    for Program { name, package, does, refused, remark, .. } in programs() {
        let result = refused.map_or_else(|| "the same".into(), |words| format!("refused: `{words}`"));
        writeln!(expected, "| {name} | {package} | {does} | {result} | {remark} |").expect("a string takes everything");
    }
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/programs.md");
    if std::env::var_os("UPDATE").is_some_and(|value| value == "1") {
        std::fs::write(&document, &expected).expect("the document can be written");
    }
    let found = std::fs::read_to_string(&document).unwrap_or_default();
    assert_eq!(found, expected, "outdated: regenerate it with UPDATE=1 cargo test -p pando-conformance --test linux -- debian");
}
