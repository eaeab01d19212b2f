// SPDX-License-Identifier: MIT OR Apache-2.0
//! Zygotes: spaces with the code of programs that have run, in which later runs start ([`crate::memory::zygote`]).

use alloc::boxed::Box;
use alloc::collections::BTreeMap;

use pando_abi::BlockAddress;
use pando_rt::{hypercall, memory};

use super::System;
use crate::memory::AddressSpace;

/// Upper limit on zygotes; further programs start without one.
const PROGRAMS_MAX: usize = 32;

/// A space for each program, by its first block.
#[derive(Debug, Default)]
pub struct Zygotes {
    by_program: BTreeMap<BlockAddress, Zygote>,
    /// Number of program starts so far.
    starts: u64,
}

#[derive(Debug)]
struct Zygote {
    memory: Box<AddressSpace>,
    /// The number of the last start that used it.
    used: u64,
}

impl Zygotes {
    /// The number of zygotes.
    pub(super) fn count(&self) -> usize {
        self.by_program.len()
    }

    /// The zygote's memory of a program that has run before; the caller clones its space.
    pub(super) fn find(&mut self, program: BlockAddress) -> Option<Box<AddressSpace>> {
        self.starts += 1;
        let zygote = self.by_program.get_mut(&program)?;
        zygote.used = self.starts;
        Some(zygote.memory.clone())
    }

    /// Whether the next run would gain by starting from this memory rather than from the existing zygote. If not, the zygote still takes
    /// over its trap counts.
    fn gain_by(&mut self, memory: &AddressSpace) -> bool {
        let Some(program) = memory.program else { return false };
        let Some(zygote) = self.by_program.get_mut(&program) else { return true };
        let (zygote_sites, sites) = (zygote.memory.patches.count_sites(), memory.patches.count_sites());
        if sites > zygote_sites {
            return true;
        }
        if zygote.memory.layout.has_same_code(&memory.layout) {
            zygote.memory.patches.import_counts(&memory.patches);
        }
        false
    }

    /// Adds a zygote. Returns the one that it replaces, if any.
    fn add(&mut self, program: BlockAddress, memory: Box<AddressSpace>) -> Option<Box<AddressSpace>> {
        let is_new = !self.by_program.contains_key(&program);
        let oldest = self.by_program.iter().min_by_key(|(_, zygote)| zygote.used).map(|(program, _)| *program);
        let crowded_out =
            oldest.filter(|_| is_new && self.by_program.len() >= PROGRAMS_MAX).and_then(|oldest| self.by_program.remove(&oldest));
        let replaced = self.by_program.insert(program, Zygote { memory, used: self.starts });
        replaced.or(crowded_out).map(|zygote| zygote.memory)
    }

    fn take_all(&mut self) -> BTreeMap<BlockAddress, Zygote> {
        core::mem::take(&mut self.by_program)
    }
}

impl System {
    /// Whether the running space, which is about to be unused, becomes the zygote of its program.
    pub(super) fn keeps_as_zygote(&mut self) -> bool {
        // A debugger's breakpoints may be in its code.
        self.thread_table.is_none() && !is_memory_short() && self.others.zygotes.gain_by(&self.memory)
    }

    /// Destroys all zygotes if memory is short. None may be the source of a clone that is yet to be made.
    pub(super) fn drop_zygotes_if_short(&mut self) {
        if is_memory_short() {
            self.others.zygotes.take_all().into_values().for_each(|zygote| destroy(&zygote.memory));
        }
    }

    /// Makes an unused space the zygote of its program, in place of an earlier one.
    pub(super) fn add_zygote(&mut self, mut memory: Box<AddressSpace>) {
        let program = memory.program.filter(|_| memory.become_zygote().is_ok());
        let Some(program) = program else { return destroy(&memory) };
        if let Some(replaced) = self.others.zygotes.add(program, memory) {
            destroy(&replaced);
        }
    }
}

/// Whether there is too little memory for zygotes.
fn is_memory_short() -> bool {
    memory::is_paged() || memory::free_pages() < memory::quota_pages() / 4
}

fn destroy(memory: &AddressSpace) {
    // The space exists and does not run.
    let _ = hypercall::space_destroy(memory.space);
}
