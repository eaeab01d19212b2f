// SPDX-License-Identifier: MIT OR Apache-2.0
//! Spaces and segments as a cell uses them. Its code lies in the system segment, which every space has.

use pando_abi::layout::{LIBOS, SLOT_SIZE, SYSTEM_FREE};
use pando_abi::memory::{CURRENT_SPACE, NEWEST_SPACE, counted};
use pando_abi::{Hypercall, MapFlags, Permissions, Refusal, Registers};
use pando_kernel::{CellConfig, CellId, End};
use pando_machine::PageCount;
use pando_testing::asm::Register::{Rax, Rbx, Rdi, Rsi};
use pando_testing::asm::{Asm, Condition, Label};
use pando_testing::lab::{Lab, QUOTA};
use pando_testing::virtual_registers::exit;

/// Data that must survive a switch of the space.
const NOTES: u64 = SYSTEM_FREE;
/// An address outside the system segment.
const PRIVATE: u64 = 0x1000_0000;
/// Where segments are mounted.
const SEGMENT: u64 = 3 * SLOT_SIZE;
const READ_WRITE: u64 = Permissions::READ_WRITE.bits();

/// A program in the system segment that checks as it runs: the number of a failed check is the exit status.
struct Program {
    asm: Asm,
    failed: Label,
    checks: u64,
}

impl Program {
    fn new() -> Program {
        let mut asm = Asm::new();
        let failed = asm.label();
        Program { asm, failed, checks: 0 }
    }

    fn check(&mut self, expect: u64) -> &mut Program {
        self.checks += 1;
        self.asm.mov_imm(Rdi, self.checks).mov_imm(Rbx, expect).cmp(Rax, Rbx).jump_if(Condition::NotZero, self.failed);
        self
    }

    /// Makes a call that must return `expect`.
    fn call(&mut self, call: Hypercall, expect: u64) -> &mut Program {
        self.asm.call_kernel(call);
        self.check(expect)
    }

    /// Writes the records of a batch at [`NOTES`], and performs it.
    fn batch(&mut self, calls: &[Hypercall], expect: u64) -> &mut Program {
        for (address, word) in (NOTES..).step_by(8).zip(calls.iter().flat_map(|call| call.record())) {
            self.asm.mov_imm(Rbx, address).mov_imm(Rax, word).store(Rbx, 0, Rax);
        }
        self.call(Hypercall::Batch { address: NOTES, calls: calls.len() as u64 }, expect)
    }

    fn map(&mut self, space: u64, address: u64, pages: u64) -> &mut Program {
        self.call(Hypercall::Map { space, address, pages, flags: READ_WRITE }, 0)
    }

    fn switch(&mut self, space: u64) -> &mut Program {
        self.call(Hypercall::SpaceSwitch { space }, 0)
    }

    fn write(&mut self, address: u64, value: i32) -> &mut Program {
        self.asm.mov_imm(Rbx, address).store_imm(Rbx, 0, value);
        self
    }

    fn expect(&mut self, address: u64, value: u64) -> &mut Program {
        self.asm.mov_imm(Rbx, address).load(Rax, Rbx, 0);
        self.check(value)
    }

    /// Runs it; it must exit with 0.
    fn run(mut self, lab: &mut Lab) {
        let end = self.launch(lab);
        let outcome = lab.finish(end);
        assert_eq!(outcome.end, End::Exited { status: 0 }, "the number of the check that failed is the status");
    }

    fn launch(&mut self, lab: &Lab) -> CellId {
        let Program { mut asm, failed, .. } = std::mem::replace(self, Program::new());
        asm.call_kernel(exit(0)).bind(failed).mov_imm(Rsi, 0).mov_imm(Rax, 0).hypercall();
        let code = asm.finish();
        let id = lab.kernel.create(CellConfig { quota: QUOTA, host_name: String::new() }).expect("room for a cell");
        let pages = PageCount::covering(code.len() as u64);
        lab.kernel.map(id, LIBOS, pages, MapFlags::lazy(Permissions::READ_EXECUTE)).expect("room for its code");
        lab.kernel.write(id, LIBOS, &code).expect("its code is mapped");
        let registers = Registers { rip: LIBOS, rsp: NOTES + 0x1000, ..Registers::default() };
        lab.kernel.set_registers(id, registers).expect("it is not running");
        lab.kernel.start(id).expect("it was not started before");
        id
    }
}

#[test]
fn a_new_space_holds_the_system_segment_and_nothing_else() {
    for mut lab in Lab::both() {
        let mut program = Program::new();
        program.map(CURRENT_SPACE, PRIVATE, 4).map(CURRENT_SPACE, NOTES, 4).write(PRIVATE, 7).write(NOTES, 8);
        program.call(Hypercall::SpaceCreate {}, 1).call(Hypercall::SpaceCreate {}, 2).switch(1).expect(NOTES, 8);
        program.call(Hypercall::Inspect { space: CURRENT_SPACE, address: PRIVATE }, 0);
        program.call(Hypercall::Inspect { space: 0, address: PRIVATE }, 0b1011);
        program.write(NOTES, 9).switch(0).expect(NOTES, 9).expect(PRIVATE, 7);
        program.run(&mut lab);
        // An access to memory of another space is a fault.
        let mut program = Program::new();
        program.map(CURRENT_SPACE, PRIVATE, 1).write(PRIVATE, 7).call(Hypercall::SpaceCreate {}, 1).switch(1).expect(PRIVATE, 7);
        let id = program.launch(&lab);
        let End::Fault(fault) = lab.finish(id).end else { panic!("it read another space") };
        assert_eq!((fault.vector, fault.address), (14, PRIVATE));
    }
}

#[test]
fn resident_pages_are_counted_and_exclusive_ones_among_them() {
    for mut lab in Lab::both() {
        const MANY: u64 = 1 << 20;
        let count = |space, pages| Hypercall::Count { space, address: PRIVATE, pages };
        let mut program = Program::new();
        program.call(count(0, MANY), 0).map(CURRENT_SPACE, PRIVATE, 4).call(count(0, MANY), 0);
        program.call(Hypercall::Populate { space: 0, address: PRIVATE, pages: 2 }, 0);
        program.call(count(0, MANY), counted::bits(2, 2)).call(count(0, 1), counted::bits(1, 1));
        program.call(Hypercall::SpaceClone { space: 0 }, 1);
        for space in [0, 1] {
            program.call(count(space, MANY), counted::bits(2, 0));
        }
        // The writer gets its own page, and the other space is then the only holder of the old one.
        program.write(PRIVATE, 8).call(count(0, 4), counted::bits(2, 1)).call(count(1, 4), counted::bits(2, 1));
        program.run(&mut lab);
    }
}

#[test]
fn a_space_can_be_built_from_another() {
    for mut lab in Lab::both() {
        let mut program = Program::new();
        program.call(Hypercall::SpaceCreate {}, 1).map(1, PRIVATE, 4);
        program.call(Hypercall::Inspect { space: 1, address: PRIVATE }, READ_WRITE | 1 << 4);
        program.call(Hypercall::Inspect { space: 0, address: PRIVATE }, 0);
        program.switch(1).expect(PRIVATE, 0).write(PRIVATE, 1).switch(0);
        program.call(Hypercall::Unmap { space: 1, address: PRIVATE, pages: 4 }, 0);
        program.call(Hypercall::Inspect { space: 1, address: PRIVATE }, 0);
        program.run(&mut lab);
    }
}

#[test]
fn a_clone_of_a_space_is_private_both_ways_and_shares_its_segments() {
    for mut lab in Lab::both() {
        let mut program = Program::new();
        program.map(CURRENT_SPACE, PRIVATE, 4).map(CURRENT_SPACE, NOTES, 1).write(PRIVATE, 1).write(PRIVATE + 0x1000, 1);
        program
            .call(Hypercall::SegmentCreate {}, 1)
            .call(Hypercall::SegmentMount { segment: 1, space: CURRENT_SPACE, address: SEGMENT }, 0);
        program.map(CURRENT_SPACE, SEGMENT, 4).write(SEGMENT, 1);
        program.call(Hypercall::SpaceClone { space: CURRENT_SPACE }, 1);
        // Written in the source after the clone, in the clone, and in the segment by both.
        program.write(PRIVATE, 2).write(SEGMENT, 2).switch(1).expect(PRIVATE, 1).expect(SEGMENT, 2);
        program.write(PRIVATE + 0x1000, 3).write(SEGMENT, 3).expect(PRIVATE, 1).expect(PRIVATE + 0x1000, 3);
        program.switch(0).expect(PRIVATE, 2).expect(PRIVATE + 0x1000, 1).expect(SEGMENT, 3);
        // A clone of the clone, destroyed while its source lives on.
        program.call(Hypercall::SpaceClone { space: 1 }, 2).switch(2).expect(PRIVATE + 0x1000, 3).write(PRIVATE, 9).switch(1);
        program.call(Hypercall::SpaceDestroy { space: 2 }, 0).expect(PRIVATE, 1).expect(PRIVATE + 0x1000, 3);
        program.run(&mut lab);
    }
}

#[test]
fn segments_are_shared_by_their_mounts_and_destroyed_after_the_last() {
    for mut lab in Lab::both() {
        let busy = pando_abi::Refusal::Busy.to_result();
        let mut program = Program::new();
        program.call(Hypercall::SegmentCreate {}, 1).call(Hypercall::SpaceCreate {}, 1);
        program.call(Hypercall::SegmentMount { segment: 1, space: 0, address: SEGMENT }, 0);
        program.call(Hypercall::SegmentMount { segment: 1, space: 1, address: SEGMENT + SLOT_SIZE }, 0);
        program.map(0, SEGMENT, 16).write(SEGMENT + 0x3000, 5).switch(1).expect(SEGMENT + SLOT_SIZE + 0x3000, 5);
        program.call(Hypercall::Protect { space: 1, address: SEGMENT + SLOT_SIZE, pages: 16, permissions: 1 }, 0);
        program.call(Hypercall::Inspect { space: 0, address: SEGMENT + 0x3000 }, 0b1001);
        program.call(Hypercall::SegmentDestroy { segment: 1 }, busy).switch(0);
        program.call(Hypercall::SpaceDestroy { space: 1 }, 0).call(Hypercall::SegmentDestroy { segment: 1 }, busy);
        program.expect(SEGMENT + 0x3000, 5);
        program.run(&mut lab);
        // A segment that only a destroyed space mounted can be destroyed.
        let mut program = Program::new();
        program.call(Hypercall::SegmentCreate {}, 1).call(Hypercall::SpaceCreate {}, 1);
        program.call(Hypercall::SegmentMount { segment: 1, space: 1, address: SEGMENT }, 0).map(1, SEGMENT, 16);
        program.call(Hypercall::SpaceDestroy { space: 1 }, 0).call(Hypercall::SegmentDestroy { segment: 1 }, 0);
        program.call(Hypercall::SegmentCreate {}, 1);
        program.run(&mut lab);
    }
}

#[test]
fn spaces_of_a_clone_are_its_own() {
    for mut lab in Lab::both() {
        let before = lab.kernel.free();
        let mut program = Program::new();
        program.map(CURRENT_SPACE, NOTES, 1).map(CURRENT_SPACE, PRIVATE, 1).write(PRIVATE, 1).call(Hypercall::SpaceClone { space: 0 }, 1);
        program.switch(1).write(PRIVATE, 2).call(Hypercall::SegmentCreate {}, 1);
        program.call(Hypercall::SegmentMount { segment: 1, space: 1, address: SEGMENT }, 0).map(1, SEGMENT, 1).write(SEGMENT, 3);
        program.call(Hypercall::Freeze {}, 1);
        // Each clone finds everything unchanged, and changes it.
        program.expect(PRIVATE, 2).expect(SEGMENT, 3).write(PRIVATE, 5).write(SEGMENT, 6).switch(0).expect(PRIVATE, 1).write(PRIVATE, 7);
        program.call(Hypercall::SpaceDestroy { space: 1 }, 0).expect(PRIVATE, 7);
        let template = program.launch(&lab);
        lab.run_all();
        for _ in 0..3 {
            let clone = lab.kernel.clone_cell(template, QUOTA).expect("a template can be cloned");
            lab.kernel.start(clone).expect("it was not started before");
            assert_eq!(lab.finish(clone).end, End::Exited { status: 0 });
        }
        lab.kernel.end(template, End::Killed).expect("it lives");
        lab.kernel.free_unused_frames();
        assert_eq!(lab.kernel.free(), before);
    }
}

#[test]
fn memory_comes_back_with_a_space_while_the_cell_lives() {
    for mut lab in Lab::both() {
        let mut program = Program::new();
        program.map(CURRENT_SPACE, NOTES, 1);
        // Far more than the quota in all, but never at once.
        for _ in 0..40 {
            program.call(Hypercall::SpaceCreate {}, 1);
            program.call(Hypercall::Map { space: 1, address: PRIVATE, pages: 1000, flags: READ_WRITE | 8 }, 0);
            program.call(Hypercall::SpaceDestroy { space: 1 }, 0);
        }
        program.run(&mut lab);
    }
}

const fn write(space: u64, address: u64, source: u64, bytes: u64) -> Hypercall {
    Hypercall::Write { space, address, source, bytes }
}

#[test]
fn the_write_call_changes_pages_without_write_permission() {
    for mut lab in Lab::both() {
        let mut program = Program::new();
        program.map(CURRENT_SPACE, NOTES, 2).map(CURRENT_SPACE, PRIVATE, 2).write(NOTES, 0x77).write(NOTES + 8, 0x78);
        for permissions in [Permissions::READ_EXECUTE, Permissions::READ, Permissions::NONE] {
            let permissions = permissions.bits();
            program.call(Hypercall::Protect { space: CURRENT_SPACE, address: PRIVATE, pages: 2, permissions }, 0);
            program.call(write(CURRENT_SPACE, PRIVATE + 0xffc, NOTES, 16), 0);
            program.call(Hypercall::Inspect { space: CURRENT_SPACE, address: PRIVATE }, permissions | 1 << 3);
            program.call(Hypercall::Inspect { space: CURRENT_SPACE, address: PRIVATE + 0x1000 }, permissions | 1 << 3);
            program.call(Hypercall::Protect { space: CURRENT_SPACE, address: PRIVATE, pages: 2, permissions: 1 }, 0);
            program.expect(PRIVATE + 0xffc, 0x77).expect(PRIVATE + 0x1004, 0x78).expect(PRIVATE + 0xff4, 0);
            program.call(write(CURRENT_SPACE, PRIVATE, NOTES + 0x100, 0x1000), 0);
            program.call(write(CURRENT_SPACE, PRIVATE + 0x1000, NOTES + 0x100, 0x1000), 0).expect(PRIVATE + 0xffc, 0);
        }
        program.run(&mut lab);
    }
}

#[test]
fn a_batch_performs_calls_in_order_up_to_the_first_refusal() {
    let map = |address, pages| Hypercall::Map { space: CURRENT_SPACE, address, pages, flags: READ_WRITE };
    let unmap = Hypercall::Unmap { space: CURRENT_SPACE, address: PRIVATE, pages: 1 };
    let read_only = Hypercall::Protect { space: CURRENT_SPACE, address: PRIVATE, pages: 1100, permissions: 1 };
    let inspect = Hypercall::Inspect { space: CURRENT_SPACE, address: PRIVATE };
    for mut lab in Lab::both() {
        let mut program = Program::new();
        program.map(CURRENT_SPACE, NOTES, 2);
        // A call of several steps among others.
        program.batch(&[map(PRIVATE, 1100), write(CURRENT_SPACE, PRIVATE, NOTES, 8), read_only, inspect], 4);
        program.call(inspect, 0b1001).expect(PRIVATE, 3);
        // The calls after a refused one are not performed.
        program.batch(&[inspect, map(PRIVATE + 1, 1), unmap], 1).call(inspect, 0b1001);
        program.batch(&[map(PRIVATE, 0), unmap], Refusal::BadArgument.to_result()).call(inspect, 0b1001);
        // Only memory calls, and no batches.
        let batch = Hypercall::Batch { address: NOTES, calls: 1 };
        for call in [batch, Hypercall::Relinquish {}, Hypercall::Doorbell {}, Hypercall::Freeze {}, Hypercall::Idle { deadline: 0 }] {
            program.batch(&[call, unmap], Refusal::NoSuchCall.to_result()).batch(&[inspect, call, unmap], 1).call(inspect, 0b1001);
        }
        for calls in [0, 65, u64::MAX] {
            program.call(Hypercall::Batch { address: NOTES, calls }, Refusal::BadArgument.to_result());
        }
        for address in [PRIVATE + (1 << 30), u64::MAX - 7, 1 << 47, NOTES + 0x2000 - 47] {
            program.call(Hypercall::Batch { address, calls: 1 }, Refusal::BadAddress.to_result());
        }
        program.batch(&[inspect; 64], 64);
        program.run(&mut lab);
    }
}

#[test]
fn a_batch_names_the_space_that_it_has_made() {
    let switch = Hypercall::SpaceSwitch { space: NEWEST_SPACE };
    let map = Hypercall::Map { space: NEWEST_SPACE, address: PRIVATE, pages: 1, flags: READ_WRITE };
    for mut lab in Lab::both() {
        let mut program = Program::new();
        program.map(CURRENT_SPACE, NOTES, 2).map(CURRENT_SPACE, PRIVATE, 1).write(PRIVATE, 7);
        // A clone is made, and the cell continues in it.
        program.batch(&[Hypercall::SpaceClone { space: 0 }, switch], 1 << 32 | 2).expect(PRIVATE, 7).write(PRIVATE, 8);
        program.batch(&[Hypercall::SpaceSwitch { space: 0 }, Hypercall::SpaceDestroy { space: 1 }], 2).expect(PRIVATE, 7);
        // The last one counts, also after a refused call.
        let both = [Hypercall::SpaceClone { space: 0 }, Hypercall::SpaceCreate {}, map, switch];
        program.batch(&both, 2 << 32 | 4).write(PRIVATE, 9).batch(&[Hypercall::SpaceSwitch { space: 0 }], 1).expect(PRIVATE, 7);
        let refused = Hypercall::SpaceClone { space: 77 };
        program.batch(&[Hypercall::SpaceCreate {}, refused, map], 3 << 32 | 1);
        // Without such a space, the call is refused.
        for call in [map, switch] {
            program.batch(&[call], Refusal::NoSuchHolding.to_result()).call(call, Refusal::NoSuchHolding.to_result());
        }
        program.run(&mut lab);
    }
}

/// The code of a function that returns `value`, as words for [`Program::write`].
fn function(value: u64) -> Vec<i32> {
    let mut asm = Asm::new();
    asm.mov_imm(Rax, value).ret().raw(&[0]);
    asm.finish().chunks_exact(4).map(|word| i32::from_le_bytes(word.try_into().expect("four bytes"))).collect()
}

#[test]
fn code_changed_by_the_write_call_runs() {
    for mut lab in Lab::both() {
        let mut program = Program::new();
        program.map(CURRENT_SPACE, NOTES, 1);
        program.call(Hypercall::Map { space: CURRENT_SPACE, address: PRIVATE, pages: 1, flags: Permissions::READ_EXECUTE.bits() }, 0);
        for value in 1..20 {
            for (index, word) in function(value).into_iter().enumerate() {
                program.write(NOTES + index as u64 * 4, word);
            }
            program.call(write(CURRENT_SPACE, PRIVATE + 0x80, NOTES, 12), 0);
            program.asm.mov_imm(Rbx, PRIVATE + 0x80).call_to(Rbx);
            program.check(value);
        }
        program.run(&mut lab);
    }
}

#[test]
fn the_write_call_to_shared_pages_changes_a_private_copy() {
    for mut lab in Lab::both() {
        let mut program = Program::new();
        program.map(CURRENT_SPACE, NOTES, 1).map(CURRENT_SPACE, PRIVATE, 4).write(NOTES, 5).write(PRIVATE, 1).write(PRIVATE + 0x1000, 1);
        program.call(Hypercall::Protect { space: CURRENT_SPACE, address: PRIVATE, pages: 4, permissions: 1 }, 0);
        program.call(Hypercall::SpaceClone { space: CURRENT_SPACE }, 1);
        // Into the running space, and from it into another.
        program.call(write(CURRENT_SPACE, PRIVATE, NOTES, 8), 0).call(write(1, PRIVATE + 0x1000, NOTES, 8), 0);
        program.expect(PRIVATE, 5).expect(PRIVATE + 0x1000, 1).switch(1).expect(PRIVATE, 1).expect(PRIVATE + 0x1000, 5);
        program.call(Hypercall::Freeze {}, 1);
        // The same in clones of the cell.
        program.expect(PRIVATE, 1).call(write(0, PRIVATE + 0x1000, PRIVATE, 8), 0).call(write(1, PRIVATE, NOTES, 8), 0);
        program.expect(PRIVATE, 5).switch(0).expect(PRIVATE + 0x1000, 1).expect(PRIVATE, 5);
        let template = program.launch(&lab);
        lab.run_all();
        for _ in 0..3 {
            let clone = lab.kernel.clone_cell(template, QUOTA).expect("a template can be cloned");
            lab.kernel.start(clone).expect("it was not started before");
            assert_eq!(lab.finish(clone).end, End::Exited { status: 0 });
        }
    }
}
