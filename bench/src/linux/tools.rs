// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tools of Debian that process files of the host: `gzip`, `sha256sum`, `make` with gcc.

use super::{LineServer, REFERENCE};
use crate::lines::write_lines;
use crate::process_runs::{WorkDirectory, compare, needs};
use crate::program::Compiled;
use crate::{BenchError, BenchOptions, Row};
use std::fmt::Write;
use std::fs;
use std::io;
use std::path::Path;

/// The number of bytes compressed, and hashed.
const COMPRESSED: usize = 8 << 20;
const HASHED: usize = 64 << 20;
/// C files of the project, and functions of each, which have 200 lines in total.
const FILES: usize = 20;
const FUNCTIONS: usize = 16;
const MAKE: &str = "/usr/bin/make";
/// The factor by which a brief run does less.
const BRIEF: usize = 16;

pub(super) fn run(
    options: BenchOptions<'_>,
    place: &WorkDirectory<'_>,
    program: &Compiled,
    directory: &Path,
    report: &mut dyn FnMut(Row),
) -> Result<(), BenchError> {
    for (name, bytes, words) in [("gzip", COMPRESSED, &["/usr/bin/gzip", "-c"][..]), ("sha256sum", HASHED, &["/usr/bin/sha256sum"])] {
        let bytes = if options.brief { bytes / BRIEF } else { bytes };
        let file = directory.join(name);
        write_lines(&file, bytes).map_err(BenchError::host("write a file to work on"))?;
        // The path is the same on both sides.
        let file = file.display().to_string();
        let volume = format!("{file}:{file}:ro");
        let words = [&["execute"], words, &[file.as_str()]].concat();
        let pairs = LineServer::start(place, &["-v", &volume], program.path(), &words)?.compare(options.rounds(6), 1)?;
        report(Row::pairs(name, REFERENCE, &pairs).noting(format!("of {} MiB, from fork to wait", bytes >> 20)));
    }
    needs(MAKE, "make (Debian: make)")?;
    let project = directory.join("project");
    let files = if options.brief { 1 } else { FILES };
    write_project(&project, files).map_err(BenchError::host("write a C project"))?;
    let project = project.display().to_string();
    let words = ["--always-make", "--silent", "--directory", &project];
    let ours = place.cell(&["-v", &format!("{project}:{project}")], MAKE, &words);
    let pairs = compare(options.rounds(3), &[0], ours, place.native(MAKE, &words))?;
    report(Row::pairs("make", REFERENCE, &pairs).noting(format!("of {files} C files by gcc, the whole process")));
    Ok(())
}

/// Writes a project of C files that call each other.
fn write_project(directory: &Path, files: usize) -> io::Result<()> {
    fs::create_dir(directory)?;
    let mut header = String::from("#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n");
    let mut main = String::from("#include \"project.h\"\nint main(void)\n{\n    unsigned sum = 0;\n");
    let mut objects = String::from("main.o");
    for file in 0..files {
        let mut text = String::from("#include \"project.h\"\n");
        for function in 0..FUNCTIONS {
            let called = format!("work_{}_{function}", (file + 1) % files);
            // Writing to a string cannot fail.
            let _ = write!(
                text,
                "unsigned work_{file}_{function}(unsigned depth)\n{{\n    unsigned table[32], sum = depth * {function}u;\n    if (depth == 0)\n        return {file};\n    \
                 for (unsigned i = 0; i < 32; i++)\n        table[i] = (sum ^ i) * 2654435761u;\n    for (unsigned i = 0; i < 32; i++)\n        sum = sum * 31 + table[(i * 7) % 32];\n    \
                 return sum + {called}(depth - 1);\n}}\n"
            );
            let _ = writeln!(header, "unsigned work_{file}_{function}(unsigned depth);");
        }
        fs::write(directory.join(format!("file-{file}.c")), text)?;
        let _ = writeln!(main, "    sum += work_{file}_0(3);");
        let _ = write!(objects, " file-{file}.o");
    }
    main.push_str("    printf(\"%u\\n\", sum);\n    return 0;\n}\n");
    fs::write(directory.join("project.h"), header)?;
    fs::write(directory.join("main.c"), main)?;
    let rules =
        format!("CC = gcc\nCFLAGS = -O2\nobjects = {objects}\n\nproject: $(objects)\n\t$(CC) -o $@ $(objects)\n\n$(objects): project.h\n");
    fs::write(directory.join("Makefile"), rules)
}
