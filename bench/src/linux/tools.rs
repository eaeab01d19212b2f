// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tools of Debian that process files of the host: `gzip`, `sha256sum`, `make` with gcc.

use super::{LineServer, REFERENCE};
use crate::lines::write_lines;
use crate::process_runs::{WorkDirectory, compare, needs};
use crate::program::CompiledProgram;
use crate::project::write_project;
use crate::{BenchError, BenchOptions, Row};
use std::path::Path;

/// The number of bytes compressed, and hashed.
const COMPRESSED: usize = 8 << 20;
const HASHED: usize = 64 << 20;
/// C files of the project.
const FILES: usize = 20;
const MAKE: &str = "/usr/bin/make";
/// The factor by which a brief run does less.
const BRIEF: usize = 16;

pub(super) fn run(
    options: BenchOptions<'_>,
    place: &WorkDirectory<'_>,
    program: &CompiledProgram,
    directory: &Path,
    report: &mut dyn FnMut(Row),
) -> Result<(), BenchError> {
    for (name, bytes, argv) in [("gzip", COMPRESSED, &["/usr/bin/gzip", "-c"][..]), ("sha256sum", HASHED, &["/usr/bin/sha256sum"])] {
        let bytes = if options.brief { bytes / BRIEF } else { bytes };
        let file = directory.join(name);
        write_lines(&file, bytes).map_err(BenchError::host("write a file to work on"))?;
        // The path is the same on both sides.
        let file = file.display().to_string();
        let volume = format!("{file}:{file}:ro");
        let arguments = [&["execute"], argv, &[file.as_str()]].concat();
        let pairs = LineServer::start(place, &["-v", &volume], program.path(), &arguments)?.compare(options.rounds(6), 1)?;
        report(Row::pairs(name, REFERENCE, &pairs).noting(format!("of {} MiB, from fork to wait", bytes >> 20)));
    }
    needs(MAKE, "make (Debian: make)")?;
    let project = directory.join("project");
    let files = if options.brief { 1 } else { FILES };
    write_project(&project, files).map_err(BenchError::host("write a C project"))?;
    let project = project.display().to_string();
    let arguments = ["--always-make", "--silent", "--directory", &project];
    let ours = place.cell(&["-v", &format!("{project}:{project}")], MAKE, &arguments);
    let pairs = compare(options.rounds(3), &[0], ours, place.native(MAKE, &arguments))?;
    report(Row::pairs("make", REFERENCE, &pairs).noting(format!("of {files} C files by gcc, the whole process")));
    Ok(())
}
