// SPDX-License-Identifier: MIT OR Apache-2.0
//! Time, memory and identity in the virtual registers.

use pando_abi::layout::VIRTUAL_REGISTERS;
use pando_abi::limits::{ENTROPY_BYTES, HOST_NAME_BYTES};
use pando_abi::registers::cause;
use pando_abi::virtual_registers::{Time, offset};
use pando_abi::{Event, Hypercall};
use pando_kernel::{CellConfig, CellId, End};
use pando_testing::asm::Asm;
use pando_testing::asm::Register::{Rax, Rbx, Rcx, Rdx, Rsi};
use pando_testing::lab::{DATA, Lab, QUOTA, repetitions};
use pando_testing::virtual_registers::{application, saved, set_control, with_handlers, words};
use std::collections::BTreeSet;

const IDENTITY: u64 = VIRTUAL_REGISTERS + offset::IDENTITY as u64;
const MEMORY: u64 = VIRTUAL_REGISTERS + offset::MEMORY as u64;

/// A template; each clone of it freezes again at once, so that the test can read it.
fn template(lab: &mut Lab) -> CellId {
    let id = lab.launch(|asm| {
        let again = asm.here();
        asm.call_kernel(Hypercall::Freeze {}).mov_imm(Rbx, DATA).store(Rbx, 0, Rax).jmp(again);
    });
    lab.run_all();
    id
}

fn started_clone(lab: &mut Lab, source: CellId) -> CellId {
    let clone = lab.kernel.clone_cell(source, QUOTA).expect("a template can be cloned");
    lab.kernel.start(clone).expect("it was not started before");
    lab.run_all();
    clone
}

fn entropy(lab: &Lab, id: CellId) -> [u64; ENTROPY_BYTES / 8] {
    words(lab, id, VIRTUAL_REGISTERS + offset::ENTROPY as u64)
}

#[test]
fn a_thousand_clones_have_identities_and_share_no_randomness() {
    for mut lab in Lab::both().into_iter().chain(Lab::sleep_when_idle()) {
        let before = lab.kernel.free();
        let source = template(&mut lab);
        assert_eq!(words(&lab, source, IDENTITY), [0, 0]);
        let mut seen = BTreeSet::from([entropy(&lab, source)]);
        let count = u64::from(repetitions(100, 1_000, 10_000));
        for index in 0..count {
            let clone = started_clone(&mut lab, source);
            assert_eq!(words(&lab, clone, IDENTITY), [1, index]);
            // The call has also returned the generation.
            assert_eq!(words(&lab, clone, DATA), [1]);
            let random = entropy(&lab, clone);
            assert!(random.iter().all(|word| *word != 0), "{random:x?}");
            assert!(seen.insert(random), "clone {index} has the randomness of another");
            lab.kernel.end(clone, End::Killed).expect("it lives");
            lab.kernel.collect(clone);
        }
        lab.kernel.end(source, End::Killed).expect("it lives");
        lab.kernel.free_unused_frames();
        assert_eq!(lab.kernel.free(), before);
    }
}

#[test]
fn a_clone_of_a_clone_is_of_the_next_generation() {
    for mut lab in Lab::both().into_iter().chain(Lab::sleep_when_idle()) {
        let source = template(&mut lab);
        let child = started_clone(&mut lab, source);
        let grandchild = started_clone(&mut lab, child);
        assert_eq!(words(&lab, grandchild, IDENTITY), [2, 0]);
        assert_ne!(entropy(&lab, grandchild), entropy(&lab, child));
        for (parent, wanted) in [(child, [2, 1]), (source, [1, 1])] {
            let clone = started_clone(&mut lab, parent);
            assert_eq!(words(&lab, clone, IDENTITY), wanted);
        }
    }
}

#[test]
fn a_clone_reads_a_new_generation() {
    for mut lab in Lab::both() {
        // The template freezes at level 0, so the clone gets its upcall at once.
        let mut asm = Asm::new();
        asm.call_kernel(Hypercall::Freeze {});
        let freeze = asm.finish();
        let source = lab.cell(&with_handlers(&freeze, &[], &freeze));
        set_control(&lab, source, &application());
        lab.kernel.start(source).expect("it was not started before");
        lab.run_all();
        let clone = started_clone(&mut lab, source);
        let context = saved(&lab, clone, 0);
        assert_eq!((context.cause, context.error), (cause::EVENTS, 1 << Event::Generation as u8));
        assert_eq!(context.rax, 1, "the result of freezing is saved with the rest");
    }
}

#[test]
fn host_names_are_given_kept_by_clones_and_cut_where_they_must() {
    for mut lab in Lab::both() {
        for name in ["", "a", "grove-1", &"x".repeat(HOST_NAME_BYTES), &"y".repeat(500)] {
            let id = lab.kernel.create(CellConfig { quota: QUOTA, host_name: name.into() }).expect("room for a cell");
            lab.kernel.start(id).expect("it was not started before");
            // Without code it faults at once; the attempt to clone it is made before that.
            let clone = lab.kernel.clone_cell(id, QUOTA);
            assert!(clone.is_err(), "a cell that waits for its turn cannot be cloned");
            assert!(matches!(lab.finish(id).end, End::Fault(_)));
        }
        let long = "z".repeat(HOST_NAME_BYTES + 1);
        for (name, shown) in [("grove-1", "grove-1"), (&long[..], &long[..HOST_NAME_BYTES])] {
            let id = lab.kernel.create(CellConfig { quota: QUOTA, host_name: name.into() }).expect("room for a cell");
            let code = {
                let mut asm = Asm::new();
                asm.call_kernel(Hypercall::Freeze {}).call_kernel(Hypercall::Freeze {});
                asm.finish()
            };
            let flags = pando_abi::MapFlags::lazy(pando_abi::Permissions::READ_EXECUTE);
            lab.kernel.map(id, DATA, pando_machine::PageCount(1), flags).expect("room for its code");
            lab.kernel.write(id, DATA, &code).expect("its code is mapped");
            let registers = pando_abi::Registers { rip: DATA, ..Default::default() };
            lab.kernel.set_registers(id, registers).expect("it is not running");
            lab.kernel.start(id).expect("it was not started before");
            lab.run_all();
            for cell in [id, started_clone(&mut lab, id)] {
                let [length] = words(&lab, cell, VIRTUAL_REGISTERS + offset::HOST_NAME_LENGTH as u64);
                let mut bytes = vec![0; HOST_NAME_BYTES];
                lab.kernel.read(cell, VIRTUAL_REGISTERS + offset::HOST_NAME_LENGTH as u64 + 8, &mut bytes).expect("it is mapped");
                assert_eq!(std::str::from_utf8(&bytes[..length as usize]), Ok(shown));
                assert!(bytes[length as usize..].iter().all(|byte| *byte == 0));
            }
        }
    }
}

#[test]
fn the_clock_that_a_cell_reads_is_the_kernels() {
    for mut lab in Lab::both() {
        let before = lab.kernel.now();
        let id = lab.launch(|asm| {
            asm.rdtsc().mov_imm(Rbx, DATA).store(Rbx, 0, Rax).store(Rbx, 8, Rdx).call_kernel(Hypercall::Freeze {});
        });
        lab.run_all();
        let after = lab.kernel.now();
        let [low, high] = words(&lab, id, DATA);
        let [scale, tsc_base, base, wall_base, frequency] = words(&lab, id, VIRTUAL_REGISTERS + offset::TIME as u64);
        let time = Time { scale, tsc_base, base, wall_base, frequency };
        let read = time.nanoseconds(high << 32 | low);
        assert!((before.0..=after.0).contains(&read), "{read} is not between {} and {}", before.0, after.0);
        // A second has the same length by the frequency and by the scale, to one millionth.
        let second = time.nanoseconds(tsc_base + frequency) - base;
        assert!(second.abs_diff(1_000_000_000) < 1_000, "a second of {frequency} cycles takes {second} ns");
    }
}

#[test]
fn the_cell_reads_its_quota_and_usage() {
    for mut lab in Lab::both() {
        let id = lab.launch(|asm| {
            asm.mov_imm(Rsi, DATA).mov_imm(Rcx, MEMORY).load(Rax, Rcx, 0).store(Rsi, 0, Rax).load(Rax, Rcx, 8).store(Rsi, 8, Rax);
            asm.call_kernel(Hypercall::Map { space: u64::MAX, address: 0x2000_0000, pages: 100, flags: 0xb });
            asm.mov_imm(Rsi, DATA).mov_imm(Rcx, MEMORY).load(Rax, Rcx, 8).store(Rsi, 16, Rax).call_kernel(Hypercall::Freeze {});
        });
        lab.run_all();
        let [quota, first, second] = words(&lab, id, DATA);
        assert_eq!(quota, QUOTA.0);
        assert!(first > 0 && second >= first + 100 && second < first + 120, "{first} pages, then {second}");
        let (_, _, usage) = lab.kernel.inspect(id).expect("it lives");
        assert!(usage.used.0.abs_diff(second) <= 2, "the kernel says {}, the cell read {second}", usage.used);
    }
}
