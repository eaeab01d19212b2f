// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cells that make the hypercalls that a test tells them to make.

use pando_abi::hypercall::TABLE;
use pando_abi::layout::VIRTUAL_REGISTERS;
use pando_abi::virtual_registers::Control;
use pando_abi::{Event, HoldingName, Hypercall, Refusal};
use pando_kernel::{CellId, RunState};
use pando_machine::PageCount;
use pando_testing::asm::Asm;
use pando_testing::asm::Condition::Zero;
use pando_testing::asm::Register::{self, R14, R15, Rax, Rbx};
use pando_testing::lab::{CODE, DATA, Lab};
use pando_testing::virtual_registers::{application, set_control, words};

/// Where an actor finds the record of its next call, then a word that is not 0 while the call is to be made, then the result.
const RECORD: u64 = DATA;
const IS_DUE: i32 = 48;
const RESULT: i32 = 56;
/// Memory of an actor for the bytes of its calls.
pub const BYTES: u64 = DATA + 0x1000;
/// The quota of actors unless a test sets another.
pub const QUOTA: PageCount = PageCount(500);

/// The code of an actor: makes a call when there is one, and waits.
fn code() -> Vec<u8> {
    let mut asm = Asm::new();
    let again = asm.here();
    let wait = asm.label();
    asm.mov_imm(Rbx, VIRTUAL_REGISTERS).store_imm(Rbx, 0, 0).mov_imm(R14, RECORD);
    asm.load(R15, R14, IS_DUE).cmp_imm(R15, 0).jump_if(Zero, wait).store_imm(R14, IS_DUE, 0);
    for (index, register) in [Rax].into_iter().chain(Register::ARGUMENTS).enumerate() {
        asm.load(register, R14, index as i32 * 8);
    }
    asm.hypercall().mov_imm(R14, RECORD).store(R14, RESULT, Rax).jmp(again);
    asm.bind(wait).call_kernel(Hypercall::Idle { deadline: u64::MAX }).jmp(again);
    asm.finish()
}

/// A template of actors: not started.
pub fn template(lab: &Lab) -> CellId {
    let id = lab.cell_with(&code(), QUOTA);
    // The record's page and that of the bytes are present, so that their clones fault on them only to write.
    lab.kernel.write(id, RECORD, &[0; 64]).expect("the data is mapped");
    lab.kernel.write(id, BYTES, &[0; 64]).expect("the data is mapped");
    // Its own code runs, and nothing is masked.
    set_control(lab, id, &Control { level: 1, critical: 1, ..application() });
    id
}

/// A started actor that may have `cells` descendants, cloned from `template`, as the operator makes it.
pub fn start(lab: &mut Lab, template: CellId, quota: PageCount, cells: u32) -> CellId {
    let id = lab.kernel.clone_cell(template, quota).expect("room for an actor");
    assert_eq!(lab.kernel.allow_children(id, cells, template), Ok(HoldingName::ROOT));
    lab.kernel.start(id).expect("it was not started");
    lab.run_all();
    id
}

/// Lets an actor make a call, runs all cells until they wait, and returns the result.
///
/// # Errors
/// The refusal.
pub fn call(lab: &mut Lab, actor: CellId, call: Hypercall) -> Result<u64, Refusal> {
    ask(lab, actor, call);
    lab.run_all();
    result(lab, actor)
}

/// Lets an actor make a call beside cells that never wait, and returns the result.
///
/// # Errors
/// The refusal.
pub fn call_beside(lab: &mut Lab, actor: CellId, call: Hypercall) -> Result<u64, Refusal> {
    ask(lab, actor, call);
    while !waits(lab, actor) {
        assert!(lab.turn(0), "the actor waits for ever");
    }
    result(lab, actor)
}

/// Lets an actor make a call as soon as it runs.
pub fn ask(lab: &Lab, actor: CellId, call: Hypercall) {
    let record = call.record().into_iter().chain([1, 0]).flat_map(u64::to_le_bytes).collect::<Vec<u8>>();
    lab.kernel.write(actor, RECORD, &record).expect("an actor waits");
    lab.kernel.raise(actor, Event::Console);
}

/// The result of an actor's last call.
///
/// # Errors
/// The refusal.
pub fn result(lab: &Lab, actor: CellId) -> Result<u64, Refusal> {
    let [result] = words(lab, actor, RECORD + RESULT as u64);
    Refusal::from_result(result)
}

/// Lets an actor clone its root, and returns the child and the actor's name for it.
///
/// # Errors
/// The refusal.
pub fn clone_root(lab: &mut Lab, actor: CellId, quota: PageCount, cells: u32) -> Result<(HoldingName, CellId), Refusal> {
    let source = HoldingName::ROOT.bits();
    let name = call(lab, actor, Hypercall::CellClone { source, quota: quota.0, cells: cells.into() })?;
    let children = lab.kernel.children(actor).expect("it lives");
    let child = children.into_iter().find(|(held, _)| held.bits() == name);
    Ok(child.expect("the name is that of a child"))
}

/// Lets an actor clone its root and start the clone, which gets a holding of the root as well.
///
/// # Errors
/// The first refusal.
pub fn start_child(lab: &mut Lab, actor: CellId, quota: PageCount, cells: u32) -> Result<(HoldingName, CellId), Refusal> {
    let (name, child) = clone_root(lab, actor, quota, cells)?;
    let granted = call(lab, actor, Hypercall::Grant { cell: name.bits(), holding: HoldingName::ROOT.bits(), label: 0 })?;
    assert_eq!(granted, HoldingName::ROOT.bits());
    assert_eq!(call(lab, actor, Hypercall::CellRun { cell: name.bits() })?, 0);
    Ok((name, child))
}

/// A cell that computes for ever, not started.
pub fn spinner(lab: &Lab) -> CellId {
    let mut asm = Asm::new();
    let again = asm.here();
    asm.jmp(again);
    lab.cell(&asm.finish())
}

/// Whether a cell waits for its next call.
pub fn waits(lab: &Lab, id: CellId) -> bool {
    lab.kernel.inspect(id).is_ok_and(|(state, ..)| matches!(state, RunState::Idle { .. }))
}

/// Ends the cells of the operator, lets their families end, and checks that every frame is free.
pub fn close(lab: &mut Lab, ends: &[CellId], free: PageCount) {
    for id in ends {
        let _ = lab.kernel.end(*id, pando_kernel::End::Killed);
        let _ = lab.kernel.collect(*id);
    }
    lab.run_all();
    assert_eq!(lab.kernel.cells(), 0, "cells are left");
    lab.kernel.free_unused_frames();
    assert_eq!(lab.kernel.free(), free, "frames are missing");
}

/// The address of the code, which a child may be told to lose.
pub const ACTOR_CODE: u64 = CODE;

/// The numbers of all calls about held cells: the last ones of the table.
pub const EVERY_CALL: std::ops::RangeInclusive<u64> = 22..=TABLE[TABLE.len() - 1].number;
