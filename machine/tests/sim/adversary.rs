// SPDX-License-Identifier: MIT OR Apache-2.0
//! The adversary's behaviour, rule by rule of the page-table discipline: keeping a rule causes no breach, and breaking it is detected.

use crate::bare::{Bare, CODE, READ_ONLY, TABLE};
use pando_machine::sim::{Breach, BreachKind};
use pando_machine::{EntryIndex, Exception, Exit, FrameId, HugeFrame, Machine, Root, Vcpu, Violation};
use std::time::Duration;

/// A page of the tests' own, in a table of its own at every level below the root.
const PAGE: u64 = 0x80_0000_0000;
/// The next page.
const BESIDE: u64 = PAGE + 0x1000;

/// `mov rbx, [rax]` and a hypercall; then `mov [rax], rbx` and a hypercall.
const READ: &[u8] = b"\x48\x8b\x18\xe6\x7e\x48\x89\x18\xe6\x7e";
/// The start of the second part.
const WRITE: u64 = CODE + 5;

/// Returns the read value, or the exit.
fn read(bare: &mut Bare, stamp: u64, address: u64) -> Result<u64, Exit> {
    let root = Root { table: bare.root, stamp };
    access(&*bare.machine, &mut *bare.vcpu, root, CODE, address, 0)
}

/// Writes a value, or returns the exit.
fn write(bare: &mut Bare, stamp: u64, address: u64, value: u64) -> Result<(), Exit> {
    let root = Root { table: bare.root, stamp };
    access(&*bare.machine, &mut *bare.vcpu, root, WRITE, address, value).map(|_| ())
}

fn access(machine: &impl Machine, vcpu: &mut dyn Vcpu, root: Root, rip: u64, address: u64, value: u64) -> Result<u64, Exit> {
    let mut context = pando_machine::Context::at(rip);
    (context.registers.rax, context.registers.rbx) = (address, value);
    match vcpu.run(root, &mut context, machine.now() + Duration::from_secs(1)) {
        Exit::Hypercall => Ok(context.registers.rbx),
        exit => Err(exit),
    }
}

fn fault(error: u64, address: u64) -> Exit {
    Exit::Exception(Exception { vector: Exception::PAGE_FAULT, error, address })
}

/// A machine whose page [`PAGE`] is mapped with `flags` to a frame that holds `value`.
fn machine(flags: u64, value: u64) -> (Bare, FrameId) {
    let mut bare = Bare::new();
    let _ = bare.start(READ);
    let frame = filled(&mut bare, value);
    bare.map(bare.root, PAGE, frame, flags);
    (bare, frame)
}

/// A fresh frame whose first word is `value`.
fn filled(bare: &mut Bare, value: u64) -> FrameId {
    let frame = bare.frame();
    bare.machine.arena().store(frame, EntryIndex::new(0), value);
    frame
}

/// The one breach that was recorded.
fn breach(bare: &Bare) -> BreachKind {
    match bare.machine.breaches()[..] {
        [Breach { kind, .. }] => kind,
        ref breaches => panic!("one breach was expected: {breaches:?}"),
    }
}

/// Asserts that an access used `frame` although the tables say otherwise.
fn assert_stale(bare: &Bare, frame: FrameId) {
    let BreachKind::Stale { used, tables } = breach(bare) else { panic!("{:?}", bare.machine.breaches()) };
    assert_eq!(used.frame, frame);
    assert_ne!(Some(used), tables);
    assert_eq!(bare.machine.stale_reads(), 1);
}

fn assert_sound(bare: &Bare) {
    assert_eq!(bare.machine.breaches(), []);
    assert_eq!(bare.machine.stale_reads(), 0);
}

#[test]
fn an_entry_that_becomes_present_is_seen_at_once() {
    let (mut bare, _) = machine(0, 0);
    assert_eq!(read(&mut bare, 0, PAGE), Err(fault(4, PAGE)));
    let frame = filled(&mut bare, 7);
    bare.map(bare.root, PAGE, frame, TABLE);
    assert_eq!(read(&mut bare, 0, PAGE), Ok(7));
    assert_sound(&bare);
}

#[test]
fn rule_1_a_present_entry_changed_in_place_is_not_seen() {
    let (mut bare, before) = machine(TABLE, 1);
    assert_eq!(read(&mut bare, 0, PAGE), Ok(1));
    let after = filled(&mut bare, 2);
    bare.map(bare.root, PAGE, after, TABLE);
    // Not even after a flush of the vCPU's TLB.
    assert_eq!(read(&mut bare, 1, PAGE), Ok(1));
    assert_stale(&bare, before);
}

#[test]
fn rule_1_an_unmapped_page_stays() {
    let (mut bare, before) = machine(TABLE, 1);
    assert_eq!(read(&mut bare, 0, PAGE), Ok(1));
    bare.store(bare.root, PAGE, 1, 0);
    assert_eq!(read(&mut bare, 1, PAGE), Ok(1));
    assert_stale(&bare, before);
}

#[test]
fn rule_1_a_page_that_lost_its_write_permission_is_written_still() {
    let (mut bare, frame) = machine(TABLE, 1);
    assert_eq!(write(&mut bare, 0, PAGE, 2), Ok(()));
    bare.map(bare.root, PAGE, frame, READ_ONLY);
    assert_eq!(write(&mut bare, 1, PAGE, 3), Ok(()));
    assert_stale(&bare, frame);
}

#[test]
fn rule_1_a_private_copy_is_seen_by_the_write_that_asked_for_it() {
    let (mut bare, shared) = machine(READ_ONLY, 1);
    assert_eq!(read(&mut bare, 0, PAGE), Ok(1));
    assert_eq!(write(&mut bare, 0, PAGE, 2), Err(fault(7, PAGE)));
    let copy = filled(&mut bare, 1);
    bare.map(bare.root, PAGE, copy, TABLE);
    assert_eq!(write(&mut bare, 0, PAGE, 2), Ok(()));
    assert_eq!(read(&mut bare, 0, PAGE), Ok(2));
    assert_eq!([shared, copy].map(|frame| bare.machine.arena().load(frame, EntryIndex::new(0))), [1, 2]);
    assert_sound(&bare);
}

#[test]
fn rule_1_a_private_copy_is_not_seen_by_a_read_that_comes_before_that_write() {
    let (mut bare, shared) = machine(READ_ONLY, 1);
    assert_eq!(read(&mut bare, 0, PAGE), Ok(1));
    assert_eq!(write(&mut bare, 0, PAGE, 2), Err(fault(7, PAGE)));
    let copy = filled(&mut bare, 1);
    bare.map(bare.root, PAGE, copy, TABLE);
    assert_eq!(read(&mut bare, 1, PAGE), Ok(1));
    assert_stale(&bare, shared);
}

#[test]
fn rule_1_a_link_that_gained_its_write_permission_faults_forever() {
    let (mut bare, _) = machine(TABLE, 1);
    let link = bare.entry(PAGE, 3);
    bare.store(bare.root, PAGE, 3, link & !2);
    assert_eq!(read(&mut bare, 0, PAGE), Ok(1));
    assert_eq!(write(&mut bare, 0, PAGE, 2), Err(fault(7, PAGE)));
    bare.store(bare.root, PAGE, 3, link);
    assert!(matches!(write(&mut bare, 0, PAGE, 2), Err(Exit::Violation(Violation::Machine { .. }))));
    assert_eq!(breach(&bare), BreachKind::FaultsForever);
}

#[test]
fn rule_1_a_neighbour_that_was_never_touched_is_remembered_too() {
    let (mut bare, _) = machine(TABLE, 1);
    let before = filled(&mut bare, 2);
    bare.map(bare.root, BESIDE, before, TABLE);
    assert_eq!(read(&mut bare, 0, PAGE), Ok(1));
    let after = filled(&mut bare, 3);
    bare.map(bare.root, BESIDE, after, TABLE);
    assert_eq!(read(&mut bare, 1, BESIDE), Ok(2));
    assert_stale(&bare, before);
}

#[test]
fn rule_1_leaves_that_were_reached_through_a_read_only_link_are_remembered_apart() {
    let (mut bare, shared) = machine(READ_ONLY, 1);
    // A second space reaches the same tables without write permission.
    let (first, link) = (bare.root, bare.entry(PAGE, 4));
    let second = bare.fresh_root();
    bare.machine.arena().store(second, EntryIndex::of(PAGE, 4), link & !2);
    bare.root = second;
    assert_eq!(read(&mut bare, 0, PAGE), Ok(1));
    // The first gets a private copy, which it sees...
    bare.root = first;
    assert_eq!(write(&mut bare, 0, PAGE, 2), Err(fault(7, PAGE)));
    let copy = filled(&mut bare, 1);
    bare.map(bare.root, PAGE, copy, TABLE);
    assert_eq!((write(&mut bare, 0, PAGE, 2), read(&mut bare, 0, PAGE)), (Ok(()), Ok(2)));
    assert_sound(&bare);
    // ... and a space that reaches the table through the other link, such as a fresh clone, does not.
    bare.root = second;
    assert_eq!(read(&mut bare, 1, PAGE), Ok(1));
    assert_stale(&bare, shared);
}

#[test]
fn rule_2_a_fresh_path_is_seen() {
    let (mut bare, _) = machine(TABLE, 1);
    assert_eq!(read(&mut bare, 0, PAGE), Ok(1));
    let after = filled(&mut bare, 2);
    bare.root = bare.fresh_root();
    bare.map(bare.root, PAGE, after, TABLE);
    assert_eq!(read(&mut bare, 0, PAGE), Ok(2));
    assert_sound(&bare);
}

#[test]
fn rule_2_a_table_replaced_in_place_is_used_still() {
    for level in 2..=4 {
        let (mut bare, before) = machine(TABLE, 1);
        assert_eq!(read(&mut bare, 0, PAGE), Ok(1));
        bare.store(bare.root, PAGE, level, 0);
        let after = filled(&mut bare, 2);
        bare.map(bare.root, PAGE, after, TABLE);
        assert_eq!(read(&mut bare, 1, PAGE), Ok(1), "level {level}");
        assert_stale(&bare, before);
    }
}

#[test]
fn rule_2_a_fault_puts_the_new_leaf_under_the_stale_link() {
    let (mut bare, before) = machine(READ_ONLY, 1);
    assert_eq!(read(&mut bare, 0, PAGE), Ok(1));
    let old_table = bare.table(bare.root, PAGE, 1);
    let unlinked = bare.entry(PAGE, 3);
    bare.store(bare.root, PAGE, 3, 0);
    let after = filled(&mut bare, 2);
    bare.map(bare.root, PAGE, after, TABLE);
    assert_eq!(write(&mut bare, 1, PAGE, 3), Ok(()));
    assert_sound(&bare);
    // A space that still uses the old tables now sees a foreign page, and may write it.
    let other = bare.fresh_root();
    let above = bare.table(other, PAGE, 3);
    bare.machine.arena().store(above, EntryIndex::of(PAGE, 3), unlinked);
    bare.root = other;
    assert_eq!(bare.machine.arena().load(old_table, EntryIndex::of(PAGE, 1)), before.address() | READ_ONLY);
    assert_eq!(read(&mut bare, 0, PAGE), Ok(3));
    assert_stale(&bare, after);
}

#[test]
fn rule_2_a_large_page_split_in_place_stays_large() {
    let (mut bare, _) = machine(TABLE, 1);
    let large = PAGE + 0x20_0000;
    bare.map_large(bare.root, large, HugeFrame(5), READ_ONLY);
    assert_eq!(read(&mut bare, 0, large), Ok(0));
    bare.store(bare.root, large, 2, 0);
    let part = filled(&mut bare, 2);
    bare.map(bare.root, large, part, TABLE);
    assert!(matches!(write(&mut bare, 1, large, 3), Err(Exit::Violation(Violation::Machine { .. }))));
    assert_eq!(breach(&bare), BreachKind::FaultsForever);
    assert_eq!(read(&mut bare, 2, large), Ok(0));
    assert_eq!(bare.machine.stale_reads(), 1);
}

#[test]
fn rule_3_a_table_that_is_reused_shows_its_old_entries_until_a_flush() {
    for flush in [false, true] {
        let (mut bare, before) = machine(TABLE, 1);
        assert_eq!(read(&mut bare, 0, PAGE), Ok(1));
        let retired = bare.table(bare.root, PAGE, 1);
        if flush {
            bare.machine.flush_tables().expect("nothing can fail");
        }
        let after = filled(&mut bare, 2);
        bare.root = bare.fresh_root();
        bare.store(bare.root, PAGE, 2, retired.address() | TABLE);
        bare.map(bare.root, PAGE, after, TABLE);
        if flush {
            assert_eq!(read(&mut bare, 0, PAGE), Ok(2));
            assert_sound(&bare);
        } else {
            assert_eq!(read(&mut bare, 0, PAGE), Ok(1));
            assert_stale(&bare, before);
        }
    }
}

#[test]
fn rule_3_a_frame_that_was_only_data_becomes_a_table_at_once() {
    let (mut bare, frame) = machine(TABLE, 1);
    assert_eq!(read(&mut bare, 0, PAGE), Ok(1));
    let after = filled(&mut bare, 2);
    bare.machine.arena().zero(frame, 1);
    bare.root = bare.fresh_root();
    bare.store(bare.root, PAGE, 2, frame.address() | TABLE);
    bare.map(bare.root, PAGE, after, TABLE);
    assert_eq!(read(&mut bare, 0, PAGE), Ok(2));
    assert_sound(&bare);
}

#[test]
fn rule_3_a_flush_takes_nothing_out_of_a_vcpu() {
    let (mut bare, before) = machine(TABLE, 1);
    assert_eq!(read(&mut bare, 0, PAGE), Ok(1));
    bare.store(bare.root, PAGE, 1, 0);
    bare.machine.flush_tables().expect("nothing can fail");
    assert_eq!(read(&mut bare, 0, PAGE), Ok(1));
    assert_stale(&bare, before);
    assert_eq!(read(&mut bare, 1, PAGE), Err(fault(4, PAGE)));
}

#[test]
fn rule_6_a_copy_made_elsewhere_is_seen_with_a_new_stamp_only() {
    for stamp in [0, 1] {
        let (mut bare, shared) = machine(READ_ONLY, 1);
        let mut other = bare.machine.take_vcpu(1).expect("the vCPU is free");
        let at = |stamp| Root { table: bare.root, stamp };
        let (here, there) = (at(0), at(stamp));
        let machine = bare.machine.clone();
        assert_eq!(access(&*machine, &mut *other, here, CODE, PAGE, 0), Ok(1));
        // The cell moves to the first vCPU, writes there, and comes back.
        assert_eq!(write(&mut bare, 0, PAGE, 2), Err(fault(7, PAGE)));
        let copy = filled(&mut bare, 1);
        bare.map(bare.root, PAGE, copy, TABLE);
        assert_eq!(write(&mut bare, 0, PAGE, 2), Ok(()));
        let seen = access(&*machine, &mut *other, there, CODE, PAGE, 0);
        if stamp == 0 {
            assert_eq!(seen, Ok(1));
            assert_stale(&bare, shared);
        } else {
            assert_eq!(seen, Ok(2));
            assert_sound(&bare);
        }
    }
}

#[test]
fn rule_6_a_fault_that_the_tables_say_cannot_happen_passes_when_retried() {
    let (mut bare, frame) = machine(READ_ONLY, 1);
    assert_eq!(read(&mut bare, 0, PAGE), Ok(1));
    bare.map(bare.root, PAGE, frame, TABLE);
    assert_eq!(write(&mut bare, 0, PAGE, 2), Err(fault(7, PAGE)));
    assert_eq!(write(&mut bare, 0, PAGE, 2), Ok(()));
    assert_sound(&bare);
}

#[test]
fn rule_7_an_entry_that_points_outside_the_arena_ends_the_cell() {
    for level in 1..=3 {
        let (mut bare, _) = machine(0, 0);
        let entry = 1 << 45 | TABLE;
        bare.store(bare.root, PAGE, level, entry);
        assert_eq!(read(&mut bare, 0, PAGE), Err(Exit::Violation(Violation::OutsideMemory)), "level {level}");
        assert_eq!(breach(&bare), BreachKind::OutsideArena { entry });
    }
}
