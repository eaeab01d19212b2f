// SPDX-License-Identifier: MIT OR Apache-2.0
//! The contents of CPL 0: descriptor tables, stacks, and stubs that do nothing but exit.
//!
//! Code there may be *emulated* at a microsecond per instruction, so a stub is one `out`. Everything lies in huge
//! frame 0 of the arena, mapped without the user bit at [`SUPERVISOR_BASE`] in slot 511 of every root:
//!
//! ```text
//! frame 1   IDT                        frame 8 + 3n   GDT of vCPU n
//! frame 2   stubs, 16 bytes each               + 1    TSS and I/O bitmap
//! frame 3   three tables that map all          + 2    stack of every exception
//! ```

use super::{Omit, descriptors};
use crate::{Arena, EntryIndex, FRAME_SIZE, FrameId, SUPERVISOR_BASE};
use kvm_bindings::kvm_segment;
use pando_abi::hypercall::PORT;
use pando_abi::layout::USER_START;

const IDT: FrameId = FrameId(1);
const STUBS: FrameId = FrameId(2);
const TABLES: [FrameId; 3] = [FrameId(3), FrameId(4), FrameId(5)];
const FIRST_OF_VCPUS: u32 = 8;
const FRAMES_PER_VCPU: u32 = 3;

/// Bytes from one stub to the next.
const STUB_SIZE: u64 = 16;
/// Vectors with a gate: those that the architecture defines.
const VECTORS: u64 = 32;
/// The stub at `LSTAR`, which 64-bit `syscall` enters.
const SYSCALL_STUB: u64 = 64;
/// The stub at `CSTAR`, which `syscall` from compatibility mode would enter.
const COMPATIBILITY_STUB: u64 = 65;
/// `out 0x7e, al; ud2`.
const STUB: [u8; 4] = [0xe6, PORT, 0x0f, 0x0b];

/// Present, writable, accessed, dirty; no user bit.
const SUPERVISOR_PAGE: u64 = 0b110_0011;
const NO_EXECUTE: u64 = 1 << 63;

const fn address(frame: FrameId) -> u64 {
    SUPERVISOR_BASE + frame.0 as u64 * FRAME_SIZE as u64
}

const fn stub(number: u64) -> u64 {
    address(STUBS) + number * STUB_SIZE
}

/// The stub at an instruction pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stub {
    /// The gate of an exception.
    Exception(u8),
    /// The entry of `syscall`.
    Syscall,
    /// The entry of `syscall` from 32-bit code, or its truncated address: the cell ends here.
    Compatibility,
    /// Any other: no cell gets there.
    Unexpected,
}

/// The stub that `rip` lies in.
pub(super) fn stub_at(rip: u64) -> Option<Stub> {
    if rip == TRUNCATED_ENTRY {
        return Some(Stub::Compatibility);
    }
    let offset = rip.checked_sub(address(STUBS)).filter(|offset| *offset < FRAME_SIZE as u64)?;
    Some(match offset / STUB_SIZE {
        vector @ 0..VECTORS => Stub::Exception(vector as u8),
        SYSCALL_STUB => Stub::Syscall,
        COMPATIBILITY_STUB => Stub::Compatibility,
        _ => Stub::Unexpected,
    })
}

/// Entry point of 64-bit `syscall`.
pub(super) const SYSCALL_ENTRY: u64 = stub(SYSCALL_STUB);
/// Entry point of `syscall` from compatibility mode.
pub(crate) const COMPATIBILITY_ENTRY: u64 = stub(COMPATIBILITY_STUB);
/// Its entry point if KVM drops the upper half of the address.
const TRUNCATED_ENTRY: u64 = COMPATIBILITY_ENTRY & u32::MAX as u64;
const _: () = assert!(TRUNCATED_ENTRY < USER_START, "a cell can have memory there");

/// The frame and offset of a supervisor address in a vCPU's exception stack. `None`: it is elsewhere.
pub(super) fn in_stack(vcpu: usize, pointer: u64) -> Option<(FrameId, usize)> {
    let stack = stack_of(vcpu);
    let offset = pointer.checked_sub(address(stack)).filter(|offset| *offset < FRAME_SIZE as u64)?;
    Some((stack, offset as usize))
}

fn frames_of(vcpu: usize) -> FrameId {
    FrameId(FIRST_OF_VCPUS + FRAMES_PER_VCPU * vcpu as u32)
}

fn stack_of(vcpu: usize) -> FrameId {
    frames_of(vcpu).offset(2)
}

/// The layout of the supervisor area.
pub(super) struct Supervisor {
    idt_base: u64,
}

impl Supervisor {
    /// Writes everything into huge frame 0.
    pub(super) fn lay_out(arena: &Arena, vcpus: usize, omit: Omit) -> Supervisor {
        assert!(vcpus <= ((crate::FRAMES_PER_HUGE_FRAME - FIRST_OF_VCPUS) / FRAMES_PER_VCPU) as usize, "huge frame 0 holds no more vCPUs");
        for number in (0..VECTORS).chain([SYSCALL_STUB, COMPATIBILITY_STUB]) {
            arena.write(STUBS, (number * STUB_SIZE) as usize, &STUB);
        }
        let stack_switch = if omit.contains_rule(Omit::STACK) { 0 } else { descriptors::EXCEPTION_STACK };
        for vector in 0..VECTORS {
            let [low, high] = descriptors::gate(stub(vector), vector == 3, stack_switch);
            arena.store(IDT, EntryIndex::new(2 * vector as usize), low);
            arena.store(IDT, EntryIndex::new(2 * vector as usize + 1), high);
        }
        let mut used = vec![(IDT, NO_EXECUTE), (STUBS, 0)];
        for vcpu in 0..vcpus {
            let [gdt, tss, stack] = [0, 1, 2].map(|index| frames_of(vcpu).offset(index));
            for (index, word) in descriptors::gdt(address(tss), !omit.contains_rule(Omit::CODE_SEGMENT)).into_iter().enumerate() {
                arena.store(gdt, EntryIndex::new(index), word);
            }
            // The stack starts 16 bytes below its end, as the CPU aligns it.
            arena.write(tss, 0, &descriptors::tss(address(stack) + FRAME_SIZE as u64 - 16));
            used.extend([gdt, tss, stack].map(|frame| (frame, NO_EXECUTE)));
        }
        for (level, [upper, lower]) in [(3, [TABLES[0], TABLES[1]]), (2, [TABLES[1], TABLES[2]])] {
            arena.store(upper, EntryIndex::of(SUPERVISOR_BASE, level), lower.address() | SUPERVISOR_PAGE);
        }
        for (frame, execution) in used {
            arena.store(TABLES[2], EntryIndex::of(address(frame), 1), frame.address() | SUPERVISOR_PAGE | execution);
        }
        Supervisor { idt_base: address(IDT) }
    }

    /// The entry for slot 511 of a root.
    pub(super) fn root_entry(&self) -> u64 {
        TABLES[0].address() | SUPERVISOR_PAGE
    }

    /// Base and limit of the IDT.
    pub(super) fn idt(&self) -> (u64, u16) {
        (self.idt_base, (VECTORS * 16 - 1) as u16)
    }

    /// Base and limit of a vCPU's GDT.
    pub(super) fn gdt(&self, vcpu: usize) -> (u64, u16) {
        (address(frames_of(vcpu)), descriptors::GDT_LIMIT)
    }

    /// The task register of a vCPU.
    pub(super) fn task(&self, vcpu: usize) -> kvm_segment {
        descriptors::task_segment(address(frames_of(vcpu).offset(1)))
    }
}
