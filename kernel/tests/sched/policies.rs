// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's behaviour follows the policies that it is given.

use pando_kernel::RunState;
use pando_kernel::sched::{Gatekeeper, ReadyReason, Scheduler};
use pando_kernel::{CellId, Config, End};
use pando_machine::PageCount;
use pando_testing::lab::Lab;
use pando_testing::virtual_registers::exit;
use std::collections::VecDeque;

/// Runs the cell first that became ready last.
#[derive(Default)]
struct LastFirst(Vec<CellId>);

impl Scheduler for LastFirst {
    fn ready(&mut self, cell: CellId, _: ReadyReason) {
        self.0.push(cell);
    }

    fn next(&mut self) -> Option<CellId> {
        self.0.pop()
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[test]
fn the_scheduler_chooses_the_next_cell() {
    for mut lab in Lab::each(PageCount(1 << 14), || Config { scheduler: Box::<LastFirst>::default(), ..Config::default() }) {
        let ids: Vec<_> = (0..4)
            .map(|status| {
                lab.launch(|asm| {
                    asm.call_kernel(exit(status));
                })
            })
            .collect();
        for (left, id) in ids.into_iter().enumerate().rev() {
            assert!(lab.kernel.inspect(id).is_ok(), "it ran before its turn");
            lab.finish(id);
            assert_eq!(lab.kernel.cells(), left, "another cell ran");
        }
    }
}

/// Admits a limited number of cells.
struct LimitedGatekeeper {
    waiting: VecDeque<CellId>,
    places: usize,
}

impl Gatekeeper for LimitedGatekeeper {
    fn enqueue(&mut self, cell: CellId) {
        self.waiting.push_back(cell);
    }

    fn admit(&mut self, _: PageCount) -> Option<CellId> {
        let id = self.waiting.pop_front_if(|_| self.places > 0)?;
        self.places -= 1;
        Some(id)
    }

    fn awaits_memory(&self) -> bool {
        !self.waiting.is_empty()
    }
}

#[test]
fn the_gatekeeper_chooses_the_admitted_cells() {
    let config = || Config { gatekeeper: Box::new(LimitedGatekeeper { waiting: VecDeque::new(), places: 2 }), ..Config::default() };
    for mut lab in Lab::each(PageCount(1 << 14), config) {
        let ids: Vec<_> = (0..4)
            .map(|status| {
                lab.launch(|asm| {
                    asm.call_kernel(exit(status));
                })
            })
            .collect();
        lab.run_all();
        assert!(ids[..2].iter().all(|id| lab.kernel.collect(*id).is_some()));
        for id in &ids[2..] {
            assert_eq!(lab.kernel.inspect(*id).expect("it waits").0, RunState::AwaitingAdmission);
        }
    }
}

#[test]
fn the_default_gatekeeper_lets_in_by_order_of_asking_once_there_is_memory() {
    for mut lab in Lab::each(PageCount(1 << 12), Config::default) {
        // One cell has nearly all memory.
        let free = lab.kernel.free().0;
        let big = lab.cell_with(b"\xeb\xfe", PageCount(free));
        let flags = pando_abi::MapFlags::eager(pando_abi::Permissions::READ_WRITE);
        let rest = PageCount(lab.kernel.free().0 - 60);
        lab.kernel.map(big, 0x2000_0000, rest, flags).expect("there is room");
        let waiting =
            lab.kernel.create(pando_kernel::CellConfig { quota: PageCount(256), host_name: String::new() }).expect("room for a cell");
        lab.kernel.start(waiting).expect("it was not started before");
        lab.run_all();
        assert_eq!(lab.kernel.inspect(waiting).expect("it waits").0, RunState::AwaitingAdmission);
        lab.kernel.end(big, End::Killed).expect("it lives");
        lab.kernel.free_unused_frames();
        // It was not queued again: it is admitted because there is memory. Without code it faults.
        assert!(matches!(lab.finish(waiting).end, End::Fault(_)));
    }
}
