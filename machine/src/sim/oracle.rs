// SPDX-License-Identifier: MIT OR Apache-2.0
//! The oracle: compares used translations with the tables, and records differences.
//!
//! A stale translation that permits less than the tables merely faults. One that names another frame, or permits more,
//! is a breach of the page-table discipline: a real machine could have shown a cell memory that is no longer its own.

use super::tables::{Access, Kind};
use crate::{FrameId, Root};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Maximum number of recorded breaches: the first one is the most useful.
const KEPT: usize = 64;

/// The frame of a page and its permissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Translation {
    /// The frame.
    pub frame: FrameId,
    /// Whether a cell may write.
    pub writable: bool,
    /// Whether a cell may execute.
    pub executable: bool,
}

impl Translation {
    pub(super) fn new(frame: FrameId, access: Access) -> Translation {
        Translation { frame, writable: access.permits(Kind::Write), executable: access.permits(Kind::Fetch) }
    }
}

impl fmt::Display for Translation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Translation { frame, writable, executable } = self;
        write!(f, "frame {} r{}{}", frame.0, if *writable { 'w' } else { '-' }, if *executable { 'x' } else { '-' })
    }
}

/// A kind of breach of the page-table discipline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreachKind {
    /// An access went through a translation that the tables no longer contain (rules 1 to 4 and 6).
    Stale {
        /// The translation that was used.
        used: Translation,
        /// The current translation of the tables, as for a cell.
        tables: Option<Translation>,
    },
    /// The tables permit an access that the machine keeps refusing, because a stale link or large page stands above
    /// the leaf (rules 1 and 2).
    FaultsForever,
    /// An entry points outside the arena (rule 7).
    OutsideArena {
        /// The entry.
        entry: u64,
    },
}

/// One breach of the page-table discipline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Breach {
    /// The kind of breach.
    pub kind: BreachKind,
    /// The vCPU.
    pub vcpu: usize,
    /// The address space.
    pub root: Root,
    /// The virtual address.
    pub address: u64,
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Breach { kind, vcpu, root, address } = self;
        write!(f, "vCPU {vcpu}, root {} (stamp {}), address {address:#x}: ", root.table.0, root.stamp)?;
        match kind {
            BreachKind::Stale { used, tables: Some(tables) } => write!(f, "used {used} where the tables say {tables}"),
            BreachKind::Stale { used, tables: None } => write!(f, "used {used} where the tables map nothing"),
            BreachKind::FaultsForever => f.write_str("faults forever although the tables permit the access"),
            BreachKind::OutsideArena { entry } => write!(f, "the entry {entry:#x} points outside the arena"),
        }
    }
}

/// The record of breaches.
#[derive(Default)]
pub(super) struct Log {
    stale: AtomicU64,
    breaches: Mutex<Vec<Breach>>,
}

impl Log {
    pub(super) fn record(&self, breach: Breach) {
        if matches!(breach.kind, BreachKind::Stale { .. }) {
            self.stale.fetch_add(1, Ordering::Relaxed);
        }
        let mut breaches = self.breaches.lock().unwrap_or_else(PoisonError::into_inner);
        if breaches.len() < KEPT {
            breaches.push(breach);
        }
    }

    pub(super) fn stale(&self) -> u64 {
        self.stale.load(Ordering::Relaxed)
    }

    pub(super) fn breaches(&self) -> Vec<Breach> {
        self.breaches.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
