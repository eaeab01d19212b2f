// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a cell did and took, for people.

use pando_kernel::Outcome;
use std::fmt::Write;

/// The figures of an ended cell, a line each.
pub(crate) fn table(outcome: &Outcome) -> String {
    let Outcome { counters, usage, report, end } = outcome;
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "  {name:<24}{value:>14}");
    };
    line("CPU time", format!("{:.3} ms", counters.cpu.as_secs_f64() * 1e3));
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
    let numbers: Vec<_> = (0..report.missing.len() * 64)
        .filter(|number| report.missing[number / 64] >> (number % 64) & 1 == 1)
        .map(|number| number.to_string())
        .collect();
    if !numbers.is_empty() {
        line("  their numbers", numbers.join(" "));
    }
    format!("pando: the cell {end}\n{text}")
}
