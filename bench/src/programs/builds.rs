// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compilers: `make -j2` with gcc, and Go.

use super::Fixture;
use super::comparison::Comparison;
use crate::process_runs::needs;
use crate::project::write_project;
use crate::{BenchError, Row};
use std::fs;
use std::process::{Command, Stdio};

const HELLO: &str = include_str!("sources/hello.go");
/// In a brief run: without packages of the standard library, so that few have to be compiled first.
const BRIEF_HELLO: &str = "package main\n\nfunc main() {\n\tprintln(number - number)\n}\n";
/// The C project's directory.
const PROJECT: &str = "project";
/// Writes a file that differs from run to run, so that the package is compiled, and builds.
const BUILD: &str = r#"cd "$0" && printf 'package main\n\nconst number = %s\n' "$(date +%s%N)" >number.go && go build -o hello ."#;

/// `make-j2`.
pub(super) fn make(fixture: &Fixture<'_>, report: &mut dyn FnMut(Row)) -> Result<(), BenchError> {
    needs_compiler()?;
    let project = fixture.directory.join(PROJECT);
    write_project(&project, fixture.size(30, 2)).map_err(BenchError::host("write a C project"))?;
    build_project(fixture, "make-j2", report)
}

fn needs_compiler() -> Result<(), BenchError> {
    ["make", "gcc"].into_iter().try_for_each(|program| needs(program, "make and gcc (Debian: make, gcc)"))
}

/// `make-j2-all-cores`: the same project where the host's compilers may run on several cores at once, unlike those of a cell.
pub(super) fn make_on_all_cores(fixture: &Fixture<'_>, report: &mut dyn FnMut(Row)) -> Result<(), BenchError> {
    needs_compiler()?;
    build_project(fixture, "make-j2-all-cores", report)
}

fn build_project(fixture: &Fixture<'_>, name: &'static str, report: &mut dyn FnMut(Row)) -> Result<(), BenchError> {
    let project = fixture.directory.join(PROJECT).display().to_string();
    let argv = ["make", "-j2", "--always-make", "--silent", "--directory", &project];
    let check = format!("{} && exec {project}/project", argv.join(" "));
    let note = format!("make -j2 of {} C files by gcc", fixture.size(30, 2));
    Comparison::new(name, &argv, note).checked_by(&["sh", "-c", &check]).volume(&project).measure(fixture, 3, report)
}

/// `go-build`: the program's one package is compiled and linked; the standard library's are in the build cache.
pub(super) fn go(fixture: &Fixture<'_>, report: &mut dyn FnMut(Row)) -> Result<(), BenchError> {
    needs("go", "go (Debian: golang-go)")?;
    let [project, cache] = ["hello", "go-cache"].map(|name| fixture.directory.join(name));
    for directory in [&project, &cache] {
        fs::create_dir(directory).map_err(BenchError::host("make a temporary directory"))?;
    }
    fixture.write("hello/go.mod", "module hello\n\ngo 1.19\n")?;
    fixture.write("hello/hello.go", if fixture.options.brief { BRIEF_HELLO } else { HELLO })?;
    let [project, cache] = [project, cache].map(|path| path.display().to_string());
    let variables = [("HOME", &project), ("GOCACHE", &cache)];
    // Fills the cache.
    let filled = Command::new("sh").args(["-c", BUILD, &project]).envs(variables).stdin(Stdio::null()).stdout(Stdio::null()).status();
    if !filled.map_err(BenchError::host("start go"))?.success() {
        return Err(BenchError::Failed("go build".into()));
    }
    let comparison =
        Comparison::new("go-build", &["sh", "-c", BUILD, &project], "go build of a program of one package, which is compiled and linked")
            .checked_by(&["sh", "-c", &format!("{BUILD} && ./hello"), &project])
            .volume(&project)
            .volume(&cache);
    variables.into_iter().fold(comparison, |comparison, (name, value)| comparison.env(name, value)).measure(fixture, 3, report)
}
