// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counters of a cell's activity: its exits by cause, and what the kernel did for it.

use crate::memory::FaultOutcome;
use pando_abi::Registers;
use pando_abi::hypercall::TABLE;
use std::time::Duration;

/// Numbers of calls of hypercalls with a number of the table, in the order of these numbers. A cell uses few of them, so those without
/// calls take no memory: it stays with a cell that sleeps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct HypercallCounts(Vec<HypercallCount>);

/// The number of calls of one hypercall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct HypercallCount {
    number: u8,
    calls: u64,
}

const _: () = assert!(TABLE.len() <= u8::MAX as usize, "a number of the table is a byte in `HypercallCount`");

impl HypercallCounts {
    /// Counts a call, unless the number is not in the table.
    fn count(&mut self, number: u64) {
        match self.0.binary_search_by_key(&number, |count| u64::from(count.number)) {
            Ok(index) => self.0[index].calls += 1,
            Err(index) if number < TABLE.len() as u64 => self.0.insert(index, HypercallCount { number: number as u8, calls: 1 }),
            Err(_) => {}
        }
    }
}

/// Counters of a cell's activity since its creation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Exits from its vCPU, for any reason.
    pub exits: u64,
    /// Hypercalls.
    pub hypercalls: u64,
    /// Hypercalls with a number of the table, by number; also those with invalid arguments.
    by_number: HypercallCounts,
    /// `syscall` instructions that exited.
    pub syscalls: u64,
    /// Exceptions delivered to its libOS.
    pub exceptions: u64,
    /// Page faults that the kernel resolved: the sum of the next three.
    pub faults: u64,
    /// Faults on lazy memory.
    pub lazy_faults: u64,
    /// Write faults on shared pages, copied alone or in clusters.
    pub copy_faults: u64,
    /// Faults on blocks of disks.
    pub block_faults: u64,
    /// Page faults although the tables allowed the access: the vCPU used an old translation.
    pub spurious_faults: u64,
    /// Exits because of a signal or timer of the host, for example at the end of a quantum or for an event.
    pub interruptions: u64,
    /// Upcalls for events.
    pub events: u64,
    /// Times that its quantum ended.
    pub preemptions: u64,
    /// CPU time.
    pub cpu: Duration,
}

impl Counters {
    /// Counts a hypercall, which may be invalid.
    pub(crate) fn count_hypercall(&mut self, registers: &Registers) {
        self.hypercalls += 1;
        self.by_number.count(registers.rax);
    }

    /// Counts a page fault that the kernel resolved.
    pub(crate) fn count_fault(&mut self, fault: FaultOutcome) {
        let count = match fault {
            FaultOutcome::Allocated => &mut self.lazy_faults,
            FaultOutcome::Copied { .. } | FaultOutcome::CopiedCluster => &mut self.copy_faults,
            FaultOutcome::Mapped => &mut self.block_faults,
            FaultOutcome::Spurious
            | FaultOutcome::Absent(_)
            | FaultOutcome::Taken(_)
            | FaultOutcome::Unreadable
            | FaultOutcome::Refused => return,
        };
        *count += 1;
        self.faults += 1;
    }

    /// The causes of exits with their counts, the most frequent first; names in snake case, hypercalls by theirs. Causes that
    /// did not occur are left out. A fault that waited for a block is counted once.
    #[must_use]
    pub fn exit_causes(&self) -> Vec<(&'static str, u64)> {
        let hypercalls = self.by_number.0.iter().map(|count| (TABLE[usize::from(count.number)].name, count.calls));
        let others = [
            ("system_call", self.syscalls),
            ("exception", self.exceptions),
            ("lazy_fault", self.lazy_faults),
            ("copy_fault", self.copy_faults),
            ("block_fault", self.block_faults),
            ("spurious_fault", self.spurious_faults),
            ("interruption", self.interruptions),
        ];
        let mut causes: Vec<_> = hypercalls.chain(others.into_iter().filter(|(_, count)| *count > 0)).collect();
        causes.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        causes
    }
}

#[cfg(test)]
mod tests {
    use super::Counters;
    use crate::memory::FaultOutcome;
    use pando_abi::{Hypercall, Registers};

    #[test]
    fn causes_are_listed_by_frequency_without_those_that_did_not_occur() {
        let mut counters = Counters { spurious_faults: 1, ..Counters::default() };
        for _ in 0..2 {
            counters.count_fault(FaultOutcome::Copied { replaced: None });
        }
        let (rax, _) = Hypercall::SpaceSwitch { space: 1 }.encode();
        for rax in [rax, rax, rax, u64::MAX] {
            counters.count_hypercall(&Registers { rax, ..Registers::default() });
        }
        assert_eq!((counters.hypercalls, counters.faults), (4, 2));
        assert_eq!(counters.exit_causes(), [("space_switch", 3), ("copy_fault", 2), ("spurious_fault", 1)]);
    }
}
