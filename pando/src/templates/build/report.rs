// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reports of a build: for people on standard error, or for programs as lines of JSON on standard output.

use crate::diagnostics;
use serde_json::{Value, json};
use std::io::{self, Write};

/// How a build is reported.
#[derive(Clone, Copy, Debug)]
pub(super) struct BuildReport {
    /// Lines of JSON.
    pub(super) json: bool,
}

impl BuildReport {
    /// A template is built.
    pub(super) fn building(self, name: &str, source: &str) -> io::Result<()> {
        if self.json {
            return Self::line(&json!({ "building": name, "source": source }));
        }
        diagnostics::print_notice(&format_args!("creating the template \"{name}\" from {source}, once..."));
        Ok(())
    }

    /// A step begins.
    pub(super) fn step(self, text: &str) -> io::Result<()> {
        if self.json {
            return Self::line(&json!({ "step": text }));
        }
        diagnostics::print_notice(&text);
        Ok(())
    }

    /// Output of a step.
    pub(super) fn output(self, bytes: &[u8]) -> io::Result<()> {
        if self.json {
            return Self::line(&json!({ "output": String::from_utf8_lossy(bytes) }));
        }
        io::stderr().write_all(bytes)
    }

    /// The template is there.
    pub(super) fn done(self, name: &str) -> io::Result<()> {
        if self.json {
            return Self::line(&json!({ "template": name }));
        }
        writeln!(io::stdout(), "{name}")
    }

    fn line(value: &Value) -> io::Result<()> {
        writeln!(io::stdout(), "{value}")
    }
}
