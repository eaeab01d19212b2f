// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests for a running server: on the host, or in a cell, reached through the gateway.

use anyhow::Result;
use std::path::Path;

use super::{CELL_TIMEOUT_FACTOR, Outcome, Runner};

/// Starts a server (the first `count` words), polls until it answers, and runs the tests (the other words), which find its
/// port in `PORT`. The poll sends an unknown command, which both servers answer.
const SCRIPT: &str = r#"
export PORT=$1; count=$2; shift 2
"${@:1:count}" > "$TMPDIR/server" 2>&1 & server=$!
shift "$count"
asks() { exec 3<> "/dev/tcp/127.0.0.1/$PORT" && printf 'hello\r\n' >&3 && read -r -t 20 _ <&3; }
until (asks 2> /dev/null); do kill -0 $server || { cat "$TMPDIR/server"; exit 1; }; done
"$@"; status=$?
kill $server; wait $server
exit $status
"#;

/// A server, and the tests that query it.
pub(super) struct RunningServer<'a> {
    /// The port of the host.
    pub(super) port: u16,
    /// The server's command line without its port option.
    pub(super) server: &'a [&'a str],
    /// The option for the port.
    pub(super) port_word: &'a str,
    /// Its port in a cell.
    pub(super) usual_port: u16,
    /// Additional options in a cell, where clients come over a network.
    pub(super) in_cell: &'a [&'a str],
    /// The tests.
    pub(super) tests: &'a [&'a str],
}

impl RunningServer<'_> {
    /// Runs the tests with a server on the host.
    pub(super) fn native(&self, runner: &Runner, part: &str, directory: &Path) -> Result<Outcome> {
        let port = self.port.to_string();
        self.ask(runner, ("native", runner.limit), part, directory, &[self.server, &[self.port_word, &port]].concat())
    }

    /// Runs the tests with a server in a cell.
    pub(super) fn cell(&self, runner: &Runner, part: &str, directory: &Path) -> Result<Outcome> {
        let (pando, forward, usual) =
            (runner.pando.to_string_lossy(), format!("{}:{}", self.port, self.usual_port), self.usual_port.to_string());
        let run = [&*pando, "run", "-p", &forward, "--"];
        let server = [&run[..], self.server, &[self.port_word, &usual], self.in_cell].concat();
        self.ask(runner, ("cell", CELL_TIMEOUT_FACTOR * runner.limit), part, directory, &server)
    }

    fn ask(&self, runner: &Runner, (side, limit): (&str, u64), part: &str, directory: &Path, server: &[&str]) -> Result<Outcome> {
        let (port, count) = (self.port.to_string(), server.len().to_string());
        let words = [&["bash", "-c", SCRIPT, "served", &port, &count], server, self.tests].concat();
        runner.finish(&runner.file(side, part)?, limit, &words, Some(directory))
    }
}
