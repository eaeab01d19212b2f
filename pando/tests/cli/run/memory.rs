// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory of a run whose program idles.

use crate::fixture::Fixture;
use pando_testing::needs_kvm;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// Anonymous memory of a run: a third of what one takes that keeps its huge pages, the blocks that it read, and a copy of the libOS.
const BOUND: u64 = 4 << 20;
/// Far longer than the time after which a run gives memory back, and than a scan of the host's software takes on a busy machine.
const WAIT_MAX: Duration = Duration::from_secs(300);

/// The anonymous resident memory of a process, in bytes.
fn anonymous(process: &Child) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.id())).expect("the process lives");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("Linux reports it");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("it is a number") << 10
}

#[test]
fn an_idle_program_takes_little_memory_and_goes_on() {
    needs_kvm!();
    let fixture = Fixture::new();
    let mut command = fixture.command(&["run", "--", "busybox", "sh", "-c", "echo ready; read line; echo \"$line\"; busybox uname"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("pando starts");
    let mut output = BufReader::new(child.stdout.take().expect("it was asked for")).lines();
    let mut next = || output.next().expect("a line").expect("it can be read");
    assert_eq!(next(), "ready");
    let start = Instant::now();
    while anonymous(&child) > BOUND {
        assert!(start.elapsed() < WAIT_MAX, "{} bytes are resident", anonymous(&child));
        std::thread::sleep(Duration::from_millis(50));
    }
    let mut input = child.stdin.take().expect("it was asked for");
    std::io::Write::write_all(&mut input, b"again\n").expect("the program reads");
    assert_eq!([next(), next()], ["again", "Linux"]);
    assert!(child.wait().expect("it was started").success());
}
