// SPDX-License-Identifier: MIT OR Apache-2.0
//! `rpc-to-exit`: a call without content from a cell to its parent, until the answer has come.
//!
//! Both are a few instructions without a libOS. The parent makes a port, starts the child with a reference to it, and answers for ever.

use crate::bare::Bare;
use crate::guest::Code;
use crate::harness::{DATA, Harness};
use crate::sample::{Side, alternate};
use crate::{BenchError, BenchOptions, Row};
use pando_abi::layout::VIRTUAL_REGISTERS;
use pando_abi::message::ANSWER_OFFSET;
use pando_abi::{HoldingName, Hypercall, MapFlags, MessageRecord, Permissions};
use pando_kernel::CellId;
use pando_machine::PageCount;
use std::time::Instant;

/// The quota of a cell.
const QUOTA: PageCount = PageCount(4096);
const ARENA: PageCount = PageCount(32 << 10);
/// The child's quota, of the parent's.
const CHILD_QUOTA: u64 = 1024;
/// Where a cell has the names of its port and of its child, the record of its message, and a buffer.
const PORT: u64 = DATA;
const CHILD: u64 = DATA + 8;
const RECORD: u64 = DATA + 0x100;
const BUFFER: u64 = DATA + 0x800;
/// Where the kernel writes the name of the right to reply: after the result and the label.
const RIGHT: u64 = RECORD + ANSWER_OFFSET + 16;
/// The virtual register that masks events.
const MASK: u64 = VIRTUAL_REGISTERS + 8;
/// Round trips in one measurement.
const CALLS: u64 = 8;

/// Measures the row.
pub(super) fn run(options: BenchOptions<'_>, bare: &mut Bare, report: &mut dyn FnMut(Row)) -> Result<(), BenchError> {
    let mut harness = Harness::new(ARENA)?;
    let server = start(&mut harness)?;
    let pairs = alternate(options.rounds(400), |side| match side {
        Side::Ours => round_trip(&mut harness, server),
        Side::Theirs => bare.exit(),
    })?;
    report(Row::pairs("rpc-to-exit", "the machine's bare exit", &pairs).noting("a call to the parent and its answer, without content"));
    Ok(())
}

/// Starts both cells, until the parent has answered a call.
fn start(harness: &mut Harness) -> Result<CellId, BenchError> {
    let data = MapFlags::lazy(Permissions::READ_WRITE);
    let root = harness.cell(client().bytes(), QUOTA)?;
    harness.map(root, DATA, PageCount(1), data)?;
    let server = harness.cell(answering().bytes(), QUOTA)?;
    harness.map(server, DATA, PageCount(1), data)?;
    harness.kernel.allow_children(server, 1, root)?;
    harness.kernel.start(server)?;
    // Four calls make the child, and one receives.
    while harness.hypercalls(server)? < 6 {
        harness.turn()?;
    }
    Ok(server)
}

/// Nanoseconds of one call of the child.
fn round_trip(harness: &mut Harness, server: CellId) -> Result<f64, BenchError> {
    let calls = harness.hypercalls(server)?;
    let start = Instant::now();
    // One turn each of the child and of the parent.
    for _ in 0..2 * CALLS {
        harness.turn()?;
    }
    let time = start.elapsed().as_nanos() as f64;
    let answered = harness.hypercalls(server)? - calls;
    if answered == CALLS {
        Ok(time / CALLS as f64)
    } else {
        Err(BenchError::Failed(format!("a cell has answered {answered} calls of {CALLS}")))
    }
}

fn client() -> Code {
    let mut code = Code::new();
    prepare(&mut code);
    let again = code.here();
    // The first name that it is given.
    code.hypercall(Hypercall::Call { reference: HoldingName::ROOT.bits(), message: RECORD, deadline: u64::MAX }).jump(again);
    code
}

fn answering() -> Code {
    let mut code = Code::new();
    prepare(&mut code);
    code.hypercall(Hypercall::PortCreate {}).store_result(PORT);
    let clone = Hypercall::CellClone { source: HoldingName::ROOT.bits(), quota: CHILD_QUOTA, cells: 0 };
    code.hypercall(clone).store_result(CHILD);
    code.hypercall_with(Hypercall::Grant { cell: 0, holding: 0, label: 1 }, &[(0, CHILD), (1, PORT)]);
    code.hypercall_with(Hypercall::CellRun { cell: 0 }, &[(0, CHILD)]);
    let again = code.here();
    let receive = Hypercall::Receive { port: 0, message: RECORD, deadline: u64::MAX, reply: 0 };
    code.hypercall_with(receive, &[(0, PORT), (3, RIGHT)]).jump(again);
    code
}

/// Masks all events, which would end a call, and describes a message without content, and a buffer.
fn prepare(code: &mut Code) {
    code.store(MASK, u64::MAX);
    let record = MessageRecord { address: BUFFER, buffer: BUFFER, size: 64, ..MessageRecord::default() };
    for (address, word) in (RECORD..).step_by(8).zip(record.to_words()) {
        code.store(address, word);
    }
}
