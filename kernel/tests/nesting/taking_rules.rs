// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rules that keep paging safe, one by one: a kernel that leaves one out fails its test here or in `taking.rs`.

use crate::taking::{BUFFER, FIRST, PAGES, sum_after_a_halt};
use crate::watching::{Family, exit};
use pando_abi::holding::ChildState;
use pando_abi::layout::VIRTUAL_REGISTERS;
use pando_abi::memory::TakenPages;
use pando_abi::watch::{HaltReason, mask, resume, state};
use pando_abi::{HoldingName, Hypercall, MapFlags, PAGE_SIZE, Permissions, Refusal};
use pando_machine::PageCount;
use pando_testing::asm::Asm;
use pando_testing::asm::Condition::{Below, NotZero};
use pando_testing::asm::Register::{R10, R14, Rax, Rbx, Rdi, Rdx, Rsi};
use pando_testing::lab::{CODE, DATA, Lab};

/// Everything that halts but system calls.
const MASK: u64 = mask::EXCEPTIONS | mask::SHORTAGE;
/// An address at which nothing is mapped.
const NOTHING: u64 = 0x5000_0000;

/// A family whose child is halted at its breakpoint.
fn halted(lab: Lab, assemble: impl Fn(&mut Asm)) -> Family {
    let mut family = Family::new(lab, MASK, assemble);
    assert_eq!(family.run(), Some(ChildState::Halted));
    family
}

/// The rule: only pages of a halted child are taken and given.
#[test]
fn pages_of_a_child_that_is_not_halted_stay() {
    for lab in Lab::both() {
        let mut family = Family::new(lab, MASK, sum_after_a_halt);
        assert_eq!(family.take(FIRST, PAGES, 0), Err(Refusal::WrongState), "it was not started");
        assert_eq!(family.run(), Some(ChildState::Halted));
        assert_eq!(family.resume(resume::CONTINUE), Some(ChildState::Exited(10)));
        assert_eq!((family.take(FIRST, 1, 0), family.give(FIRST, 1, 0)), (Err(Refusal::NoSuchHolding), Err(Refusal::NoSuchHolding)));
        family.close();
    }
}

/// The rules: only pages for which the child pays are taken, and nothing of the libOS's.
#[test]
fn pages_of_others_and_those_of_the_libos_stay() {
    for lab in Lab::both() {
        let mut family = halted(lab, sum_after_a_halt);
        // The code is that of the template.
        let code = family.take(CODE, 1, 0).expect("it is searched");
        assert!(code.count == 0 || code.skipped >= ((DATA - CODE) / PAGE_SIZE) as u32, "{code:?}");
        for (address, swap, pages) in [(VIRTUAL_REGISTERS, 0, 1), (0, 0, 1), (1 << 47, 0, 1), (FIRST + 1, 0, 1)] {
            assert_eq!(family.take(address, pages, swap), Err(Refusal::BadAddress), "{address:#x}");
            assert_eq!(family.give(address, pages, swap), Err(Refusal::BadAddress), "{address:#x}");
        }
        for (pages, swap) in [(0, 0), (129, 0), (1, 1 << 32), (2, (1 << 32) - 1)] {
            assert_eq!(family.take(FIRST, pages, swap), Err(Refusal::BadArgument));
            assert_eq!(family.give(FIRST, pages, swap), Err(Refusal::BadArgument));
        }
        family.close();
    }
}

/// The rules: a page that clones of a space share is taken from all of them, with one number, and only if that frees more memory than the
/// copies of the tables need. Otherwise taking pages could exceed every quota.
#[test]
fn pages_that_spaces_share_are_taken_from_all() {
    for lab in Lab::both() {
        let mut family = halted(lab, sum_after_a_halt);
        let space = family.name.current_space();
        let clone = family.call(Hypercall::SpaceClone { space }).expect("room");
        let other = family.name.space(clone as u32);
        let used = |family: &mut Family| family.call(Hypercall::CellState { cell: family.name.bits(), fact: 2 }).expect("it lives");
        let before = used(&mut family);
        assert_eq!(family.take(FIRST, 3, 0), Ok(TakenPages { skipped: 3, count: 0 }), "three tables");
        assert_eq!(used(&mut family), before);
        assert_eq!(family.take(FIRST, PAGES, 0), Ok(TakenPages { skipped: 0, count: PAGES as u32 }));
        for space in [space, other] {
            assert_eq!(family.call(Hypercall::Inspect { space, address: FIRST }), Ok(3 | 1 << 7));
        }
        // The content is given to each.
        let give = |space| Hypercall::Give { space, address: FIRST, pages: PAGES, buffer: BUFFER, swap: 0 };
        assert_eq!((family.call(give(other)), family.call(give(other)), family.call(give(space))), (Ok(PAGES), Ok(0), Ok(PAGES)));
        assert_eq!(family.resume(resume::CONTINUE), Some(ChildState::Exited(10)));
        family.close();
    }
}

/// The rule: the taker gets the content before the page is gone.
#[test]
fn a_page_stays_if_the_taker_cannot_have_its_content() {
    for lab in Lab::both() {
        let mut family = halted(lab, sum_after_a_halt);
        let space = family.name.current_space();
        let take = |buffer, pages| Hypercall::Take { space, address: FIRST, pages, buffer, swap: 0 };
        for buffer in [NOTHING, CODE, u64::MAX - 0xfff, BUFFER + 8] {
            assert_eq!(family.call(take(buffer, 1)), Err(Refusal::BadAddress), "{buffer:#x}");
        }
        assert_eq!(
            family.call(Hypercall::Take { space: u64::MAX, address: FIRST, pages: 1, buffer: BUFFER, swap: 0 }),
            Err(Refusal::NoSuchHolding)
        );
        assert_eq!(
            family.call(Hypercall::Take { space: 0, address: FIRST, pages: 1, buffer: BUFFER, swap: 0 }),
            Err(Refusal::NoSuchHolding)
        );
        assert_eq!(family.resume(resume::CONTINUE), Some(ChildState::Exited(10)));
        family.close();
    }
}

/// The rule: `give` replaces only the very page that was taken.
#[test]
fn nothing_but_the_taken_page_is_replaced() {
    for lab in Lab::both() {
        let mut family = halted(lab, sum_after_a_halt);
        assert_eq!(family.give(FIRST, PAGES, 0), Ok(0), "it is there");
        assert_eq!(family.give(NOTHING, PAGES, 0), Ok(0), "nothing is there");
        assert_eq!(family.take(FIRST, 2, 5), Ok(TakenPages { skipped: 0, count: 2 }));
        for (address, swap) in [(FIRST, 6), (FIRST + PAGE_SIZE, 5), (FIRST, 4)] {
            assert_eq!(family.give(address, 1, swap), Ok(0), "{swap} at {address:#x}");
        }
        // The third was not taken.
        assert_eq!(family.give(FIRST, PAGES, 5), Ok(2));
        assert_eq!(family.resume(resume::CONTINUE), Some(ChildState::Exited(10)));
        family.close();
    }
}

/// The rule: a cell whose content is with its parent in part is cloned by its parent only. The clone needs the same page.
#[test]
fn a_cell_from_which_pages_were_taken_is_cloned_by_its_parent_only() {
    for lab in Lab::both() {
        // It waits for the event that wakes it.
        let mut family = halted(lab, |asm| {
            sum_after_a_halt_and_wait(asm);
        });
        let source = family.name.bits();
        assert_eq!(family.take(FIRST, 1, 0), Ok(TakenPages { skipped: 0, count: 1 }));
        family.resume(resume::CONTINUE);
        let clone = Hypercall::CellClone { source, quota: 300, cells: 0 };
        let child = family.child;
        assert!(family.lab.kernel.clone_cell(child, PageCount(300)).is_err(), "the operator does not have the page");
        let clone = family.call(clone).ok().and_then(HoldingName::from_bits).expect("its parent has the page");
        let inspect = Hypercall::Inspect { space: clone.current_space(), address: FIRST };
        assert_eq!(family.call(inspect), Ok(3 | 1 << 7));
        family.close();
    }
}

fn sum_after_a_halt_and_wait(asm: &mut Asm) {
    asm.mov_imm(Rbx, FIRST).store_imm(Rbx, 0, 1).int3().nop();
    let again = asm.here();
    asm.call_kernel(Hypercall::Idle { deadline: u64::MAX }).jmp(again);
}

/// The rule: a parent's own accesses to what it has taken are refused, and numbers are listed where they are.
#[test]
fn a_parent_does_not_wait_for_itself() {
    for lab in Lab::both() {
        let mut family = halted(lab, sum_after_a_halt);
        let (cell, space) = (family.name.bits(), family.name.current_space());
        assert_eq!(family.take(FIRST, 2, 9), Ok(TakenPages { skipped: 0, count: 2 }));
        for call in [
            Hypercall::Read { space, address: FIRST, target: BUFFER, bytes: 8 },
            Hypercall::Write { space, address: FIRST + PAGE_SIZE - 4, source: BUFFER, bytes: 8 },
            Hypercall::Populate { space, address: FIRST, pages: 1 },
        ] {
            assert_eq!(family.call(call), Err(Refusal::Taken), "{call:?}");
        }
        assert_eq!(family.call(Hypercall::Inspect { space, address: FIRST }), Ok(3 | 1 << 7));
        let numbers = |family: &mut Family, first: u64| family.read::<1>(state::SWAP_NUMBERS | first << 32);
        assert_eq!((numbers(&mut family, 0), numbers(&mut family, 8)), ([0b11 << 9], [0b110]));
        // A copy of the space has the same numbers, and both count.
        let clone = family.call(Hypercall::SpaceClone { space }).expect("room");
        let other = family.name.space(clone as u32);
        assert_eq!(family.call(Hypercall::Unmap { space, address: FIRST, pages: 1 }), Ok(0));
        assert_eq!(numbers(&mut family, 0), [0b11 << 9]);
        assert_eq!(family.call(Hypercall::Unmap { space: other, address: FIRST, pages: 1 }), Ok(0));
        assert_eq!(numbers(&mut family, 0), [0b10 << 9]);
        let protect = Hypercall::Protect { space, address: FIRST + PAGE_SIZE, pages: 1, permissions: 1 };
        assert_eq!(family.call(protect), Ok(0));
        assert_eq!(family.call(Hypercall::Inspect { space, address: FIRST + PAGE_SIZE }), Ok(1 | 1 << 7));
        let mounts = Hypercall::StateRead { cell, kind: state::MOUNTS, address: BUFFER, bytes: 4096 };
        assert_eq!(family.call(mounts), Ok(2 * 16), "a slot in each of two spaces");
        assert_eq!(family.write(state::MOUNTS, &[0]), Err(Refusal::ReadOnly));
        family.close();
    }
}

/// A program that writes a word to each page of more memory than its quota has, and then adds them up.
fn exceed_quota(asm: &mut Asm) {
    let flags = MapFlags::lazy(Permissions::READ_WRITE).bits();
    asm.call_kernel(Hypercall::Map { space: u64::MAX, address: NOTHING, pages: 400, flags }).mov_imm(Rbx, NOTHING).mov_imm(R14, 0);
    let again = asm.here();
    asm.store_imm(Rbx, 0, 1).add_imm(Rbx, PAGE_SIZE as i32).inc(R14).cmp_imm(R14, 400).jump_if(Below, again);
    asm.mov_imm(Rbx, NOTHING).mov_imm(R14, 0);
    let again = asm.here();
    asm.load(Rax, Rbx, 0).add(R14, Rax).add_imm(Rbx, PAGE_SIZE as i32).cmp_imm(Rbx, (NOTHING + 400 * PAGE_SIZE) as i32);
    asm.jump_if(Below, again);
    // 7 if all were there.
    asm.sub_imm(R14, 393).mov(Rdi, R14).mov_imm(Rax, 0).mov_imm(Rsi, 0).mov_imm(Rdx, 0).mov_imm(R10, 0).hypercall();
}

/// The rules: a watched shortage halts, again and again while nothing is taken, and the same instruction goes on afterwards. Taking pages
/// needs no memory of the child.
#[test]
fn a_child_whose_quota_is_used_up_waits_for_room() {
    for lab in Lab::both() {
        let mut family = halted_by_shortage(lab);
        assert_eq!((family.resume(resume::CONTINUE), family.reason()), (Some(ChildState::Halted), Some(HaltReason::Shortage)));
        let mut next = 0;
        let (mut halts, mut stored) = (0, std::collections::HashMap::new());
        let end = loop {
            halts += 1;
            assert!(halts < 2000, "it makes no progress");
            match family.reason() {
                Some(HaltReason::Shortage) => next = take_some(&mut family, &mut stored, next),
                Some(HaltReason::Taken { address, number, .. }) => {
                    while give_one(&mut family, &stored, address, number) == Err(Refusal::Quota) {
                        next = take_some(&mut family, &mut stored, next);
                    }
                }
                other => panic!("{other:?}"),
            }
            match family.resume(resume::CONTINUE) {
                Some(ChildState::Halted) => {}
                end => break end,
            }
        };
        assert_eq!(end, Some(ChildState::Exited(7)));
        family.close();
    }
    // Without the watch it ends.
    for lab in Lab::both() {
        let mut family = Family::new(lab, mask::EXCEPTIONS, exceed_quota);
        assert_eq!(family.run(), Some(ChildState::Quota));
        family.close();
    }
}

fn halted_by_shortage(lab: Lab) -> Family {
    let mut family = Family::new(lab, MASK, exceed_quota);
    assert_eq!((family.run(), family.reason()), (Some(ChildState::Halted), Some(HaltReason::Shortage)));
    family
}

/// Pages by swap number: here the word that each has.
type Stored = std::collections::HashMap<u32, u64>;

/// Takes pages from somewhere in the child's memory, and stores them.
fn take_some(family: &mut Family, stored: &mut Stored, next: u32) -> u32 {
    // Not the same ones each time: a child needs more than one at a time.
    let start = NOTHING + u64::from(next) % 400 * PAGE_SIZE;
    let first = family.take(start, 16, next.into()).expect("it is halted");
    let taken = if first.count > 0 { first } else { family.take(NOTHING, 16, next.into()).expect("it is halted") };
    assert!(taken.count > 0, "the child has pages");
    for page in 0..taken.count {
        let mut bytes = [0; 8];
        family.lab.kernel.read(family.parent, BUFFER + u64::from(page) * PAGE_SIZE, &mut bytes).expect("it waits");
        stored.insert(next + page, u64::from_le_bytes(bytes));
    }
    next + taken.count
}

fn give_one(family: &mut Family, stored: &Stored, address: u64, number: u32) -> Result<u64, Refusal> {
    family.lab.kernel.write(family.parent, BUFFER, &stored[&number].to_le_bytes()).expect("it waits");
    family.give(address, 1, number.into())
}

/// A write fault that is resolved after a halt does not count on the write, because the parent may have changed the code. (No machine here
/// shows a kernel that leaves this out: the parent's write makes the CPU drop its translations.)
#[test]
fn a_copy_is_visible_although_its_write_is_gone() {
    const SHARED: u64 = FIRST;
    for lab in Lab::both() {
        let mut family = Family::new(lab, MASK, |asm| {
            let flags = MapFlags::eager(Permissions::READ_WRITE).bits();
            asm.call_kernel(Hypercall::Map { space: u64::MAX, address: NOTHING, pages: 260, flags });
            asm.mov_imm(Rbx, SHARED).load(Rax, Rbx, 0).int3().store(Rbx, 0, Rax).call_kernel(Hypercall::Doorbell {});
            // New pages, among them the one that was shared.
            asm.store_imm(Rbx, 0x8000, 1).load(Rdi, Rbx, 0).mov_imm(Rax, 0).mov_imm(Rsi, 0).mov_imm(Rdx, 0).hypercall();
        });
        let [_, template] = family.templates();
        assert_eq!(family.lab.kernel.write(template, SHARED, &7_u64.to_le_bytes()), Ok(()));
        let limit = |family: &Family, value| Hypercall::CellLimit { cell: family.name.bits(), kind: 0, value };
        let cell = family.call(Hypercall::CellClone { source: 0x1000, quota: 300, cells: 0 }).expect("it may have three");
        family.name = pando_abi::HoldingName::from_bits(cell).expect("a name");
        assert_eq!(family.call(Hypercall::CellWatch { cell, mask: MASK }), Ok(0));
        assert_eq!(family.run(), Some(ChildState::Halted));
        let used = family.call(Hypercall::CellState { cell, fact: 2 }).expect("it lives");
        let tight = limit(&family, used);
        assert_eq!(family.call(tight), Ok(0));
        let store = family.registers().rip;
        assert_eq!((family.resume(resume::CONTINUE), family.reason()), (Some(ChildState::Halted), Some(HaltReason::Shortage)));
        let ample = limit(&family, 400);
        assert_eq!(family.call(ample), Ok(0));
        // The store becomes a load.
        family.lab.kernel.write(family.parent, BUFFER, &[0x8b]).expect("it waits");
        let space = family.name.current_space();
        assert_eq!(family.call(Hypercall::Write { space, address: store + 1, source: BUFFER, bytes: 1 }), Ok(0));
        family.lab.kernel.end(template, pando_kernel::End::Killed).expect("it lives");
        assert_eq!(family.resume(resume::CONTINUE), Some(ChildState::Exited(7)));
        family.close();
    }
}

/// The rule: a call of the kernel for the child is made again, whole, after a page was given.
#[test]
fn calls_of_the_child_wait_for_pages_too() {
    for lab in Lab::both() {
        let mut family = halted(lab, |asm| {
            asm.mov_imm(Rbx, FIRST).store_imm(Rbx, 0, 3).int3().nop();
            // The kernel copies from the first page to the second of two.
            let write = Hypercall::Write { space: u64::MAX, address: FIRST + PAGE_SIZE, source: FIRST, bytes: 8 };
            asm.call_kernel(write).cmp_imm(Rax, 0);
            let failed = asm.label();
            asm.jump_if(NotZero, failed);
            asm.load(R14, Rbx, PAGE_SIZE as i32).cmp_imm(R14, 3).jump_if(NotZero, failed);
            exit(asm, 7);
            asm.bind(failed);
            exit(asm, 1);
        });
        assert_eq!(family.take(FIRST, 1, 3), Ok(TakenPages { skipped: 0, count: 1 }));
        assert_eq!(family.resume(resume::CONTINUE), Some(ChildState::Halted));
        assert_eq!(family.reason(), family.taken(FIRST, 3));
        assert_eq!(family.give(FIRST, 1, 3), Ok(1));
        assert_eq!(family.resume(resume::CONTINUE), Some(ChildState::Exited(7)));
        family.close();
    }
}
