// SPDX-License-Identifier: MIT OR Apache-2.0
//! Address translation of one vCPU: its TLB, then the machine's shadow cache, then KVM's fault handling.
//!
//! The TLB is flushed when another root, or the same with another stamp, is loaded; one page is flushed when that page
//! faults. Nothing else flushes it. A fault that a TLB entry causes by itself is delivered without a look at the
//! tables, as hardware may do: the kernel finds it spurious and retries.

use super::Hardware;
use super::oracle::{Breach, BreachKind, Translation};
use super::shadow::ShadowPage;
use super::tables::{self, Access, Kind, WalkError};
use crate::{Exception, Exit, FrameId, Root, Violation};
use rustc_hash::FxHashMap;

/// Bits of a page fault's error code.
mod error {
    pub(super) const PROTECTION: u64 = 1;
    pub(super) const WRITE: u64 = 1 << 1;
    pub(super) const USER: u64 = 1 << 2;
    pub(super) const RESERVED: u64 = 1 << 3;
    pub(super) const FETCH: u64 = 1 << 4;
}

/// A translation in the TLB.
#[derive(Clone, Copy)]
struct TlbEntry {
    /// The first frame: of a page of 4 KiB, or of 2 MiB.
    first: FrameId,
    access: Access,
    dirty: bool,
}

impl TlbEntry {
    /// Whether it is sufficient for an access. A write through a clean one walks again, to set the dirty bit.
    fn serves(self, kind: Kind) -> bool {
        self.access.permits(kind) && (kind != Kind::Write || self.dirty)
    }
}

/// One vCPU's memory management unit.
pub(super) struct Mmu {
    vcpu: usize,
    root: Option<Root>,
    /// By page number: 4 KiB pages with the lowest bit 0, 2 MiB pages with 1.
    tlb: FxHashMap<u64, TlbEntry>,
}

fn small(address: u64) -> u64 {
    address >> 12 << 1
}

fn large(address: u64) -> u64 {
    address >> 21 << 1 | 1
}

impl Mmu {
    pub(super) fn new(vcpu: usize) -> Mmu {
        Mmu { vcpu, root: None, tlb: FxHashMap::default() }
    }

    /// Loads a root: a new one, or the old one with a new stamp, empties the TLB.
    pub(super) fn load(&mut self, root: Root) {
        if self.root != Some(root) {
            self.root = Some(root);
            self.tlb.clear();
        }
    }

    /// Translates an access by the cell to a frame.
    pub(super) fn translate(&mut self, hardware: &Hardware, address: u64, kind: Kind) -> Result<FrameId, Exit> {
        let root = self.root.expect("a root is loaded before a cell runs");
        let (level, cached) = match self.tlb.get(&small(address)) {
            Some(cached) => (1, *cached),
            None => match self.tlb.get(&large(address)) {
                Some(cached) => (2, *cached),
                None => self.miss(hardware, root, address, kind)?,
            },
        };
        let (level, cached) = if cached.serves(kind) {
            (level, cached)
        } else {
            self.forget(address);
            if !cached.access.permits(kind) {
                return Err(page_fault(address, kind, error::PROTECTION));
            }
            self.miss(hardware, root, address, kind)?
        };
        let frame = tables::frame_in(cached.first, level, address);
        if hardware.oracle {
            self.compare(hardware, root, address, Translation::new(frame, cached.access), cached.access);
        }
        Ok(frame)
    }

    fn forget(&mut self, address: u64) {
        self.tlb.remove(&small(address));
        self.tlb.remove(&large(address));
    }

    /// Finds a translation for the access, through the shadow and, if that is insufficient, through KVM's fault handling.
    fn miss(&mut self, hardware: &Hardware, root: Root, address: u64, kind: Kind) -> Result<(u8, TlbEntry), Exit> {
        let mut shadow = hardware.shadow();
        let serves = |page: &ShadowPage| page.access.permits(kind) && (kind != Kind::Write || page.dirty);
        if let Some(page) = shadow.look_up(&hardware.arena, root.table, address).filter(serves) {
            return Ok(self.cache(address, page));
        }
        let (path, leaf) = loop {
            let path = match tables::walk(&hardware.arena, root.table, address) {
                Ok(path) => path,
                Err(WalkError::Absent) => return Err(page_fault(address, kind, 0)),
                Err(WalkError::Reserved) => return Err(page_fault(address, kind, error::PROTECTION | error::RESERVED)),
                Err(WalkError::Outside(entry)) => {
                    self.record(hardware, root, address, BreachKind::OutsideArena { entry });
                    return Err(Exit::Violation(Violation::OutsideMemory));
                }
            };
            if !path.access.permits(kind) {
                return Err(page_fault(address, kind, error::PROTECTION));
            }
            if let Some(leaf) = tables::mark(&hardware.arena, &path, address, kind) {
                break (path, leaf);
            }
        };
        shadow.resync(&hardware.arena, root.table, address, &path, leaf);
        if let Some(page) = shadow.look_up(&hardware.arena, root.table, address).filter(serves) {
            return Ok(self.cache(address, page));
        }
        self.record(hardware, root, address, BreachKind::FaultsForever);
        let reason = format!("it keeps faulting at {address:#x}, although its page tables permit the access");
        Err(Exit::Violation(Violation::Machine { reason }))
    }

    /// Puts a page into the TLB. A page of 1 GiB is kept as its part of 2 MiB.
    fn cache(&mut self, address: u64, page: ShadowPage) -> (u8, TlbEntry) {
        let ShadowPage { first, level, access, dirty } = page;
        let (key, level, first) = match level {
            1 => (small(address), 1, first),
            2 => (large(address), 2, first),
            _ => (large(address), 2, tables::frame_in(first, level, address & !0x1f_ffff)),
        };
        let cached = TlbEntry { first, access, dirty };
        self.tlb.insert(key, cached);
        (level, cached)
    }

    /// The oracle: compares a used translation with the current tables.
    fn compare(&self, hardware: &Hardware, root: Root, address: u64, used: Translation, access: Access) {
        let tables = tables::walk(&hardware.arena, root.table, address).ok().filter(|path| path.access.permits(Kind::Read));
        let agrees =
            tables.is_some_and(|path| used.frame == tables::frame_in(path.first, path.level, address) && !access.exceeds(path.access));
        if !agrees {
            let tables = tables.map(|path| Translation::new(tables::frame_in(path.first, path.level, address), path.access));
            self.record(hardware, root, address, BreachKind::Stale { used, tables });
        }
    }

    fn record(&self, hardware: &Hardware, root: Root, address: u64, kind: BreachKind) {
        hardware.log.record(Breach { kind, vcpu: self.vcpu, root, address });
    }
}

/// A page fault, with the access's bits of the error code.
fn page_fault(address: u64, kind: Kind, cause: u64) -> Exit {
    let access = match kind {
        Kind::Read => 0,
        Kind::Write => error::WRITE,
        Kind::Fetch => error::FETCH,
    };
    Exit::Exception(Exception { vector: Exception::PAGE_FAULT, error: cause | error::USER | access, address })
}
