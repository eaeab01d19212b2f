// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every refusal occurs, and names the mistake; a refused call has no effect.

use pando_abi::hypercall::TABLE;
use pando_abi::layout::{CONSOLE_RINGS, CPUID_TABLE, SLOT_SIZE, SLOTS, SYSTEM, USER_END, USER_START, VIRTUAL_REGISTERS};
use pando_abi::limits::{MAX_MOUNTS, MAX_SEGMENTS, MAX_SPACES};
use pando_abi::memory::CURRENT_SPACE;
use pando_abi::{Hypercall, MapFlags, PAGE_SIZE, Permissions, Refusal};
use pando_kernel::{Config, End};
use pando_machine::PageCount;
use pando_testing::asm::Register::{R8, R9, R10, R15, Rax, Rbx, Rdi, Rdx, Rsi};
use pando_testing::asm::{Asm, Condition};
use pando_testing::disk::TestDisk;
use pando_testing::lab::{CODE, DATA, Lab, STACK_TOP};
use pando_testing::virtual_registers::words;
use std::collections::BTreeSet;

const READ_WRITE: u64 = Permissions::READ_WRITE.bits();
const FREE: u64 = 0x2000_0000;
const SEGMENT: u64 = 5 * SLOT_SIZE;
/// Blocks of the cells' only disk.
const DISK_BLOCKS: u32 = 100;

/// The expected result of a call.
type BlockRequest = Result<u64, Refusal>;

const fn map(address: u64, pages: u64) -> Hypercall {
    Hypercall::Map { space: CURRENT_SPACE, address, pages, flags: READ_WRITE }
}

const fn unmap(address: u64, pages: u64) -> Hypercall {
    Hypercall::Unmap { space: CURRENT_SPACE, address, pages }
}

const fn protect(address: u64, pages: u64, permissions: u64) -> Hypercall {
    Hypercall::Protect { space: CURRENT_SPACE, address, pages, permissions }
}

const fn map_blocks(address: u64, pages: u64, block: u64) -> Hypercall {
    Hypercall::MapBlocks { space: CURRENT_SPACE, address, pages, block, flags: 1 }
}

const fn count(address: u64, pages: u64) -> Hypercall {
    Hypercall::Count { space: CURRENT_SPACE, address, pages }
}

const fn populate(address: u64, pages: u64) -> Hypercall {
    Hypercall::Populate { space: CURRENT_SPACE, address, pages }
}

/// Invalid ranges, with their refusals.
fn bad_ranges() -> Vec<(u64, u64, Refusal)> {
    use Refusal::{BadAddress, BadArgument};
    vec![
        (FREE + 1, 1, BadAddress),
        (FREE + 0xfff, 1, BadAddress),
        (FREE, 0, BadArgument),
        (FREE, u64::MAX, BadArgument),
        (FREE, (SLOT_SIZE >> 12) + 1, BadArgument),
        (0, SLOT_SIZE >> 12 | 1, BadArgument),
        (SLOT_SIZE - 0x1000, 2, BadAddress),
        (0, 1, BadAddress),
        (0x2000, 1, BadAddress),
        (USER_START - 0x1000, 2, BadAddress),
        (USER_END, 1, BadAddress),
        (USER_END - 0x1000, 2, BadAddress),
        (1 << 47, 1, BadAddress),
        (1 << 63, 1, BadAddress),
        (0xffff_ffff_8000_0000, 1, BadAddress),
        (!0xfff, 1, BadAddress),
        (u64::MAX, 1, BadAddress),
    ]
}

/// Calls about the disk.
fn about_disks() -> Vec<(Hypercall, BlockRequest)> {
    use Refusal::{BadArgument, NoSuchBlock, NoSuchDisk};
    let mut rows = Vec::new();
    for flags in [0x10, 0x20, 1 << 63, u64::MAX] {
        rows.push((Hypercall::MapBlocks { space: CURRENT_SPACE, address: FREE, pages: 1, block: 0, flags }, Err(BadArgument)));
    }
    for block in [1 << 32, u64::MAX, 1 << 63] {
        rows.push((map_blocks(FREE, 1, block), Err(NoSuchDisk)));
    }
    let end = u64::from(DISK_BLOCKS);
    for (pages, block) in [(1, end), (1, u64::from(u32::MAX)), (2, end - 1), (end + 1, 0), (1 << 27, 0)] {
        rows.push((map_blocks(SEGMENT, pages, block), Err(NoSuchBlock)));
    }
    rows.push((map_blocks(FREE, 2, end - 2), Ok(0)));
    rows.push((unmap(FREE, 2), Ok(0)));
    rows.push((populate(FREE, 2), Ok(0)));
    rows
}

/// Calls without preconditions.
fn simple() -> Vec<(Hypercall, BlockRequest)> {
    use Refusal::{BadAddress, BadArgument, NoSuchHolding, NoSuchSegment, NoSuchSpace, ReadOnly};
    let mut rows = Vec::new();
    for (address, pages, refusal) in bad_ranges() {
        let calls = [
            map(address, pages),
            unmap(address, pages),
            protect(address, pages, 1),
            map_blocks(address, pages, 0),
            populate(address, pages),
            count(address, pages),
        ];
        rows.extend(calls.map(|call| (call, Err(refusal))));
    }
    let spaces = [1, 7, u64::from(MAX_SPACES), u64::from(u32::MAX)].map(|space| (space, NoSuchSpace));
    // The upper half names a holding, and the cell has none.
    for (space, refusal) in spaces.into_iter().chain([(1 << 32, NoSuchHolding), (u64::MAX - 1, NoSuchHolding)]) {
        rows.extend([
            (Hypercall::Map { space, address: FREE, pages: 1, flags: READ_WRITE }, Err(refusal)),
            (Hypercall::Unmap { space, address: FREE, pages: 1 }, Err(refusal)),
            (Hypercall::MapBlocks { space, address: FREE, pages: 1, block: 0, flags: 1 }, Err(refusal)),
            (Hypercall::Populate { space, address: FREE, pages: 1 }, Err(refusal)),
            (Hypercall::Count { space, address: FREE, pages: 1 }, Err(refusal)),
            (Hypercall::Protect { space, address: FREE, pages: 1, permissions: 1 }, Err(refusal)),
            (Hypercall::Write { space, address: DATA, source: DATA, bytes: 1 }, Err(refusal)),
            (Hypercall::SpaceClone { space }, Err(refusal)),
            (Hypercall::SpaceSwitch { space }, Err(refusal)),
            (Hypercall::SpaceDestroy { space }, Err(refusal)),
            (Hypercall::Inspect { space, address: FREE }, Err(refusal)),
        ]);
    }
    for segment in [1, u64::from(MAX_SEGMENTS), 1 << 32, u64::MAX] {
        rows.push((Hypercall::SegmentMount { segment, space: CURRENT_SPACE, address: SEGMENT }, Err(NoSuchSegment)));
        rows.push((Hypercall::SegmentDestroy { segment }, Err(NoSuchSegment)));
    }
    for flags in [0x20, 1 << 63, u64::MAX] {
        rows.push((Hypercall::Map { space: CURRENT_SPACE, address: FREE, pages: 1, flags }, Err(BadArgument)));
        rows.push((protect(DATA, 1, flags), Err(BadArgument)));
    }
    rows.extend(about_disks());
    // The kernel's own pages stay as they are, also as part of a larger range.
    for page in [VIRTUAL_REGISTERS, CONSOLE_RINGS, CPUID_TABLE, CPUID_TABLE + 0x1000] {
        let calls = [map(page, 1), unmap(page, 1), protect(page, 1, 7), protect(page, 1, 0), map_blocks(page, 1, 0)];
        rows.extend(calls.map(|call| (call, Err(ReadOnly))));
    }
    let write = |address, source, bytes| Hypercall::Write { space: CURRENT_SPACE, address, source, bytes };
    for bytes in [0, 4097, u64::MAX] {
        rows.push((write(DATA, DATA, bytes), Err(BadArgument)));
    }
    for bad in [FREE, DATA - 1, STACK_TOP - 1, USER_END - 1, USER_END, 1 << 47, u64::MAX] {
        rows.extend([(write(bad, DATA, 2), Err(BadAddress)), (write(DATA + 0x8000, bad, 2), Err(BadAddress))]);
    }
    for address in [VIRTUAL_REGISTERS, CPUID_TABLE + 0x1fff, CONSOLE_RINGS + 0xfff] {
        rows.push((write(address, DATA, 1), Err(ReadOnly)));
    }
    rows.push((write(CODE, CODE, 4096), Ok(0)));
    rows.push((unmap(SYSTEM, SLOT_SIZE >> 13), Err(ReadOnly)));
    for address in [1, 0x1000, SLOT_SIZE + 0x1000, 1 << 47, 1 << 63, u64::MAX] {
        rows.push((Hypercall::SegmentMount { segment: 0, space: CURRENT_SPACE, address }, Err(ReadOnly)));
    }
    rows.push((Hypercall::SegmentMount { segment: 0, space: CURRENT_SPACE, address: SEGMENT }, Err(ReadOnly)));
    rows.push((Hypercall::Inspect { space: CURRENT_SPACE, address: 1 << 47 }, Err(BadAddress)));
    rows.push((Hypercall::Inspect { space: CURRENT_SPACE, address: FREE }, Ok(0)));
    rows.push((count(SEGMENT, SLOT_SIZE / PAGE_SIZE), Ok(0)));
    rows
}

/// Calls that depend on earlier ones.
fn in_turn() -> Vec<(Hypercall, BlockRequest)> {
    use Refusal::{BadAddress, Busy, SlotTaken};
    let mount = |address| Hypercall::SegmentMount { segment: 1, space: CURRENT_SPACE, address };
    vec![
        (Hypercall::SpaceDestroy { space: CURRENT_SPACE }, Err(Busy)),
        (Hypercall::SpaceDestroy { space: 0 }, Err(Busy)),
        (Hypercall::SegmentDestroy { segment: 0 }, Err(Busy)),
        (Hypercall::SegmentCreate {}, Ok(1)),
        (mount(SEGMENT + 0x1000), Err(BadAddress)),
        (mount(1 << 47), Err(BadAddress)),
        (mount(SYSTEM), Err(SlotTaken)),
        (mount(0), Err(BadAddress)),
        (mount((SLOTS as u64 - 1) * SLOT_SIZE), Err(BadAddress)),
        (mount(SEGMENT), Ok(0)),
        (mount(SEGMENT), Err(SlotTaken)),
        (Hypercall::SegmentDestroy { segment: 1 }, Err(Busy)),
        (map(FREE, 1), Ok(0)),
        (Hypercall::Inspect { space: CURRENT_SPACE, address: FREE + 5 }, Ok(READ_WRITE | 1 << 4)),
        (Hypercall::Doorbell {}, Ok(0)),
        (Hypercall::Relinquish {}, Ok(0)),
    ]
}

/// Makes all calls in one cell. Returns their results.
fn results(lab: &mut Lab, calls: &[Hypercall]) -> Vec<u64> {
    assert!(calls.len() < 0x8000);
    let mut asm = Asm::new();
    for (index, call) in calls.iter().enumerate() {
        asm.call_kernel(*call).mov_imm(Rbx, DATA).store(Rbx, index as i32 * 8, Rax);
    }
    asm.call_kernel(Hypercall::Freeze {});
    let id = lab.cell(&asm.finish());
    let disk = lab.kernel.add_disk(TestDisk::new(DISK_BLOCKS)).expect("room for a disk");
    lab.kernel.attach(id, disk).expect("its first disk");
    lab.kernel.start(id).expect("it was not started before");
    lab.run_all();
    let results = (0..calls.len()).map(|index| words::<1>(lab, id, DATA + index as u64 * 8)[0]).collect();
    lab.kernel.end(id, End::Killed).expect("it is frozen");
    lab.kernel.collect(id);
    results
}

#[test]
fn a_refusal_names_the_mistake_in_the_call() {
    for mut lab in Lab::both() {
        let before = lab.kernel.free();
        for rows in [simple(), in_turn()] {
            let calls: Vec<_> = rows.iter().map(|(call, _)| *call).collect();
            for ((call, wanted), result) in rows.iter().zip(results(&mut lab, &calls)) {
                assert_eq!(Refusal::from_result(result), *wanted, "{call:x?}");
            }
        }
        lab.kernel.free_unused_frames();
        assert_eq!(lab.kernel.free(), before);
    }
}

#[test]
fn an_unknown_call_is_refused_and_no_register_changes() {
    for mut lab in Lab::both() {
        let known = TABLE.len() as u64;
        for number in [known, known + 1, 0xff, 1 << 32, 1 << 63, u64::MAX] {
            let id = lab.launch(|asm| {
                for (index, register) in [Rdi, Rsi, Rdx, R10, R8, R9, Rbx].into_iter().enumerate() {
                    asm.mov_imm(register, 0x1111 * (index as u64 + 1));
                }
                asm.mov_imm(Rax, number).hypercall().mov(R15, Rax).mov_imm(Rax, 2).hypercall();
            });
            lab.run_all();
            let registers = lab.kernel.registers(id).expect("it is frozen");
            assert_eq!(Refusal::from_result(registers.r15), Err(Refusal::NoSuchCall), "{number}");
            let [rdi, rsi, rdx, r10, r8] = registers.arguments();
            assert_eq!([rdi, rsi, rdx, r10, r8, registers.r9, registers.rbx], std::array::from_fn(|index| 0x1111 * (index as u64 + 1)));
        }
    }
}

/// A cell that repeats one call until it is refused, and then freezes. Returns the number of successful calls, and the refusal.
fn until_refused(lab: &mut Lab, quota: PageCount, before: &[Hypercall], call: Hypercall) -> (u64, Refusal) {
    let mut asm = Asm::new();
    for call in before {
        asm.call_kernel(*call);
    }
    let again = asm.here();
    asm.inc(R15).call_kernel(call).cmp_imm(Rax, -0xfff).jump_if(Condition::Below, again).mov(R9, Rax).call_kernel(Hypercall::Freeze {});
    let id = lab.cell_with(&asm.finish(), quota);
    lab.kernel.start(id).expect("it was not started before");
    lab.run_all();
    let registers = lab.kernel.registers(id).expect("it is frozen");
    lab.kernel.end(id, End::Killed).expect("it is frozen");
    lab.kernel.collect(id);
    (registers.r15 - 1, Refusal::from_result(registers.r9).expect_err("the call was refused in the end"))
}

#[test]
fn there_are_so_many_spaces_and_segments_and_no_more() {
    for mut lab in Lab::both() {
        let before = lab.kernel.free();
        let quota = PageCount(1 << 14);
        let spaces = u64::from(MAX_SPACES) - 1;
        assert_eq!(until_refused(&mut lab, quota, &[], Hypercall::SpaceCreate {}), (spaces, Refusal::TooMany));
        assert_eq!(until_refused(&mut lab, quota, &[], Hypercall::SpaceClone { space: 0 }), (spaces, Refusal::TooMany));
        let segments = u64::from(MAX_SEGMENTS) - 1;
        assert_eq!(until_refused(&mut lab, quota, &[], Hypercall::SegmentCreate {}), (segments, Refusal::TooMany));
        // Space 0 mounts the system segment, code, data and a hundred segments: so do its clones.
        let segment = Hypercall::SegmentCreate {};
        let mount = |slot: u64| Hypercall::SegmentMount { segment: 1, space: 0, address: slot * SLOT_SIZE };
        let hundred: Vec<Hypercall> = std::iter::once(segment).chain((10..110).map(mount)).collect();
        let (clones, refusal) = until_refused(&mut lab, quota, &hundred, Hypercall::SpaceClone { space: 0 });
        let mounts = (1 + clones) * u64::from(MAX_MOUNTS / (1 + clones as u32));
        assert_eq!(refusal, Refusal::TooMany);
        assert!(clones < spaces && mounts <= u64::from(MAX_MOUNTS) && clones >= u64::from(MAX_MOUNTS) / 110, "{clones} clones");
        lab.kernel.free_unused_frames();
        assert_eq!(lab.kernel.free(), before);
    }
}

#[test]
fn an_eager_mapping_beyond_the_quota_is_refused() {
    for mut lab in Lab::both() {
        let flags = MapFlags::eager(Permissions::READ_WRITE).bits();
        for pages in [2000, 1 << 20, SLOT_SIZE >> 12] {
            let call = Hypercall::Map { space: CURRENT_SPACE, address: SLOT_SIZE, pages, flags };
            let before = lab.kernel.free();
            assert_eq!(until_refused(&mut lab, PageCount(1500), &[], call), (0, Refusal::Quota));
            lab.kernel.free_unused_frames();
            assert_eq!(lab.kernel.free(), before);
        }
    }
}

#[test]
fn an_eager_mapping_beyond_the_machine_is_refused() {
    for mut lab in Lab::each(PageCount(1 << 14), Config::default) {
        let before = lab.kernel.free();
        let flags = MapFlags::eager(Permissions::READ_WRITE).bits();
        let call = Hypercall::Map { space: CURRENT_SPACE, address: FREE, pages: 1 << 15, flags };
        assert_eq!(until_refused(&mut lab, PageCount(1 << 20), &[], call), (0, Refusal::NoMemory));
        lab.kernel.free_unused_frames();
        assert_eq!(lab.kernel.free(), before);
    }
}

/// The lists above contain every refusal.
#[test]
fn no_refusal_is_left_out() {
    let listed: BTreeSet<&str> = simple().iter().chain(&in_turn()).filter_map(|(_, wanted)| wanted.err()).map(Refusal::name).collect();
    use Refusal::{Interrupted, NoReply, NothingWaits, TimedOut, TooLong};
    use Refusal::{NoMemory, NoMoreCells, NoSuchCall, Quota, Taken, TooMany, WrongState};
    // The tests of nested cells show `NoMoreCells`, `Taken` and `WrongState`, and those of ports the others.
    let nested = [NoMoreCells, Taken, WrongState, Interrupted, NoReply, NothingWaits, TimedOut, TooLong].map(Refusal::name);
    let elsewhere = [NoSuchCall, TooMany, Quota, NoMemory].map(Refusal::name).into_iter().chain(nested);
    let all: BTreeSet<&str> = Refusal::ALL.iter().map(|refusal| refusal.name()).collect();
    assert_eq!(listed.into_iter().chain(elsewhere).collect::<BTreeSet<_>>(), all);
}
