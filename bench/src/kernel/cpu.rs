// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cpu`: the same machine code in a cell and in this process.

use crate::guest::{Code, SPIN_BUFFER, spin};
use crate::harness::{DATA, Harness};
use crate::native::memory::Function;
use crate::sample::{Side, alternate};
use crate::{BenchError, BenchOptions, Row};
use pando_abi::layout::VIRTUAL_REGISTERS;
use pando_abi::virtual_registers::offset;
use pando_abi::{Event, Hypercall, MapFlags, Permissions};
use pando_kernel::CellId;
use pando_machine::{Nanos, PageCount};

/// Rounds of the loop: about a millisecond, so that the host preempts only a small part of the measurements.
const ROUNDS: u64 = 400_000;
/// Where the cell stores the time that it took: behind the buffer.
const RESULT: u64 = DATA + SPIN_BUFFER as u64;
const ARENA: PageCount = PageCount(16 << 10);
const QUOTA: PageCount = PageCount(1024);

pub(super) fn run(options: BenchOptions<'_>, report: &mut dyn FnMut(Row)) -> Result<(), BenchError> {
    let function = spin(ROUNDS);
    let (mut harness, cell) = spinner(&function)?;
    let mut buffer = vec![0; SPIN_BUFFER];
    // SAFETY: 1. `spin` is such a function. 2. It masks every index so that eight bytes from there on lie within `SPIN_BUFFER`.
    let native = unsafe { Function::new(&function) }.map_err(BenchError::host("make a page of code executable"))?;
    let nanos_per_cycle = 1e9 / harness.kernel.machine().clock().frequency as f64;
    let pairs = alternate(options.rounds(1200), |side| match side {
        Side::Ours => {
            harness.kernel.raise(cell, Event::Console);
            harness.turn()?;
            let mut cycles = [0; 8];
            harness.kernel.read(cell, RESULT, &mut cycles)?;
            Ok(u64::from_le_bytes(cycles) as f64 * nanos_per_cycle)
        }
        // SAFETY: the buffer has `SPIN_BUFFER` bytes.
        Side::Theirs => Ok(unsafe { native.call(&mut buffer) } as f64 * nanos_per_cycle),
    })?;
    report(Row::pairs("cpu", "the same code in a process", &pairs));
    Ok(())
}

/// Creates a cell that runs the loop at each event, and stores how long that took.
fn spinner(function: &[u8]) -> Result<(Harness, CellId), BenchError> {
    let mut code = Code::new();
    let spinning = code.here();
    code.raw(function);
    let entry = code.here();
    code.argument(DATA).call(spinning).store_result(RESULT).store(VIRTUAL_REGISTERS + offset::PENDING as u64, 0);
    code.hypercall(Hypercall::Idle { deadline: Nanos::NEVER.0 }).jump(entry);
    let mut harness = Harness::new(ARENA)?;
    let cell = harness.cell_from(code.bytes(), Code::offset(entry), QUOTA)?;
    harness.map(cell, DATA, PageCount::covering(SPIN_BUFFER as u64) + PageCount(1), MapFlags::eager(Permissions::READ_WRITE))?;
    harness.start(cell)?;
    Ok((harness, cell))
}
