// SPDX-License-Identifier: MIT OR Apache-2.0
//! Invalid accesses to all kinds of addresses, and fresh memory, which must be zero.

use crate::Code;
use crate::harness::{ExpectedEnd, Harness, HostileCell, rows};
use ExpectedEnd::{Exits, Fault};
use pando_abi::layout::{CONSOLE_RINGS, CPUID_TABLE, SYSTEM_FREE, USER_END, VIRTUAL_REGISTERS};
use pando_abi::{Hypercall, MapFlags, Permissions};
use pando_machine::{PHYSICAL_BASE, PageCount, SUPERVISOR_BASE};
use pando_testing::asm::Condition;
use pando_testing::asm::Register::{R13, R14, R15, Rax, Rbx, Rsp};
use pando_testing::lab::{CODE, DATA, STACK_TOP};
use pando_testing::virtual_registers::exit;

/// Where `syscall` enters the supervisor.
const SYSCALL_STUB: u64 = SUPERVISOR_BASE + 0x2400;

/// Invalid addresses: not mapped, outside the cell's range, not canonical, or in any of the supervisor's pages.
fn nowhere() -> Vec<u64> {
    let supervisor = (0..16).map(|page| SUPERVISOR_BASE + page * 0x1000);
    let stubs = (0..70).map(|stub| SUPERVISOR_BASE + 0x2000 + stub * 16);
    let others = [
        0,
        8,
        0xfff,
        CODE - 8,
        DATA - 8,
        STACK_TOP,
        SYSTEM_FREE,
        VIRTUAL_REGISTERS - 8,
        USER_END - 8,
        USER_END,
        (1 << 47) - 8,
        1 << 47,
        1 << 48,
        1 << 62,
        1 << 63,
        0xffff_7fff_ffff_fff8,
        0xffff_8000_0000_0000,
        0xffff_8880_0000_0000,
        0xffff_ffff_8100_0000,
        0xffff_ffff_ffff_f000,
        u64::MAX - 7,
        PHYSICAL_BASE,
        PHYSICAL_BASE + 0x1000,
        PHYSICAL_BASE + 0x20_0000,
        0xfee0_0000,
        0xfffb_d000,
    ];
    others.into_iter().chain(supervisor).chain(stubs).collect()
}

/// A way to access an address in RBX, or in RSP for a stack access.
const WAYS: [(&str, Code); 8] = [
    ("a load", |asm| {
        asm.load(Rax, Rbx, 0);
    }),
    ("a load of a byte", |asm| {
        asm.load_byte(Rax, Rbx, 0);
    }),
    ("a store", |asm| {
        asm.store(Rbx, 0, Rax);
    }),
    ("a jump", |asm| {
        asm.jmp_to(Rbx);
    }),
    ("a call", |asm| {
        asm.call_to(Rbx);
    }),
    ("a push", |asm| {
        asm.mov(Rsp, Rbx).add_imm(Rsp, 8).push(Rax);
    }),
    ("a pop", |asm| {
        asm.mov(Rsp, Rbx).pop(Rax);
    }),
    ("a return", |asm| {
        asm.mov(Rsp, Rbx).ret();
    }),
];

#[test]
fn wild_accesses_fault_wherever_they_lead() {
    for mut harness in Harness::both() {
        for address in rows(nowhere(), 15) {
            for (name, way) in WAYS {
                let hostile = HostileCell::assembled(format!("{name} at {address:#x}"), |asm| {
                    asm.mov_imm(Rbx, address);
                    way(asm);
                });
                // On nested machines, a jump to the stub of `syscall` looks like a `syscall`.
                let stub = address == SYSCALL_STUB && ["a jump", "a call", "a return"].contains(&name);
                let end = harness.try_cell(&hostile, &[Fault(14), Fault(13), Fault(if stub { 6 } else { 12 })]).end;
                let pando_kernel::End::Fault(fault) = end else { unreachable!("it was a fault") };
                assert!(fault.vector != 14 || fault.address.abs_diff(address) <= 8, "{}: {fault}", hostile.name);
            }
        }
        harness.close();
    }
}

#[test]
fn read_only_memory_stays_unchanged() {
    for mut harness in Harness::both() {
        for address in [CODE, CODE + 0xff8, CPUID_TABLE, CPUID_TABLE + 0x1ff8] {
            let hostile = HostileCell::assembled(format!("a store at {address:#x}"), |asm| {
                asm.mov_imm(Rbx, address).load(Rax, Rbx, 0).store(Rbx, 0, Rax);
            });
            harness.try_cell(&hostile, &[Fault(14)]);
        }
        for address in [DATA, VIRTUAL_REGISTERS, CONSOLE_RINGS, CPUID_TABLE] {
            let hostile = HostileCell::assembled(format!("a jump to {address:#x}"), |asm| {
                asm.mov_imm(Rbx, address).jmp_to(Rbx);
            });
            harness.try_cell(&hostile, &[Fault(14)]);
        }
        harness.close();
    }
}

#[test]
fn a_stack_that_overflows_ends_the_cell_at_its_guard() {
    for mut harness in Harness::both() {
        let hostile = HostileCell::assembled("endless recursion", |asm| {
            let again = asm.here();
            asm.call(again);
        });
        let end = harness.try_cell(&hostile, &[Fault(14)]).end;
        let pando_kernel::End::Fault(fault) = end else { unreachable!("it was a fault") };
        assert_eq!((fault.address, fault.error & 2), (DATA - 8, 2), "{fault}");
        harness.close();
    }
}

/// No cell can read another cell's data: whatever a cell leaves in its memory, its tables and the kernel's pages, the next cell's
/// memory is zero.
#[test]
fn fresh_memory_is_zero() {
    const PAGES: u64 = 3000;
    const START: u64 = 0x2000_0000;
    let flags = [MapFlags::lazy(Permissions::READ_WRITE), MapFlags::eager(Permissions::READ_WRITE)];
    let large = MapFlags { large: true, ..flags[0] };
    for mut harness in Harness::both() {
        for flags in [flags[0], flags[1], large, flags[1], flags[0]] {
            let hostile = HostileCell::assembled(format!("writing everywhere, with flags {:#x}", flags.bits()), |asm| {
                let (failed, map) = (asm.label(), Hypercall::Map { space: u64::MAX, address: START, pages: PAGES, flags: flags.bits() });
                asm.call_kernel(map).mov_imm(Rbx, START).mov_imm(R15, PAGES * 512).mov_imm(R14, 0).mov_imm(R13, u64::MAX);
                let again = asm.here();
                asm.load(Rax, Rbx, 0).cmp(Rax, R14).jump_if(Condition::NotZero, failed);
                asm.store(Rbx, 0, R13).add_imm(Rbx, 8).dec(R15).jump_if(Condition::NotZero, again);
                asm.call_kernel(exit(0)).bind(failed).call_kernel(exit(1));
            });
            let quota = PageCount(8192);
            harness.try_cell(&HostileCell { quota, ..hostile }, &[Exits(0)]);
        }
        harness.close();
    }
}
