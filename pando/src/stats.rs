// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a cell did and took, for people and for scripts.

use pando_kernel::{End, Outcome, Report};
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::fmt::Write;

/// The figures of an ended cell, a line each.
pub(crate) fn table(program: &OsStr, outcome: &Outcome) -> String {
    let Outcome { counters, usage, report, end } = outcome;
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "  {name:<24}{value:>14}");
    };
    line("time on a vCPU", format!("{:.3} ms", counters.cpu.as_secs_f64() * 1e3));
    line("memory, at most", usage.peak.to_string());
    line("memory quota", usage.quota.to_string());
    line("exits", counters.exits.to_string());
    line("  hypercalls", counters.hypercalls.to_string());
    line("  system calls", counters.syscalls.to_string());
    line("  faults resolved", counters.faults.to_string());
    line("  exceptions", counters.exceptions.to_string());
    line("events delivered", counters.events.to_string());
    line("preemptions", counters.preemptions.to_string());
    line("system calls made", report.calls.to_string());
    line("  not implemented", report.missing_calls.to_string());
    let numbers: Vec<_> = missing(report).map(|number| number.to_string()).collect();
    if !numbers.is_empty() {
        line("  their numbers", numbers.join(" "));
    }
    format!("pando: {}: {end}\n{text}", program.display())
}

/// The numbers of the system calls that the libOS does not implement.
fn missing(report: &Report) -> impl Iterator<Item = usize> {
    (0..report.missing.len() * 64).filter(|number| report.missing[number / 64] >> (number % 64) & 1 == 1)
}

/// The same as one object: times in nanoseconds, memory in bytes.
pub(crate) fn json(outcome: &Outcome) -> Value {
    let Outcome { counters, usage, report, end } = outcome;
    let (status, signal) = match end {
        End::Exited { status } => (Some(status), None),
        End::Signalled { signal, .. } => (None, Some(signal)),
        _ => (None, None),
    };
    json!({
        "end": end.to_string(),
        "status": status,
        "signal": signal,
        "cpu_ns": counters.cpu.as_nanos() as u64,
        "memory_peak_bytes": usage.peak.bytes(),
        "memory_quota_bytes": usage.quota.bytes(),
        "exits": counters.exits,
        "hypercalls": counters.hypercalls,
        "syscall_exits": counters.syscalls,
        "faults_resolved": counters.faults,
        "exceptions": counters.exceptions,
        "events": counters.events,
        "preemptions": counters.preemptions,
        "calls": report.calls,
        "calls_missing": report.missing_calls,
        "missing": missing(report).collect::<Vec<_>>(),
    })
}
