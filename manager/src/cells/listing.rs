// SPDX-License-Identifier: MIT OR Apache-2.0
//! The list of cells, page by page. The locks of the manager and of the kernel are held for one piece of it at a time.

use super::Manager;
use super::cell::{ManagedCell, host_name};
use super::spec::CellSummary;
use pando_kernel::CellId;
use pando_launch::{CellPhase, CellUse};
use pando_machine::PageCount;
use std::sync::Arc;
use std::time::Duration;

/// Cells that are looked up and inspected under one lock: some 20 µs.
const PIECE: usize = 256;
/// Pieces that are examined for a page of limited length.
const PIECES: usize = 32;

/// The cells that a page contains.
#[derive(Clone, Copy, Debug)]
pub struct PageQuery {
    /// Only cells with numbers above this.
    pub after: u64,
    /// The most cells; `None`: all, in one page.
    pub limit: Option<usize>,
    /// Whether nested cells are listed with each.
    pub has_descendants: bool,
}

/// A page of the list.
#[derive(Debug)]
pub struct CellPage {
    /// Its cells, in the order of their numbers.
    pub cells: Vec<CellSummary>,
    /// The next page is that after this number; `None`: there is none.
    pub next: Option<u64>,
}

impl Manager {
    /// A page of the running cells and those that ended last, of those that `is_wanted` chooses. It may have less than `limit` cells, and
    /// yet not be the last. May block.
    pub fn page(&self, query: PageQuery, is_wanted: impl Fn(&CellSummary) -> bool) -> CellPage {
        let PageQuery { mut after, limit, has_descendants } = query;
        let (mut cells, mut examined) = (Vec::new(), 0);
        loop {
            examined += 1;
            let piece = self.lock().page(after, PIECE);
            let ids: Vec<CellId> = piece.iter().map(|cell| cell.kernel_id()).collect();
            for (cell, usage) in piece.iter().zip(self.operator.usages(&ids)) {
                after = cell.id();
                let summary = cell.summary_of(usage);
                if is_wanted(&summary) {
                    cells.push(if has_descendants { cell.with_descendants(summary) } else { summary });
                }
                if limit.is_some_and(|limit| cells.len() >= limit.max(1)) {
                    return CellPage { cells, next: Some(after) };
                }
            }
            let is_last = piece.len() < PIECE;
            if is_last || limit.is_some() && examined >= PIECES {
                return CellPage { cells, next: (!is_last).then_some(after) };
            }
        }
    }

    /// The sum of these cells, as [`Manager::page`] lists them: their number, how many of them sleep, and their memory in bytes. May block.
    pub fn sum(&self, is_wanted: impl Fn(&ManagedCell) -> bool) -> CellTotals {
        let (mut after, mut sum) = (0, CellTotals::default());
        loop {
            let piece = self.lock().page(after, PIECE);
            let wanted: Vec<&Arc<ManagedCell>> = piece.iter().filter(|cell| is_wanted(cell)).collect();
            let ids: Vec<CellId> = wanted.iter().map(|cell| cell.kernel_id()).collect();
            for usage in self.operator.usages(&ids).into_iter().flatten() {
                sum.living += 1;
                sum.asleep += usize::from(usage.phase == CellPhase::Asleep);
                sum.memory_bytes += usage.memory.bytes();
            }
            match piece.last() {
                Some(last) if piece.len() == PIECE => after = last.id(),
                _ => return sum,
            }
        }
    }
}

impl ManagedCell {
    /// Its state.
    pub fn summary(&self) -> CellSummary {
        self.summary_of(self.operator.usage(self.cell))
    }

    /// Its state, with the resources that it uses; `None`: it has ended.
    pub(super) fn summary_of(&self, usage: Option<CellUse>) -> CellSummary {
        let outcome = self.lock().outcome.clone();
        let CellUse { memory, cpu, exits, phase } = usage.unwrap_or_else(|| CellUse {
            memory: PageCount(0),
            cpu: outcome.as_ref().map_or(Duration::ZERO, |outcome| outcome.cpu),
            exits: outcome.as_ref().map(|outcome| outcome.exits),
            phase: CellPhase::Active,
        });
        CellSummary {
            id: self.id,
            name: self.name(),
            host_name: host_name(&self.spec, self.id),
            source: self.spec.source.clone(),
            image: self.image.clone(),
            labels: self.spec.labels.clone(),
            arguments: self.spec.arguments.clone(),
            addresses: self.addresses,
            ports: if outcome.is_none() { self.ports.of(&self.name()) } else { Vec::new() },
            started: self.started,
            memory,
            cpu,
            exits,
            phase,
            restarts: self.spec.restarts,
            outcome,
            descendants: Vec::new(),
        }
    }

    /// Adds its nested cells.
    pub(super) fn with_descendants(&self, summary: CellSummary) -> CellSummary {
        CellSummary { descendants: self.operator.descendants(self.cell), ..summary }
    }
}

/// The sum of some cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CellTotals {
    /// Cells that have not ended.
    pub living: usize,
    /// Those of them that sleep.
    pub asleep: usize,
    /// Their private memory.
    pub memory_bytes: u64,
}
