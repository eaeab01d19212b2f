// SPDX-License-Identifier: MIT OR Apache-2.0
//! Output of concurrent cells, mixed line by line.

use std::io::{self, Write};

/// A longer line is passed on before its end.
const LINE_MAX: usize = 1 << 16;

/// Writes whole lines.
#[derive(Debug)]
pub(super) struct LineWriter<W: Write> {
    out: W,
    /// The start of an unfinished line.
    rest: Vec<u8>,
}

impl<W: Write> LineWriter<W> {
    pub(super) fn new(out: W) -> LineWriter<W> {
        LineWriter { out, rest: Vec::new() }
    }

    /// Adds bytes and writes the completed lines at once.
    ///
    /// # Errors
    /// The writer fails.
    pub(super) fn take(&mut self, bytes: &[u8]) -> io::Result<()> {
        let before = self.rest.len();
        self.rest.extend_from_slice(bytes);
        let whole = match bytes.iter().rposition(|byte| *byte == b'\n') {
            Some(end) => before + end + 1,
            None if self.rest.len() > LINE_MAX => self.rest.len(),
            None => return Ok(()),
        };
        self.out.write_all(&self.rest[..whole])?;
        self.rest.drain(..whole);
        Ok(())
    }

    /// Writes an unfinished last line with a newline.
    ///
    /// # Errors
    /// The writer fails.
    pub(super) fn finish(mut self) -> io::Result<()> {
        if !self.rest.is_empty() {
            self.rest.push(b'\n');
            self.out.write_all(&self.rest)?;
        }
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::LineWriter;

    #[test]
    fn lines_are_passed_on_whole() {
        let mut out = Vec::new();
        let mut lines = LineWriter::new(&mut out);
        for (bytes, passed) in [("a", ""), ("b\nc", "ab\n"), ("\n\nd", "ab\nc\n\n")] {
            lines.take(bytes.as_bytes()).expect("a vector can be written");
            assert_eq!(lines.out.as_slice(), passed.as_bytes());
        }
        lines.finish().expect("a vector can be written");
        assert_eq!(out, b"ab\nc\n\nd\n");
    }
}
