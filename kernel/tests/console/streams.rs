// SPDX-License-Identifier: MIT OR Apache-2.0
//! Long streams through a cell that echoes: nothing is lost, and no side keeps more than its buffer.

use pando_abi::layout::{CONSOLE_RINGS, VIRTUAL_REGISTERS};
use pando_abi::ring::{ConsoleRings, OUTPUT};
use pando_abi::{Hypercall, MapFlags, Permissions, Registers};
use pando_kernel::limits::CONSOLE_BYTES;
use pando_kernel::{CellConfig, CellId, Config, End, Kernel, Stream};
use pando_machine::kvm::{Kvm, KvmConfig, Omit};
use pando_machine::sim::{Sim, SimConfig};
use pando_machine::{Machine, PageCount};
use pando_testing::asm::Register::{R12, R13, R14, Rax, Rbx, Rcx};
use pando_testing::asm::{Asm, Condition};
use pando_testing::lab::{CODE, DATA, QUOTA, is_kvm_available, repetitions};
use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes that the echo moves at once.
const BUFFER: u64 = 1 << 16;
const ARENA: PageCount = PageCount(1 << 13);

/// Posts the next descriptor of a ring, with the same address and tag each time and the length in RCX. Waits until it is taken; RCX
/// then holds its length. `count` (R12 or R13) counts the descriptors.
fn move_one(asm: &mut Asm, ring: usize, count: pando_testing::asm::Register, length: u64, slots: i32) {
    let (again, taken) = (asm.label(), asm.label());
    // The descriptor's index: the count modulo the ring's length.
    asm.mov_imm(Rbx, slots as u64 - 1).and(Rbx, count).add(Rbx, Rbx).add(Rbx, Rbx).add(Rbx, Rbx).add(Rbx, Rbx);
    asm.mov_imm(Rax, CONSOLE_RINGS + ring as u64 + 16).add(Rbx, Rax);
    asm.mov_imm(Rax, DATA).store(Rbx, 0, Rax).mov_imm(Rax, u64::from(OUTPUT) << 32);
    if length > 0 {
        asm.mov_imm(Rcx, length);
    }
    asm.or(Rax, Rcx).store(Rbx, 8, Rax).mov(R14, Rbx).inc(count);
    asm.mov_imm(Rbx, CONSOLE_RINGS + ring as u64).store(Rbx, 0, count).bind(again);
    asm.mov_imm(Rbx, VIRTUAL_REGISTERS).store_imm(Rbx, 0, 0);
    asm.mov_imm(Rbx, CONSOLE_RINGS + ring as u64).load(Rax, Rbx, 8).cmp(Rax, count).jump_if(Condition::Zero, taken);
    asm.call_kernel(Hypercall::Idle { deadline: u64::MAX }).jmp(again).bind(taken);
    // The length alone, without the tag.
    asm.load(Rcx, R14, 8).mov_imm(Rax, 0xffff_ffff).and(Rcx, Rax);
}

/// A started cell that echoes its input until the input ends.
fn echo(kernel: &Kernel) -> CellId {
    let mut asm = Asm::new();
    let (again, end) = (asm.here(), asm.label());
    move_one(&mut asm, offset_of!(ConsoleRings, receive), R12, BUFFER, 16);
    asm.cmp_imm(Rcx, 0).jump_if(Condition::Zero, end);
    move_one(&mut asm, offset_of!(ConsoleRings, transmit), R13, 0, 64);
    asm.jmp(again).bind(end).call_kernel(Hypercall::Exit { status: 6, signal: 0, address: 0, instruction: 0 });
    let code = asm.finish();
    let id = kernel.create(CellConfig { quota: QUOTA, host_name: "echo".into() }).expect("room for a cell");
    kernel.map(id, CODE, PageCount::covering(code.len() as u64), MapFlags::lazy(Permissions::READ_EXECUTE)).expect("room for its code");
    kernel.write(id, CODE, &code).expect("its code is mapped");
    kernel.map(id, DATA, PageCount(BUFFER / 4096), MapFlags::lazy(Permissions::READ_WRITE)).expect("room for its data");
    kernel.set_registers(id, Registers { rip: CODE, ..Registers::default() }).expect("it is not running");
    kernel.start(id).expect("it was not started before");
    id
}

fn kernels() -> Vec<(Kernel, u64)> {
    let sim = Sim::new(SimConfig { arena: ARENA, ..SimConfig::default() }).expect("memory for the software machine");
    let mut kernels = vec![(Kernel::new(sim as Arc<dyn Machine>, Config::default()), 16 << 20)];
    if is_kvm_available() {
        let machine = Kvm::new(KvmConfig { arena: ARENA, vcpus: 1, omit: Omit::NOTHING }).expect("KVM is there");
        kernels.push((Kernel::new(machine, Config::default()), u64::from(repetitions(4, 256, 4096)) << 20));
    }
    kernels
}

/// A chunk of the stream, determined by its position.
fn chunk(at: u64, length: usize) -> Vec<u8> {
    (0..length as u64 / 8).flat_map(|index| (at + index * 8).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()).collect()
}

#[test]
fn a_long_stream_goes_through_a_cell_in_little_memory() {
    const CHUNK: usize = 1 << 15;
    for (kernel, bytes) in kernels() {
        let before = kernel.free();
        kernel.start_vcpus().expect("a vCPU thread starts");
        let id = echo(&kernel);
        let port = kernel.console(id).expect("it lives");
        let sent = Arc::new(AtomicUsize::new(0));
        let sender = std::thread::spawn({
            let (port, sent) = (Arc::clone(&port), Arc::clone(&sent));
            move || {
                for at in (0..bytes).step_by(CHUNK) {
                    assert!(port.send(&chunk(at, CHUNK)), "the cell ended");
                    sent.fetch_add(CHUNK, Ordering::SeqCst);
                }
                port.close_input();
            }
        });
        let mut received = 0;
        let mut rest: Vec<u8> = Vec::new();
        while let Some((stream, piece)) = port.receive() {
            assert_eq!(stream, Stream::Stdout);
            received += piece.len();
            rest.extend(piece);
            // In transit: one input buffer, one output buffer, and the cell's own.
            let on_the_way = sent.load(Ordering::SeqCst).saturating_sub(received);
            assert!(on_the_way <= 2 * CONSOLE_BYTES + BUFFER as usize + CHUNK, "{on_the_way} bytes are on the way");
            let whole = rest.len() / CHUNK * CHUNK;
            for (index, found) in rest[..whole].chunks(CHUNK).enumerate() {
                let at = (received - rest.len()) as u64 + (index * CHUNK) as u64;
                assert!(found == chunk(at, CHUNK), "bytes after {at} were lost, repeated or changed");
            }
            rest.drain(..whole);
        }
        assert_eq!((received as u64, rest.len()), (bytes, 0));
        sender.join().expect("all was sent");
        assert_eq!(kernel.wait(id).expect("it has ended").end, End::Exited { status: 6 });
        kernel.free_unused_frames();
        assert_eq!(kernel.free(), before);
    }
}

#[test]
fn a_sender_to_a_cell_that_reads_nothing_waits_until_the_cell_ends() {
    for (kernel, _) in kernels() {
        let id = kernel.create(CellConfig { quota: QUOTA, host_name: String::new() }).expect("room for a cell");
        let port = kernel.console(id).expect("it lives");
        let sender = std::thread::spawn({
            let port = Arc::clone(&port);
            // More than there is room for: without waiting, all of it would have been taken.
            move || port.send(&vec![1; 4 * CONSOLE_BYTES])
        });
        let receiver = std::thread::spawn(move || port.receive());
        kernel.end(id, End::Killed).expect("it lives");
        assert!(!sender.join().expect("it is told"), "somebody took all of it");
        assert_eq!(receiver.join().expect("it is told"), None);
    }
}
