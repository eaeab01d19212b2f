// SPDX-License-Identifier: MIT OR Apache-2.0
//! Canaries of the page-table discipline: with one rule left out, the property must fail on a machine that can show it.
//!
//! The software machine shows all of them. KVM shows rules 1 to 3 where it keeps copies of the tables (shadow paging), and 4 and 5
//! everywhere. Rule 6, in the kernel (`WITHOUT_STAMPS`) as in the machine (`Omit::STAMP`), is about translations that a TLB keeps
//! from one entry to the next. Nested KVM, QEMU and Bochs drop them at every entry and show nothing in hundreds of thousands of
//! operations; hardware with VPIDs may keep them.

use crate::{driver, kvm, sim};
use pando_abi::{MapFlags, Permissions, SpaceIndex};
use pando_kernel::memory::{CopyAuthority, Frames, OmittedRules, SpaceSet};
use pando_machine::kvm::{Kvm, KvmConfig, Omit, Probe, Virtualization};
use pando_machine::sim::{BreachKind, Sim, SimConfig};
use pando_machine::{Context, EntryIndex, Exit, FrameId, Machine, PageCount, Violation};
use pando_testing::asm::Asm;
use pando_testing::asm::Register::{Rax, Rbx};
use pando_testing::lab::{CODE, DATA, Lab, is_kvm_available};
use std::sync::Arc;
use std::time::Duration;

/// Number of seeds, and operations with each. The rule that is hardest to show fails within 50,000.
const SEEDS: u64 = 8;
const OPERATIONS: u64 = 100_000;
const OPERATIONS_ON_KVM: u64 = 5_000;

/// Asserts that the property fails on some seed.
fn must_fail(operations: u64, lab: impl Fn(u64) -> Lab) {
    let failure = (1..=SEEDS).find_map(|seed| driver::run(lab(seed), seed, operations).err());
    let failure = failure.expect("nobody noticed that the rule was left out");
    println!("{}", failure.lines().next().unwrap_or_default());
}

fn must_fail_on_sim(rules: OmittedRules) {
    must_fail(OPERATIONS, |seed| sim(seed, rules));
}

fn must_fail_on_kvm(rules: OmittedRules) {
    if is_kvm_available() {
        must_fail(OPERATIONS_ON_KVM, |_| kvm(rules, Omit::NOTHING));
    }
}

/// Whether this host's KVM copies the tables of cells. Prints a note if it does not.
fn kvm_shadows() -> bool {
    let shadows = is_kvm_available() && Probe::host().is_ok_and(|probe| probe.virtualization == Virtualization::Software);
    if !shadows {
        println!("left out: this test needs a KVM that copies page tables");
    }
    shadows
}

#[test]
fn canary_rule_1_changes_beyond_the_list_on_sim() {
    must_fail_on_sim(OmittedRules::WITHOUT_IN_PLACE_LIMITS);
}

#[test]
fn canary_rule_1_changes_beyond_the_list_on_kvm() {
    if kvm_shadows() {
        must_fail_on_kvm(OmittedRules::WITHOUT_IN_PLACE_LIMITS);
    }
}

#[test]
fn canary_rule_1_copies_that_nobody_confirmed_on_sim() {
    must_fail_on_sim(OmittedRules::WITHOUT_CONFIRMATION);
}

#[test]
fn canary_rule_2_no_fresh_paths_on_sim() {
    must_fail_on_sim(OmittedRules::WITHOUT_FRESH_PATHS);
}

#[test]
fn canary_rule_2_no_fresh_paths_on_kvm() {
    if kvm_shadows() {
        must_fail_on_kvm(OmittedRules::WITHOUT_FRESH_PATHS);
    }
}

#[test]
fn canary_rule_2_tables_fresh_beyond_an_entry_on_sim() {
    must_fail_on_sim(OmittedRules::WITHOUT_ENTRIES);
}

#[test]
fn canary_rule_2_tables_fresh_beyond_an_entry_on_kvm() {
    if kvm_shadows() {
        must_fail_on_kvm(OmittedRules::WITHOUT_ENTRIES);
    }
}

#[test]
fn canary_rule_3_no_quarantine_on_sim() {
    must_fail_on_sim(OmittedRules::WITHOUT_QUARANTINE);
}

#[test]
fn canary_rule_3_no_quarantine_on_kvm() {
    if kvm_shadows() {
        must_fail_on_kvm(OmittedRules::WITHOUT_QUARANTINE);
    }
}

#[test]
fn canary_rule_4_no_new_root_on_sim() {
    must_fail_on_sim(OmittedRules::WITHOUT_NEW_ROOT);
}

#[test]
fn canary_rule_4_no_new_root_on_kvm() {
    must_fail_on_kvm(OmittedRules::WITHOUT_NEW_ROOT);
}

#[test]
fn canary_rule_5_writes_into_shared_pages_on_sim() {
    must_fail_on_sim(OmittedRules::WITHOUT_UNSHARE);
}

#[test]
fn canary_rule_5_writes_into_shared_pages_on_kvm() {
    must_fail_on_kvm(OmittedRules::WITHOUT_UNSHARE);
}

#[test]
fn canary_rule_6_no_stamps_on_sim() {
    must_fail_on_sim(OmittedRules::WITHOUT_STAMPS);
}

/// Rule 7 has no switch: every entry is made from a frame's number and stored by [`pando_machine::Arena::store`], one atomic word;
/// there is no other code to fall back to. So the test itself stores an entry that points outside.
fn read_through_an_entry_that_points_outside(machine: &Arc<dyn Machine>) -> Exit {
    let mut frames = Frames::new(Arc::clone(machine), OmittedRules::NONE, PageCount(0));
    let account = frames.open_account(PageCount(100), None);
    let mut memory = SpaceSet::new(&mut frames, account);
    let code = {
        let mut asm = Asm::new();
        asm.mov_imm(Rbx, DATA).load(Rax, Rbx, 0);
        asm.finish()
    };
    for (address, permissions) in [(CODE, Permissions::READ_EXECUTE), (DATA, Permissions::READ_WRITE)] {
        let range = memory.check(SpaceIndex(0), address, 1).expect("a range");
        memory.map(&mut frames, &range, MapFlags::lazy(permissions)).expect("room for tables");
        memory.write(&mut frames, address, &code, CopyAuthority::Operator).expect("room for a page");
    }
    let root = memory.root(&mut frames).expect("room for a root");
    let arena = frames.arena();
    let below = |table: FrameId, level: u8| FrameId::at(arena.load(table, EntryIndex::of(DATA, level)) & !0xfff).expect("a table");
    let last = below(below(below(root.table, 4), 3), 2);
    let inside = arena.load(last, EntryIndex::of(DATA, 1));
    let flags = inside & 0x8000_0000_0000_0fff;
    arena.store(last, EntryIndex::of(DATA, 1), flags | FrameId(arena.frames()).address());
    let mut vcpu = machine.take_vcpu(0).expect("a vCPU");
    vcpu.run(root, &mut Context::at(CODE), machine.now() + Duration::from_secs(1))
}

#[test]
fn canary_rule_7_an_entry_outside_the_arena_on_sim() {
    let sim = Sim::new(SimConfig { oracle: true, ..SimConfig::default() }).expect("memory for the software machine");
    let machine: Arc<dyn Machine> = Arc::clone(&sim) as Arc<dyn Machine>;
    assert_eq!(read_through_an_entry_that_points_outside(&machine), Exit::Violation(Violation::OutsideMemory));
    assert!(matches!(sim.breaches()[..], [breach] if matches!(breach.kind, BreachKind::OutsideArena { .. })));
}

#[test]
fn canary_rule_7_an_entry_outside_the_arena_on_kvm() {
    if !is_kvm_available() {
        return;
    }
    let config = KvmConfig { arena: PageCount(1 << 12), vcpus: 1, omit: Omit::NOTHING };
    let machine: Arc<dyn Machine> = Kvm::new(config).expect("KVM is there");
    assert_eq!(read_through_an_entry_that_points_outside(&machine), Exit::Violation(Violation::OutsideMemory));
}
