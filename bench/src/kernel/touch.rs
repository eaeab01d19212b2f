// SPDX-License-Identifier: MIT OR Apache-2.0
//! `touch`: the first touch of fresh anonymous memory, per 4 KiB page.

use crate::guest::Code;
use crate::harness::{DATA, Harness, LARGE_PAGE};
use crate::native::memory::{MappedMemory, Pages};
use crate::sample::{Side, alternate};
use crate::{BenchError, BenchOptions, Row};
use pando_abi::memory::CURRENT_SPACE;
use pando_abi::{Hypercall, MapFlags, Permissions};
use pando_machine::PageCount;
use std::time::Instant;

const NATIVE: &str = "a process, host's default pages";
/// 256 MB.
const SIZE: PageCount = PageCount(64 << 10);
const ROOM: PageCount = PageCount(16 << 10);

pub(super) fn run(options: BenchOptions<'_>, report: &mut dyn FnMut(Row)) -> Result<(), BenchError> {
    // Each cell of the first kind gets a machine of its own, with memory that the host has never backed.
    let rounds = options.rounds(12);
    let fresh = alternate(rounds, |side| match side {
        Side::Ours => Toucher::new()?.touch(),
        Side::Theirs => natively(),
    })?;
    report(Row::pairs("touch", NATIVE, &fresh).noting("memory that the host has not backed before"));
    let mut toucher = Toucher::new()?;
    let again = alternate(rounds, |side| match side {
        Side::Ours => toucher.touch(),
        Side::Theirs => natively(),
    })?;
    report(Row::pairs("touch-reused", NATIVE, &again).noting("memory that another cell had before"));
    Ok(())
}

/// A kernel whose cells touch memory.
struct Toucher {
    harness: Harness,
    code: Code,
}

impl Toucher {
    fn new() -> Result<Toucher, BenchError> {
        let mut code = Code::new();
        let flags = MapFlags { permissions: Permissions::READ_WRITE, eager: false, large: true };
        let map = Hypercall::Map { space: CURRENT_SPACE, address: DATA, pages: SIZE.0, flags: flags.bits() };
        code.hypercall(Hypercall::Relinquish {}).hypercall(map).point(DATA).write_pages(SIZE.0, 1).relinquish_for_ever();
        Ok(Toucher { harness: Harness::new(SIZE + ROOM)?, code })
    }

    /// Nanoseconds per page, including the hypercall that maps it.
    fn touch(&mut self) -> Result<f64, BenchError> {
        let cell = self.harness.cell(self.code.bytes(), SIZE + ROOM)?;
        self.harness.start(cell)?;
        let mut time = self.harness.timed_turn()?;
        // A turn ends with the quantum at the latest. The hypercalls are relinquish, map, relinquish.
        while self.harness.hypercalls(cell)? < 3 {
            time += self.harness.timed_turn()?;
        }
        self.harness.end(cell)?;
        Ok(time / SIZE.0 as f64)
    }
}

fn natively() -> Result<f64, BenchError> {
    let start = Instant::now();
    let mut memory = MappedMemory::map(SIZE.bytes() as usize, Pages::Default).map_err(BenchError::host("map memory"))?;
    memory.touch();
    let time = start.elapsed().as_nanos() as f64;
    Ok(time / SIZE.0 as f64)
}

const _: () = assert!(SIZE.0.is_multiple_of(LARGE_PAGE));
