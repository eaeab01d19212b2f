// SPDX-License-Identifier: MIT OR Apache-2.0
//! Statistics of a cell, for people and for scripts.

use pando_abi::virtual_registers::MissingCall;
use pando_gateway::{Counts, GatewayReport as Gateway, PortForward, Protocol, TapCounts};
use pando_kernel::cell::traffic::Traffic;
use pando_kernel::{End, Outcome, Report};
use pando_manager::network::{NetworkReport, UplinkCounts};
use pando_manager::timings::Timings;
use serde_json::{Map, Value, json};
use std::ffi::OsStr;
use std::fmt::Write;
use syscalls::Sysno;

/// The statistics of an ended cell, one per line.
pub(crate) fn table(program: &OsStr, outcome: &Outcome, network: &NetworkReport, timings: &Timings) -> String {
    let Outcome { counters, usage, report, end, traffic, start: _ } = outcome;
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "  {name:<24}{value:>14}");
    };
    for (name, time) in timings.ended() {
        line(&format!("time for the {name}"), format!("{:.3} ms", time.as_secs_f64() * 1e3));
    }
    line("time on a vCPU", format!("{:.3} ms", counters.cpu.as_secs_f64() * 1e3));
    line("memory, at most", usage.peak.to_string());
    line("memory quota", usage.quota.to_string());
    line("exits", counters.exits.to_string());
    let plain = |name: &str| name.replace('_', " ");
    for (cause, count) in counters.exit_causes() {
        line(&format!("  {}", plain(cause)), count.to_string());
    }
    line("events delivered", counters.events.to_string());
    line("preemptions", counters.preemptions.to_string());
    line("system calls made", report.calls.to_string());
    line("  not implemented", report.missing_calls.to_string());
    for call in missing(report) {
        line(&format!("    {}", name(call)), call.count.to_string());
    }
    for (name, count) in traffic.iter().flat_map(frames).chain(network.uplink.iter().flat_map(|(_, out)| carried(out))) {
        line(&plain(name), count.to_string());
    }
    if let Some((port, out)) = &network.uplink {
        line(&format!("at the {}", kind(out)), String::new());
        for (name, count) in frames(port) {
            line(&format!("  {}", plain(name)), count.to_string());
        }
    }
    for refused in refused(network) {
        line("  refused", refused);
    }
    for forward in &network.forwards {
        line(&format!("port {}", forward.cell), forward.host.to_string());
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

/// The traffic and queues of a port.
fn frames(traffic: &Traffic) -> [(&'static str, u64); 12] {
    let Traffic { sent, received, waiting, max_waiting, in_transit, spoofed, lost, overrun } = *traffic;
    [
        ("frames_sent", sent.frames),
        ("frames_sent_bytes", sent.bytes),
        ("frames_received", received.frames),
        ("frames_received_bytes", received.bytes),
        ("frames_waiting", waiting.frames),
        ("frames_waiting_bytes", waiting.bytes),
        ("most_waiting", max_waiting.frames),
        ("most_waiting_bytes", max_waiting.bytes),
        ("bytes_on_the_link", in_transit),
        ("frames_spoofed", spoofed),
        ("frames_lost", lost),
        ("frames_overrun", overrun),
    ]
}

/// The kind of uplink.
fn kind(out: &UplinkCounts) -> &'static str {
    match out {
        UplinkCounts::Gateway(_) => "gateway",
        UplinkCounts::Tap(_) => "tap",
    }
}

/// The counts of the uplink.
fn carried(out: &UplinkCounts) -> Vec<(&'static str, u64)> {
    match out {
        UplinkCounts::Gateway(gateway) => carried_by_gateway(gateway).into(),
        UplinkCounts::Tap(TapCounts { refused, damaged, too_long, segmented }) => {
            [("tap_refused", *refused), ("tap_damaged", *damaged), ("tap_too_long", *too_long), ("tap_segmented", *segmented)].into()
        }
    }
}

fn carried_by_gateway(gateway: &Gateway) -> [(&'static str, u64); 14] {
    let Counts { tcp, udp, dns, refused, unanswered, stack } = gateway.counts;
    [
        ("connections_out", tcp.outgoing),
        ("connections_out_failed", tcp.failed),
        ("connections_in", tcp.incoming),
        ("connections_in_failed", unanswered),
        ("stream_bytes_out", tcp.bytes_out),
        ("stream_bytes_in", tcp.bytes_in),
        ("datagrams_out", udp.out),
        ("datagrams_in", udp.inward),
        ("datagrams_lost", udp.lost),
        ("names_asked", dns.queries),
        ("names_refused", dns.refused),
        ("names_unanswered", dns.unanswered),
        ("destinations_refused", refused),
        ("segments_sent_again", stack.retransmitted),
    ]
}

/// The first destinations that were refused.
fn refused(network: &NetworkReport) -> Vec<String> {
    match &network.uplink {
        Some((_, UplinkCounts::Gateway(gateway))) => gateway.refused.iter().map(ToString::to_string).collect(),
        _ => Vec::new(),
    }
}

/// A published port.
fn published(PortForward { host, cell, protocol }: &PortForward) -> Value {
    let protocol = match protocol {
        Protocol::Tcp => "tcp",
        Protocol::Udp => "udp",
    };
    json!({"host": host.to_string(), "cell": cell, "protocol": protocol})
}

/// Named counts as an object.
fn object(counts: impl IntoIterator<Item = (&'static str, u64)>) -> Map<String, Value> {
    counts.into_iter().map(|(name, count)| (name.into(), json!(count))).collect()
}

/// The statistics as one object with keys in snake case: times in nanoseconds, memory in bytes.
pub(crate) fn json(outcome: &Outcome, network: &NetworkReport, timings: &Timings) -> Value {
    let Outcome { counters, usage, report, end, traffic, start: _ } = outcome;
    let (status, signal) = match end {
        End::Exited { status } => (Some(status), None),
        End::Signalled { signal, .. } => (None, Some(signal)),
        _ => (None, None),
    };
    let timings: Map<String, Value> =
        timings.ended().iter().map(|(name, time)| (name.to_lowercase(), json!(time.as_nanos() as u64))).collect();
    json!({
        "end": end.to_string(),
        "status": status,
        "signal": signal,
        "time_ns": timings,
        "cpu_ns": counters.cpu.as_nanos() as u64,
        "memory_peak_bytes": usage.peak.bytes(),
        "memory_quota_bytes": usage.quota.bytes(),
        "exits": counters.exits,
        "exit_causes": object(counters.exit_causes()),
        "hypercalls": counters.hypercalls,
        "syscall_exits": counters.syscalls,
        "faults_resolved": counters.faults,
        "exceptions": counters.exceptions,
        "events": counters.events,
        "preemptions": counters.preemptions,
        "calls": report.calls,
        "calls_missing": report.missing_calls,
        "network": object(traffic.iter().flat_map(frames).chain(network.uplink.iter().flat_map(|(_, out)| carried(out)))),
        "outside": network.uplink.as_ref().map(|(port, out)| json!({"kind": kind(out), "port": object(frames(port))})),
        "published": network.forwards.iter().map(published).collect::<Vec<_>>(),
        "refused": refused(network),
        "missing": missing(report).map(|call| json!({"number": call.number, "name": name(call), "count": call.count})).collect::<Vec<_>>(),
    })
}
