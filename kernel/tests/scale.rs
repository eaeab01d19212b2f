// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ten thousand cells alive in one process, each with its own data, all making progress; then all are gone, and every frame is free
//! again.
//!
//! Each is a clone of one template. It writes its own number into its pages and waits. Woken, it repeats a few times: wait until a
//! given time, check the pages, write the next number. Then it waits until it is told to end. No cell is woken before all wait, and
//! none is told to end before all are done.

use pando_abi::layout::{LIBOS, VIRTUAL_REGISTERS};
use pando_abi::virtual_registers::{Control, offset};
use pando_abi::{Event, Hypercall, MapFlags, PAGE_SIZE, Permissions, Registers};
use pando_kernel::RunState;
use pando_kernel::{CellConfig, CellId, Config, End, Kernel};
use pando_machine::kvm::{Kvm, KvmConfig, Omit};
use pando_machine::{Nanos, PageCount};
use pando_testing::asm::Register::{R13, R15, Rax, Rbx, Rcx, Rdi, Rsi};
use pando_testing::asm::{Asm, Condition};
use pando_testing::lab::{Lab, is_kvm_available, repetitions};
use std::mem::offset_of;
use std::time::{Duration, Instant};

/// Address of a cell's own pages: in a page table that it has anyway.
const OWN: u64 = LIBOS + 0x1_0000;
/// Their offsets.
const PAGES: [u64; 3] = [0, PAGE_SIZE, 2 * PAGE_SIZE];
/// Offsets in the first of them, besides the number at 0: the rounds done, and the next time to wait for.
const ROUNDS_DONE: u64 = 8;
const MOMENT: u64 = 16;
/// How often a cell waits and checks.
const ROUNDS: u8 = 3;
/// Added to the number in each round; more than the number of cells.
const STEP: u32 = 0x10_0000;
/// Interval between the times.
const PERIOD: Duration = Duration::from_secs(1);
/// Exit status of a cell that found another cell's data.
const WRONG: u8 = 99;
/// Quota of each cell: far more than it needs.
const QUOTA: PageCount = PageCount(256);
/// After this long a frame that is not free is lost, however busy the host is.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Physical memory for so many: 2 GiB, a fifth of which is used.
const ARENA: PageCount = PageCount(1 << 19);

fn program() -> Vec<u8> {
    let control = |asm: &mut Asm, word: usize, value: i32| {
        asm.store_imm(R15, word as i32, value);
    };
    let wait_for = |asm: &mut Asm, event: Event| {
        control(asm, offset_of!(Control, mask), !(1 << event as i32));
        control(asm, offset_of!(Control, pending), 0);
        asm.call_kernel(Hypercall::Idle { deadline: u64::MAX });
    };
    let mut asm = Asm::new();
    asm.mov_imm(R15, VIRTUAL_REGISTERS).mov_imm(Rbx, OWN).call_kernel(Hypercall::Freeze {});
    // The cell's number is derived from its clone index.
    asm.load(R13, R15, offset::IDENTITY as i32 + 8).add_imm(R13, 1);
    write_number(&mut asm);
    wait_for(&mut asm, Event::Console);
    control(&mut asm, offset_of!(Control, mask), -1);
    let wrong = asm.label();
    let round = asm.here();
    asm.load(Rdi, Rbx, MOMENT as i32).mov(Rsi, Rdi).add_imm(Rsi, PERIOD.as_nanos() as i32).store(Rbx, MOMENT as i32, Rsi);
    asm.mov_imm(Rax, 1).hypercall();
    for page in PAGES {
        asm.load(Rsi, Rbx, page as i32).cmp(Rsi, R13).jump_if(Condition::NotZero, wrong);
    }
    asm.add_imm(R13, STEP as i32);
    write_number(&mut asm);
    asm.load(Rcx, Rbx, ROUNDS_DONE as i32).inc(Rcx).store(Rbx, ROUNDS_DONE as i32, Rcx);
    asm.cmp_imm(Rcx, ROUNDS.into()).jump_if(Condition::NotZero, round);
    wait_for(&mut asm, Event::Terminate);
    asm.load(Rdi, Rbx, ROUNDS_DONE as i32).mov_imm(Rsi, 0).mov_imm(Rax, 0).hypercall();
    asm.bind(wrong).call_kernel(Hypercall::Exit { status: WRONG.into(), signal: 0, address: 0, instruction: 0 });
    asm.finish()
}

fn write_number(asm: &mut Asm) {
    for page in PAGES {
        asm.store(Rbx, page as i32, R13);
    }
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

/// Clones the template `count` times and starts all clones.
fn grow(kernel: &Kernel, template: CellId, count: u32) -> Vec<CellId> {
    let clones: Vec<CellId> = (0..count).map(|_| kernel.clone_cell(template, QUOTA).expect("room for a clone")).collect();
    for clone in &clones {
        kernel.start(*clone).expect("it was not started before");
    }
    clones
}

/// Whether a cell waits for the operator, without a deadline.
fn waits(kernel: &Kernel, clone: CellId) -> bool {
    let (state, ..) = kernel.inspect(clone).expect("no clone ends before it is told to");
    state == RunState::Idle { until: Nanos::NEVER }
}

/// Checks that all cells are alive and wait, and wakes them.
fn wake(kernel: &Kernel, clones: &[CellId], before: PageCount) {
    assert!(clones.iter().all(|clone| waits(kernel, *clone)));
    assert_eq!(kernel.cells(), clones.len() + 1);
    let used = before - kernel.free();
    let each = used.bytes() / clones.len() as u64 / 1024;
    println!("{} cells with {} pages each hold {used} of frames: {each} KiB each,", clones.len(), PAGES.len());
    println!("retired tables included, and {} bytes of the kernel's own", Kernel::metadata_bytes());
    for clone in clones {
        let Nanos(moment) = kernel.now() + PERIOD;
        kernel.write(*clone, OWN + MOMENT, &moment.to_le_bytes()).expect("it waits");
        kernel.raise(*clone, Event::Console);
    }
}

/// Checks that all cells have done their rounds, each with its own data, and tells them to end.
fn dismiss(kernel: &Kernel, clones: &[CellId]) {
    for (index, clone) in clones.iter().enumerate() {
        assert!(waits(kernel, *clone));
        let word = |offset: u64| {
            let mut bytes = [0; 8];
            kernel.read(*clone, OWN + offset, &mut bytes).expect("it waits");
            u64::from_le_bytes(bytes)
        };
        assert_eq!(word(ROUNDS_DONE), ROUNDS.into());
        let number = index as u64 + 1 + u64::from(ROUNDS) * u64::from(STEP);
        assert_eq!(PAGES.map(word), PAGES.map(|_| number), "clone {index}");
        kernel.raise(*clone, Event::Terminate);
    }
}

/// Ends the template, and checks that nothing is left.
fn clear(kernel: &Kernel, template: CellId, before: PageCount) {
    kernel.end(template, End::Killed).expect("a template lives until it is ended");
    // A vCPU's thread may be giving memory back to the host, or flushing the machine: what it has in hand for that counts as free only
    // afterwards.
    let limit = Instant::now() + TIMEOUT;
    kernel.free_unused_frames();
    while kernel.free() != before && Instant::now() < limit {
        std::thread::yield_now();
        kernel.free_unused_frames();
    }
    assert_eq!(kernel.cells(), 0);
    assert_eq!(kernel.free(), before, "every frame is free again");
}

#[test]
fn a_thousand_cells_live_at_once_on_sim() {
    let mut lab = Lab::sim(1, ARENA, 2, Config::default());
    let before = lab.kernel.free();
    let template = template(&lab.kernel);
    let run = |lab: &mut Lab| while lab.turn(0) | lab.turn(1) {};
    run(&mut lab);
    let clones = grow(&lab.kernel, template, repetitions(100, 1_000, 10_000));
    run(&mut lab);
    wake(&lab.kernel, &clones, before);
    run(&mut lab);
    dismiss(&lab.kernel, &clones);
    run(&mut lab);
    for clone in clones {
        assert_eq!(lab.kernel.collect(clone).expect("it was told to end").end, End::Exited { status: ROUNDS });
    }
    clear(&lab.kernel, template, before);
}

#[test]
fn ten_thousand_cells_live_at_once_on_kvm() {
    if !is_kvm_available() {
        return;
    }
    let machine = Kvm::new(KvmConfig { arena: ARENA, vcpus: 2, omit: Omit::NOTHING }).expect("KVM is there");
    let kernel = Kernel::new(machine, Config::default());
    kernel.start_vcpus().expect("threads for the vCPUs");
    let before = kernel.free();
    let template = template(&kernel);
    kernel.wait_frozen(template).expect("the program freezes");
    let clones = grow(&kernel, template, repetitions(1_000, 10_000, 10_000));
    let all_wait = || {
        for clone in &clones {
            while !waits(&kernel, *clone) {
                // The vCPUs have threads of their own; this one only looks on.
                std::thread::yield_now();
            }
        }
    };
    all_wait();
    wake(&kernel, &clones, before);
    all_wait();
    dismiss(&kernel, &clones);
    for clone in clones {
        assert_eq!(kernel.wait(clone).expect("nobody else waits for it").end, End::Exited { status: ROUNDS });
    }
    clear(&kernel, template, before);
}
