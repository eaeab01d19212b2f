// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measures how much host memory hostile cells take besides their own, and compares it with the bounds in `SECURITY.md`.
//!
//! The one test runs each step in a process of its own, so that no other memory counts. Before each measurement, all frames of the
//! arena are touched, and stay resident.

use pando_abi::layout::{SLOT_SIZE, VIRTUAL_REGISTERS};
use pando_abi::limits::{MAX_MOUNTS, MAX_SEGMENTS, MAX_SPACES};
use pando_abi::virtual_registers::Control;
use pando_abi::{Event, Hypercall, MapFlags, Permissions};
use pando_kernel::limits::{CAPTURE_BYTES, QUEUE_BYTES, SPARE_BYTES};
use pando_kernel::{CellId, Config, End, Kernel, TurnOutcome};
use pando_machine::PageCount;
use pando_testing::asm::Asm;
use pando_testing::asm::Condition;
use pando_testing::asm::Register::{R10, R13, R14, R15, Rax, Rbx, Rdi, Rdx, Rsi};
use pando_testing::lab::{Lab, repetitions};
use pando_testing::network_lab::{NetworkLab, packet};
use std::mem::offset_of;
use std::process::Command;

/// 64 MiB: as much free memory as the kernel keeps instead of returning it to the host.
const ARENA: PageCount = PageCount(1 << 14);
/// Clones of a cell with the maximum of spaces, segments and mounts.
const CLONES: usize = 16;
/// Spaces of that cell, with [`MOUNTS`] mounts each.
const SPACES: u64 = MAX_SPACES as u64 - 8;
const MOUNTS: u64 = MAX_MOUNTS as u64 / MAX_SPACES as u64 - 1;
/// Bytes that the kernel may use for a mount, a space and a segment: some words.
const MOUNT_BYTES: u64 = 64;
const SPACE_BYTES: u64 = 512;
const SEGMENT_BYTES: u64 = 256;
/// Allowance in bytes for the overhead of allocators and for the test itself.
const SLACK: u64 = 2 << 20;
/// Bytes for the frames of a port: queued frames and spare buffers.
const PORT_BYTES: u64 = (QUEUE_BYTES + SPARE_BYTES) as u64;
/// The environment variable that names the step for a child process.
const STEP: &str = "PANDO_FOOTPRINT_STEP";

/// The anonymous resident memory of this process, in bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux says so");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("Linux says so");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("it is a number") << 10
}

/// Asserts that `work` makes the process grow by at most `bound` bytes, plus [`SLACK`].
#[track_caller]
fn grows_by_at_most<T>(what: &str, bound: u64, work: impl FnOnce() -> T) -> T {
    let before = resident();
    let result = work();
    let grown = resident().saturating_sub(before);
    println!("{what}: {} KiB of {} KiB", grown >> 10, bound >> 10);
    assert!(grown <= bound + SLACK, "{what}: the process has grown by {} KiB, of which {} KiB are allowed", grown >> 10, bound >> 10);
    result
}

/// Runs cells until none is runnable, without advancing the clock.
fn run(lab: &mut Lab) {
    while lab.workers[0].turn() == TurnOutcome::Ran {}
}

/// Runs a cell that touches nearly all memory and ends.
fn touch_all(lab: &mut Lab) {
    let pages = lab.kernel.free().0 * 9 / 10;
    let mut asm = Asm::new();
    let flags = MapFlags::lazy(Permissions::READ_WRITE).bits();
    asm.call_kernel(Hypercall::Map { space: u64::MAX, address: SLOT_SIZE, pages, flags }).mov_imm(Rbx, SLOT_SIZE).mov_imm(R15, pages);
    let again = asm.here();
    asm.store(Rbx, 0, Rbx).add_imm(Rbx, 4096).dec(R15).jump_if(Condition::NotZero, again);
    asm.call_kernel(Hypercall::Exit { status: 0, signal: 0, address: 0, instruction: 0 });
    let id = lab.cell_with(&asm.finish(), lab.kernel.free());
    lab.kernel.start(id).expect("it was not started before");
    assert_eq!(lab.finish(id).end, End::Exited { status: 0 });
}

/// A cell that creates as many spaces, segments and mounts as it may, and freezes.
fn greedy(lab: &mut Lab) -> CellId {
    let mut asm = Asm::new();
    for _ in 1..MAX_SEGMENTS {
        asm.call_kernel(Hypercall::SegmentCreate {});
    }
    asm.mov_imm(R15, SPACES);
    let space = asm.here();
    asm.call_kernel(Hypercall::SpaceCreate {}).mov(R14, Rax).mov_imm(R13, SLOT_SIZE).mov_imm(Rbx, MOUNTS);
    let mount = asm.here();
    // Maps segment 1 repeatedly, each time at another address.
    asm.mov_imm(Rdi, 1).mov(Rsi, R14).mov(Rdx, R13).mov_imm(Rax, Hypercall::SegmentMount { segment: 0, space: 0, address: 0 }.encode().0);
    asm.hypercall().mov_imm(R10, SLOT_SIZE).add(R13, R10).dec(Rbx).jump_if(Condition::NotZero, mount);
    asm.dec(R15).jump_if(Condition::NotZero, space);
    asm.call_kernel(Hypercall::Freeze {});
    let id = lab.cell_with(&asm.finish(), PageCount(8192));
    lab.kernel.start(id).expect("it was not started before");
    run(lab);
    lab.kernel.wait_frozen(id).expect("it freezes");
    id
}

fn clones_of_a_greedy_cell(lab: &mut Lab) {
    let each = u64::from(MAX_MOUNTS) * MOUNT_BYTES + u64::from(MAX_SPACES) * SPACE_BYTES + u64::from(MAX_SEGMENTS) * SEGMENT_BYTES;
    touch_all(lab);
    let template = grows_by_at_most("spaces, segments and mounts of a cell", each, || greedy(lab));
    let clones = grows_by_at_most("the same of its clones", CLONES as u64 * (each + Kernel::metadata_bytes() as u64), || {
        (0..CLONES).map(|_| lab.kernel.clone_cell(template, PageCount(512)).expect("room for a clone")).collect::<Vec<_>>()
    });
    clones.into_iter().chain([template]).for_each(|id| lab.kernel.end(id, End::Killed).expect("it lives"));
    lab.kernel.free_unused_frames();
}

/// A cell that sets another wakeup time whenever it is woken.
fn timers(lab: &mut Lab) {
    touch_all(lab);
    let mut asm = Asm::new();
    asm.mov_imm(Rbx, VIRTUAL_REGISTERS).mov_imm(Rdi, u64::MAX >> 1);
    let again = asm.here();
    asm.store_imm(Rbx, offset_of!(Control, pending) as i32, 0).dec(Rdi);
    asm.mov_imm(Rax, Hypercall::Idle { deadline: 0 }.encode().0).hypercall().jmp(again);
    let id = lab.cell(&asm.finish());
    lab.kernel.start(id).expect("it was not started before");
    run(lab);
    let times = u64::from(repetitions(1000, 150_000, 1_000_000));
    grows_by_at_most("timers that were asked for anew", 0, || {
        for _ in 0..times {
            lab.kernel.raise(id, Event::Terminate);
            run(lab);
        }
    });
    let (_, counters, _) = lab.kernel.inspect(id).expect("it lives");
    assert!(counters.hypercalls >= times, "it has asked for {} of {times}", counters.hypercalls);
    lab.kernel.end(id, End::Killed).expect("it lives");
}

/// Frames from the first cell to the second, 200 KB together.
fn flood(bench: &NetworkLab, length: usize) -> Vec<Vec<u8>> {
    let [from, to] = [0, 1].map(|cell| bench.addresses(cell));
    (0..200_000 / length).map(|mark| packet(&from, &to, length, mark as u8)).collect()
}

/// A cell that floods another, which receives nothing.
fn ports(bench: &mut NetworkLab) {
    // Makes the cells touch all the memory that they use.
    bench.send(0, &flood(bench, 100));
    for length in [60, 1500] {
        let frames = flood(bench, length);
        grows_by_at_most("frames that wait at two ports", 2 * PORT_BYTES, || (0..200).for_each(|_| bench.send(0, &frames)));
    }
    assert!(bench.traffic(1).overrun > 0);
}

/// The same, on a network with a packet capture that reads nothing.
fn captures(bench: &mut NetworkLab) {
    bench.send(0, &flood(bench, 100));
    let capture = bench.lab.kernel.capture_packets(bench.network, || ()).expect("there are few");
    for length in [60, 1500] {
        let frames = flood(bench, length);
        let bound = CAPTURE_BYTES as u64 + 2 * PORT_BYTES;
        grows_by_at_most("frames for a packet capture that reads nothing", bound, || (0..600).for_each(|_| bench.send(0, &frames)));
    }
    assert!(capture.lost() > 0);
}

/// A name, and the step of that number of repetitions.
type Step = (&'static str, fn(usize));

/// The steps. Each runs on each machine.
const STEPS: [Step; 4] = [
    ("clones", |machine| clones_of_a_greedy_cell(&mut Lab::each(ARENA, Config::default).swap_remove(machine))),
    ("timers", |machine| timers(&mut Lab::each(ARENA, Config::default).swap_remove(machine))),
    ("ports", |machine| ports(&mut NetworkLab::both(2).swap_remove(machine))),
    ("captures", |machine| captures(&mut NetworkLab::both(2).swap_remove(machine))),
];

/// Each step has a process of its own: memory that an allocator keeps from one step would hide the growth of another.
#[test]
fn hostile_cells_make_the_process_hold_no_more_than_is_promised() {
    if let Some(step) = std::env::var_os(STEP) {
        let step = step.into_string().expect("it is text");
        let (name, machine) = step.split_once(' ').expect("two words");
        let (_, body) = STEPS.into_iter().find(|(known, _)| *known == name).expect("it is one of these");
        return body(machine.parse().expect("a number"));
    }
    let machines = Lab::each(ARENA, Config::default).len();
    for (name, _) in STEPS {
        for machine in 0..machines {
            let mut own = Command::new(std::env::current_exe().expect("it runs"));
            let output = own.arg("--nocapture").env(STEP, format!("{name} {machine}")).output().expect("it starts");
            let said = String::from_utf8_lossy(&output.stdout);
            said.lines().filter(|line| line.contains(" KiB of ")).for_each(|line| println!("{name}: {line}"));
            assert!(output.status.success(), "{name} on machine {machine}: {said}{}", String::from_utf8_lossy(&output.stderr));
        }
    }
}
