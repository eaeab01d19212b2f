// SPDX-License-Identifier: MIT OR Apache-2.0
//! The first line of a script: `#!`, an interpreter's path, and at most one argument, which may hold blanks.

/// Bytes of a file that are examined, as on Linux.
pub const HEAD: usize = 256;

/// The content of the first line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interpreter<'a> {
    /// The interpreter's path.
    pub path: &'a [u8],
    /// The argument that it gets before the script's path.
    pub argument: Option<&'a [u8]>,
}

const fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

/// Whether a file with these first bytes is a script.
#[must_use]
pub fn is_script(head: &[u8]) -> bool {
    head.starts_with(b"#!")
}

/// Parses the first line of a script from the first [`HEAD`] bytes of its file, or from all of a shorter one. `None`: it names no
/// interpreter, or the interpreter's path may be cut off.
#[must_use]
pub fn parse(head: &[u8]) -> Option<Interpreter<'_>> {
    let head = &head[..head.len().min(HEAD)];
    let text = head.strip_prefix(b"#!")?;
    let is_end = |byte: &u8| is_blank(*byte) || *byte == 0;
    let line = match text.iter().position(|byte| *byte == b'\n') {
        Some(end) => &text[..end],
        // The path may continue behind the bytes read; a longer argument is cut.
        None if head.len() == HEAD && !text.trim_prefix_blanks().iter().any(is_end) => return None,
        None => &text[..text.len().min(HEAD - 1 - b"#!".len())],
    };
    let line = line.trim_prefix_blanks();
    let (path, rest) = line.split_at(line.iter().position(is_end).unwrap_or(line.len()));
    let rest = &rest[..rest.iter().position(|byte| *byte == 0).unwrap_or(rest.len())];
    let argument = rest.trim_prefix_blanks().trim_suffix_blanks();
    (!path.is_empty()).then_some(Interpreter { path, argument: Some(argument).filter(|argument| !argument.is_empty()) })
}

/// Strips blanks.
trait Trim {
    fn trim_prefix_blanks(&self) -> &Self;
    fn trim_suffix_blanks(&self) -> &Self;
}

impl Trim for [u8] {
    fn trim_prefix_blanks(&self) -> &[u8] {
        &self[self.iter().take_while(|byte| is_blank(**byte)).count()..]
    }

    fn trim_suffix_blanks(&self) -> &[u8] {
        &self[..self.len() - self.iter().rev().take_while(|byte| is_blank(**byte)).count()]
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::{HEAD, Interpreter, parse};

    #[test]
    fn first_lines_are_read_as_linux_reads_them() {
        let named = |line: &[u8]| parse(line).map(|found| (found.path.to_vec(), found.argument.map(<[u8]>::to_vec)));
        let just = |path: &[u8]| Some((path.to_vec(), None));
        let with = |path: &[u8], argument: &[u8]| Some((path.to_vec(), Some(argument.to_vec())));
        assert_eq!(named(b"#!/bin/sh\necho"), just(b"/bin/sh"));
        assert_eq!(named(b"#!/bin/sh"), just(b"/bin/sh"));
        assert_eq!(named(b"#! \t/bin/sh \t\n"), just(b"/bin/sh"));
        assert_eq!(named(b"#!/usr/bin/env -S a  b \n"), with(b"/usr/bin/env", b"-S a  b"));
        assert_eq!(named(b"#!relative\tone two\n"), with(b"relative", b"one two"));
        assert_eq!(named(b"#!/bin/sh\0 -x\n"), just(b"/bin/sh"));
        for nothing in [&b"#!"[..], b"#!\n", b"#!  \n/bin/sh\n", b"# !/bin/sh\n", b""] {
            assert_eq!(named(nothing), None);
        }
    }

    #[test]
    fn a_truncated_path_is_rejected_and_a_truncated_argument_is_kept() {
        let long = |start: &[u8]| start.iter().copied().chain([b'x'; 300]).take(HEAD).collect::<Vec<u8>>();
        assert_eq!(parse(&long(b"#!/bin/")), None);
        let cut = long(b"#!/bin/sh ");
        assert_eq!(parse(&cut), Some(Interpreter { path: b"/bin/sh", argument: Some(&cut[10..HEAD - 1]) }));
    }
}
