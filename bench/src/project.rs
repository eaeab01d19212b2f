// SPDX-License-Identifier: MIT OR Apache-2.0
//! A C project for `make` to build.

use std::fmt::Write;
use std::fs;
use std::io;
use std::path::Path;

/// Functions of each file, which have 200 lines in total.
const FUNCTIONS: usize = 16;

/// Writes a project of C files that call each other, and its `Makefile`.
pub(crate) fn write_project(directory: &Path, files: usize) -> io::Result<()> {
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
