// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cells built word by word: tests write their virtual registers and read them.

use crate::lab::{CODE, DATA, Lab};
use pando_abi::layout::VIRTUAL_REGISTERS;
use pando_abi::virtual_registers::{Control, offset};
use pando_abi::{Hypercall, SavedContext};
use pando_kernel::CellId;

/// Offset of the exception handler in the code.
pub const EXCEPTION_ENTRY: usize = 0x100;
/// Offset of the event handler in the code.
pub const EVENT_ENTRY: usize = 0x200;
/// Stack pointers of the two levels.
pub const STACKS: [u64; 2] = [DATA + 0x8000, DATA + 0x9000];

/// The call that ends a cell.
pub const fn exit(status: u64) -> Hypercall {
    Hypercall::Exit { status, signal: 0, address: 0, instruction: 0 }
}

/// Control words of an application (level 0, nothing critical) whose libOS handles everything.
pub fn application() -> Control {
    Control {
        exception_entry: CODE + EXCEPTION_ENTRY as u64,
        event_entry: CODE + EVENT_ENTRY as u64,
        stacks: STACKS,
        timer: u64::MAX,
        ..Control::default()
    }
}

/// `code` with the handlers at their offsets.
pub fn with_handlers(code: &[u8], exceptions: &[u8], events: &[u8]) -> Vec<u8> {
    assert!(code.len() <= EXCEPTION_ENTRY && exceptions.len() <= EVENT_ENTRY - EXCEPTION_ENTRY);
    let mut all = code.to_vec();
    all.resize(EXCEPTION_ENTRY, 0x90);
    all.extend(exceptions);
    all.resize(EVENT_ENTRY, 0x90);
    all.extend(events);
    all
}

/// Writes a cell's control words.
pub fn set_control(lab: &Lab, id: CellId, control: &Control) {
    let Control { pending, mask, critical, level, exit_path_start, exit_path_end, exception_entry, event_entry, stacks, timer } = *control;
    let words = [pending, mask, critical, level, exit_path_start, exit_path_end, exception_entry, event_entry, stacks[0], stacks[1], timer];
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    lab.kernel.write(id, VIRTUAL_REGISTERS, &bytes).expect("the virtual registers are mapped");
}

/// Reads `N` words of a cell's memory.
pub fn words<const N: usize>(lab: &Lab, id: CellId, address: u64) -> [u64; N] {
    let mut bytes = vec![0; N * 8];
    lab.kernel.read(id, address, &mut bytes).expect("the words are mapped");
    std::array::from_fn(|index| u64::from_le_bytes(bytes[index * 8..][..8].try_into().expect("eight bytes")))
}

/// A cell's control words.
pub fn control(lab: &Lab, id: CellId) -> Control {
    Control::from_words(words(lab, id, VIRTUAL_REGISTERS))
}

/// The context saved at a level.
pub fn saved(lab: &Lab, id: CellId, level: usize) -> SavedContext {
    let place = VIRTUAL_REGISTERS + (offset::SAVES + level * SavedContext::WORDS * 8) as u64;
    SavedContext::from_words(words(lab, id, place))
}
