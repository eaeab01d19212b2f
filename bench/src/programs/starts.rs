// SPDX-License-Identifier: MIT OR Apache-2.0
//! Short runs of programs, most of which is their start: `/bin/true`, Python with numpy, Node, Java.

use super::Fixture;
use super::comparison::Comparison;
use crate::process_runs::{PYTHON, needs};
use crate::{BenchError, Row, clone};
use std::process::{Command, Stdio};

const SANDBOX: &[&str] = &["bwrap", "--unshare-all", "--ro-bind", "/", "/"];
const HELLO: &str = include_str!("sources/Hello.java");

/// `true-start`: the shortest run of a dynamic program, compared with a light sandbox of the host.
pub(super) fn bin_true(fixture: &Fixture<'_>, report: &mut dyn FnMut(Row)) -> Result<(), BenchError> {
    needs(SANDBOX[0], "bwrap (Debian: bubblewrap)")?;
    let comparison =
        Comparison::new("true-start", &["/bin/true"], "pando run of /bin/true").sandboxed_by(SANDBOX, "bwrap --unshare-all --ro-bind / /");
    comparison.measure(fixture, 60, report)
}

/// `numpy-start`.
pub(super) fn numpy(fixture: &Fixture<'_>, report: &mut dyn FnMut(Row)) -> Result<(), BenchError> {
    clone::needs_numpy()?;
    let argv = [PYTHON, "-c", "import numpy; print(numpy.arange(10).sum())"];
    Comparison::new("numpy-start", &argv, "python3 that loads numpy and prints a sum").measure(fixture, 15, report)
}

/// `node-start`.
pub(super) fn node(fixture: &Fixture<'_>, report: &mut dyn FnMut(Row)) -> Result<(), BenchError> {
    needs("node", "node (Debian: nodejs)")?;
    Comparison::new("node-start", &["node", "-e", "console.log(1)"], "node -e 'console.log(1)'").measure(fixture, 15, report)
}

/// `java-start`: a class that is compiled before.
pub(super) fn java(fixture: &Fixture<'_>, report: &mut dyn FnMut(Row)) -> Result<(), BenchError> {
    for program in ["java", "javac"] {
        needs(program, "java and javac (Debian: default-jdk-headless)")?;
    }
    let classes = fixture.directory.join("classes");
    std::fs::create_dir(&classes).map_err(BenchError::host("make a temporary directory"))?;
    let source = fixture.write("Hello.java", HELLO)?;
    let compiled = Command::new("javac").arg("-d").arg(&classes).arg(source).stdin(Stdio::null()).stdout(Stdio::null()).status();
    if !compiled.map_err(BenchError::host("start javac"))?.success() {
        return Err(BenchError::Failed("javac".into()));
    }
    let classes = classes.display().to_string();
    Comparison::new("java-start", &["java", "-cp", &classes, "Hello"], "java of a class that prints a line")
        .read_only_volume(&classes)
        .measure(fixture, 10, report)
}
