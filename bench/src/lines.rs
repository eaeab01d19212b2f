// SPDX-License-Identifier: MIT OR Apache-2.0
//! Text for programs to work on.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

/// Writes lines of words, the same in each run.
pub(crate) fn write_lines(file: &Path, bytes: usize) -> std::io::Result<()> {
    const WORDS: [&str; 16] = [
        "arena", "block", "cell", "clone", "context", "event", "exit", "fault", "frame", "host", "kernel", "machine", "page", "segment",
        "space", "tree",
    ];
    let mut output = BufWriter::new(File::create(file)?);
    let (mut written, mut random) = (0, 0x2545_f491_4f6c_dd1d_u64);
    while written < bytes {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let [one, two, three] = [60, 52, 44].map(|shift| WORDS[((random >> shift) & 15) as usize]);
        let line = format!("{one} {two} {three} {}\n", (random >> 20) & 0xffff);
        output.write_all(line.as_bytes())?;
        written += line.len();
    }
    output.flush()
}
