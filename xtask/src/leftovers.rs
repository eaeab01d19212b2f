// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes that outlive the tests that started them.
//!
//! A test that fails may leave programs running. They keep the pipes that they inherited open, so that a reader of these never sees the
//! end.

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, getpid, pidfd_open, pidfd_send_signal, set_child_subreaper, waitpid};
use std::fs;
use std::time::{Duration, Instant};

/// An ample time for processes to end by themselves, as services do when their last client has gone.
pub(crate) const GRACE: Duration = Duration::from_secs(10);

/// Makes processes whose parent ends become children of this process.
///
/// # Errors
/// If the kernel refuses.
pub(crate) fn adopt() -> Result<()> {
    set_child_subreaper(Some(getpid())).context("becoming the parent of orphans")
}

/// Kills all children of this process that do not end by themselves, and theirs. Returns their command lines.
///
/// To be called while this process waits for no other child. After [`adopt`], the children of a process that ends become children of this
/// one.
pub(crate) fn end(grace: Duration) -> Vec<String> {
    let deadline = Instant::now() + grace;
    let mut ended = Vec::new();
    loop {
        let children = children();
        if children.is_empty() {
            return ended;
        }
        for pid in children {
            let command = command_line(pid);
            if let Ok(process) = pidfd_open(pid, PidfdFlags::empty())
                && !has_ended(&process, deadline.saturating_duration_since(Instant::now()))
            {
                ended.push(command);
                // A process that has ended meanwhile needs no signal.
                let _ = pidfd_send_signal(&process, Signal::KILL);
            }
            // Fails only for a process that is no child any more.
            let _ = waitpid(Some(pid), WaitOptions::empty());
        }
    }
}

/// Waits until a process ends; `false` after the time.
fn has_ended(process: &OwnedFd, time: Duration) -> bool {
    let mut watched = [PollFd::new(process, PollFlags::IN)];
    let time = Timespec::try_from(time).expect("a few seconds");
    poll(&mut watched, Some(&time)).is_ok_and(|ready| ready > 0)
}

/// The children of all threads of this process.
fn children() -> Vec<Pid> {
    let threads = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect::<Vec<_>>()).collect()
}

/// The words of a process's command line, as far as they fit into a line.
fn command_line(pid: Pid) -> String {
    let words = fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).unwrap_or_default();
    String::from_utf8_lossy(&words).trim_end_matches('\0').chars().map(|c| if c.is_control() { ' ' } else { c }).take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use pando_packages::host_program;
    use std::process::{Command, Stdio};

    /// In a process of its own: other tests have children that must live.
    #[test]
    fn orphans_are_ended_with_their_children() {
        const VARIABLE: &str = "PANDO_TEST_OF_LEFTOVERS";
        if std::env::var_os(VARIABLE).is_none() {
            let test = std::env::current_exe().expect("a test program");
            let mut command = Command::new(test);
            command.args(["leftovers::tests", "--nocapture"]).env(VARIABLE, "1").stdin(Stdio::null());
            assert!(command.status().expect("it starts").success());
            return;
        }
        adopt().expect("it is allowed");
        let script = "(sleep 1000; true) & (sleep 2000; true) & exit 0";
        assert!(Command::new(host_program("sh")).args(["-c", script]).status().expect("it starts").success());
        let ended = end(Duration::ZERO);
        assert!(ended.iter().any(|line| line.contains("sleep 1000")) && ended.iter().any(|line| line.contains("sleep 2000")), "{ended:?}");
        assert!(children().is_empty());
    }
}
