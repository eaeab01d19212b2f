// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ten thousand cells alive in one process, each with its own data, all making progress; then all gone and every frame back.
//!
//! Each is a clone of one template. It writes its own number into its pages, and a few times waits for a moment, checks the pages and writes the
//! next number. When it has done that it waits to be told to end; the operator tells nobody before everybody runs.

use pando_abi::layout::{LIBOS, VIRTUAL_REGISTERS};
use pando_abi::virtual_registers::{Control, offset};
use pando_abi::{Event, Hypercall, MapFlags, PAGE_SIZE, Permissions, Registers};
use pando_kernel::{CellConfig, CellId, Config, End, Kernel};
use pando_machine::kvm::{Kvm, KvmConfig, Omit};
use pando_machine::{Nanos, PageCount};
use pando_testing::asm::Register::{R13, R15, Rax, Rbx, Rcx, Rdi, Rsi};
use pando_testing::asm::{Asm, Condition};
use pando_testing::lab::{Lab, kvm_is_there, repetitions};
use std::mem::offset_of;
use std::time::Duration;

/// Where a cell's own pages lie: in the page table that it has of its own anyway.
const OWN: u64 = LIBOS + 0x1_0000;
/// Their offsets.
const PAGES: [i32; 3] = [0, PAGE_SIZE as i32, 2 * PAGE_SIZE as i32];
/// Offsets in the first of them, beside the number at 0: the rounds done, and the next moment to wait for.
const ROUNDS_DONE: i32 = 8;
const MOMENT: i32 = 16;
/// How often a cell waits and checks.
const ROUNDS: u8 = 3;
/// Nanoseconds from one moment to the next.
const PERIOD: u32 = 1_000_000_000;
/// How long after its start a cell first waits for: most of the others have started by then.
const FIRST_WAIT: Duration = Duration::from_secs(2);
/// The status of a cell that found somebody else's data.
const WRONG: u8 = 99;
/// What each may have: far more than it needs.
const QUOTA: PageCount = PageCount(256);
/// Physical memory for so many: 2 GiB, a fifth of which is used.
const ARENA: PageCount = PageCount(1 << 19);

fn program() -> Vec<u8> {
    let mask = offset_of!(Control, mask) as i32;
    let exit = |status: u8| Hypercall::Exit { status: status.into(), signal: 0, address: 0, instruction: 0 };
    let mut asm = Asm::new();
    asm.mov_imm(R15, VIRTUAL_REGISTERS).mov_imm(Rbx, OWN).store_imm(R15, mask, -1).call_kernel(Hypercall::Freeze {});
    // Which clone this is makes its number.
    asm.load(R13, R15, offset::IDENTITY as i32 + 8).add_imm(R13, 1).mov_imm(Rcx, 0).store(Rbx, ROUNDS_DONE, Rcx);
    for page in PAGES {
        asm.store(Rbx, page, R13);
    }
    let wrong = asm.label();
    let round = asm.here();
    asm.load(Rdi, Rbx, MOMENT).mov(Rsi, Rdi).add_imm(Rsi, PERIOD as i32).store(Rbx, MOMENT, Rsi);
    asm.mov_imm(Rax, 1).hypercall();
    for page in PAGES {
        asm.load(Rsi, Rbx, page).cmp(Rsi, R13).jump_if(Condition::NotZero, wrong);
    }
    asm.add_imm(R13, 0x10_0000);
    for page in PAGES {
        asm.store(Rbx, page, R13);
    }
    asm.load(Rcx, Rbx, ROUNDS_DONE).inc(Rcx).store(Rbx, ROUNDS_DONE, Rcx);
    asm.cmp_imm(Rcx, ROUNDS.into()).jump_if(Condition::NotZero, round);
    asm.store_imm(R15, mask, 0).call_kernel(Hypercall::Idle { deadline: u64::MAX });
    asm.load(Rdi, Rbx, ROUNDS_DONE).mov_imm(Rsi, 0).mov_imm(Rax, 0).hypercall();
    asm.bind(wrong).call_kernel(exit(WRONG));
    asm.finish()
}

/// The template, started.
fn template(kernel: &Kernel) -> CellId {
    let id = kernel.create(CellConfig { quota: QUOTA, host_name: "grove".into() }).expect("room for a cell");
    kernel.map(id, LIBOS, PageCount(1), MapFlags::lazy(Permissions::READ_EXECUTE)).expect("room for its code");
    kernel.write(id, LIBOS, &program()).expect("its code is mapped");
    kernel.map(id, OWN, PageCount(PAGES.len() as u64), MapFlags::lazy(Permissions::READ_WRITE)).expect("room for its data");
    kernel.set_registers(id, Registers { rip: LIBOS, ..Registers::default() }).expect("it does not run yet");
    kernel.start(id).expect("it was not started before");
    id
}

/// Clones the template so often and starts them all.
fn grow(kernel: &Kernel, template: CellId, count: u32) -> Vec<CellId> {
    let clones: Vec<CellId> = (0..count).map(|_| kernel.clone_cell(template, QUOTA).expect("room for a clone")).collect();
    for clone in &clones {
        let Nanos(moment) = kernel.now() + FIRST_WAIT;
        kernel.write(*clone, OWN + MOMENT as u64, &moment.to_le_bytes()).expect("it does not run yet");
        kernel.start(*clone).expect("it was not started before");
    }
    assert_eq!(kernel.cells(), count as usize + 1, "all live at once");
    for clone in &clones {
        kernel.raise(*clone, Event::Terminate);
    }
    clones
}

/// What the end of a clone must be.
fn check(clone: usize, end: &End) {
    assert_eq!(*end, End::Exited { status: ROUNDS }, "clone {clone}");
}

/// Ends the template; then nothing may be left.
fn clear(kernel: &Kernel, template: CellId, before: PageCount) {
    kernel.end(template, End::Killed).expect("a template lives until it is ended");
    kernel.settle();
    assert_eq!(kernel.cells(), 0);
    assert_eq!(kernel.free(), before, "every frame is free again");
}

#[test]
fn a_thousand_cells_live_at_once_on_sim() {
    let mut lab = Lab::sim(1, ARENA, 2, Config::default());
    let before = lab.kernel.free();
    let template = template(&lab.kernel);
    lab.run_all();
    let clones = grow(&lab.kernel, template, repetitions(100, 1_000, 10_000));
    while lab.turn(0) | lab.turn(1) {}
    for (number, clone) in clones.into_iter().enumerate() {
        check(number, &lab.kernel.collect(clone).expect("every clone has ended").end);
    }
    clear(&lab.kernel, template, before);
}

#[test]
fn ten_thousand_cells_live_at_once_on_kvm() {
    if !kvm_is_there() {
        return;
    }
    let machine = Kvm::new(KvmConfig { arena: ARENA, vcpus: 2, shadow_tables: None, omit: Omit::NOTHING }).expect("KVM is there");
    let kernel = Kernel::new(machine, Config::default());
    kernel.start_vcpus().expect("threads for the vCPUs");
    let before = kernel.free();
    let template = template(&kernel);
    kernel.wait_frozen(template).expect("the program freezes");
    let count = repetitions(1_000, 10_000, 10_000);
    let clones = grow(&kernel, template, count);
    let (mut peak, mut used) = (PageCount(0), PageCount(0));
    for (number, clone) in clones.into_iter().enumerate() {
        used = used.max(before - kernel.free());
        let outcome = kernel.wait(clone).expect("nobody else waits for it");
        check(number, &outcome.end);
        peak = peak.max(outcome.usage.peak);
    }
    println!("{count} cells with {} pages each: {used} of frames in all at the most, {peak} for one with its retired tables,", PAGES.len());
    println!("and {} bytes of the kernel's own for each", Kernel::metadata_bytes());
    clear(&kernel, template, before);
}
