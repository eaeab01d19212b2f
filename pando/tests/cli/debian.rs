// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs of Debian, each with its basic job: `debian.toml` and `languages.toml` name them, `docs/programs.md` is printed from it, and those that this machine has are run.

use crate::case::{Case, Outcome, long_runs};
use pando_testing::lab::kvm_is_there;
use pando_testing::{are_installed, host_program};
use serde::Deserialize;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

const OPENING: &str = "# Programs of Debian in a cell

What programs of Debian 12 do in a cell: each did the job that is told here natively and under `pando run`, without an option. *The same* means that both printed the same, byte for
byte, on standard output and standard error, and ended with the same status. What is refused says so in the words that are quoted.

Printed from `pando/tests/cli/debian.toml` and `languages.toml`, which have the jobs as scripts; a test keeps it in step and runs those whose programs a machine has.

| program | package | what was done | result | remark |
|---|---|---|---|---|
";

#[derive(Deserialize)]
struct Table {
    program: Vec<Program>,
}

/// A program and its job.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Program {
    name: String,
    package: String,
    /// Files that must be there.
    needs: Vec<PathBuf>,
    does: String,
    /// What is run natively before.
    #[serde(default)]
    setup: String,
    run: String,
    #[serde(default)]
    long: bool,
    /// What is said in a cell, if the job cannot be done there.
    refused: Option<String>,
    #[serde(default)]
    remark: String,
}

fn programs() -> Vec<Program> {
    let tables = [include_str!("debian.toml"), include_str!("languages.toml")];
    tables.into_iter().flat_map(|table| toml::from_str::<Table>(table).expect("the table is well formed").program).collect()
}

impl Program {
    /// Does its job both ways. Returns what is not as it should be.
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
                let Outcome { status, errors, .. } = case.directory(directory.path()).cell();
                if status != 0 && errors.contains(words) { Ok(()) } else { Err(format!("is not refused: {status} {errors}")) }
            }
        };
        problem.err().map(|problem| format!("{}: {problem}", self.name))
    }
}

#[test]
fn programs_of_debian_do_their_jobs() {
    if !kvm_is_there() {
        return;
    }
    let programs = programs();
    let are_there = programs.iter().filter(|program| program.needs.iter().all(|file| file.exists()));
    let problems: Vec<String> = are_there.filter(|program| long_runs() || !program.long).filter_map(Program::check).collect();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// Classes of stress, with how many operations of each take about a second at most.
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
/// Those that are not over after so many operations: one waits for five microseconds at a time, in which one core does not get from one process to the other.
const ENDLESS: [&str; 1] = ["futex"];

/// Stresses a cell, each class by one process, which checks what it gets.
fn stress(words: &[String]) {
    let all = ["--vm-bytes", "16M", "--hdd-bytes", "8M", "--temp-path", "/tmp", "--verify"].map(String::from);
    let outcome = Case::new("/usr/bin/stress-ng", &[words, &all].concat()).cell();
    assert!(outcome.status == 0 && outcome.errors.contains("successful run completed"), "{words:?}: {outcome:?}");
}

#[test]
fn stress_is_borne() {
    if !kvm_is_there() || !are_installed(&["stress-ng"]) {
        return;
    }
    let operations = |(class, count)| [format!("--{class}"), "1".into(), format!("--{class}-ops"), format!("{count}")];
    stress(&CLASSES.into_iter().flat_map(operations).collect::<Vec<_>>());
    if long_runs() {
        for class in CLASSES.into_iter().map(|(class, _)| class).chain(ENDLESS) {
            stress(&[format!("--{class}"), "1".into(), "--timeout".into(), "60s".into()]);
        }
    }
}

#[test]
fn the_published_table_is_what_is_run() {
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
    assert_eq!(found, expected, "out of step: print it anew with UPDATE=1 cargo test -p pando --test cli -- debian");
}
