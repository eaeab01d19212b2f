// SPDX-License-Identifier: MIT OR Apache-2.0
//! Follows the serial line of an emulated machine, line by line, with timeouts.

use anyhow::{Context, Result, bail};
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

/// How often the serial line's file is read.
const POLL: Duration = Duration::from_millis(100);
/// The time for a machine to switch itself off after its last line.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);

/// The timeouts of a machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimeLimits {
    /// In total.
    pub(crate) limit: Duration,
    /// Without output.
    pub(crate) quiet: Duration,
}

/// Passes each line to `take_line` until that returns `false` (the machine is done), and then kills the emulator.
///
/// # Errors
/// The error of `take_line`; or that the machine ended, stopped printing or timed out before it was done.
pub(crate) fn follow(mut child: Child, serial: &Path, limits: TimeLimits, mut take_line: impl FnMut(&str) -> Result<bool>) -> Result<()> {
    let outcome = listen(&mut child, serial, limits, &mut take_line);
    if outcome.is_ok() {
        wait(&mut child, SHUTDOWN_TIMEOUT)?;
    }
    // Fails only if the emulator has ended by itself.
    let _ = child.kill();
    child.wait().context("waiting for the emulator")?;
    outcome
}

fn listen(child: &mut Child, serial: &Path, limits: TimeLimits, take_line: &mut impl FnMut(&str) -> Result<bool>) -> Result<()> {
    let mut file = File::open(serial).context("opening the serial line")?;
    let started = Instant::now();
    let mut last_word = started;
    let mut pending = Vec::new();
    loop {
        // The order matters: output written before the emulator ended is still read.
        let ended = child.try_wait().context("checking the emulator")?;
        let before = pending.len();
        file.read_to_end(&mut pending).context("reading the serial line")?;
        let has_spoken = pending.len() > before;
        while let Some(end) = pending.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = pending.drain(..=end).collect();
            if !take_line(String::from_utf8_lossy(&line).trim_end_matches(['\r', '\n']))? {
                return Ok(());
            }
        }
        if has_spoken {
            last_word = Instant::now();
        }
        let rest = String::from_utf8_lossy(&pending);
        let at = if rest.trim().is_empty() { String::new() } else { format!(", in the middle of the line `{}`", rest.trim()) };
        if let Some(status) = ended {
            bail!("the emulator ended before the machine was done ({status}){at}");
        }
        if last_word.elapsed() > limits.quiet {
            bail!("the machine printed nothing for {} s{at}", last_word.elapsed().as_secs());
        }
        if started.elapsed() > limits.limit {
            bail!("the machine did not finish within {} s{at}", limits.limit.as_secs());
        }
        thread::sleep(POLL);
    }
}

fn wait(child: &mut Child, limit: Duration) -> Result<()> {
    let started = Instant::now();
    while child.try_wait().context("checking the emulator")?.is_none() && started.elapsed() < limit {
        thread::sleep(POLL);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use pando_packages::host_program;
    use std::process::{Command, Stdio};

    /// Follows a shell script in place of the machine, with its output as the serial line.
    fn play(script: &str, limits: TimeLimits) -> (Vec<String>, Result<()>) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let serial = folder.path().join("serial");
        let output = File::create(&serial).expect("a serial line");
        let child = Command::new(host_program("sh")).args(["-c", script]).stdin(Stdio::null()).stdout(output).spawn().expect("sh starts");
        let mut lines = Vec::new();
        let outcome = follow(child, &serial, limits, |line| {
            lines.push(line.to_string());
            Ok(line != "done")
        });
        (lines, outcome)
    }

    const LONG: TimeLimits = TimeLimits { limit: Duration::from_secs(60), quiet: Duration::from_secs(60) };
    const SHORT: Duration = Duration::from_millis(300);

    #[test]
    fn lines_come_whole_and_without_carriage_returns() {
        let (lines, outcome) = play("printf 'one\\r\\ntw'; printf 'o\\ndone\\n'", LONG);
        outcome.expect("the machine was done");
        assert_eq!(lines, ["one", "two", "done"]);
    }

    #[test]
    fn an_early_end_is_an_error_and_loses_no_line() {
        let (lines, outcome) = play("echo one; printf 'test x ... '", LONG);
        assert_eq!(lines, ["one"]);
        let error = outcome.expect_err("it ended early").to_string();
        assert!(error.contains("ended before") && error.contains("`test x ...`"), "{error}");
    }

    #[test]
    fn silence_and_slowness_are_distinguished() {
        let (_, outcome) = play("exec sleep 60", TimeLimits { quiet: SHORT, ..LONG });
        assert!(outcome.expect_err("silence").to_string().contains("printed nothing"));
        let (_, outcome) = play("while echo; do :; done", TimeLimits { limit: SHORT, ..LONG });
        assert!(outcome.expect_err("slowness").to_string().contains("did not finish"));
    }
}
