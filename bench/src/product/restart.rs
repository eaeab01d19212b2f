// SPDX-License-Identifier: MIT OR Apache-2.0
//! `start-after-change-ms`: the first clone of a service that has just started, while a large tree that its template sees has changed.

use super::{Fixture, milliseconds};
use crate::process_runs::{PYTHON, needs};
use crate::sample::Sample;
use crate::service::{ServiceProcess, pando};
use crate::{BenchError, Row};
use serde_json::json;
use std::fs;
use std::io;
use std::path::Path;
use std::time::Instant;

const TEMPLATE: &str = "changing";
/// Files in each directory of the tree.
const IN_DIRECTORY: usize = 100;

/// Measures the row.
pub(super) fn run(fixture: &Fixture<'_>, report: &mut dyn FnMut(Row)) -> Result<(), BenchError> {
    needs(PYTHON, "/usr/bin/python3 (Debian: python3)")?;
    let files = fixture.size(125_000, 500);
    let prefix = fixture.directory.join("prefix");
    write_prefix(&prefix, files).map_err(BenchError::host("write a tree of files"))?;
    let volume = format!("{0}:{0}:ro", prefix.display());
    let train = ["template", "create", "--train-arg", "print(1)", "-v", &volume, TEMPLATE, "--", PYTHON, "-m", "pando"];
    pando(fixture.pando, fixture.directory, &train)?;
    let mut recreated = false;
    let mut restart = |number: usize, is_changed: bool| {
        if is_changed {
            // As by the installation of a package.
            let place = prefix.join(format!("directory-0/new-{number}"));
            fs::write(place, "").map_err(BenchError::host("write a file"))?;
        }
        let service = ServiceProcess::start(fixture.pando, fixture.directory, &["--show", &prefix.display().to_string()])?;
        let start = Instant::now();
        if clone(&service).is_err() {
            recreated = true;
            let template = json!({
                "name": TEMPLATE, "replace": true, "volumes": [volume], "arguments": [PYTHON, "-m", "pando"], "train_arguments": ["print(1)"],
            });
            service.ask("POST", "/v1/templates", &template)?;
            clone(&service)?;
        }
        Ok(start.elapsed().as_nanos() as f64)
    };
    let mut measure =
        |rounds: usize, is_changed| (0..rounds).map(|number| restart(number, is_changed)).collect::<Result<Vec<f64>, BenchError>>();
    let unchanged = Sample::of(measure(fixture.size(3, 1), false)?);
    let changed = Sample::of(measure(fixture.size(3, 1), true)?);
    let how = if recreated { "the service refused the template, which was created again" } else { "the template was still good" };
    let note = format!(
        "from the first request to a service that has started, to the end of a clone; the template sees {files} files, of which one is new: {how}; \
         {:.1} ms without a change",
        unchanged.median() / 1e6
    );
    report(milliseconds("start-after-change-ms", &changed).noting(note));
    Ok(())
}

/// Runs a clone to its end.
fn clone(service: &ServiceProcess) -> Result<(), BenchError> {
    let said = service.ask("POST", "/v1/run", &json!({ "template": TEMPLATE, "arguments": ["print(1)"] }))?;
    if said["stdout"] == "1\n" { Ok(()) } else { Err(BenchError::Failed(said.to_string())) }
}

/// Writes small files in directories, as many as in a Python with packages.
fn write_prefix(prefix: &Path, files: usize) -> io::Result<()> {
    for number in 0..files {
        let directory = prefix.join(format!("directory-{}", number / IN_DIRECTORY));
        if number % IN_DIRECTORY == 0 {
            fs::create_dir_all(&directory)?;
        }
        fs::write(directory.join(format!("module_{number}.py")), "x = 1\n")?;
    }
    Ok(())
}
