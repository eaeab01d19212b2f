// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs of Debian, each with its basic job: `debian.toml` names them, `docs/programs.md` is printed from it, and those that this machine has are run.

use crate::case::{Case, Outcome, long_runs};
use pando_testing::lab::kvm_is_there;
use serde::Deserialize;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

const OPENING: &str = "# Programs of Debian in a cell

What programs of Debian 12 do in a cell: each did the job that is told here natively and under `pando run`, without an option. *The same* means that both printed the same, byte for
byte, on standard output and standard error, and ended with the same status. What is refused says so in the words that are quoted.

Printed from `pando/tests/cli/debian.toml`, which has the jobs as scripts; a test keeps it in step and runs those whose programs a machine has.

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
    toml::from_str::<Table>(include_str!("debian.toml")).expect("the table is well formed").program
}

impl Program {
    /// Does its job both ways. Returns what is not as it should be.
    fn check(&self) -> Option<String> {
        let script = format!("export HOME=$PWD\n{}", self.run);
        let case = Case::new("sh", &["-c", &script]);
        let prepare = |directory: &Path| {
            let status = Command::new("sh").args(["-c", &self.setup]).current_dir(directory).status();
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

#[test]
fn stress_is_borne() {
    let is_there = Path::new("/usr/bin/stress-ng").exists();
    if !kvm_is_there() || !long_runs() || !is_there {
        println!("left out: a long run with stress-ng");
        return;
    }
    let classes = ["cpu", "vm", "fork", "pipe", "futex", "timer", "signal", "sigfd", "sigq", "switch", "pthread"];
    let classes: Vec<String> = classes.iter().flat_map(|class| [format!("--{class}"), "1".into()]).collect();
    let words = ["--timeout", "5s", "--vm-bytes", "64M", "--temp-path", "/tmp", "--verify"].map(String::from);
    let outcome = Case::new("/usr/bin/stress-ng", &[classes, words.into()].concat()).cell();
    assert!(outcome.status == 0 && outcome.errors.contains("successful run completed"), "{outcome:?}");
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
