// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a cell did and took, for people and for scripts.

use crate::laps::Laps;
use pando_abi::virtual_registers::MissingCall;
use pando_gateway::{Counts, Report as Gateway};
use pando_kernel::cell::traffic::Traffic;
use pando_kernel::{End, Outcome, Report};
use serde_json::{Map, Value, json};
use std::ffi::OsStr;
use std::fmt::Write;
use syscalls::Sysno;

/// The figures of an ended cell, a line each.
pub(crate) fn table(program: &OsStr, outcome: &Outcome, gateway: Option<&Gateway>, laps: &Laps) -> String {
    let Outcome { counters, usage, report, end, traffic } = outcome;
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "  {name:<24}{value:>14}");
    };
    for (name, time) in laps.ended() {
        line(&format!("time for the {name}"), format!("{:.3} ms", time.as_secs_f64() * 1e3));
    }
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
    for call in missing(report) {
        line(&format!("    {}", name(call)), call.count.to_string());
    }
    for (name, count) in traffic.iter().flat_map(frames).chain(gateway.into_iter().flat_map(carried)) {
        line(&name.replace('_', " "), count.to_string());
    }
    for refused in gateway.into_iter().flat_map(|gateway| &gateway.refused) {
        line("  refused", refused.to_string());
    }
    format!("pando: {}: {end}\n{text}", program.display())
}

/// The system calls that the libOS does not implement.
fn missing(report: &Report) -> impl Iterator<Item = &MissingCall> {
    report.missing.iter().filter(|call| call.count > 0)
}

/// The name of a system call.
fn name(call: &MissingCall) -> String {
    Sysno::new(call.number as usize).map_or_else(|| format!("syscall_{:#x}", call.number), |call| call.name().into())
}

/// What went through its network card.
fn frames(traffic: &Traffic) -> [(&'static str, u64); 8] {
    let Traffic { sent, received, waiting, spoofed, lost, overrun } = *traffic;
    [
        ("frames_sent", sent.frames),
        ("frames_sent_bytes", sent.bytes),
        ("frames_received", received.frames),
        ("frames_received_bytes", received.bytes),
        ("frames_waiting", waiting.frames),
        ("frames_spoofed", spoofed),
        ("frames_lost", lost),
        ("frames_overrun", overrun),
    ]
}

/// What its gateway carried.
fn carried(gateway: &Gateway) -> [(&'static str, u64); 14] {
    let Counts { carried, datagrams, asking, refused, unanswered, stack } = gateway.counts;
    [
        ("connections_out", carried.outgoing),
        ("connections_out_failed", carried.failed),
        ("connections_in", carried.incoming),
        ("connections_in_failed", unanswered),
        ("stream_bytes_out", carried.bytes_out),
        ("stream_bytes_in", carried.bytes_in),
        ("datagrams_out", datagrams.out),
        ("datagrams_in", datagrams.inward),
        ("datagrams_lost", datagrams.lost),
        ("names_asked", asking.questions),
        ("names_refused", asking.refused),
        ("names_unanswered", asking.unanswered),
        ("destinations_refused", refused),
        ("segments_sent_again", stack.sent_again),
    ]
}

/// The same as one object: times in nanoseconds, memory in bytes.
pub(crate) fn json(outcome: &Outcome, gateway: Option<&Gateway>, laps: &Laps) -> Value {
    let Outcome { counters, usage, report, end, traffic } = outcome;
    let (status, signal) = match end {
        End::Exited { status } => (Some(status), None),
        End::Signalled { signal, .. } => (None, Some(signal)),
        _ => (None, None),
    };
    let laps: Map<String, Value> = laps.ended().iter().map(|(name, time)| ((*name).into(), json!(time.as_nanos() as u64))).collect();
    json!({
        "end": end.to_string(),
        "status": status,
        "signal": signal,
        "time_ns": laps,
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
        "network": traffic.iter().flat_map(frames).chain(gateway.into_iter().flat_map(carried)).map(|(name, count)| (name.into(), json!(count))).collect::<Map<_, _>>(),
        "refused": gateway.map(|gateway| gateway.refused.iter().map(ToString::to_string).collect::<Vec<_>>()).unwrap_or_default(),
        "missing": missing(report).map(|call| json!({"number": call.number, "name": name(call), "count": call.count})).collect::<Vec<_>>(),
    })
}
