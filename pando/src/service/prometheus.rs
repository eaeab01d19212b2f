// SPDX-License-Identifier: MIT OR Apache-2.0
//! Metrics of the service in the text format that Prometheus reads.

use pando_kernel::{Statistics, SwapUsage};
use pando_manager::cells::ManagerSummary;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

/// The type of the text.
pub(super) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Writes all metrics.
pub(super) fn text(summary: &ManagerSummary, statistics: &Statistics, swap: &SwapUsage) -> Result<String, std::fmt::Error> {
    let mut registry = Registry::with_prefix("pando");
    let states = Family::<Vec<(String, String)>, Gauge>::default();
    for (state, count) in &statistics.states {
        states.get_or_create(&vec![("state".into(), (*state).into())]).set(*count as i64);
    }
    registry.register("cells", "Living cells, templates and prepared roots by state", states);
    for (name, help, value) in [
        ("wake_queue", "Sleeping cells that are due to wake up", statistics.waking),
        ("quarantined_tables", "Page tables that wait for a flush", statistics.quarantined),
        ("swap_records", "Chunks of records of sleeping cells in swap space", swap.records),
        ("gateways", "Cells that can reach external networks at a time", summary.gateways as u64),
    ] {
        registry.register(name, help, gauge(value));
    }
    for (name, help, value) in [
        ("swap_used", "Swap space that records take", swap.used),
        ("swap_size", "Size of swap space", swap.size),
        ("memory_size", "Memory limit of all cells", summary.memory.bytes()),
        ("memory_free", "Memory that is free for cells", summary.free.bytes()),
    ] {
        registry.register_with_unit(name, help, Unit::Bytes, gauge(value));
    }
    let sleeps = &statistics.sleeps;
    for (name, help, value) in [
        ("sleeps", "Cells that fell asleep", sleeps.sleeps),
        ("pressure_sleeps", "Cells that fell asleep because memory was short", sleeps.pressure_sleeps),
        ("wakes", "Cells that woke up", sleeps.wakes),
        ("sleeps_interrupted", "Sleeps that an event prevented", sleeps.interrupted),
        ("sleeps_refused", "Sleeps that the state of a cell or of swap space prevented", sleeps.refused),
        ("cells_lost", "Cells that ended because their memory could not be restored", sleeps.restore_failures),
        ("exits", "Exits of cells to the kernel", statistics.exits),
    ] {
        let counter = Counter::<u64>::default();
        counter.inc_by(value);
        registry.register(name, help, counter);
    }
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

fn gauge(value: u64) -> Gauge {
    let gauge = Gauge::default();
    gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
    gauge
}
