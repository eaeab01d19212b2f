// SPDX-License-Identifier: MIT OR Apache-2.0
//! `rpc-to-exit`: a call from one cell to another and its answer, compared with the machine's bare exit.
//!
//! The paper has 54.6 µs for a null RPC across domains, which is 27 null calls.

use super::REFERENCE_EXIT;
use crate::bare::Bare;
use crate::guest::Code;
use crate::harness::{DATA, Harness};
use crate::sample::{Side, alternate};
use crate::{BenchError, BenchOptions, Row};
use pando_abi::message::CALLER_WORDS;
use pando_abi::{HoldingName, Hypercall, MapFlags, MessageRecord, Permissions};
use pando_machine::PageCount;
use std::time::Instant;

const ARENA: PageCount = PageCount(64 << 10);
const QUOTA: PageCount = PageCount(1024);
/// Calls in one measurement: few, so that the host preempts only a small part of the measurements.
const CALLS: u32 = 16;
/// Bytes of a message, and of its answer.
const BYTES: u64 = 8;
/// Where a cell's record lies, its message and its buffer.
const RECORD: u64 = DATA;
const SENT: u64 = DATA + 0x100;
const BUFFER: u64 = DATA + 0x200;
/// The names of the server's port, of its child, and of the child's reference, which are the first that each gets.
const PORT: u64 = HoldingName::new(1, 1).bits();
const CHILD: u64 = HoldingName::new(2, 1).bits();
const REFERENCE: u64 = HoldingName::ROOT.bits();

/// Measures the row.
pub(super) fn run(options: BenchOptions<'_>, bare: &mut Bare, report: &mut dyn FnMut(Row)) -> Result<(), BenchError> {
    let mut harness = Harness::new(ARENA)?;
    let [client, server] = [client(), server()].map(|code| cell(&harness, &code));
    let (client, server) = (client?, server?);
    harness.kernel.allow_children(server, 1, client)?;
    harness.kernel.start(server)?;
    // The server makes its child. Then each turn ends with a message.
    for _ in 0..8 {
        harness.turn()?;
    }
    let before = harness.hypercalls(server)?;
    let mut calls = 0;
    let pairs = alternate(options.rounds(100), |side| match side {
        Side::Ours => {
            calls += u64::from(CALLS);
            let start = Instant::now();
            for _ in 0..2 * CALLS {
                harness.turn()?;
            }
            Ok(start.elapsed().as_nanos() as f64 / f64::from(CALLS))
        }
        Side::Theirs => bare.exit(),
    })?;
    if harness.hypercalls(server)? - before != calls {
        return Err(BenchError::Astray);
    }
    let note = format!("a call with {BYTES} bytes and its answer, the server waiting; the paper: 54.6 µs, 27 null calls");
    report(Row::pairs("rpc-to-exit", REFERENCE_EXIT, &pairs).noting(note));
    Ok(())
}

/// A cell with a message, not yet started.
fn cell(harness: &Harness, code: &Code) -> Result<pando_kernel::CellId, BenchError> {
    let id = harness.cell(code.bytes(), QUOTA)?;
    harness.map(id, DATA, PageCount(1), MapFlags::lazy(Permissions::READ_WRITE))?;
    let record = MessageRecord { address: SENT, bytes: BYTES, buffer: BUFFER, size: BYTES as u32, ..MessageRecord::default() };
    let bytes: Vec<u8> = record.to_words().into_iter().flat_map(u64::to_le_bytes).collect();
    harness.kernel.write(id, RECORD, &bytes)?;
    Ok(id)
}

/// Calls for ever.
fn client() -> Code {
    let mut code = Code::new();
    let again = code.here();
    code.hypercall(Hypercall::Call { reference: REFERENCE, message: RECORD, deadline: u64::MAX }).jump(again);
    code
}

/// Makes a port and a client, and answers calls for ever.
fn server() -> Code {
    let mut code = Code::new();
    let receive = Hypercall::Receive { port: PORT, message: RECORD, deadline: u64::MAX, reply: 0 };
    code.hypercall(Hypercall::PortCreate {})
        .hypercall(Hypercall::CellClone { source: HoldingName::ROOT.bits(), quota: QUOTA.0, cells: 0 })
        .hypercall(Hypercall::Grant { cell: CHILD, holding: PORT, label: 1 })
        .hypercall(Hypercall::CellRun { cell: CHILD })
        .hypercall(receive);
    let again = code.here();
    // The right to reply is in word 8: mov r10, [rcx]; mov rax, 45.
    code.point(RECORD + (CALLER_WORDS as u64 + 2) * 8).raw(&[0x4c, 0x8b, 0x11]);
    code.raw(&[0x48, 0xb8]).raw(&receive.encode().0.to_le_bytes()).out().jump(again);
    code
}
