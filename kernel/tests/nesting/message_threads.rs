// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages on two vCPUs: clients call and post calls while the server answers, and all end in the middle of it.

use pando_abi::message::{CALLER_WORDS, PENDING};
use pando_abi::{HoldingName, Hypercall, MapFlags, MessageRecord, Permissions, Registers};
use pando_kernel::{CellConfig, CellId, Config, End, Kernel};
use pando_machine::PageCount;
use pando_machine::kvm::{Kvm, KvmConfig, Omit};
use pando_testing::asm::Asm;
use pando_testing::asm::Condition::{NotZero, Zero};
use pando_testing::asm::Register::{R10, R12, R13, R14, R15, Rax, Rbx};
use pando_testing::lab::{CODE, DATA, is_kvm_available, repetitions};
use std::time::Duration;

const QUOTA: PageCount = PageCount(500);
const CLIENTS: u32 = 3;
const RECORD: u64 = DATA;
const SENT: u64 = DATA + 0x800;
/// The buffer begins in one page and ends in another.
const BUFFER: u64 = DATA + 0xfc0;
const BYTES: u64 = 128;
const RESULT: i32 = CALLER_WORDS as i32 * 8;
const RIGHT: i32 = RESULT + 16;

/// A cell with this code and a message that was not started.
fn cell(kernel: &Kernel, quota: PageCount, build: impl FnOnce(&mut Asm)) -> CellId {
    let mut asm = Asm::new();
    build(&mut asm);
    let code = asm.finish();
    let id = kernel.create(CellConfig { quota, host_name: "test".into() }).expect("room for a cell");
    kernel.map(id, CODE, PageCount::covering(code.len() as u64), MapFlags::lazy(Permissions::READ_EXECUTE)).expect("room for its code");
    kernel.write(id, CODE, &code).expect("its code is mapped");
    kernel.map(id, DATA, PageCount(4), MapFlags::lazy(Permissions::READ_WRITE)).expect("room for its data");
    let record = MessageRecord { address: SENT, bytes: BYTES, buffer: BUFFER, size: BYTES as u32, ..MessageRecord::default() };
    let words: Vec<u8> = record.to_words().into_iter().flat_map(u64::to_le_bytes).collect();
    kernel.write(id, RECORD, &words).expect("its data is mapped");
    kernel.set_registers(id, Registers { rip: CODE, rsp: DATA + 0x4000, ..Registers::default() }).expect("it is not running");
    id
}

/// Makes a port and clients, and answers their calls.
fn server(asm: &mut Asm) {
    let port = HoldingName::new(1, 1).bits();
    asm.call_kernel(Hypercall::PortCreate {});
    for index in 0..CLIENTS {
        let cell = HoldingName::new(2 + index, 1).bits();
        asm.call_kernel(Hypercall::CellClone { source: HoldingName::ROOT.bits(), quota: QUOTA.0, cells: 0 });
        asm.call_kernel(Hypercall::Grant { cell, holding: port, label: index.into() });
        asm.call_kernel(Hypercall::CellRun { cell });
    }
    let receive = Hypercall::Receive { port, message: RECORD, deadline: u64::MAX, reply: 0 };
    asm.mov_imm(R14, RECORD).call_kernel(receive);
    let again = asm.here();
    asm.load(R10, R14, RIGHT).mov_imm(Rax, receive.encode().0).hypercall().jmp(again);
}

/// Calls, and posts a call; waits for its result without leaving its vCPU for a while.
fn client(asm: &mut Asm) {
    let call = |deadline| Hypercall::Call { reference: HoldingName::ROOT.bits(), message: RECORD, deadline };
    asm.mov_imm(R14, RECORD).mov_imm(R12, PENDING);
    let again = asm.here();
    asm.call_kernel(call(u64::MAX)).store(R14, RESULT, R12).call_kernel(call(0));
    let wait = asm.here();
    let done = asm.label();
    asm.mov_imm(Rbx, 20_000);
    let spin = asm.here();
    asm.load(R13, R14, RESULT).mov(R15, R13).sub(R15, R12).jump_if(NotZero, done).dec(Rbx).jump_if(NotZero, spin);
    asm.call_kernel(Hypercall::Relinquish {}).cmp_imm(Rbx, 0).jump_if(Zero, wait);
    asm.bind(done).jmp(again);
}

#[test]
fn clients_and_their_server_end_in_the_middle_of_calls() {
    if !is_kvm_available() {
        return;
    }
    let machine = Kvm::new(KvmConfig { arena: PageCount(1 << 14), vcpus: 2, omit: Omit::NOTHING }).expect("KVM is there");
    let kernel = Kernel::new(machine, Config::default());
    let free = kernel.free();
    let (root, origin) = (cell(&kernel, QUOTA, client), cell(&kernel, PageCount(4000), server));
    kernel.start_vcpus().expect("vCPU threads start");
    for _ in 0..repetitions(1, 3, 100) {
        let id = kernel.clone_cell(origin, PageCount(4000)).expect("room for a server");
        kernel.allow_children(id, CLIENTS, root).expect("it holds nothing yet");
        kernel.start(id).expect("it was not started");
        let calls = |id: CellId| kernel.inspect(id).map_or(0, |(_, counters, _)| counters.hypercalls);
        let progress =
            || kernel.children(id).map_or(Vec::new(), |held| held.into_iter().map(|(_, child)| calls(child)).collect::<Vec<_>>());
        let limit = kernel.now() + Duration::from_secs(60);
        while progress().len() < CLIENTS as usize || progress().into_iter().any(|count| count < 300) {
            assert!(kernel.now() < limit, "a client makes no progress: {:?} calls of the clients, {} of the server", progress(), calls(id));
            std::thread::yield_now();
        }
        kernel.end(id, End::Killed).expect("it lives");
        assert_eq!(kernel.wait(id).expect("it ends").end, End::Killed);
    }
    for id in [root, origin] {
        kernel.end(id, End::Killed).expect("it was never started");
        kernel.collect(id);
    }
    // The last clients end in housekeeping.
    let limit = kernel.now() + Duration::from_secs(60);
    while kernel.cells() > 0 {
        assert!(kernel.now() < limit, "{} cells are left", kernel.cells());
        std::thread::yield_now();
    }
    kernel.free_unused_frames();
    assert_eq!(kernel.free(), free);
}
