// SPDX-License-Identifier: MIT OR Apache-2.0
//! Many cells with a web server each: `flat-1000`, and figures 4 and 5 of Denali's paper (sections 4.2.1 and 4.2.2).

use super::load::Load;
use super::networked_cells::NetworkedCells;
use crate::plot::{Line, Plot};
use crate::program::CompiledProgram;
use crate::sample::{Side, alternate};
use crate::{BenchError, BenchOptions, Row};
use pando_kernel::network::address::Addresses;
use pando_kernel::sched::{FairShare, ReadyReason, Scheduler};
use pando_kernel::{CellId, Config};
use pando_machine::PageCount;
use std::collections::VecDeque;
use std::time::Duration;

const SOURCE: &str = include_str!("web.c");
/// 4 GiB, which the host allocates on demand.
const ARENA: PageCount = PageCount(1 << 20);
/// The quota of each server: 16 MiB.
const QUOTA: PageCount = PageCount(4096);
/// Requests in flight, in measurements with many.
const AT_ONCE: usize = 64;
/// Bytes of a small document (the median of the web when Denali was written), and of a large one.
const SMALL: usize = 2258;
const LARGE: usize = 100 << 10;

/// The number of cells, and the names of their rows: with events delivered in batches or at once, and idling with a timeout or without.
const SIZES: [(usize, &str, &str); 6] = [
    (1, "events-1", "idle-1"),
    (10, "events-10", "idle-10"),
    (50, "events-50", "idle-50"),
    (200, "events-200", "idle-200"),
    (400, "events-400", "idle-400"),
    (800, "events-800", "idle-800"),
];
/// In a brief run: the maximum number of cells, and requests for each measurement.
const BRIEF_CELLS: usize = 10;
const BRIEF_REQUESTS: usize = 50;
/// Requests for each measurement.
const REQUESTS: usize = 1000;

/// A scheduler that gives the vCPU to a cell as soon as an event wakes it: the alternative to batches in Denali's paper.
#[derive(Debug, Default)]
struct ImmediateScheduler {
    woken: VecDeque<CellId>,
    others: FairShare,
}

impl Scheduler for ImmediateScheduler {
    fn ready(&mut self, cell: CellId, reason: ReadyReason) {
        if reason == ReadyReason::Woken {
            self.woken.push_back(cell);
        } else {
            self.others.ready(cell, reason);
        }
    }

    fn next(&mut self) -> Option<CellId> {
        self.woken.pop_front().or_else(|| self.others.next())
    }

    fn is_empty(&self) -> bool {
        self.woken.is_empty() && self.others.is_empty()
    }

    fn is_urgent(&self) -> bool {
        !self.woken.is_empty()
    }

    fn add(&mut self, cell: CellId, parent: Option<CellId>) {
        self.others.add(cell, parent);
    }

    fn remove(&mut self, cell: CellId) {
        self.others.remove(cell);
    }

    fn charge(&mut self, cell: CellId, members: &[CellId], time: Duration) {
        self.others.charge(cell, members, time);
    }
}

/// A growing number of servers, and their client.
struct Servers {
    network: NetworkedCells,
    load: Load,
    addresses: Vec<Addresses>,
    bytes: usize,
}

impl Servers {
    fn new(compiled: &CompiledProgram, config: Config, bytes: usize) -> Result<Servers, BenchError> {
        let network = NetworkedCells::new(ARENA, compiled, config)?;
        let load = Load::new(&network)?;
        Ok(Servers { network, load, addresses: Vec::new(), bytes })
    }

    /// Starts servers until there are `cells`, all of which listen.
    fn grow(&mut self, cells: usize) -> Result<(), BenchError> {
        while self.addresses.len() < cells {
            let server = self.network.start_cell(&[&self.bytes.to_string()], QUOTA)?;
            server.answer()?;
            self.addresses.push(server.addresses);
        }
        Ok(())
    }

    fn ask(&mut self, cells: usize, at_once: usize, requests: usize) -> Result<f64, BenchError> {
        let Servers { load, addresses, bytes, .. } = self;
        load.ask(&addresses[..cells], at_once, requests, *bytes)
    }
}

pub(super) fn run(
    options: BenchOptions<'_>,
    plot: &mut dyn FnMut(Plot) -> Result<(), BenchError>,
    report: &mut dyn FnMut(Row),
) -> Result<(), BenchError> {
    let compiled = CompiledProgram::new(SOURCE)?;
    flat(options, &compiled, report)?;
    let batched = ("events wait for a cell's turn", Config::default());
    let immediate =
        ("events switch to their cell at once", Config { scheduler: Box::<ImmediateScheduler>::default(), ..Config::default() });
    let figure = Plot { name: "events", title: "Events together or at once: 100 KB from web servers in cells", ..Plot::default() };
    plot(compare(options, &compiled, [batched, immediate], |size| size.1, figure, report)?)?;
    let timed = ("idle with a timeout", Config::default());
    let spinning = ("idle without: a cell whose TCP has timers stays runnable", Config { has_idle_timeouts: false, ..Config::default() });
    let figure = Plot { name: "idle", title: "Idling until a moment, or not: 100 KB from web servers in cells", ..Plot::default() };
    plot(compare(options, &compiled, [timed, spinning], |size| size.2, figure, report)?)
}

/// Time of each request with a thousand servers, compared with one server.
fn flat(options: BenchOptions<'_>, compiled: &CompiledProgram, report: &mut dyn FnMut(Row)) -> Result<(), BenchError> {
    let (cells, requests) = if options.brief { (BRIEF_CELLS, BRIEF_REQUESTS) } else { (1000, REQUESTS) };
    let mut servers = Servers::new(compiled, Config::default(), SMALL)?;
    servers.grow(cells)?;
    // The first request to each server does not count.
    servers.ask(cells, 1, cells)?;
    for (name, at_once, note) in [
        ("flat-1000", 1, "one request at a time"),
        ("flat-1000-busy", AT_ONCE, "64 requests at a time: one server answers several in one turn"),
    ] {
        let pairs = alternate(options.rounds(7), |side| servers.ask(if side == Side::Ours { cells } else { 1 }, at_once, requests))?;
        report(Row::pairs(name, "one server", &pairs).noting(format!("{cells} web servers with a document of {SMALL} bytes, {note}")));
    }
    Ok(())
}

/// Measures two configurations at growing sizes: reports rows, and plots them.
fn compare(
    options: BenchOptions<'_>,
    compiled: &CompiledProgram,
    kinds: [(&'static str, Config); 2],
    name: fn(&(usize, &'static str, &'static str)) -> &'static str,
    figure: Plot,
    report: &mut dyn FnMut(Row),
) -> Result<Plot, BenchError> {
    let [(ours, own), (theirs, other)] = kinds;
    let mut server_sets = [Servers::new(compiled, own, LARGE)?, Servers::new(compiled, other, LARGE)?];
    let mut lines = [Line { name: ours, points: Vec::new() }, Line { name: theirs, points: Vec::new() }];
    let requests = if options.brief { BRIEF_REQUESTS } else { REQUESTS };
    for size in SIZES.iter().filter(|(cells, ..)| !options.brief || *cells <= BRIEF_CELLS) {
        let cells = size.0;
        for network in &mut server_sets {
            network.grow(cells)?;
            network.ask(cells, AT_ONCE, cells)?;
        }
        let pairs = alternate(options.rounds(5), |side| server_sets[usize::from(side == Side::Theirs)].ask(cells, AT_ONCE, requests))?;
        for (line, sample) in lines.iter_mut().zip([&pairs.ours, &pairs.theirs]) {
            line.points.push((cells as f64, 1e9 / sample.median()));
        }
        report(
            Row::pairs(name(size), theirs, &pairs)
                .noting(format!("{ours}; {cells} cells, for each request of 100 KB, {AT_ONCE} at a time")),
        );
    }
    Ok(Plot { x: "cells", y: "requests per second", lines: lines.into(), ..figure })
}
