// SPDX-License-Identifier: MIT OR Apache-2.0
//! The program in a test's cell: it executes the commands in its command page, and records the results there.
//!
//! Reads, writes and fetches are done by the cell's own CPU, so they use the machine's cached translations. A fault is handled by
//! the program's own handler and recorded as the command's result. A write may be interrupted by the timer, at any point from
//! before it to after it; the handler then reads the page and writes again. Program and commands lie in the system segment, so they
//! are mapped in every space of the cell.

use pando_abi::layout::{ARGUMENTS, LIBOS, VIRTUAL_REGISTERS};
use pando_abi::virtual_registers::{Control, offset};
use pando_abi::{Hypercall, PAGE_SIZE, SavedContext};
use pando_machine::Nanos;
use pando_testing::asm::Register::{R12, R13, R14, R15, Rax, Rdi, Rsi, Rsp};
use pando_testing::asm::{Asm, Condition, Label, Register};
use pando_testing::model::Disk;
use std::mem::offset_of;

/// Address of the program.
pub(crate) const PROGRAM: u64 = LIBOS;
/// Address of the commands: one page, ended by a command of kind [`STOP`].
pub(crate) const COMMANDS: u64 = ARGUMENTS;
/// Maximum number of commands.
pub(crate) const MAX_COMMANDS: usize = PAGE_SIZE as usize / SIZE - 1;
/// Bytes of a command.
pub(crate) const SIZE: usize = 64;

/// Offset of a command's result: a value, or the vector of an exception.
const RESULT: i32 = 48;
/// Offset of a command's outcome: [`DONE`], or the address that faulted.
const OUTCOME: i32 = 56;
/// The command was executed. No faulting address has this value.
const DONE: u64 = 1;

const STOP: u64 = 0;
const LOAD: u64 = 1;
const STORE: u64 = 2;
const FETCH: u64 = 3;
/// Kinds from here on are hypercalls, by number.
const CALLS: u64 = 4;

/// A command to the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GuestCommand {
    /// Read a word.
    Load(u64),
    /// Write a word.
    Store(u64, u64),
    /// Write a word, while the timer is set to a time.
    StoreTimed(u64, u64, Nanos),
    /// Execute the word, which must be one of [`value`]'s if the CPU can fetch it.
    Fetch(u64),
    /// Make a hypercall.
    Call(Hypercall),
}

/// The result of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// A value.
    Value(u64),
    /// A page fault at this address.
    Fault(u64),
}

/// A word to store that is different for each number, and executable: `jmp r14` followed by the number.
pub(crate) const fn value(number: u64) -> u64 {
    number << 24 | 0xe6_ff41
}

/// The disk of all cells: larger than a slot, with some unreadable blocks.
pub(crate) const DISK: Disk = Disk { blocks: 1 << 28, words };

/// The words of the disk's blocks: also executable, and different from all stored words.
pub(crate) fn words(number: u32) -> Option<[u64; 2]> {
    let lost = number % 101 == 13;
    (!lost).then(|| [0, 1].map(|position| value(1 << 38 | u64::from(number) << 1 | position)))
}

/// Encodes the command page.
pub(crate) fn encode(commands: &[GuestCommand]) -> Vec<u8> {
    let mut words = Vec::with_capacity((commands.len() + 1) * SIZE / 8);
    for command in commands {
        let (kind, arguments) = match *command {
            GuestCommand::Load(address) => (LOAD, [address, 0, 0, 0, 0]),
            GuestCommand::Store(address, value) => (STORE, [address, value, 0, 0, 0]),
            GuestCommand::StoreTimed(address, value, timer) => (STORE, [address, value, timer.0, 0, 0]),
            GuestCommand::Fetch(address) => (FETCH, [address, 0, 0, 0, 0]),
            GuestCommand::Call(call) => {
                let (number, arguments) = call.encode();
                (CALLS + number, arguments)
            }
        };
        words.push(kind);
        words.extend(arguments);
        words.extend([0, 0]);
    }
    words.push(STOP);
    words.into_iter().flat_map(u64::to_le_bytes).collect()
}

/// The recorded result of command `index`. `None`: it was not executed, or another exception than a page fault occurred.
pub(crate) fn reply(page: &[u8], index: usize) -> Option<Reply> {
    let word = |offset: i32| {
        let at = index * SIZE + offset as usize;
        u64::from_le_bytes(page[at..at + 8].try_into().expect("eight bytes"))
    };
    match (word(RESULT), word(OUTCOME)) {
        (_, 0) => None,
        (result, DONE) => Some(Reply::Value(result)),
        (14, address) => Some(Reply::Fault(address)),
        _ => None,
    }
}

/// The program's bytes.
pub(crate) fn program() -> Vec<u8> {
    let mut asm = Asm::new();
    let [start, record, done, next, load, store, fetch, idle] = std::array::from_fn(|_| asm.label());
    asm.jmp(start);
    // Exceptions: the stack pointer of an upcall is set to lead to the saved context.
    let exception = PROGRAM + asm.offset() as u64;
    asm.load(Rax, Rsp, 0).store(R12, RESULT, Rax).load(Rax, Rsp, 16).store(R12, OUTCOME, Rax);
    disarm(&mut asm).jmp(done);
    // Fetched words jump here.
    let back = PROGRAM + asm.offset() as u64;
    asm.mov_imm(Rax, 0);
    asm.bind(record).store(R12, RESULT, Rax).store_imm(R12, OUTCOME, DONE as i32);
    asm.bind(done).add_imm(R12, SIZE as i32);
    asm.bind(next).load(R13, R12, 0);
    for (kind, label) in [(STOP, idle), (LOAD, load), (STORE, store), (FETCH, fetch)] {
        asm.cmp_imm(R13, kind as i32).jump_if(Condition::Zero, label);
    }
    for (position, register) in Register::ARGUMENTS.into_iter().enumerate() {
        asm.load(register, R12, 8 + 8 * position as i32);
    }
    asm.mov(Rax, R13).sub_imm(Rax, CALLS as i32).hypercall().jmp(record);
    asm.bind(load).load(Rsi, R12, 8).load(Rax, Rsi, 0).jmp(record);
    asm.bind(fetch).load(Rsi, R12, 8).mov_imm(R14, back).jmp_to(Rsi);
    let event = emit_store(&mut asm, store, record);
    asm.bind(start).mov_imm(R15, VIRTUAL_REGISTERS);
    let saves = [0, 1].map(|level| VIRTUAL_REGISTERS + (offset::SAVES + level * SavedContext::WORDS * 8) as u64);
    let entries = [(offset_of!(Control, exception_entry), exception), (offset_of!(Control, event_entry), event)];
    let stacks = [(offset_of!(Control, stacks), saves[0]), (offset_of!(Control, stacks) + 8, saves[1])];
    for (control, value) in entries.into_iter().chain(stacks) {
        asm.mov_imm(Rax, value).store(R15, control as i32, Rax);
    }
    asm.bind(idle).store_imm(R15, offset::PENDING as i32, 0).mov_imm(Rdi, u64::MAX).mov_imm(Rax, 1).hypercall();
    asm.mov_imm(R12, COMMANDS).jmp(next);
    asm.finish()
}

/// Emits the code that writes a word, with or without the timer. Returns the entry of events.
fn emit_store(asm: &mut Asm, store: Label, record: Label) -> u64 {
    let plain = asm.label();
    asm.bind(store).load(Rsi, R12, 8).load(Rax, R12, 16).load(Rdi, R12, 24).test(Rdi, Rdi).jump_if(Condition::Zero, plain);
    asm.store(R15, offset::TIMER as i32, Rdi);
    asm.store_imm(R15, offset::CRITICAL as i32, 0).store_imm(R15, offset::LEVEL as i32, 0);
    asm.store(Rsi, 0, Rax);
    disarm(asm).jmp(record);
    let event = PROGRAM + asm.offset() as u64;
    asm.load(Rax, Rsi, 0).load(Rax, R12, 16);
    disarm(asm);
    asm.bind(plain).store(Rsi, 0, Rax).jmp(record);
    event
}

/// Returns to the level at which no event interrupts.
fn disarm(asm: &mut Asm) -> &mut Asm {
    asm.store_imm(R15, offset::LEVEL as i32, 1).store_imm(R15, offset::CRITICAL as i32, 1).store_imm(R15, offset::TIMER as i32, -1)
}
