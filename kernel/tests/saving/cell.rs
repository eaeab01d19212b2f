// SPDX-License-Identifier: MIT OR Apache-2.0
//! A cell with memory of every kind, which freezes. Its clones check that they find all of it, and exit with the number of the
//! check that failed.

use pando_abi::layout::{LIBOS, SLOT_SIZE, SYSTEM_FREE, VIRTUAL_REGISTERS};
use pando_abi::memory::CURRENT_SPACE;
use pando_abi::{BlockNumber, Event, Hypercall, MapFlags, Permissions, Registers};
use pando_kernel::{CellConfig, CellId, CellImage, Disk, DiskError, DiskId, End, Kernel};
use pando_machine::{FRAME_SIZE, PageCount};
use pando_testing::asm::Register::{Rax, Rbx, Rdi, Rsi};
use pando_testing::asm::{Asm, Condition, Label};
use pando_testing::disk::TestDisk;
use pando_testing::lab::{Lab, QUOTA};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Notes of the cell in the system segment.
const NOTES: u64 = SYSTEM_FREE;
/// Private memory of a space.
const PRIVATE: u64 = 0x1000_0000;
/// Memory that a clone maps.
const NEW: u64 = 0x2000_0000;
/// Large pages, two of which are written.
pub const LARGE: u64 = 0x4000_0000;
/// A large range that is hardly accessed.
const VAST: u64 = SLOT_SIZE;
/// Blocks of a disk.
const VIEW: u64 = 2 * SLOT_SIZE;
/// A segment.
const SEGMENT: u64 = 3 * SLOT_SIZE;
/// Blocks of its disk.
pub const BLOCKS: u32 = 200;

/// A program that checks as it runs: the number of a failed check is the exit status.
struct Program {
    asm: Asm,
    failed: Label,
    checks: u64,
}

impl Program {
    fn check(&mut self, expected: u64) {
        self.checks += 1;
        self.asm.mov_imm(Rdi, self.checks).mov_imm(Rbx, expected).cmp(Rax, Rbx).jump_if(Condition::NotZero, self.failed);
    }

    fn call(&mut self, call: Hypercall, expected: u64) {
        self.asm.call_kernel(call);
        self.check(expected);
    }

    fn map(&mut self, address: u64, pages: u64, flags: MapFlags) {
        self.call(Hypercall::Map { space: CURRENT_SPACE, address, pages, flags: flags.bits() }, 0);
    }

    fn write(&mut self, address: u64, value: i32) {
        self.asm.mov_imm(Rbx, address).store_imm(Rbx, 0, value);
    }

    fn expect(&mut self, address: u64, value: u64) {
        self.asm.mov_imm(Rbx, address).load(Rax, Rbx, 0);
        self.check(value);
    }
}

/// Makes memory of every kind, and leaves a hole among spaces and segments.
fn build(program: &mut Program) {
    let flags = MapFlags::lazy(Permissions::READ_WRITE);
    program.map(NOTES, 8, flags);
    program.write(NOTES, 1);
    program.map(PRIVATE, 64, flags);
    for page in [0, 1, 2, 40, 63] {
        program.write(PRIVATE + page * 4096, 100 + page as i32);
    }
    program.call(Hypercall::Protect { space: CURRENT_SPACE, address: PRIVATE + 4096, pages: 1, permissions: 0 }, 0);
    program.map(LARGE, 2048, MapFlags { large: true, ..flags });
    program.write(LARGE + (600 << 12), 600);
    program.write(LARGE + (1700 << 12), 1700);
    program.map(VAST, 1 << 26, flags);
    program.write(VAST + (1 << 37), 37);
    let blocks =
        Hypercall::MapBlocks { space: CURRENT_SPACE, address: VIEW, pages: 100, block: 100, flags: Permissions::READ_WRITE.bits() };
    program.call(blocks, 0);
    program.expect(VIEW, TestDisk::word(100, 0));
    program.write(VIEW + 5 * 4096, 5);
    for segment in [1, 2] {
        program.call(Hypercall::SegmentCreate {}, segment);
    }
    program.call(Hypercall::SegmentMount { segment: 2, space: 0, address: SEGMENT }, 0);
    program.call(Hypercall::SegmentDestroy { segment: 1 }, 0);
    program.map(SEGMENT, 16, flags);
    program.write(SEGMENT + 4096, 7);
    for copy in [1, 2] {
        program.call(Hypercall::SpaceClone { space: 0 }, copy);
    }
    program.call(Hypercall::SpaceDestroy { space: 1 }, 0);
    program.call(Hypercall::SpaceSwitch { space: 2 }, 0);
    program.write(PRIVATE + 2 * 4096, 222);
}

/// Checks the content of one of the two spaces in the clone.
fn find(program: &mut Program, second: u64) {
    program.expect(NOTES, 1);
    for (page, value) in [(0, 100), (2, second), (3, 0), (40, 140), (63, 163)] {
        program.expect(PRIVATE + page * 4096, value);
    }
    for page in [600, 1700] {
        program.expect(LARGE + (page << 12), page);
        program.expect(LARGE + ((page + 1) << 12), 0);
    }
    program.expect(VAST + (1 << 37), 37);
    program.expect(VAST + (1 << 36), 0);
    program.expect(VIEW, TestDisk::word(100, 0));
    program.expect(VIEW + 5 * 4096, 5);
    program.expect(VIEW + 99 * 4096, TestDisk::word(199, 0));
    program.expect(SEGMENT + 4096, 7);
    program.expect(SEGMENT, 0);
    // Without permissions; the content is kept all the same.
    program.call(Hypercall::Inspect { space: CURRENT_SPACE, address: VAST + (1 << 38) - (1 << 36) }, 3 | 1 << 4);
}

/// Changes memory of every kind: what a clone does before it waits.
fn change(program: &mut Program) {
    let flags = MapFlags::lazy(Permissions::READ_WRITE);
    program.write(NOTES + 4096, 21);
    program.write(PRIVATE + 3 * 4096, 33);
    program.call(Hypercall::Protect { space: CURRENT_SPACE, address: PRIVATE + 63 * 4096, pages: 1, permissions: 1 }, 0);
    program.map(NEW, 64, flags);
    for page in [0, 17, 20, 63] {
        program.write(NEW + page * 4096, 500 + page as i32);
    }
    program.call(Hypercall::Unmap { space: CURRENT_SPACE, address: NEW + 20 * 4096, pages: 2 }, 0);
    program.write(LARGE + (602 << 12), 602);
    program.write(VAST + (5 << 35), 336);
    program.write(VIEW + 6 * 4096, 6);
    program.call(Hypercall::SpaceClone { space: CURRENT_SPACE }, 1);
    program.write(PRIVATE + 5 * 4096, 55);
}

/// Checks the changed memory, and takes back what later checks would stumble over.
fn find_changed(program: &mut Program) {
    program.expect(PRIVATE + 5 * 4096, 55);
    program.call(Hypercall::SpaceSwitch { space: 1 }, 0);
    program.expect(PRIVATE + 5 * 4096, 0);
    program.expect(PRIVATE + 3 * 4096, 33);
    program.expect(NEW + 17 * 4096, 517);
    program.call(Hypercall::SpaceSwitch { space: 2 }, 0);
    program.call(Hypercall::SpaceDestroy { space: 1 }, 0);
    program.expect(NOTES + 4096, 21);
    program.expect(PRIVATE + 3 * 4096, 33);
    program.expect(PRIVATE + 63 * 4096, 163);
    program.call(Hypercall::Inspect { space: CURRENT_SPACE, address: NEW + 21 * 4096 }, 0);
    for (page, value) in [(0, 500), (17, 517), (18, 0), (63, 563)] {
        program.expect(NEW + page * 4096, value);
    }
    program.expect(LARGE + (602 << 12), 602);
    program.expect(VAST + (5 << 35), 336);
    program.expect(VIEW + 6 * 4096, 6);
    program.write(PRIVATE + 3 * 4096, 0);
    program.write(NOTES + 4096, 0);
}

/// A template with memory of every kind, and its disk.
pub fn template(lab: &mut Lab) -> (CellId, DiskId) {
    template_with(lab, false)
}

/// The same; its clones change memory of every kind, and wait for [`Event::Console`] before they check it.
pub fn template_that_waits(lab: &mut Lab) -> (CellId, DiskId) {
    template_with(lab, true)
}

fn template_with(lab: &mut Lab, waits: bool) -> (CellId, DiskId) {
    let mut asm = Asm::new();
    let failed = asm.label();
    let mut program = Program { asm, failed, checks: 0 };
    build(&mut program);
    program.call(Hypercall::Freeze {}, 1);
    if waits {
        change(&mut program);
        // The event of the new generation is pending, too.
        program.asm.mov_imm(Rbx, VIRTUAL_REGISTERS).store_imm(Rbx, 0, 0);
        program.call(Hypercall::Idle { deadline: u64::MAX }, 1 << Event::Console as u64);
        find_changed(&mut program);
    }
    find(&mut program, 222);
    program.call(Hypercall::SpaceSwitch { space: 0 }, 0);
    find(&mut program, 102);
    // A write in one space is not seen in the other.
    program.write(PRIVATE, 9);
    program.write(SEGMENT + 4096, 8);
    program.call(Hypercall::SpaceSwitch { space: 2 }, 0);
    program.expect(PRIVATE, 100);
    program.expect(SEGMENT + 4096, 8);
    // The slots of the destroyed ones are free again.
    program.call(Hypercall::SpaceCreate {}, 1);
    program.call(Hypercall::SegmentCreate {}, 1);
    let Program { mut asm, failed, .. } = program;
    let exit = Hypercall::Exit { status: 0, signal: 0, address: 0, instruction: 0 };
    asm.call_kernel(exit).bind(failed).mov_imm(Rsi, 0).mov_imm(Rax, 0).hypercall();
    let code = asm.finish();
    let kernel = &lab.kernel;
    // A byte longer than the limit, which cuts it in the middle of a letter.
    let host_name = "e".repeat(63) + "é";
    let id = kernel.create(CellConfig { quota: QUOTA, host_name }).expect("room for a cell");
    kernel.map(id, LIBOS, PageCount::covering(code.len() as u64), MapFlags::lazy(Permissions::READ_EXECUTE)).expect("room for its code");
    kernel.write(id, LIBOS, &code).expect("its code is mapped");
    kernel.set_registers(id, Registers { rip: LIBOS, ..Registers::default() }).expect("it is not running");
    let disk = add_source(kernel);
    kernel.attach(id, disk).expect("its first disk");
    kernel.start(id).expect("it was not started before");
    lab.run_all();
    lab.kernel.wait_frozen(id).expect("no check failed");
    (id, disk)
}

/// The disk whose blocks the template maps.
pub fn add_source(kernel: &Kernel) -> DiskId {
    kernel.add_disk(TestDisk::new(BLOCKS)).expect("room for a disk")
}

/// Checks that a clone finds the template's memory.
pub fn try_out(lab: &mut Lab, template: CellId) {
    let clone = lab.kernel.clone_cell(template, QUOTA).expect("a template can be cloned");
    run(lab, clone);
}

/// Runs a clone, which checks the template's memory. Returns its number of faults.
pub fn run(lab: &mut Lab, clone: CellId) -> u64 {
    lab.kernel.start(clone).expect("it was not started before");
    let outcome = lab.finish(clone);
    assert_eq!(outcome.end, End::Exited { status: 0 }, "the number of the check that failed is the status");
    outcome.counters.faults
}

/// Exported pages, as a disk.
#[derive(Default)]
pub struct PageContents {
    pages: Mutex<Vec<u8>>,
    /// Number of pages that were read again.
    pub reads: AtomicU64,
}

impl Disk for PageContents {
    fn blocks(&self) -> u64 {
        (self.pages.lock().expect("nobody panics").len() / FRAME_SIZE) as u64
    }

    fn read(&self, first: BlockNumber, buffer: &mut [u8]) -> Result<(), DiskError> {
        let start = first.0 as usize * FRAME_SIZE;
        self.reads.fetch_add((buffer.len() / FRAME_SIZE) as u64, Ordering::Relaxed);
        buffer.copy_from_slice(&self.pages.lock().expect("nobody panics")[start..start + buffer.len()]);
        Ok(())
    }
}

impl PageContents {
    /// The bytes of all pages.
    pub fn bytes(&self) -> Vec<u8> {
        self.pages.lock().expect("nobody panics").clone()
    }
}

/// Exports a template, and checks that its pages are numbered consecutively.
pub fn export(kernel: &Kernel, id: CellId) -> (CellImage, Arc<PageContents>) {
    let pages = Arc::new(PageContents::default());
    let image = kernel.export(id, &mut |number, bytes| {
        assert_eq!(number, pages.blocks());
        pages.pages.lock().expect("nobody panics").extend(bytes);
        ControlFlow::Continue(())
    });
    let image = image.expect("a template can be exported");
    assert_eq!(image.contents(), pages.blocks());
    (image, pages)
}

/// The image as it is stored in a file.
pub fn bytes_of(image: &CellImage) -> Vec<u8> {
    postcard::to_stdvec(image).expect("an image is plain data")
}
