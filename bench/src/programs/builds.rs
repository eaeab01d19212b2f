// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compilers: `make -j2` with gcc, and Go.

use super::Setting;
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
pub(super) fn make(setting: &Setting<'_>, report: &mut dyn FnMut(Row)) -> Result<(), BenchError> {
    needs_compiler()?;
    let project = setting.directory.join(PROJECT);
    write_project(&project, setting.size(30, 2)).map_err(BenchError::host("write a C project"))?;
    build_project(setting, "make-j2", report)
}

fn needs_compiler() -> Result<(), BenchError> {
    ["make", "gcc"].into_iter().try_for_each(|program| needs(program, "make and gcc (Debian: make, gcc)"))
}

/// `make-j2-all-cores`: the same project where the host's compilers may run on several cores at once, unlike those of a cell.
pub(super) fn make_on_all_cores(setting: &Setting<'_>, report: &mut dyn FnMut(Row)) -> Result<(), BenchError> {
    needs_compiler()?;
    build_project(setting, "make-j2-all-cores", report)
}

fn build_project(setting: &Setting<'_>, name: &'static str, report: &mut dyn FnMut(Row)) -> Result<(), BenchError> {
    let project = setting.directory.join(PROJECT).display().to_string();
    let words = ["make", "-j2", "--always-make", "--silent", "--directory", &project];
    let printing = format!("{} && exec {project}/project", words.join(" "));
    let note = format!("make -j2 of {} C files by gcc", setting.size(30, 2));
    Comparison::new(name, &words, note).printing(&["sh", "-c", &printing]).changing(&project).measure(setting, 3, report)
}

/// `go-build`: the program's one package is compiled and linked; the standard library's are in the build cache.
pub(super) fn go(setting: &Setting<'_>, report: &mut dyn FnMut(Row)) -> Result<(), BenchError> {
    needs("go", "go (Debian: golang-go)")?;
    let [project, cache] = ["hello", "go-cache"].map(|name| setting.directory.join(name));
    for directory in [&project, &cache] {
        fs::create_dir(directory).map_err(BenchError::host("make a temporary directory"))?;
    }
    setting.write("hello/go.mod", "module hello\n\ngo 1.19\n")?;
    setting.write("hello/hello.go", if setting.options.brief { BRIEF_HELLO } else { HELLO })?;
    let [project, cache] = [project, cache].map(|path| path.display().to_string());
    let variables = [("HOME", &project), ("GOCACHE", &cache)];
    // Fills the cache.
    let filled = Command::new("sh").args(["-c", BUILD, &project]).envs(variables).stdin(Stdio::null()).stdout(Stdio::null()).status();
    if !filled.map_err(BenchError::host("start go"))?.success() {
        return Err(BenchError::Failed("go build".into()));
    }
    let comparison =
        Comparison::new("go-build", &["sh", "-c", BUILD, &project], "go build of a program of one package, which is compiled and linked")
            .printing(&["sh", "-c", &format!("{BUILD} && ./hello"), &project])
            .changing(&project)
            .changing(&cache);
    variables.into_iter().fold(comparison, |comparison, (name, value)| comparison.setting(name, value)).measure(setting, 3, report)
}
